# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Models in use: their states, translations and scores, and texts on the way in and out."""
