# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What a training costs, told without training: operations, memory, and what its data give."""
