# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What Python makes of ``sys.exit``, for forks that have to end by themselves."""

import sys


def exit_code(end: SystemExit) -> int:
    """The exit code of a process that ends so. A message goes to standard error, with 1 for the code."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
