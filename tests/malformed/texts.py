def cases(rng, good):
    return iter(())
