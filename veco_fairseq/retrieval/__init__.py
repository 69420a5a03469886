# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Finds sentences that mean the same by their mean-pooled states: Tatoeba's accuracy and BUCC's mining.

As in XTREME (Hu et al. 2020) and XLM-E (section 4.6), the search is for nearest neighbours by cosine or by a margin.
"""
