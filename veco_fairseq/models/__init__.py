# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Registered models and architectures; importing the package registers them."""

from veco_fairseq.models import nlu, translation, veco, xlme  # noqa: F401
