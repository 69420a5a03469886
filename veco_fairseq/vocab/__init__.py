# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""VoCap (EMNLP 2021): how many subwords each language gets of a vocabulary for all.

``alp`` measures a vocabulary, ``sizes`` makes one language's vocabularies of all sizes, ``allocation`` chooses one of
each, ``union`` makes a model of them all, and ``vocap`` does it from texts to files.
"""
