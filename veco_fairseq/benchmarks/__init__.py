# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements of speed and memory, ours and a peer's in turn in one run: what ``scripts/bench.py`` prints."""
