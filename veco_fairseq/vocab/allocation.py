# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Chooses one of each language's vocabularies (VoCap, equations 2 and 3, algorithm 1)."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from veco_fairseq.errors import UserError
from veco_fairseq.vocab.sizes import META, Vocabularies


@dataclass
class Allocation:
    """The choice of :func:`allocate`.

    Attributes:
        sizes: t_i by language.
        pieces: the union of the languages' vocabularies, at most the requested number.
        clipped: the number of pieces in the last step for which there was no room.
    """

    sizes: dict[str, int]
    pieces: set[str]
    clipped: int


def sampling_probabilities(vocabularies: dict[str, Vocabularies], alpha: float) -> dict[str, float]:
    """Return q_i by language, from its number of instances n_i (equation 3)."""
    smoothed = np.array([of.instances for of in vocabularies.values()], dtype=np.float64) ** alpha
    return dict(zip(vocabularies, (smoothed / smoothed.sum()).tolist()))


def allocate(vocabularies: dict[str, Vocabularies], total: int, alpha: float, beta: float) -> Allocation:
    """Give the next larger vocabulary to the language that gains the most, until the union has ``total`` pieces.

    The gain is q_i^beta (ALP(D_i, V_larger) - ALP(D_i, V)), as in equation 2; algorithm 1 as printed lacks q_i^beta. Every
    language's first vocabulary gains infinitely, since ALP(D_i, {}) is minus infinity. ALP gains less with every step, so
    the greedy choice is the best one. If the last step exceeds ``total``, the least probable of its pieces that no other
    language has are left out.

    Args:
        vocabularies: by language.
        total: the pieces of the union: T without SentencePiece's three symbols.
        alpha, beta: exponents of the instances and of q.

    Raises:
        UserError: the languages' smallest vocabularies already have more pieces.
    """
    probabilities = sampling_probabilities(vocabularies, alpha)
    gain = {name: np.diff(of.alp, prepend=-np.inf) for name, of in vocabularies.items()}  # of each over the one before
    places = dict.fromkeys(vocabularies, -1)  # in the languages' sizes
    holders: Counter[str] = Counter()  # how many languages' vocabularies have the piece
    old: dict[str, float] = {}
    new: dict[str, float] = {}
    while len(holders) < total:
        gains = {
            name: probabilities[name] ** beta * gain[name][places[name] + 1]
            for name, of in vocabularies.items()
            if places[name] + 1 < len(of.sizes)
        }
        if not gains:
            break
        chosen = max(gains, key=gains.__getitem__)
        of, place = vocabularies[chosen], places[chosen]
        old, new = (of.of_size(of.sizes[place]) if place >= 0 else {}), of.of_size(of.sizes[place + 1])
        places[chosen] = place + 1
        holders.update(new.keys() - old.keys())
        for piece in old.keys() - new.keys():
            holders[piece] -= 1
            if not holders[piece]:
                del holders[piece]
    # Single characters always stay, or a text would have an unknown one.
    own = [piece for piece in new if piece not in old and holders[piece] == 1 and len(piece) > 1]
    surplus = sorted(own, key=lambda piece: (new[piece], piece))[: max(0, len(holders) - total)]
    pieces = holders.keys() - set(surplus)
    begun = sum(place >= 0 for place in places.values())
    if begun < len(places) or len(pieces) > total:
        raise UserError(
            f"--size {total + META:,}: is too small: the smallest vocabularies of {begun} of {len(places)} languages already "
            f"have {len(holders) + META:,} pieces: raise it, or lower --step or --character-coverage"
        )
    sizes = {name: vocabularies[name].sizes[place] for name, place in places.items()}
    return Allocation(sizes, pieces, len(surplus))
