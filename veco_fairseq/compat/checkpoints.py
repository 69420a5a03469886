# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reads checkpoints safely, writes them whole or not at all, and says in one line how they do not fit."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.file_io import PathManager
from fairseq.logging import metrics
from fairseq.trainer import Trainer, logger

from veco_fairseq.checkpoints.integrity import place_of
from veco_fairseq.checkpoints.kinds import USER_DIR
from veco_fairseq.checkpoints.own_options import raised_by_own_code
from veco_fairseq.checkpoints.reading import DamagedCheckpoint, read_checkpoint
from veco_fairseq.checkpoints.skeleton import check_moments, making_sense_of
from veco_fairseq.compat.hooks import ResumesTaskState
from veco_fairseq.compat.kept import beginnings_of, tell_what_is_kept
from veco_fairseq.compat.misfits import misfit, misfit_message, model_of, refuse_another_computation
from veco_fairseq.compat.mistakes import mistake
from veco_fairseq.compat.patching import replaced
from veco_fairseq.compat.together import FILES, agree
from veco_fairseq.data.symbols import vocabulary_folder
from veco_fairseq.errors import UserError, to_go_on, write_failure

# Reading. fairseq calls torch.load without weights_only. This is safe from torch 2.6 on, but not before, nor with
# TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD. And the errors for a bad file tell the user nothing.

_fairseq_load_checkpoint_to_cpu = checkpoint_utils.load_checkpoint_to_cpu
NOT_REGISTERED = re.compile(r"Could not infer (model|task) type from ")
_fairseq_load_model_ensemble_and_task = checkpoint_utils.load_model_ensemble_and_task
_fairseq_trainer_load_checkpoint = Trainer.load_checkpoint

_task_state_of: dict[str, dict[str, Any]] = {}  # of the checkpoints that trainers read, for the task to check
_one_at_a_time = RLock()
REPORT = "train_inner"  # fairseq's name for the figures of the updates since the last report


def load_checkpoint_to_cpu(
    path: str, arg_overrides: dict[str, Any] | None = None, load_on_all_ranks: bool = False
) -> dict[str, Any]:
    """Load a checkpoint as fairseq does, from what :func:`read_checkpoint` reads.

    Raises:
        UserError: see :func:`read_checkpoint`; or the checkpoint lacks parts that fairseq-train writes beside the model.
    """
    state = read_checkpoint(PathManager.get_local_path(path))
    try:
        with making_sense_of(path, but=KeyError), _loading(state):
            state = _fairseq_load_checkpoint_to_cpu(path, arg_overrides, load_on_all_ranks)
    except KeyError as error:
        # fairseq reads a checkpoint without optimizer_history as one of 2017, and looks for keys of that time
        raise UserError(f"{path}: is not a whole fairseq checkpoint: it has no {error}; give one of fairseq-train") from error
    if load_on_all_ranks:  # for a trainer, which begins the mean of --store-ema with the model, and checks the rest
        if state.get("extra_state"):
            state["extra_state"].setdefault("ema", state["model"])
            state["extra_state"]["beginnings"] = beginnings_of(state.get("cfg"))
        model_of[path] = (state.get("cfg") or {}).get("model")
        _task_state_of[path] = state.get("task_state") or {}
    _fill_in_languages(state)
    if "save_dir" in ((state.get("cfg") or {}).get("task") or ()):  # a folder that may have been moved since
        state["cfg"].task.save_dir = str(vocabulary_folder(path))
    return state


@contextmanager
def _loading(state: dict[str, Any]) -> Iterator[None]:
    """Let ``torch.load`` return a state in this block: to this thread alone, since another may load another file meanwhile."""
    with _one_at_a_time:
        own, torch_load = get_ident(), torch.load
        with replaced(torch, "load", lambda *args, **named: state if get_ident() == own else torch_load(*args, **named)):
            yield


def _fill_in_languages(state: dict[str, Any]) -> None:
    """Let a model to translate with say its languages; else fairseq looks for training data to tell them."""
    task, known = (state.get("cfg") or {}).get("task"), state.get("task_state") or {}
    source, target = known.get("languages") or (None, None)
    directions = known.get("lang_pairs") or []
    for name, value in (("source_lang", source), ("target_lang", target), ("lang_pairs", ",".join(directions) or None)):
        if task is not None and value is not None and name in task and getattr(task, name) is None:
            setattr(task, name, value)


def load_model_ensemble_and_task(filenames: list[str], *args, **kwargs):
    """Load models for generate, interactive and validate; say in one line if a checkpoint does not fit its model.

    Raises:
        UserError: a file is missing or bad, or its tensors do not fit the model, as with another dictionary; or fairseq-validate
            has a ``--criterion``, which fairseq ignores, that is not the model's.
    """
    try:
        models, cfg, task = _fairseq_load_model_ensemble_and_task(filenames, *args, **kwargs)
    except Exception as error:
        message = misfit(error)
        if message is not None:
            raise UserError(f"{', '.join(filenames)}: {message}") from error
        if unknown := NOT_REGISTERED.match(str(error)):
            raise UserError(
                f"{', '.join(filenames)}: nothing here registers the {unknown[1]} of its training: {USER_DIR}"
            ) from error
        if mistake(error) is not None:
            raise
        with making_sense_of(", ".join(filenames)):
            raise
    given = (kwargs.get("arg_overrides") or {}).get("criterion")
    if given and given != (own := getattr(cfg.criterion, "_name", given)):
        raise UserError(f"--criterion {given}: {filenames[0]} was trained with {own}, by which it is validated: leave it out")
    return models, cfg, task


def trainer_load_checkpoint(
    trainer: Trainer, filename: str, reset_optimizer: bool = False, *args, reset_meters: bool = False, **kwargs
):
    """Load the checkpoint that a training goes on from, with eleven changes.

    - A ``--restore-file`` that does not exist is an error; fairseq would go on from random weights.
    - One that is preferred to the folder's own checkpoint_last.pt, as where the same command is given again, is told of.
    - A folder with checkpoints but no checkpoint_last.pt, as after a kill during the first save, is told of.
    - A damaged checkpoint_last.pt is replaced, with a warning, by the newest checkpoint beside it that can be read.
    - A checkpoint of another model ends in one line, also where its tensors have the same shapes.
    - A task may check the ``task_state`` of the file and take it over (``resume_task_state``); fairseq hides it from the
      task.
    - Every worker reads the file. fairseq would send the state from the first worker to the others, which refuse it,
      since it is more than tensors and plain values.
    - The time that a training has taken begins anew with ``--reset-meters`` and ``--finetune-from-model``. Otherwise
      ``--stop-time-hours`` would count the time of pre-training, too.
    - The first report after an epoch's end is also of the updates before that end, if ``--log-interval`` has some there, and if
      the training counts them (not with ``--reset-optimizer``).
    - ``--store-ema`` may go on from a checkpoint without a mean: it begins with the model.
    - What the optimizer keeps against the options is told.

    Raises:
        UserError: see the changes above, and :func:`read_checkpoint`.
    """
    cfg = trainer.cfg.checkpoint
    cfg.load_checkpoint_on_all_dp_ranks = True
    agree(trainer, {f"{filename}: some workers find it, and some do not: {FILES}": PathManager.isfile(filename)})
    own_last = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
    is_last = os.path.abspath(filename) == os.path.abspath(own_last)  # a file of this name elsewhere was asked for
    if not is_last and not PathManager.isfile(filename):
        options = {cfg.continue_once: "--continue-once", cfg.finetune_from_model: "--finetune-from-model"}
        given = options.get(filename, "--restore-file")
        if os.path.isdir(filename):
            raise UserError(f"{filename}: is a folder ({given}): give a checkpoint in it")
        raise UserError(f"{filename}: no such checkpoint to start from: check {given}")
    others = older_checkpoints(cfg.save_dir, own_last)
    if not cfg.no_save:
        tell_what_is_replaced(filename, own_last, others, fine_tunes=bool(cfg.finetune_from_model))
    candidates = [filename, *(others if is_last else [])]
    for number, candidate in enumerate(candidates, start=1):
        try:
            resets = (reset_optimizer, *args)
            extra_state = _fairseq_trainer_load_checkpoint(trainer, candidate, *resets, reset_meters=reset_meters, **kwargs)
            for name in ("ema", "ema_fp32_params"):  # which are in their place now, and would be kept in memory
                (extra_state or {}).pop(name, None)
            refuse_another_computation(candidate, trainer.cfg.model, is_last)
            if reset_meters:
                trainer._previous_training_time = 0
            elif REPORT in (meters := (extra_state or {}).get("metrics") or {}) and trainer.get_num_updates():
                metrics.load_state_dict({REPORT: meters[REPORT]})  # fairseq takes none at an epoch's end
            check_moments(candidate, trainer.optimizer.optimizer)
            if isinstance(trainer.task, ResumesTaskState):
                trainer.task.resume_task_state(_task_state_of.pop(candidate, {}), candidate)
            if extra_state is not None and not reset_optimizer:
                tell_what_is_kept(trainer, candidate)
            return extra_state
        except DamagedCheckpoint as error:
            if number == len(candidates):
                raise
            logger.warning(f"DAMAGED CHECKPOINT: {error}; resuming from {candidates[number]} instead")
        except UserError:
            raise
        except Exception as error:
            message = misfit(error)
            if message is None and (mistake(error) is not None or raised_by_own_code(error, trainer.cfg)):
                raise
            if message is None:
                with making_sense_of(candidate, "go on from another one, or begin again in another --save-dir"):
                    raise error.__context__ or error from None  # fairseq's trainer hides why the model cannot be loaded
            raise UserError(misfit_message(candidate, trainer.cfg.model, message, is_last)) from error


def tell_what_is_replaced(filename: str, own_last: str, others: Sequence[str], fine_tunes: bool = False) -> None:
    """Warn where a training begins with ``filename``, and its saves will replace checkpoints of an earlier one.

    Args:
        filename: the file to begin with; there is none if it is ``own_last`` and does not exist.
        own_last: the folder's checkpoint_last.pt.
        others: those beside it, newest first.
        fine_tunes: whether ``--finetune-from-model`` is given, with which fairseq refuses ``--restore-file``.
    """
    own = [own_last] if os.path.exists(own_last) else others
    if not own or (os.path.exists(filename) and any(os.path.samefile(filename, path) for path in own)):
        return
    if own == [own_last]:  # which --continue-once and --finetune-from-model go on from
        logger.warning(
            f"{own_last}: is passed over, and the next save replaces it, since --restore-file names {filename}: to go on from it, "
            "leave --restore-file out"
        )
    else:
        logger.warning(
            f"{own_last}: is not there, but {os.path.basename(own[0])} is: the training begins anew, and its saves replace files "
            f"of the same names; to go on, give --restore-file {own[0]}{' in place of --finetune-from-model' if fine_tunes else ''}"
        )


def older_checkpoints(folder: str, filename: str) -> list[str]:
    """Return the checkpoints beside ``filename`` that a training can go on from, with the same suffix, newest first."""
    suffix = os.path.basename(filename)[len("checkpoint_last") :]
    pattern = re.compile(rf"checkpoint(\d+|_\d+_\d+|_best){re.escape(suffix)}")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names if pattern.fullmatch(name)]
    return sorted(paths, key=os.path.getmtime, reverse=True)


# Writing. fairseq writes checkpoint_best.pt and similar files under a temporary name, but copies checkpoint_last.pt in
# place: a run that is killed during the copy has no last checkpoint any more. It repeats a failed write twice into the
# same open file, which cannot succeed, logs a traceback, and leaves the temporary file on the full disk.

_fairseq_torch_persistent_save = checkpoint_utils.torch_persistent_save


@contextmanager
def whole_file_or_none(filename: str) -> Iterator[str]:
    """Yield the temporary name FILENAME.tmp, and remove that file afterwards; a failed write is a UserError.

    The name is fairseq's, and the same at each try, so a killed run leaves one such file at most.
    """
    temporary = filename + ".tmp"
    try:
        yield temporary
    except (OSError, RuntimeError) as error:
        failure = write_failure(error)
        if failure is None:
            raise
        free = shutil.disk_usage(os.path.dirname(filename) or ".").free
        raise UserError(
            f"{filename}: cannot be written ({failure.reason}; {free / 2**20:,.0f} MiB free there): {to_go_on(failure.advice)} "
            "and start the same command again; the earlier checkpoints are whole"
        ) from error
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


_fairseq_move_to_cpu = utils.move_to_cpu


def move_to_cpu(sample: Any) -> Any:
    """Move a state to the CPU for saving; tied weights stay one tensor, and are saved once, also from a GPU."""
    moved: dict[Any, torch.Tensor] = {}

    def move(tensor: torch.Tensor) -> torch.Tensor:
        place = place_of(tensor)
        if place not in moved:
            (moved[place],) = _fairseq_move_to_cpu([tensor])
        return moved[place]

    return utils.apply_to_sample(move, sample)


def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> None:
    """Save; if the file cannot be written, remove the temporary one, and raise an error of one line."""
    with whole_file_or_none(filename):
        _fairseq_torch_persistent_save(obj, filename, async_write)


def copy(src_path: str, dst_path: str, overwrite: bool = False) -> str:
    """Copy checkpoint_last.pt and checkpoint_best.pt through a temporary name, unlike PathManager.copy."""
    with whole_file_or_none(dst_path) as temporary:
        shutil.copyfile(src_path, temporary)
        os.replace(temporary, dst_path)
    return dst_path
