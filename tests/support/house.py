# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The floors of the package, from the top one down.

A module imports from its own floor and from those below; a room is a folder or a module.
"""

FLOORS = (
    ("__main__",),
    ("commands", "kills"),
    ("benchmarks",),
    ("cost", "alignment", "retrieval"),
    ("inference",),
    ("plugin",),
    ("tasks",),
    ("criterions",),
    ("understanding",),
    ("compat",),
    ("models", "checkpoints", "vocab"),
    ("modules", "optim"),
    ("data",),
    ("options", "manifest", "named", "parallel", "curves", "plots", "tables"),
    ("arguments",),
    ("cli",),
    ("files", "lock"),
    ("errors", "help_texts", "signals", "__init__"),
)
