# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Data of pre-training: roots, segments, pairs, masks, and plans of batches. No module here knows a task."""
