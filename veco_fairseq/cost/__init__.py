# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Estimates a training without running it: operations, memory, and batches."""
