# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Registered tasks; importing the package registers them."""

from veco_fairseq.tasks import camlm, nlu, translation  # noqa: F401
