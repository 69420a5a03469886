# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""VECO (ACL 2021) as a fairseq plug-in: ``--user-dir veco_fairseq``."""

import sys

if sys.version_info >= (3, 14):
    try:
        import fairseq  # noqa: F401
    except TypeError as error:
        raise ImportError(
            f"fairseq-fixed cannot be imported on Python 3.14 ({error}): mend it with {sys.executable} scripts/mend_fairseq.py"
        ) from None

from veco_fairseq import (  # noqa: F401, E402  each registers itself
    compat,  # noqa: F401, E402  first: it prepares fairseq for what follows
    criterions,
    models,
    schedule,
    tasks,
)

__version__ = "0.1.0"
