# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tasks."""

from veco_fairseq import plugin  # noqa: F401  registers them
