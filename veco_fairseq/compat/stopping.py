# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""How a training begins in its folder, and how it ends: finished, told to end, or refused."""

import logging
import os
import signal
import time
from collections.abc import Callable

import fairseq_cli.train as fairseq_train
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from veco_fairseq.compat import plateau
from veco_fairseq.compat.batches import number_and_lengths
from veco_fairseq.compat.kept import beginnings_of, tell_of_another_beginning
from veco_fairseq.compat.lowest_rate import may_end
from veco_fairseq.compat.patching import replaced, running
from veco_fairseq.compat.together import begin_alike, highest, refuse
from veco_fairseq.errors import UserError
from veco_fairseq.lock import lock_folder
from veco_fairseq.options.flags import flag

logger = logging.getLogger(__name__)
LAST = "checkpoint_last.pt"  # fairseq's default of --restore-file
# Options of the criterion and the task that make the loss of a validation another one, with the same weights.
OF_LOSS = {
    "criterion": ("label_smoothing", "objective", "s_terms", "discriminator_weight", "no_trtd"),
    "task": ("mono_mask_prob", "bitext_mask_prob", "bitext_mask_spread", "no_tlm"),
}
_fairseq_load_checkpoint = checkpoint_utils.load_checkpoint
_fairseq_validate_and_save = fairseq_train.validate_and_save
_fairseq_trainer_save_checkpoint = Trainer.save_checkpoint


# Beginning


def load_checkpoint(cfg, trainer: Trainer, **options):
    """Begin in a folder that belongs to this training alone; train nothing if the training was finished.

    Without this, a finished training is trained for one more update at each start. From here on, SIGTERM, Ctrl-C
    and SIGHUP are noted.

    Raises:
        UserError: another training saves into the folder, or the workers do not begin alike.
    """
    refusal = None
    if distributed_utils.is_master(trainer.cfg.distributed_training) and not cfg.no_save:
        try:
            lock_folder(cfg.save_dir)
        except UserError as error:
            refusal = error
    refuse(trainer, refusal)
    note_signals()
    begun = not (cfg.finetune_from_model or getattr(cfg, "continue_once", None)) or has_begun(cfg, trainer)
    begins = bool(cfg.finetune_from_model) and not begun  # of which fairseq resets everything, but not in its options
    # With --finetune-from-model, fairseq refuses --reset-dataloader, also where it counts no more.
    is_past = bool(cfg.finetune_from_model) and not begins and cfg.restore_file == LAST
    with replaced(cfg, "finetune_from_model", None if is_past else cfg.finetune_from_model):
        extra_state, iterator = _fairseq_load_checkpoint(cfg, trainer, **options)
    begin_alike(trainer, iterator)
    tell_of_updates_at_a_rate_of_zero(trainer.cfg)
    tell_of_a_warm_up_without_end(trainer.cfg)
    tell_of_a_metric_without_validations(trainer.cfg)
    resumed = extra_state is not None and not begins
    if resumed and "beginnings" in extra_state and cfg.restore_file == LAST:
        given = beginnings_of(trainer.cfg)
        if not begun:  # it is this one that the training goes on from
            given.pop("continue_once")
        tell_of_another_beginning(cfg.save_dir, extra_state["beginnings"], given)
    if resumed and judged_by_another(extra_state, trainer):
        vars(checkpoint_utils.save_checkpoint).pop("best", None)
        plateau.begin_anew(trainer)
    elif resumed and not (cfg.reset_optimizer or cfg.reset_meters):
        vars(early_stopping()).update(extra_state.get("early_stopping", {}))
        if trainer.get_num_updates() and not (cfg.reset_lr_scheduler or cfg.reset_dataloader):
            plateau.end_epoch_of(extra_state, trainer)
    if iterator.iterations_in_epoch:
        may_end(trainer, within_epoch=True)
    reason = finished(trainer, iterator.next_epoch_idx) if extra_state is not None else None
    if reason:
        logger.info(
            f"finished already, after {trainer.get_num_updates()} updates, by {reason}: nothing is trained or saved; to "
            f"go on, raise it{', and --total-num-update, if you give it, too' if end_of_schedule(trainer.cfg) else ''}"
        )
        trainer.cfg.optimization.max_epoch = -1  # ends fairseq's loop over the epochs
    return extra_state, iterator


def end_of_schedule(cfg) -> float | None:
    """Return ``--total-num-update``, if the learning rate is zero from there on."""
    schedule = getattr(cfg, "lr_scheduler", None)
    end = getattr(schedule, "total_num_update", None)  # of polynomial_decay alone; a text where it is given
    return float(end) if end and not getattr(schedule, "end_learning_rate", 0) else None


def tell_of_updates_at_a_rate_of_zero(cfg) -> None:
    """Warn of updates that change nothing, as where ``--max-update`` alone is raised after the end of a training."""
    end, most = end_of_schedule(cfg), cfg.optimization.max_update
    if end is not None and end < most:
        logger.warning(
            f"--max-update {most}: the learning rate is 0 from update {end:.0f} on (--total-num-update), and nothing is learnt there: "
            "give the same number to both"
        )


def tell_of_a_warm_up_without_end(cfg) -> None:
    """Warn of a learning rate that never comes to ``--lr``, as where a training was made shorter, and its warm-up was not."""
    schedule = getattr(cfg, "lr_scheduler", None)
    end, warmup = (float(getattr(schedule, name, None) or 0) for name in ("total_num_update", "warmup_updates"))
    if 0 < end < warmup:
        logger.warning(
            f"--warmup-updates {warmup:.0f}: the learning rate only rises until the training's end, update {end:.0f} (--total-num-update, or "
            f"else --max-update), and comes to {end / warmup:.0%} of --lr: give fewer"
        )


def tell_of_a_metric_without_validations(cfg) -> None:
    """Warn of a metric that chooses no checkpoint, whatever is written there."""
    metric = getattr(cfg.checkpoint, "best_checkpoint_metric", "loss")
    if metric != "loss" and getattr(cfg.dataset, "disable_validation", False):
        logger.warning(
            f"--best-checkpoint-metric {metric}: chooses no checkpoint_best.pt, since --disable-validation leaves out all validations: "
            "leave out one of the two"
        )


def has_begun(cfg, trainer: Trainer) -> bool:
    """Return whether the training has a last checkpoint; before, ``--finetune-from-model`` and ``--continue-once`` count."""
    return os.path.exists(os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt"))


def judge(trainer: Trainer) -> dict[str, str]:
    """Return what tells the best validation, by option: its figure and its set, and of the loss what that is made of."""
    cfg = trainer.cfg
    name = cfg.dataset.valid_subset.split(",")[0]
    combined = " (--combine-valid-subsets)" if getattr(cfg.dataset, "combine_valid_subsets", False) else ""
    found = {"--best-checkpoint-metric": cfg.checkpoint.best_checkpoint_metric, "--valid-subset": name + combined}
    if name in trainer.task.datasets:  # with --disable-validation it is not
        found["the set to validate on"] = number_and_lengths(trainer.task.datasets[name])
    if cfg.checkpoint.best_checkpoint_metric == "loss":
        for part, names in OF_LOSS.items():
            options = getattr(cfg, part, None)
            found |= {flag(option): str(getattr(options, option)) for option in names if hasattr(options, option)}
    return found


def changes_of_judge(extra_state: dict, trainer: Trainer) -> list[str]:
    """Return what is another :func:`judge` in a checkpoint than in this training, as "--NAME was A and is B"."""
    then = extra_state.get("judge", {})  # an older version has none, or fewer
    now = judge(trainer) if then else {}
    return [f"{name} was {then[name]} and is {now[name]}" for name in now if then.get(name, now[name]) != now[name]]


def judged_by_another(extra_state: dict, trainer: Trainer) -> bool:
    """Return whether a checkpoint's best validation is by another metric or of another set, with which none can be compared."""
    changes = changes_of_judge(extra_state, trainer)
    if changes:
        logger.warning(f"{'; '.join(changes)}: the best validation, and what counts those without progress, begin anew")
    return bool(changes)


def finished(trainer: Trainer, next_epoch: int) -> str | None:
    """Return the option that has ended the training in this checkpoint, or None if it is not finished."""
    limits, updates = trainer.cfg.optimization, trainer.get_num_updates()
    if not updates:  # another model's checkpoint to start from
        return None
    if 0 < limits.max_update <= updates:
        return f"--max-update {limits.max_update}"
    if 0 < limits.max_epoch < next_epoch:
        return f"--max-epoch {limits.max_epoch}"
    if 0 < limits.stop_time_hours < trainer.cumulative_training_time() / 3600:
        return f"--stop-time-hours {limits.stop_time_hours}"
    patience = trainer.cfg.checkpoint.patience
    if 0 < patience <= getattr(early_stopping(), "num_runs", 0):
        return f"--patience {patience}"
    return None


def early_stopping() -> Callable:
    """Return fairseq's function for ``--patience``, which keeps its count in its attributes ``best`` and ``num_runs``."""
    *_, module = running(fairseq_train.__name__)
    return module.should_stop_early


def trainer_save_checkpoint(trainer: Trainer, filename: str, extra_state: dict):
    """Save with the count of ``--patience``, without which a resumed training would end later, and what it is a count of."""
    count = {name: float(value) if name == "best" else int(value) for name, value in vars(early_stopping()).items()}
    extra_state = {**extra_state, "judge": judge(trainer), "early_stopping": count}
    return _fairseq_trainer_save_checkpoint(trainer, filename, extra_state)


# Being stopped. On SIGTERM (kill, SLURM's time limit, a reclaimed machine), on Ctrl-C and on SIGHUP (a closed terminal, a lost
# connection), fairseq dies and loses its work since the last checkpoint.

_told = {"number": 0, "since": 0.0}  # the first signal, and its time


def note_signals() -> None:
    """Note SIGTERM, Ctrl-C and SIGHUP from here on, also in the data loaders' processes, which inherit this.

    These must survive the signal: SLURM and a terminal send it to every process of a job, and a loader that dies ends the
    training (for SIGTERM see :mod:`veco_fairseq.compat.workers`). They end with the training, as always. Under nohup, a SIGHUP
    ends nothing.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, note)


def note(number: int, frame) -> None:
    """Handle a signal; a second Ctrl-C ends the process at once, unless it is the launcher's copy of the first."""
    if not _told["number"]:
        _told.update(number=number, since=time.monotonic())
    elif number == signal.SIGINT and time.monotonic() - _told["since"] > 1:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def validate_and_save(cfg, trainer: Trainer, task, epoch_itr, *args):
    """Validate and save what is due after an update; after a signal save checkpoint_last.pt and end with 128 + its number.

    A validation that is due after this update (at the end of an epoch) still runs after saving. Without it, the best
    checkpoint and --patience would differ from those of an uninterrupted training. All workers end together: a launcher
    kills the workers that are left, and could kill the first one while it saves.

    ``--no-last-checkpoints`` does not hold for this last save, without which the work would be lost. After the last epoch of
    ``--max-epoch`` all is due, as after the last update of ``--max-update``. ``--save-interval-updates`` also holds before
    ``--validate-after-updates``.
    """
    if args[-1] and 0 < cfg.optimization.max_epoch <= epoch_itr.epoch:  # the end of an epoch
        cfg.checkpoint.save_interval = cfg.dataset.validate_interval = 1
    number = int(highest(trainer, _told["number"]))
    if not number:
        every = cfg.checkpoint.save_interval_updates
        if every > 0 and 0 < trainer.get_num_updates() < cfg.dataset.validate_after_updates and not args[-1]:
            if trainer.get_num_updates() % every == 0:
                checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        return _keeping_the_best(cfg, trainer, task, epoch_itr, *args)
    cfg.checkpoint.no_last_checkpoints = False
    checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
    _keeping_the_best(cfg, trainer, task, epoch_itr, *args)
    highest(trainer, 0)
    name = signal.Signals(number).name
    logger.warning(
        f"{name}: saved after update {trainer.get_num_updates()}; the same command{but_for(cfg.checkpoint)} goes on from here"
        if not cfg.checkpoint.no_save
        else f"{name}: ended, and nothing saved (--no-save)"
    )
    raise SystemExit(128 + number)


def _keeping_the_best(cfg, trainer: Trainer, task, epoch_itr, *args):
    """Validate and save what is due, and what is the best so far where fairseq validates and does not save."""
    losses, should_stop = _fairseq_validate_and_save(cfg, trainer, task, epoch_itr, *args)
    if losses[0] is not None:
        best = getattr(checkpoint_utils.save_checkpoint, "best", None)  # of what was saved
        sign = -1 if cfg.checkpoint.maximize_best_checkpoint_metric else 1
        if best is None or sign * losses[0] < sign * best:
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, losses[0])
    return losses, should_stop


def but_for(cfg) -> str:
    """Return the options that a command must not have to go on from checkpoint_last.pt with all its state."""
    beginning = ["--restore-file"] if cfg.restore_file != LAST else []
    for part in ("optimizer", "lr-scheduler", "meters", "dataloader"):
        beginning += [f"--reset-{part}"] if getattr(cfg, f"reset_{part.replace('-', '_')}") else []
    return f" without {', '.join(beginning)}" if beginning else ""
