# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The models at work: their states, translations, and texts on the way in and out."""
