# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is wrong with options of fairseq's commands that are within their borders one by one: a function for each subject.

An option can do nothing beside another one, with the command or for the task; or what it needs is missing.
"""

import argparse
import importlib
import re
from collections.abc import Iterator
from typing import Any

from fairseq.file_io import PathManager
from fairseq.tasks import TASK_REGISTRY

from veco_fairseq.arguments import short
from veco_fairseq.compat.hooks import HasOptionsWithoutEffect
from veco_fairseq.options.flags import flag

Options = dict[str, Any]  # by fairseq's names; a command has no others than its own

UNFIT = {
    "num_batch_buckets": "fairseq's code for it does not run with NumPy 2",
    "use_bmuf": "each worker has weights of its own, and a checkpoint keeps those of the first",
}
# Where fairseq ends in a traceback after its first batch: whether that is fairseq-interactive or fairseq-generate, the option
# (and its value, if it is only that one), and what to do.
UNPRINTABLE = (
    (False, "constraints", None, "a data folder has none: give them to fairseq-interactive, after tabs on each line"),
    (True, "score_reference", None, "there are no references to score: give fairseq-generate a data folder that has them"),
    (True, "print_alignment", "soft", "fairseq-interactive prints links alone: give --print-alignment, or fairseq-generate"),
)
# Of fairseq-generate's search, by which the figures of --score-reference would be expected to change.
OF_A_SEARCH = ("unnormalized", "lenpen", "unkpen", "temperature", "prefix_size", "sampling", "match_source_len", "diversity_rate",
               "no_repeat_ngram_size")  # fmt: skip
# What takes the first tokens of a reference, and for which reason they must not be padding.
AT_THE_BEGINNING = (("prefix_size", "begin with padding"), ("score_reference", "get the scores of its padding"))
# Options that fairseq-train alone follows, and those that the other commands follow instead, which fairseq copies to them.
OF_TRAINING = {"max_valid_steps": None, "max_tokens_valid": "max_tokens", "batch_size_valid": "batch_size"}
NEEDED = {"bleu": "eval_bleu", "accuracy": "report_accuracy"}  # which option validation has a figure by
SMOOTHED = "label_smoothed_cross_entropy"
ALIGNING = f"{SMOOTHED}_with_alignment"
PACKAGES = {"write_checkpoints_asynchronously": "iopath", "use_plasma_view": "pyarrow.plasma"}  # what an option needs


def problems(parser: argparse.ArgumentParser, chosen: Options) -> Iterator[str]:
    """Yield what is wrong with the options of a command line, of which its parser has the defaults."""
    yield from _of_the_task(parser, chosen)
    yield from _of_checkpoints(chosen)
    yield from _of_translating(parser, chosen)
    yield from _of_training(chosen)
    yield from _of_the_command(chosen)
    yield from _of_validation(chosen)
    yield from _of_alignments(chosen)
    yield from _of_learning_rates(chosen)
    yield from _of_packages(chosen)
    yield from _of_the_best(chosen)


def _of_the_task(parser: argparse.ArgumentParser, chosen: Options) -> Iterator[str]:
    """With these options the task does the same as without; their defaults may be given."""
    task = TASK_REGISTRY.get(chosen.get("task") or "")
    for name, reason in task.without_effect.items() if isinstance(task, HasOptionsWithoutEffect) else ():
        if chosen.get(name) not in (None, parser.get_default(name)) and str(chosen[name]).lower() != "false":
            yield f"{flag(name)}: {reason}: leave it out"


def _of_checkpoints(chosen: Options) -> Iterator[str]:
    for name, reason in UNFIT.items():
        if chosen.get(name):
            yield f"{flag(name)}: {reason}: leave it out"
    if chosen.get("keep_best_checkpoints", 0) > 0 and "_" in (suffix := chosen.get("checkpoint_suffix") or ""):
        yield f"--checkpoint-suffix {suffix}: --keep-best-checkpoints cannot read file names with one more _: write it without"


def _of_translating(parser: argparse.ArgumentParser, chosen: Options) -> Iterator[str]:
    for interactive, name, value, reason in UNPRINTABLE:
        here = "beam" in chosen and ("buffer_size" in chosen) == interactive
        if here and chosen.get(name) and value in (None, chosen[name]):
            yield f"{flag(name)}{f' {value}' if value else ''}: {reason}"
    if chosen.get("score_reference") and chosen.get("print_alignment") == "soft":
        yield "--print-alignment soft: references that are scored have links alone: give --print-alignment, or leave it out"
    for name in OF_A_SEARCH if chosen.get("score_reference") else ():
        if chosen.get(name) != parser.get_default(name):
            yield f"{flag(name)}: --score-reference searches for nothing, and its score is the tokens' mean: leave it out"
    if chosen.get("retain_dropout_modules") and not chosen.get("retain_dropout"):
        yield "--retain-dropout-modules: without --retain-dropout there is no dropout: give that, too"
    for name, reason in AT_THE_BEGINNING if str(chosen.get("left_pad_target")).lower() == "true" else ():
        if chosen.get(name):
            yield f"--left-pad-target: with {flag(name)} a short reference would {reason}: leave out one of the two"


def _of_training(chosen: Options) -> Iterator[str]:
    seed = chosen.get("ema_seed_model") if chosen.get("store_ema") else None
    if seed and not PathManager.isfile(seed):  # before the data are loaded
        yield f"--ema-seed-model {short(seed)}: no such checkpoint: check the path"
    if chosen.get("fp16") and chosen.get("amp"):
        yield "--fp16 and --amp: leave out one of the two"
    if chosen.get("grouped_shuffling") and chosen.get("fix_batches_to_gpus"):  # of cached data, some are left out then
        yield (
            "--grouped-shuffling and --fix-batches-to-gpus: the first gives all workers batches of like lengths at a time, and the "
            "second shuffles each one's own: leave out one of the two"
        )


def _of_the_command(chosen: Options) -> Iterator[str]:
    takes_a_part = "context_window" in chosen or "beam" in chosen and "buffer_size" not in chosen
    if chosen.get("num_shards", 1) > 1 and not takes_a_part:
        yield "--num-shards: fairseq-generate and fairseq-eval-lm alone take a part of a set: leave it out"
    for name, other in OF_TRAINING.items() if "max_update" not in chosen else ():
        if str(chosen.get(name)) not in ("None", str(chosen.get(other or ""))):  # fairseq reads the former as texts
            yield f"{flag(name)}: fairseq-train alone follows it: {f'give {flag(other)}' if other else 'leave it out'}"


def _of_validation(chosen: Options) -> Iterator[str]:
    judging = [flag(name) for name in ("patience", "keep_best_checkpoints") if chosen.get(name, 0) > 0]
    judging += ["--lr-scheduler reduce_lr_on_plateau"] if chosen.get("lr_scheduler") == "reduce_lr_on_plateau" else []
    if judging and chosen.get("disable_validation"):
        yield f"{judging[0]}: goes by validations, and --disable-validation has none: leave out one of the two"
    metric = chosen.get("best_checkpoint_metric") or ""
    needed = NEEDED.get(metric.rpartition("_")[2])
    if needed and chosen.get(needed) is False:
        yield f"--best-checkpoint-metric {metric}: validation has it with {flag(needed)} alone: give that, too"


def _of_alignments(chosen: Options) -> Iterator[str]:
    criterion, loads = chosen.get("criterion"), chosen.get("load_alignments")  # None of a task that has no such option
    many = chosen.get("task") == "veco_multilingual_translation"  # which takes no alignments, and says so itself
    if "max_update" in chosen and criterion == ALIGNING and loads is False:
        advice = f"{'' if many else 'that, too, or '}--criterion {SMOOTHED}"
        yield f"--criterion {ALIGNING}: learns no alignment without --load-alignments: give {advice}"
    if "max_update" in chosen and criterion in ("cross_entropy", SMOOTHED) and loads and not many:
        yield f"--load-alignments: --criterion {criterion} learns from none: leave it out, or give --criterion {ALIGNING}"


def _of_learning_rates(chosen: Options) -> Iterator[str]:
    if chosen.get("lr_scheduler") != "polynomial_decay":
        return
    if chosen.get("force_anneal"):
        yield (
            "--force-anneal: with --lr-scheduler polynomial_decay, each epoch from there on would begin to decay anew from the rate "
            "that the last one came to, which is 0 before a warm-up: leave it out"
        )
    if not (chosen.get("total_num_update") or chosen.get("max_update")):
        yield "--lr-scheduler polynomial_decay: needs the length of the training: give --max-update N or --total-num-update N"


def _of_packages(chosen: Options) -> Iterator[str]:
    for name, package in PACKAGES.items():
        if chosen.get(name):
            try:
                importlib.import_module(package)
            except ImportError:
                yield f"{flag(name)}: needs the package {package}, which is not installed: leave it out"


def _of_the_best(chosen: Options) -> Iterator[str]:
    """By these options checkpoint_best.pt would be the worst one: fairseq takes the lowest figure if not told otherwise."""
    metric, highest = (chosen.get(name) for name in ("best_checkpoint_metric", "maximize_best_checkpoint_metric"))
    kind = re.search(r"(?:^|_)(?:(score|acc|accuracy|precision|recall|bleu|f1)|loss|ppl)$", metric or "")
    if kind and highest and not kind[1]:
        yield f"--maximize-best-checkpoint-metric: the best {metric} is the lowest: leave it out, or name another metric"
    if kind and kind[1] and not highest:
        yield f"--best-checkpoint-metric {metric}: the best is the highest: give --maximize-best-checkpoint-metric, too"
