# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Training with several workers, and the processes of data loaders.

fairseq's default averages the gradients in every backward pass, but ``--task camlm`` has two passes an update. It also
fails if a parameter gets no gradient; legacy_ddp makes one of zeros. A worker that is out of memory drops its batch; the other
workers wait for it, and hang or add up gradients of different batches.
"""

import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.utils.data
from fairseq.distributed import LegacyDistributedDataParallel
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling

from veco_fairseq.compat.hooks import NamesDdpBackend
from veco_fairseq.compat.patching import replaced
from veco_fairseq.errors import UserError
from veco_fairseq.modules.device import usual_device

logger = logging.getLogger(__name__)

_fairseq_distributed_main = distributed_utils.distributed_main
_fairseq_trainer_init = Trainer.__init__
_fairseq_trainer_train_step = Trainer.train_step


def refusal_of_backend(backend: str) -> UserError:
    return UserError(f"--ddp-backend {backend}: only fairseq's legacy_ddp works with this plug-in: leave it out")


def no_fully_sharded(*args):
    """Refuse ``--ddp-backend fully_sharded``, in place of fairseq's wrapper; nothing here supports sharded models."""
    raise refusal_of_backend("fully_sharded")


def trainer_init(trainer: Trainer, cfg, task: FairseqTask, *args, **kwargs) -> None:
    """Make a trainer; a task's ``ddp_backend`` replaces fairseq's default, and on a CPU, where that fails, legacy_ddp does.

    Raises:
        UserError: the option asks for a backend that the task cannot be trained with.
    """
    on_cpu = usual_device(cfg.common.cpu) == "cpu"
    wanted = task.ddp_backend if isinstance(task, NamesDdpBackend) else None
    asked = cfg.distributed_training.ddp_backend
    if wanted is None and on_cpu and asked in ("pytorch_ddp", "c10d"):
        cfg.distributed_training.ddp_backend = "legacy_ddp"
    if wanted and asked in ("pytorch_ddp", "c10d"):
        cfg.distributed_training.ddp_backend = wanted
    elif wanted and asked not in (wanted, "no_c10d"):  # its other name
        raise refusal_of_backend(asked)
    _fairseq_trainer_init(trainer, cfg, task, *args, **kwargs)


def without_warnings_but_of_the_first(cfg):
    """Silence the warnings of a worker that is not the first, since all have the same; fairseq does so with what it informs of."""
    if not distributed_utils.is_master(cfg.distributed_training):
        logging.getLogger("veco_fairseq").setLevel(logging.ERROR)
    return cfg


def distributed_main(number: int, main: Callable, cfg, options: dict[str, Any]) -> None:
    """Run a worker to its end, and end the threads of its process groups, which must not outlive Python.

    A thread that still lets go of its last tensors while Python ends would abort a training that has succeeded. A group's
    threads end with the last reference to it. fairseq keeps one, the frames of an exception keep the trainer's, and
    PyTorch's functional collectives take the group as a default value if they are imported after it is made.

    Raises:
        SystemExit: a signal has ended the training.
    """
    import torch.distributed.nn.functional

    end = None
    try:
        _fairseq_distributed_main(number, main, cfg, {**options, "after_distributed_init_fn": without_warnings_but_of_the_first})
    except SystemExit as raised:
        end = SystemExit(raised.code)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        vars(distributed_utils.get_global_group).clear()
        for process in multiprocessing.active_children():
            if process.daemon:  # a loader: else gc, which has closed the queues to it by then, waits five seconds for each
                process.terminate()
        gc.collect()
    if end is not None:
        raise end


def on_one_gpu(convert: Callable) -> Callable:
    """Make a ``convert_namespace_to_omegaconf`` of fairseq-validate that has one worker.

    fairseq starts one for each GPU. Where the batches do not come out even, it ends in a traceback: the last worker gets an
    empty one. It also gathers the figures of all batches in the 16 KiB of ``--all-gather-list-size``.
    """

    @wraps(convert)
    def convert_for_one(args, *others):
        if (workers := getattr(args, "distributed_world_size", 1)) > 1:
            logger.info(f"fairseq-validate has one worker, not {workers}")
            args.distributed_world_size = 1
        return convert(args, *others)

    return convert_for_one


def trainer_train_step(trainer: Trainer, samples, raise_oom: bool = False):
    """Make an update; if one of several workers is out of memory, it ends, and all others with it.

    The last of a worker's batches in an epoch may be an empty one, where others have one more. Then fairseq takes all of the
    worker's batches of the update (--update-freq) for empty: it adds up their gradients, and divides by the others' tokens alone.
    """
    samples = [sample for sample in samples if sample] or samples[:1]
    return _fairseq_trainer_train_step(trainer, samples, raise_oom or trainer.data_parallel_world_size > 1)


def keeping_none(all_reduce_grads: Callable) -> Callable:
    """Make an ``all_reduce_grads`` of legacy_ddp after which a parameter has no gradient if it has none on any worker.

    fairseq gives it zeros, with which --weight-decay shrinks what learns from no batch, such as the cross-attention with
    ``--objective mlm``. On one worker the optimizer leaves it as it is.
    """

    @wraps(all_reduce_grads)
    def reduce_and_keep(ddp: LegacyDistributedDataParallel) -> None:
        if ddp.accumulate_grads:
            return
        trained = [p for p in ddp.module.parameters() if p.requires_grad]
        has_none = [p.grad is None for p in trained]
        learns = torch.tensor([not none for none in has_none], dtype=torch.uint8).to(trained[0].device, non_blocking=True)
        distributed_utils.all_reduce(learns, ddp.process_group, op="max")
        all_reduce_grads(ddp)
        if any(has_none):  # else a GPU need not be waited for
            for p, somewhere in zip(trained, learns.tolist()):
                if not somewhere:
                    p.grad = None

    return reduce_and_keep


_torch_set_worker_signal_handlers = signal_handling._set_worker_signal_handlers


def set_worker_signal_handlers() -> None:
    """Set PyTorch's handlers in a loader's process; if the training notes SIGTERM, obey only SIGTERM from the training.

    The training's Python ends all its loaders with this signal.
    """
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=end_when_the_training_says_so, daemon=True).start()
    _torch_set_worker_signal_handlers()


def end_when_the_training_says_so() -> None:
    """Wait for signals and check their sender; exit with code 0, as PyTorch's handler does."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)


def forked(get_iterator: Callable) -> Callable:
    """Make a ``_get_iterator_for_epoch`` whose DataLoader forks its processes.

    Args:
        get_iterator: the method, which makes a ``torch.utils.data.DataLoader`` and names no start method.
    """

    def loader(*args: Any, num_workers: int = 0, **options: Any) -> DataLoader:
        options.update(num_workers=num_workers, multiprocessing_context="fork" if num_workers else None)
        return DataLoader(*args, **options)

    @wraps(get_iterator)
    def get_forked_iterator(*args: Any, **kwargs: Any) -> Any:
        if multiprocessing.get_start_method() != "forkserver":
            return get_iterator(*args, **kwargs)
        with replaced(torch.utils.data, "DataLoader", loader):
            return get_iterator(*args, **kwargs)

    return get_forked_iterator
