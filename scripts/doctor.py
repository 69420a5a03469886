#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Print versions, processor, GPU and bf16 support, and known conflicts: what to send along with a question."""

import argparse
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace


def main() -> int:
    argparse.ArgumentParser(description=__doc__, allow_abbrev=False).parse_args()
    # by its path: importing it from the package imports fairseq, which may be what does not work
    path = Path(__file__).resolve().parent.parent / "veco_fairseq" / "doctor.py"
    doctor = SimpleNamespace(**runpy.run_path(str(path)))
    versions = {package: doctor.version(package) for package in (*doctor.PACKAGES, "fairseq")}
    for what, how in doctor.report():
        print(f"{what:14} {how}")
    problems = doctor.conflicts(versions) + doctor.failures(versions)
    for problem in problems:
        print(f"PROBLEM        {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
