#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Print versions, processor, GPU and bf16 support, and known conflicts: what to send along with a question."""

from veco_fairseq.arguments import Parser
from veco_fairseq.cli import run


def main() -> int:
    Parser(description=__doc__).parse_args()
    from veco_fairseq.doctor import PACKAGES, conflicts, report, version

    for what, how in report():
        print(f"{what:14} {how}")
    problems = conflicts({package: version(package) for package in (*PACKAGES, "fairseq")})
    for problem in problems:
        print(f"PROBLEM        {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    run(main)
