# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Registered criterions; importing the package registers them."""

from veco_fairseq.criterions import camlm, nlu, replaced_token  # noqa: F401
