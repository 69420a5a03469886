# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A pickle that would run code."""

import os
from pathlib import Path


class Malicious:
    """A pickle that makes a file when it is loaded as pickles are."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)
