# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""VECO (ACL 2021) as a fairseq plug-in: ``--user-dir veco_fairseq``."""

from veco_fairseq import compat  # noqa: F401  first: it prepares fairseq for what follows
from veco_fairseq import criterions, models, schedule, tasks  # noqa: F401, E402  each registers itself

__version__ = "0.1.0"
