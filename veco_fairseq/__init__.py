# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""VECO (ACL 2021) as a fairseq plug-in: ``--user-dir veco_fairseq`` imports :mod:`veco_fairseq.plugin`."""

__version__ = "0.1.0"
