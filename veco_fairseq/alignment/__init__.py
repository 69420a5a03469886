# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Aligns the words of a sentence with those of its translation, by optimal transport over a layer's states.

As in XLM-E (section 4.6), which takes the method from XLM-Align (Chi et al. 2021c).
"""
