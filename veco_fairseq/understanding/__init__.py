# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Understanding tasks: sentence pairs, tags and answers to questions, from their raw files to their figures.

The nine tasks of XTREME (Hu et al. 2020) but for retrieval, which is :mod:`veco_fairseq.retrieval`.
"""
