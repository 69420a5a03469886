# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""All that this plug-in changes in fairseq, done when it is imported, each with its reason.

Written for fairseq-fixed 0.12.3.1 (the fairseq of 2024 that imports on Python 3.11 and later).
"""

import atexit
import logging
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from types import ModuleType
from typing import Any

import fairseq_cli.train  # before all of fairseq: it sets up the log
import numpy as np
import torch
from fairseq import checkpoint_utils, options, utils
from fairseq import trainer as fairseq_trainer
from fairseq.data import Dictionary, data_utils
from fairseq.data.iterators import EpochBatchIterator, GroupedEpochBatchIterator, StreamingEpochBatchIterator
from fairseq.dataclass import utils as dataclass_utils
from fairseq.file_chunker_utils import Chunker
from fairseq.file_io import PathManager
from fairseq.optim import AMPOptimizer, FairseqOptimizer
from fairseq.optim.adam import Adam
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer, logger
from torch.utils.data._utils import signal_handling

from veco_fairseq import adam, borders, guard, loaders, resuming, stopping
from veco_fairseq.checkpoints.reading import DamagedCheckpoint, read_checkpoint
from veco_fairseq.checkpoints.skeleton import check_moments, making_sense_of
from veco_fairseq.cli import finish_output, print_error, program_name, user_message
from veco_fairseq.data import raw, tokens, vocabulary
from veco_fairseq.errors import UserError
from veco_fairseq.files import write_failure
from veco_fairseq.forking import forked

# ---------------------------------------------------------------------------------------------------------------------
# Warnings that every fairseq command prints and no user can do anything about. All of them come after
# --user-dir was imported. Each pattern matches one message; what the user's own code warns of is left alone.

NOISE = (
    # message (from its start), category, module that it is laid at
    (r"hydra\.experimental\.(initialize|compose)\(\) is no longer experimental", UserWarning, ""),
    (r"\s*The version_base parameter is not specified", UserWarning, ""),
    (r"In 'config': Usage of deprecated keyword in package header '# @package _group_'", UserWarning, ""),
    (r"\s*'config' is validated against ConfigStore schema with the same name", UserWarning, ""),
    (r"\s*The strict flag in the compose API is deprecated", UserWarning, ""),
    # fairseq asks for pinned memory whether there is a GPU or not
    (r"'pin_memory' argument is set as true but no accelerator is found", UserWarning, r"torch\.utils\.data"),
    # fairseq 0.12 has torch's old names of automatic mixed precision
    (r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated", FutureWarning, r"fairseq\."),
    # --amp on a CPU, where there is nothing to scale
    (r"torch\.cuda\.amp\.GradScaler is enabled, but CUDA is not available", UserWarning, ""),
    (r"CUDA is not available or torch_xla is imported\. Disabling autocast", UserWarning, r"torch\.cuda\.amp"),
    # ... in the words of torch 2.6
    (r"User provided device_type of 'cuda', but CUDA is not available\. Disabling", UserWarning, r"torch\.amp"),
    # fairseq hands a float attn_mask and a boolean key_padding_mask to torch
    (r"Support for mismatched key_padding_mask and attn_mask is deprecated", UserWarning, r"torch\.nn\.functional"),
)


def quiet_known_warnings() -> None:
    """Drop the warnings of :data:`NOISE`, and what hydra logs for its own debugging."""
    for message, category, module in NOISE:
        warnings.filterwarnings("ignore", message=message, category=category, module=module)
    # generate and interactive log at DEBUG, because a module of fairseq calls logging.basicConfig(level=DEBUG)
    logging.getLogger("hydra.core.utils").setLevel(logging.INFO)


# ---------------------------------------------------------------------------------------------------------------------
# Reading. fairseq's torch.load names no weights_only: safe by default from torch 2.6 on, but not before, nor with
# TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD; and what it raises for a bad file tells the user nothing.

_fairseq_load_checkpoint_to_cpu = checkpoint_utils.load_checkpoint_to_cpu
_architecture_of: dict[str, str | None] = {}  # of the checkpoints read, for the message when one does not fit
_task_state_of: dict[str, dict[str, Any]] = {}  # likewise, for the task to check (see trainer_load_checkpoint)
_fairseq_load_model_ensemble_and_task = checkpoint_utils.load_model_ensemble_and_task
_fairseq_trainer_load_checkpoint = Trainer.load_checkpoint


def load_checkpoint_to_cpu(
    path: str, arg_overrides: dict[str, Any] | None = None, load_on_all_ranks: bool = False
) -> dict[str, Any]:
    """fairseq's, on what :func:`read_checkpoint` reads.

    Raises:
        UserError: see :func:`read_checkpoint`; or the checkpoint lacks what fairseq-train writes beside the model.
    """
    state = read_checkpoint(PathManager.get_local_path(path))
    torch_load = torch.load
    torch.load = lambda file, map_location: state
    try:
        with making_sense_of(path, but=KeyError):
            state = _fairseq_load_checkpoint_to_cpu(path, arg_overrides, load_on_all_ranks)
    except KeyError as error:
        # fairseq takes what has no optimizer_history for a checkpoint of 2017 and looks for that one's keys
        raise UserError(
            f"{path}: is not a whole fairseq checkpoint: it has no {error}; give one of fairseq-train"
        ) from error
    finally:
        torch.load = torch_load
    _architecture_of[path] = getattr((state.get("cfg") or {}).get("model"), "_name", None)
    _task_state_of[path] = state.get("task_state") or {}
    return state


def load_model_ensemble_and_task(filenames: list[str], *args, **kwargs):
    """fairseq's (generate, interactive, validate), with a line for a model that its checkpoint does not fit.

    Raises:
        UserError: a file is missing or bad, or its tensors do not fit the model, as with another dictionary.
    """
    try:
        return _fairseq_load_model_ensemble_and_task(filenames, *args, **kwargs)
    except Exception as error:
        message = misfit(error)
        if message is not None:
            raise UserError(f"{', '.join(filenames)}: {message}") from error
        if mistake(error) is not None:
            raise
        with making_sense_of(", ".join(filenames)):
            raise


def trainer_load_checkpoint(trainer: Trainer, filename: str, *args, **kwargs):
    """fairseq's, with five changes.

    - A ``--restore-file`` that does not exist is an error: fairseq goes on from random weights.
    - A damaged checkpoint_last.pt is passed over, loudly, for the newest one beside it that can be read.
    - A checkpoint of another model is told in one line.
    - A task may look at the ``task_state`` of the file and take it over (``resume_task_state``); fairseq keeps it from
      it.
    - Every worker reads the file: what fairseq sends from the first to the others is refused there, as more than
      tensors and plain values.

    Raises:
        UserError: the first four, and see :func:`read_checkpoint`.
    """
    cfg = trainer.cfg.checkpoint
    cfg.load_checkpoint_on_all_dp_ranks = True
    is_last = os.path.basename(filename) == f"checkpoint_last{trainer.checkpoint_suffix}.pt"
    if not is_last and not PathManager.isfile(filename):
        raise UserError(f"{filename}: no such checkpoint to start from: check --restore-file")
    candidates = [filename, *(older_checkpoints(cfg.save_dir, filename) if is_last else [])]
    for number, candidate in enumerate(candidates, start=1):
        try:
            extra_state = _fairseq_trainer_load_checkpoint(trainer, candidate, *args, **kwargs)
            check_moments(candidate, trainer.optimizer.optimizer)
            if hasattr(trainer.task, "resume_task_state"):
                trainer.task.resume_task_state(_task_state_of.pop(candidate, {}), candidate)
            return extra_state
        except DamagedCheckpoint as error:
            if number == len(candidates):
                raise
            logger.warning(f"DAMAGED CHECKPOINT: {error}; resuming from {candidates[number]} instead")
        except UserError:
            raise
        except Exception as error:
            message = misfit(error)
            if message is None and mistake(error) is not None:
                raise
            if message is None:
                with making_sense_of(candidate, "go on from another one, or begin anew in another --save-dir"):
                    raise error.__context__ or error  # fairseq's trainer hides why the model's part cannot be loaded
            advice = "give the options that it was trained with" + (", or another --save-dir" if is_last else "")
            raise UserError(
                f"{candidate}: does not fit the model asked for (--arch {_architecture_of.get(candidate)} in the file, "
                f"{getattr(trainer.cfg.model, '_name', None)} here): {message}; {advice}"
            ) from error


def older_checkpoints(folder: str, filename: str) -> list[str]:
    """The checkpoints with the same suffix beside ``filename`` that a training can go on from, newest first."""
    suffix = os.path.basename(filename)[len("checkpoint_last"):]
    pattern = re.compile(rf"checkpoint(\d+|_\d+_\d+|_best){re.escape(suffix)}")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names if pattern.fullmatch(name)]
    return sorted(paths, key=os.path.getmtime, reverse=True)


def misfit(error: BaseException) -> str | None:
    """What does not fit when torch cannot load a state dict, a few of each kind; None if that is not the error.

    fairseq's trainer raises a bare Exception from it, so that torch's is searched in the chain.
    """
    link: BaseException | None = error
    while link is not None and "Error(s) in loading state_dict for" not in str(link):
        link = link.__cause__ or link.__context__
    if link is None:
        return None
    text = str(link)
    parts = []
    for kind in ("Missing", "Unexpected"):
        keys = re.search(rf"{kind} key\(s\) in state_dict: (.*?)\. ?$", text, re.MULTILINE)
        if keys:
            parts.append(f"{kind.lower()} " + _few(keys[1].replace('"', "").split(", ")))
    shapes = re.findall(
        r"size mismatch for (\S+): .*?torch\.Size\(\[(.*?)\]\) from.*?torch\.Size\(\[(.*?)\]\)", text, re.DOTALL
    )
    if shapes:
        differences = [f"{key} [{there}] in the file, [{here}] here" for key, there, here in shapes]
        parts.append("other shapes: " + _few(differences))
    if any("embed_tokens.weight" in key and there.split(",")[0] != here.split(",")[0] for key, there, here in shapes):
        parts.append("rows of embed_tokens are tokens: is this the dict.txt that it was trained with?")
    return "; ".join(parts) or " ".join(text.split())


def _few(items: list[str], limit: int = 2) -> str:
    return ", ".join(items[:limit]) + (f" and {len(items) - limit} more" if len(items) > limit else "")


# ---------------------------------------------------------------------------------------------------------------------
# Writing. fairseq writes checkpoint_best.pt and its like under a temporary name, but copies checkpoint_last.pt in
# place: killed in the copy, a run has no last checkpoint any more. A failed write it repeats twice into the same
# open file, which cannot mend it, and logs a traceback; it leaves the temporary file on the full disk.

_fairseq_torch_persistent_save = checkpoint_utils.torch_persistent_save


@contextmanager
def whole_file_or_none(filename: str) -> Iterator[str]:
    """Yield the temporary name FILENAME.tmp, which is gone afterwards; a failed write is a UserError.

    The name is fairseq's, the same at each try, so that a killed run leaves one such file at most.
    """
    temporary = filename + ".tmp"
    try:
        yield temporary
    except (OSError, RuntimeError) as error:
        reason = write_failure(error)
        if reason is None:
            raise
        free = shutil.disk_usage(os.path.dirname(filename) or ".").free
        raise UserError(
            f"{filename}: cannot be written ({reason}; {free / 2**20:,.0f} MiB free there): free some space and "
            "start the same command again; the checkpoints written before are whole"
        ) from error
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


_fairseq_move_to_cpu = utils.move_to_cpu


def move_to_cpu(sample: Any) -> Any:
    """fairseq's, for saving; tensors that are one (tied weights) stay one, and are saved once, from a GPU, too."""
    moved: dict[Any, torch.Tensor] = {}

    def move(tensor: torch.Tensor) -> torch.Tensor:
        place = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if place not in moved:
            (moved[place],) = _fairseq_move_to_cpu([tensor])
        return moved[place]

    return utils.apply_to_sample(move, sample)


def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> None:
    """fairseq's, with its temporary file removed and one line when the file cannot be written."""
    with whole_file_or_none(filename):
        _fairseq_torch_persistent_save(obj, filename, async_write)


def save_once(obj: Any, file) -> None:
    """torch.save, in place of fairseq's three tries with a traceback in the log."""
    torch.save(obj, file)


def copy(src_path: str, dst_path: str, overwrite: bool = False) -> str:
    """PathManager.copy (checkpoint_last.pt and checkpoint_best.pt) through a temporary name."""
    with whole_file_or_none(dst_path) as temporary:
        shutil.copyfile(src_path, temporary)
        os.replace(temporary, dst_path)
    return dst_path


# ---------------------------------------------------------------------------------------------------------------------
# Batches. Of a set whose size is no multiple of --required-batch-size-multiple (8 by default), fairseq leaves the last
# batch out: up to 7 sentences of a test set are never translated, and a set of 7 "is empty".

_fairseq_batch_by_size = data_utils.batch_by_size


def batch_by_size(indices, *args, **kwargs) -> list[np.ndarray]:
    """fairseq's, with the sentences that it leaves out at the end as one more batch."""
    indices = np.fromiter(indices, dtype=np.int64)
    batches = list(_fairseq_batch_by_size(indices, *args, **kwargs)) if len(indices) else []
    rest = indices[sum(map(len, batches)) :]
    return [*batches, rest] if len(rest) else batches


# ---------------------------------------------------------------------------------------------------------------------
# Mixed precision. fairseq's --amp opens CUDA's autocast alone, which does nothing on a CPU. On a GPU it unscales the
# gradients before it clips them, but steps with another object, for which torch unscales them once more.

_fairseq_train_step = FairseqTask.train_step
_fairseq_amp_clip_grad_norm = AMPOptimizer.clip_grad_norm


def amp(model: torch.nn.Module, optimizer: FairseqOptimizer) -> torch.autocast:
    """The context that ``--amp`` asks for: fp16 on a GPU, bf16 on a CPU; parameters, gradients and the loss in fp32."""
    return torch.autocast(next(model.parameters()).device.type, enabled=isinstance(optimizer, AMPOptimizer))


def train_step(task: FairseqTask, sample, model, criterion, optimizer, *args, **kwargs):
    """fairseq's, on a CPU, too; backward is not under autocast, which PyTorch advises against."""

    def forward(model, sample):
        with amp(model, optimizer):
            return criterion(model, sample)

    return _fairseq_train_step(task, sample, model, forward, optimizer, *args, **kwargs)


def amp_step(optimizer: AMPOptimizer) -> None:
    """fairseq's, with the object whose gradients were unscaled."""
    optimizer.scaler.step(optimizer.optimizer)
    optimizer.scaler.update()


def amp_clip_grad_norm(optimizer: AMPOptimizer, *args, **kwargs):
    """fairseq's; without a loss scale to lower (on a CPU) a NaN is an error, not a step of the optimizer."""
    if optimizer.scaler.is_enabled():
        return _fairseq_amp_clip_grad_norm(optimizer, *args, **kwargs)
    norm = optimizer.fp32_optimizer.clip_grad_norm(*args, **kwargs)
    if not torch.isfinite(norm).all():
        raise FloatingPointError("gradients are Nan/Inf")
    return norm


def translating(main: Callable) -> Callable:
    """fairseq-generate's or fairseq-interactive's ``main``; with ``--amp``, which they ignore, in bf16 where safe."""

    @wraps(main)
    def translate(cfg, *args):
        device = "cuda" if torch.cuda.is_available() and not cfg.common.cpu else "cpu"
        with torch.autocast(device, torch.bfloat16, enabled=cfg.common.amp):
            return main(cfg, *args)

    return translate


# ---------------------------------------------------------------------------------------------------------------------
# Several workers. fairseq's default averages the gradients in every backward pass, of which --task camlm has two an
# update, and breaks where a parameter gets none. A worker out of memory drops its batch, and the others, which count on
# it, hang or add up what does not belong together.

_fairseq_trainer_init = Trainer.__init__
_fairseq_trainer_train_step = Trainer.train_step


def refusal_of_backend(backend: str) -> UserError:
    return UserError(f"--ddp-backend {backend}: of fairseq's, only legacy_ddp can be had with this plug-in: take it away")


def no_fully_sharded(*args):
    """In place of fairseq's wrapper for ``--ddp-backend fully_sharded``: nothing here was made for sharded models."""
    raise refusal_of_backend("fully_sharded")


def trainer_init(trainer: Trainer, cfg, task: FairseqTask, *args, **kwargs) -> None:
    """fairseq's; a task with ``ddp_backend`` replaces fairseq's default by it.

    Raises:
        UserError: another one was asked for than such a task can be trained with.
    """
    wanted, asked = getattr(task, "ddp_backend", None), cfg.distributed_training.ddp_backend
    if wanted and asked in ("pytorch_ddp", "c10d"):
        cfg.distributed_training.ddp_backend = wanted
    elif wanted and asked not in (wanted, "no_c10d"):  # its other name
        raise refusal_of_backend(asked)
    _fairseq_trainer_init(trainer, cfg, task, *args, **kwargs)


def trainer_train_step(trainer: Trainer, samples, raise_oom: bool = False):
    """fairseq's; out of memory, one of several workers ends, and with it all."""
    return _fairseq_trainer_train_step(trainer, samples, raise_oom or trainer.data_parallel_world_size > 1)


# ---------------------------------------------------------------------------------------------------------------------
# Learning rates that follow the epochs. fairseq's schedulers never hear how many updates an epoch has.

def get_train_iterator(trainer: Trainer, epoch: int, *args, **kwargs):
    """fairseq's; a scheduler with ``set_batches`` is told how many an epoch has for a worker."""
    batches = resuming.get_train_iterator(trainer, epoch, *args, **kwargs)
    if hasattr(trainer.lr_scheduler, "set_batches"):
        trainer.lr_scheduler.set_batches(len(batches))
    return batches


# ---------------------------------------------------------------------------------------------------------------------
# A metric that no validation has.

_fairseq_get_valid_stats = fairseq_cli.train.get_valid_stats


def get_valid_stats(cfg, trainer: Trainer, stats: dict[str, Any], *args) -> dict[str, Any]:
    """fairseq's, where ``--best-checkpoint-metric`` is one of the validation's figures."""
    metric = cfg.checkpoint.best_checkpoint_metric
    if metric not in stats:
        raise UserError(f"--best-checkpoint-metric {metric}: validation has {', '.join(stats)}")
    return _fairseq_get_valid_stats(cfg, trainer, stats, *args)


# ---------------------------------------------------------------------------------------------------------------------
# One line for a mistake of the user's, in place of a traceback through fairseq.

# fairseq's own words for it, and ours: what is wrong, where, and what to do. "{0}" is the first group.
MISTAKES = (
    (r"Must specify batch size either with --max-tokens or --batch-size", "no batch size: give --max-tokens N"),
    (r"--path required for generation!", "no model: give --path CHECKPOINT"),
    (r"Model file not found: (.+)", "{0}: no such checkpoint: check --path"),
    (r"--finetune-from-model (.+) does not exist", "{0}: no such checkpoint: check --finetune-from-model"),
    (r"Dataset not found: (\S+) \((.*)\)",
     "{1}: has no {0} data of these languages: check the folder, -s and -t, or make it with fairseq-preprocess"),
    (r"Could not infer language pair, please provide it explicitly",
     "the data folder names no pair of languages: check it, or give -s LANG -t LANG"),
    (r"Source and target must contain the same number of examples",
     "the data have not as many sentences of one language as of the other: make them from texts of as many lines"),
    (r"(Criterion|Optimizer) does not match; please reset the optimizer \(--reset-optimizer\)\. (\S+) vs (\S+)",
     "the checkpoint was trained with {1}, not {2}: give the same one, or --reset-optimizer"),
    (r"'NoneType' object has no attribute 'xla_device'",
     "--bf16 is for TPUs in fairseq: give --autocast bf16 in pre-training and understanding, and --amp elsewhere"),
    (r"(out of memory .* tokens)$", "{0}: lower --max-tokens, or add --checkpoint-activations"),
    (r"DataLoader worker \(pid\(?s?\)? ([\d, ]+)\) (?:is|was) killed by signal: (\w+|\d+)",
     "the data loader's process {0} was killed ({1}): if memory ran out, lower --num-workers; start the same command "
     "again, and it goes on from its last checkpoint"),
    (r"DataLoader worker \(pid\(?s?\)? ([\d, ]+)\) exited unexpectedly",
     "the data loader's process {0} was killed: if memory ran out, lower --num-workers; start the same command again, "
     "and it goes on from its last checkpoint"),
    (r"CUDA out of memory", "out of memory: lower --max-tokens, and raise --update-freq as much"),
    (r"gradients are Nan/Inf",
     "the gradients became NaN or infinite: lower --lr or raise --warmup-updates, and go on from a checkpoint before"),
    (r"--share-all-embeddings requires a joined dictionary",
     "the two languages' dict.LANG.txt differ, and this model has one for both: make the data with --srcdict and "
     "--tgtdict of the model, or --joined-dictionary"),
    (r"'list' object has no attribute 'split'",
     "--encoder-layers-to-keep and --decoder-layers-to-keep do not work in this version of fairseq: take them away; "
     "convert_to_seq2seq.py chooses layers"),
    (r"Size of sample #(\d+) is invalid \(=(.*)\) since max_positions=(.*), skip this example",
     "sentence {0} of the data, counted from 0, has {1} tokens, and the model takes {2}: shorten it, or give "
     "--skip-invalid-size-inputs-valid-test"),
    (r"(Valid paths .* will be ignored\. .*)", "{0}"),
    (r"Please install xFormers",
     "--encoder-xformers-att-config and --decoder-xformers-att-config need the package xformers: take them away"),
    (r"(?s)Unknown post_process option:(.*)",
     "--remove-bpe {0}: is no kind of pieces that fairseq knows: give sentencepiece, subword_nmt or another of its kinds"),
    (r"cannot specify cutoff larger than vocab size", "--adaptive-softmax-cutoff: is larger than the vocabulary: lower it"),
    # fairseq's own checks of options that do not go together, such as "--sampling-topk requires --sampling"
    (r"^(--[a-z][a-z-]+ .*)$", "{0}: take one of them away, or give what is missing"),
)


def mistake(error: BaseException) -> str | None:
    """The one line for ``error``, or None if it is no known mistake of the user's."""
    message = user_message(error)
    if message is not None:
        return message
    # a spawned worker's error (several GPUs) comes as the text of its traceback: its last line is the one
    text = re.sub(r"np\.int64\((\d+)\)", r"\1", str(error)).strip()
    if type(error).__name__ == "ProcessRaisedException":
        text = text.rsplit("\n", 1)[-1]
    for pattern, line in MISTAKES:
        found = re.search(pattern, text)
        if found:
            return " ".join(line.format(*found.groups()).split())
    return None


def one_line_errors(previous: Callable) -> Callable:
    """An excepthook that prints ``fairseq-train: error: ...`` for the user's mistakes, and else is ``previous``.

    The process ends with exit code 1 in both cases, which is Python's for an exception.
    """
    def hook(kind, error, traceback) -> None:
        message = mistake(error)
        if isinstance(error, KeyboardInterrupt):  # before the training, or in another command
            print(f"{program_name()}: interrupted", file=sys.stderr, flush=True)
        elif message is None:
            previous(kind, error, traceback)
        else:
            print_error(message)

    return hook


def running(command: str) -> list[ModuleType]:
    """The module of a command, where it was imported, by itself or as ``__main__`` (``python -m``)."""
    main = sys.modules["__main__"]
    as_main = [main] if getattr(main.__spec__, "name", None) == command else []
    return [sys.modules[command], *as_main] if command in sys.modules else as_main


def install() -> None:
    """Make all the changes: the one thing that importing this module does."""
    quiet_known_warnings()
    guard.install()
    options.parse_args_and_arch = borders.parse_args_and_arch
    dataclass_utils.eval_str_list = borders.eval_str_list
    tokens.install()
    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu
    checkpoint_utils.load_checkpoint = stopping.load_checkpoint
    checkpoint_utils.load_model_ensemble_and_task = load_model_ensemble_and_task
    checkpoint_utils.torch_persistent_save = torch_persistent_save
    checkpoint_utils._torch_persistent_save = save_once
    Trainer.__init__ = trainer_init
    Trainer.train_step = trainer_train_step
    Trainer.load_checkpoint = trainer_load_checkpoint
    Trainer.save_checkpoint = stopping.trainer_save_checkpoint
    Trainer.get_train_iterator = get_train_iterator
    PathManager.copy = staticmethod(copy)
    data_utils.batch_by_size = batch_by_size
    EpochBatchIterator._get_iterator_for_epoch = resuming.iterator_for_epoch
    EpochBatchIterator.state_dict = resuming.epoch_state
    EpochBatchIterator.load_state_dict = resuming.load_epoch_state
    ReduceLROnPlateauLRSchedule.state_dict = resuming.plateau_state
    ReduceLROnPlateauLRSchedule.load_state_dict = resuming.load_plateau_state
    ReduceLROnPlateauLRSchedule.step = resuming.plateau_step
    for kind in (EpochBatchIterator, GroupedEpochBatchIterator, StreamingEpochBatchIterator):
        kind._get_iterator_for_epoch = forked(kind._get_iterator_for_epoch)
    utils.move_to_cpu = move_to_cpu
    FairseqTask.train_step = train_step
    signal_handling._set_worker_signal_handlers = loaders.set_worker_signal_handlers
    Adam.step = adam.step  # fairseq's makes eight passes over all parameters
    AMPOptimizer.step = amp_step
    AMPOptimizer.clip_grad_norm = amp_clip_grad_norm
    # It looks for the first NaN with hooks that today's PyTorch calls otherwise, and fails on its own.
    fairseq_trainer.NanDetector = nullcontext
    for module in running("fairseq_cli.train"):
        module.fsdp_enable_wrap = no_fully_sharded
        module.validate_and_save = stopping.validate_and_save
        module.get_valid_stats = get_valid_stats
    for module in running("fairseq_cli.generate"):
        module._main = translating(module._main)
    for module in running("fairseq_cli.interactive"):
        module.main = translating(module.main)
        module.buffered_read = raw.buffered_read
        module.make_batches = raw.naming_long_lines(module.make_batches)
    for module in running("fairseq_cli.preprocess"):
        raw.check_before_preprocessing(module)
    Chunker.__enter__ = raw.open_chunk
    Dictionary.add_from_file = vocabulary.add_from_file
    sys.excepthook = one_line_errors(sys.excepthook)
    logging.raiseExceptions = False  # a log that cannot be written is no reason to stop, nor for a traceback a line
    atexit.register(finish_output)


install()
