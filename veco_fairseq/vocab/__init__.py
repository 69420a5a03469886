# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""VoCap (EMNLP 2021): how many subwords of a common vocabulary each language gets.

``alp`` measures a vocabulary, ``sizes`` makes one language's vocabularies of all sizes, ``allocation`` chooses one for
each language, ``union`` makes one model from them, and ``vocap`` runs all of it, from texts to files.
"""
