# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Data loaders' processes outlive the SIGTERM that a training was told to end with, and which it needs to save.

SLURM sends it to every process of a job. In a loader's process PyTorch has a handler of its own for it, which ends the
process, and the training fails in the next batch, or validation, instead of saving.
"""

import signal

from torch.utils.data._utils import signal_handling

_torch_set_worker_signal_handlers = signal_handling._set_worker_signal_handlers


def set_worker_signal_handlers() -> None:
    """PyTorch's, called first in each loader's process; where the training notes SIGTERM, the loader never gets it.

    It ends as always: when the training has no more use for it, or is gone.
    """
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _torch_set_worker_signal_handlers()
