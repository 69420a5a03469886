# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What options may be, wherever they come from: a command line, a checkpoint, a configuration."""
