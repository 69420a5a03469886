#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Print what pip is to install for the lowest or the newest versions of all that setup.py asks for, a line each.

With "lowest" these are the lower bounds, exactly, of what has one; with "newest" all whose version is not fixed.
"""

import argparse
from collections.abc import Iterable, Iterator
from importlib.metadata import requires

from packaging.requirements import Requirement


def requirements(asked: Iterable[str], which: str) -> Iterator[str]:
    """What pip is to install.

    Args:
        asked: the distribution's requirements, such as ``torch>=2.6``; those of its extras are passed over.
        which: "lowest" or "newest".
    """
    for requirement in map(Requirement, asked):
        bounds = {specifier.operator: specifier.version for specifier in requirement.specifier}
        if requirement.marker or "==" in bounds:
            continue
        if which == "newest":
            yield requirement.name
        elif ">=" in bounds:
            yield f"{requirement.name}=={bounds['>=']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("which", choices=["lowest", "newest"])
    for line in requirements(requires("veco_fairseq") or [], parser.parse_args().which):
        print(line)


if __name__ == "__main__":
    main()
