# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Data loaders' processes outlive the SIGTERM that a training was told to end with, and which it needs to save.

SLURM sends it to every process of a job. In a loader's process PyTorch has a handler of its own for it, which ends the
process, and the training fails in the next batch, or validation, instead of saving.
"""

import os
import signal
import threading

from torch.utils.data._utils import signal_handling

_torch_set_worker_signal_handlers = signal_handling._set_worker_signal_handlers


def set_worker_signal_handlers() -> None:
    """PyTorch's, called first in each loader's process; where the training notes SIGTERM, the loader heeds its own alone.

    That is the training's, whose Python ends all that it has started in this way.
    """
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=end_when_the_training_says_so, daemon=True).start()
    _torch_set_worker_signal_handlers()


def end_when_the_training_says_so() -> None:
    """Take the signals as they come, with their sender; exit code 0, as PyTorch's handler has it."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
