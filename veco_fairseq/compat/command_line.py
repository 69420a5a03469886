# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The command lines of fairseq's commands: errors of one line, and values within their borders."""

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from fairseq import options as fairseq_options

from veco_fairseq.arguments import end_with, short
from veco_fairseq.checkpoints.own_options import own_options
from veco_fairseq.compat.combinations import problems
from veco_fairseq.compat.help_of_all import help_of_all
from veco_fairseq.errors import UserError
from veco_fairseq.options.borders import BOOLEANS, MAY_BE_EMPTY, check_options

_fairseq_parse_args_and_arch = fairseq_options.parse_args_and_arch
NO_HYDRA = re.compile(r"\\('|$)")  # in a text that fairseq puts between quotes


def parse_args_and_arch(parser: argparse.ArgumentParser, input_args: Sequence[str] | None = None, *args, **kwargs):
    """Parse a command line of fairseq, with errors of one line, and values within their borders.

    Raises:
        UserError: see :func:`check_options` and :mod:`veco_fairseq.compat.combinations`; or the value of an option is empty, or
            no text that fairseq can hand on to hydra.
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
    chosen = vars(parsed)
    for message in _unreadable(parser, chosen, words):
        raise UserError(message)
    own = own_options(chosen) - common
    check_options({name: value for name, value in chosen.items() if name not in own})
    for message in problems(parser, chosen):
        raise UserError(message)
    _settle(chosen)
    return found


def _unreadable(parser: argparse.ArgumentParser, chosen: dict[str, Any], words: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with texts that were given, and that fairseq cannot hand on to hydra as they are."""
    given = {word.partition("=")[0] for word in words}
    for action in parser._actions:
        value = chosen.get(action.dest)
        if not isinstance(value, str) or value == action.default:  # which may be empty, or refer to another option
            continue
        if action.option_strings and given.isdisjoint(action.option_strings):  # an architecture's, such as fconv_self_att's
            continue
        name = action.option_strings[0] if action.option_strings else f"the argument {action.dest}"
        if value == "" and action.dest not in MAY_BE_EMPTY:
            yield f"{name}: is empty: give a value, or leave it out"
        if "${" in value:
            yield f"{name} {short(value)}: has ${{, which fairseq takes for another option: write what it stands for"
        if NO_HYDRA.search(value):
            yield f"{name} {short(value)}: has a backslash at its end or before a quote, which fairseq cannot read: leave it out"


def _settle(chosen: dict[str, Any]) -> None:
    """Put values in place that fairseq fails to find or to read."""
    for name in BOOLEANS:
        if str(chosen.get(name)).lower() in ("true", "false"):
            chosen[name] = str(chosen[name]).capitalize()
    if chosen.get("upsample_primary") == -1:  # fairseq's default, as often as which nothing can be repeated
        chosen["upsample_primary"] = 1
    if chosen.get("lr_scheduler") == "polynomial_decay" and chosen.get("total_num_update") is None:
        chosen["total_num_update"] = chosen.get("max_update")


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
