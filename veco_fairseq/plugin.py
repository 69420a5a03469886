# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Prepares fairseq, and registers the tasks, models, criterions and learning rate schedules of this package with it.

With ``--user-dir veco_fairseq``, fairseq imports ``tasks`` and ``models``, and these import this module.
"""

import sys

from veco_fairseq import compat

if sys.version_info >= (3, 14):
    try:
        import fairseq  # noqa: F401
    except TypeError as error:
        raise ImportError(
            f"fairseq-fixed cannot be imported on Python 3.14 ({error}): mend it with {sys.executable} -m veco_fairseq mend-fairseq"
        ) from None

compat.install()

# Each module registers itself; fairseq has to be prepared before.
import veco_fairseq.criterions.knn  # noqa: E402
import veco_fairseq.criterions.nlu  # noqa: E402
import veco_fairseq.criterions.replaced_token  # noqa: E402
import veco_fairseq.models.nlu  # noqa: E402
import veco_fairseq.models.translation  # noqa: E402
import veco_fairseq.models.veco  # noqa: E402
import veco_fairseq.models.xlme  # noqa: E402
import veco_fairseq.optim.linear_by_epoch  # noqa: E402
import veco_fairseq.tasks.camlm  # noqa: E402
import veco_fairseq.tasks.multilingual_translation  # noqa: E402
import veco_fairseq.tasks.nlu  # noqa: E402
import veco_fairseq.tasks.translation  # noqa: E402, F401
