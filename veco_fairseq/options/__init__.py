# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Checks options from everywhere: a command line, a checkpoint, a configuration."""
