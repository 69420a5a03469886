# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Understanding tasks: sentence pairs, tags and answers to questions, from their raw files to their figures.

These are the tasks of XTREME (Hu et al. 2020) except retrieval, which is in :mod:`veco_fairseq.retrieval`.
"""
