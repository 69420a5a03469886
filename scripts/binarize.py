#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``veco binarize``."""

from veco_fairseq.commands import start

if __name__ == "__main__":
    start("binarize")
