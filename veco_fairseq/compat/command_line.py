# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The command lines of fairseq's commands: errors of one line, and values within their borders."""

import argparse
import ast
import importlib
import re
import sys
from collections.abc import Sequence
from typing import Any

from fairseq import options as fairseq_options
from fairseq.file_io import PathManager
from fairseq.tasks import TASK_REGISTRY

from veco_fairseq.arguments import end_with, short
from veco_fairseq.checkpoints.own_options import own_options
from veco_fairseq.compat.help_of_all import help_of_all
from veco_fairseq.compat.hooks import HasOptionsWithoutEffect
from veco_fairseq.errors import UserError
from veco_fairseq.options.borders import BOOLEANS, MAY_BE_EMPTY, check_options
from veco_fairseq.options.flags import flag

_fairseq_parse_args_and_arch = fairseq_options.parse_args_and_arch


def parse_args_and_arch(parser: argparse.ArgumentParser, input_args: Sequence[str] | None = None, *args, **kwargs):
    """Parse a command line of fairseq, with errors of one line, and values within their borders.

    Raises:
        UserError: see :func:`check_options` and :func:`_settle`; or the value of an option is empty, or no text that fairseq can
            hand on to hydra.
    """
    parser.error = lambda message: end_with(message, parser._option_string_actions)  # type: ignore[method-assign]
    common = {action.dest for action in parser._actions}
    words = help_of_all(parser, sys.argv[1:] if input_args is None else input_args)
    try:
        found = _fairseq_parse_args_and_arch(parser, words, *args, **kwargs)
    except RuntimeError as error:
        if str(error):
            raise
        raise UserError("--arch: is missing: give the model's architecture, such as --arch veco_small") from error
    except KeyError as error:
        if error.args != (None,):
            raise
        raise UserError("--task: is missing: give the task that the model was trained for, such as --task translation") from error
    parsed: argparse.Namespace = found[0] if isinstance(found, tuple) else found
    chosen, given = vars(parsed), {word.partition("=")[0] for word in words}
    for action in parser._actions:
        value = chosen.get(action.dest)
        if not isinstance(value, str) or value == action.default:  # which may be empty, or refer to another option
            continue
        if action.option_strings and given.isdisjoint(action.option_strings):  # an architecture's, such as fconv_self_att's
            continue
        name = action.option_strings[0] if action.option_strings else f"the argument {action.dest}"
        if value == "" and action.dest not in MAY_BE_EMPTY:
            raise UserError(f"{name}: is empty: give a value, or leave it out")
        if "${" in value:
            raise UserError(f"{name} {short(value)}: has ${{, which fairseq takes for another option: write what it stands for")
        if NO_HYDRA.search(value):
            raise UserError(
                f"{name} {short(value)}: has a backslash at its end or before a quote, which fairseq cannot read: leave it out"
            )
    own = own_options(chosen) - common
    check_options({name: value for name, value in chosen.items() if name not in own})
    _refuse_without_effect(parser, chosen)
    _settle(parser, chosen)
    _refuse_the_worst(chosen)
    return found


NO_HYDRA = re.compile(r"\\('|$)")  # in a text that fairseq puts between quotes


PACKAGES = {"write_checkpoints_asynchronously": "iopath", "use_plasma_view": "pyarrow.plasma"}  # what an option needs


NEEDED = {"bleu": "eval_bleu", "accuracy": "report_accuracy"}  # which option validation has a figure by


SMOOTHED = "label_smoothed_cross_entropy"
ALIGNING = f"{SMOOTHED}_with_alignment"


UNFIT = {
    "num_batch_buckets": "fairseq's code for it does not run with NumPy 2",
    "use_bmuf": "each worker has weights of its own, and a checkpoint keeps those of the first",
}


# Options that fairseq-train alone follows, and those that the other commands follow instead, which fairseq copies to them.
OF_TRAINING = {"max_valid_steps": None, "max_tokens_valid": "max_tokens", "batch_size_valid": "batch_size"}


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


def _refuse_without_effect(parser: argparse.ArgumentParser, chosen: dict[str, Any]) -> None:
    """Refuse options with which the task does the same as without; their defaults may be given.

    Raises:
        UserError: names the option, and the task's reason.
    """
    task = TASK_REGISTRY.get(chosen.get("task") or "")
    for name, reason in task.without_effect.items() if isinstance(task, HasOptionsWithoutEffect) else ():
        if chosen.get(name) not in (None, parser.get_default(name)) and str(chosen[name]).lower() != "false":
            raise UserError(f"{flag(name)}: {reason}: leave it out")


def _settle(parser: argparse.ArgumentParser, chosen: dict[str, Any]) -> None:
    """Put values in place that fairseq fails to find or to read, and refuse options that cannot work.

    Raises:
        UserError: the length of the training is missing, a package, or the option by which validation has the metric;
            fairseq's code is for an earlier version of a package; or an option has no effect with the command.
    """
    for name, reason in UNFIT.items():
        if chosen.get(name):
            raise UserError(f"{flag(name)}: {reason}: leave it out")
    if chosen.get("keep_best_checkpoints", 0) > 0 and "_" in (chosen.get("checkpoint_suffix") or ""):
        raise UserError(
            f"--checkpoint-suffix {chosen['checkpoint_suffix']}: --keep-best-checkpoints cannot read file names with one more _: "
            "write it without"
        )
    for interactive, name, value, reason in UNPRINTABLE:
        here = "beam" in chosen and ("buffer_size" in chosen) == interactive
        if here and chosen.get(name) and value in (None, chosen[name]):
            raise UserError(f"{flag(name)}{f' {value}' if value else ''}: {reason}")
    if chosen.get("score_reference") and chosen.get("print_alignment") == "soft":
        raise UserError(
            "--print-alignment soft: references that are scored have links alone: give --print-alignment, or leave it out"
        )
    for name in OF_A_SEARCH if chosen.get("score_reference") else ():
        if chosen.get(name) != parser.get_default(name):
            raise UserError(
                f"{flag(name)}: --score-reference searches for nothing, and its score is the tokens' mean: leave it out"
            )
    if chosen.get("retain_dropout_modules") and not chosen.get("retain_dropout"):
        raise UserError("--retain-dropout-modules: without --retain-dropout there is no dropout: give that, too")
    for name, reason in AT_THE_BEGINNING if str(chosen.get("left_pad_target")).lower() == "true" else ():
        if chosen.get(name):
            raise UserError(f"--left-pad-target: with {flag(name)} a short reference would {reason}: leave out one of the two")
    seed = chosen.get("ema_seed_model") if chosen.get("store_ema") else None
    if seed and not PathManager.isfile(seed):  # before the data are loaded
        raise UserError(f"--ema-seed-model {short(seed)}: no such checkpoint: check the path")
    if chosen.get("fp16") and chosen.get("amp"):
        raise UserError("--fp16 and --amp: leave out one of the two")
    if chosen.get("grouped_shuffling") and chosen.get("fix_batches_to_gpus"):  # of cached data, some are left out then
        raise UserError(
            "--grouped-shuffling and --fix-batches-to-gpus: the first gives all workers batches of like lengths at a time, and the "
            "second shuffles each one's own: leave out one of the two"
        )
    takes_a_part = "context_window" in chosen or "beam" in chosen and "buffer_size" not in chosen
    if chosen.get("num_shards", 1) > 1 and not takes_a_part:
        raise UserError("--num-shards: fairseq-generate and fairseq-eval-lm alone take a part of a set: leave it out")
    for name, other in OF_TRAINING.items() if "max_update" not in chosen else ():
        if str(chosen.get(name)) not in ("None", str(chosen.get(other or ""))):  # fairseq reads the former as texts
            raise UserError(f"{flag(name)}: fairseq-train alone follows it: {f'give {flag(other)}' if other else 'leave it out'}")
    if chosen.get("disable_validation"):
        judging = [flag(name) for name in ("patience", "keep_best_checkpoints") if chosen.get(name, 0) > 0]
        judging += ["--lr-scheduler reduce_lr_on_plateau"] if chosen.get("lr_scheduler") == "reduce_lr_on_plateau" else []
        if judging:
            raise UserError(f"{judging[0]}: goes by validations, and --disable-validation has none: leave out one of the two")
    metric = chosen.get("best_checkpoint_metric") or ""
    needed = NEEDED.get(metric.rpartition("_")[2])
    if needed and chosen.get(needed) is False:
        raise UserError(f"--best-checkpoint-metric {metric}: validation has it with {flag(needed)} alone: give that, too")
    criterion, loads = chosen.get("criterion"), chosen.get("load_alignments")  # None of a task that has no such option
    many = chosen.get("task") == "veco_multilingual_translation"  # which takes no alignments, and says so itself
    if "max_update" in chosen and criterion == ALIGNING and loads is False:
        advice = f"{'' if many else 'that, too, or '}--criterion {SMOOTHED}"
        raise UserError(f"--criterion {ALIGNING}: learns no alignment without --load-alignments: give {advice}")
    if "max_update" in chosen and criterion in ("cross_entropy", SMOOTHED) and loads and not many:
        raise UserError(
            f"--load-alignments: --criterion {criterion} learns from none: leave it out, or give --criterion {ALIGNING}"
        )
    for name in BOOLEANS:
        if str(chosen.get(name)).lower() in ("true", "false"):
            chosen[name] = str(chosen[name]).capitalize()
    if chosen.get("upsample_primary") == -1:  # fairseq's default, as often as which nothing can be repeated
        chosen["upsample_primary"] = 1
    if chosen.get("lr_scheduler") == "polynomial_decay" and chosen.get("force_anneal"):
        raise UserError(
            "--force-anneal: with --lr-scheduler polynomial_decay, each epoch from there on would begin to decay anew from the rate "
            "that the last one came to, which is 0 before a warm-up: leave it out"
        )
    if chosen.get("lr_scheduler") == "polynomial_decay" and chosen.get("total_num_update") is None:
        chosen["total_num_update"] = chosen.get("max_update")
        if not chosen["total_num_update"]:
            raise UserError(
                "--lr-scheduler polynomial_decay: needs the length of the training: give --max-update N or --total-num-update N"
            )
    for name, package in PACKAGES.items():
        if chosen.get(name):
            try:
                importlib.import_module(package)
            except ImportError as error:
                raise UserError(f"{flag(name)}: needs the package {package}, which is not installed: leave it out") from error


def _refuse_the_worst(chosen: dict[str, Any]) -> None:
    """Refuse options by which checkpoint_best.pt would be the worst one: fairseq takes the lowest figure if not told otherwise.

    Raises:
        UserError: the metric's name says that the other end of it is the best.
    """
    metric, highest = (chosen.get(name) for name in ("best_checkpoint_metric", "maximize_best_checkpoint_metric"))
    kind = re.search(r"(?:^|_)(?:(score|acc|accuracy|precision|recall|bleu|f1)|loss|ppl)$", metric or "")
    if kind and bool(kind[1]) != bool(highest):
        if highest:
            raise UserError(
                f"--maximize-best-checkpoint-metric: the best {metric} is the lowest: leave it out, or name another metric"
            )
        raise UserError(
            f"--best-checkpoint-metric {metric}: the best is the highest: give --maximize-best-checkpoint-metric, too"
        )


def eval_str_list(text: Any, kind: type = float) -> list | None:
    """Return the list in an argument such as ``--lr 1e-3,1e-4``; raise argparse.ArgumentTypeError if it is none.

    fairseq's function ends in a SyntaxError for some texts, and cuts fractions off numbers that must be whole.
    """
    if text is None:
        return None
    noun = {int: "whole numbers", float: "numbers"}.get(kind, "values")
    try:
        value = ast.literal_eval(text) if isinstance(text, str) and text else text or []
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        if kind in (int, float) and any(isinstance(one, bool) or not isinstance(one, (int, kind)) for one in values):
            raise ValueError(text)
        return [kind(one) for one in values]
    except Exception:  # literal_eval raises many kinds
        raise argparse.ArgumentTypeError(f"{short(text)}: must be {noun}, joined with commas") from None
