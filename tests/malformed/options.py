# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Values at and beyond the borders for every option of every command that takes a number, a name or a path.

The options come from the parsers themselves, so that a new one is tried like the others.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import runpy
import sys
from collections.abc import Iterator
from unittest import mock

from malformed import REPOSITORY, Case, commands

# What no option for a number may be, whatever it means.
NO_NUMBER = ("", "nan", "inf", "-inf", "99999999999999999999", "x", "1e999", "0x10", "1,")
SMALL = ("0", "-1", "-0.5", "1.5", "1e-320", "1e20", "2147483648", "-99999999999999999999")
# Large and allowed, these would take all memory or time, which is no mistake of the option's.
COSTLY = {"--encoder-embed-dim", "--decoder-embed-dim"}

MODEL = ("ckpt/*", "predicted/*")
PLUGGED = ("--nlu-task", "classification")


def parser_of(command: tuple[str, ...]) -> argparse.ArgumentParser:
    """The parser that a command parses its options with, as far as this command line gets it."""
    found = []

    def parse(parser, args=None, namespace=None):
        found.append(parser)
        return parse_known_args(parser, args, namespace)

    parse_known_args = argparse.ArgumentParser.parse_known_args
    with (
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", parse), mock.patch.object(sys, "argv", list(command)),
        contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(BaseException),
    ):  # fmt: skip
        if command[0].endswith(".py"):
            runpy.run_path(str(REPOSITORY / command[0]), run_name="__main__")
        else:
            sys.modules["fairseq_cli." + command[0].removeprefix("fairseq-")].cli_main()
    return found[-1]


def actions_of(command: tuple[str, ...]) -> Iterator[argparse.Action]:
    """The options that take a value."""
    for action in parser_of(command)._actions:
        if action.option_strings and action.nargs != 0 and action.option_strings != ["--user-dir"]:
            yield action


def values_of(action: argparse.Action) -> Iterator[tuple[str, bool]]:
    """Values to try, and whether they must be refused."""
    kind = getattr(action.type, "kind", action.type)
    if action.choices is not None:
        yield from ((value, True) for value in ("", "none of these", next(iter(action.choices), "x") + " "))
    elif kind in (int, float):
        yield from ((value, True) for value in (*NO_NUMBER, "-99999999999999999999"))
        if kind is int:
            yield from ((value, True) for value in ("1.5", "1e20", "2147483648"))
        yield from ((value, False) for value in ("0", "-1", *(("-0.5", "1.5", "1e20", "1e-320") if kind is float else ())))
    elif getattr(action.type, "__name__", "") == "<lambda>":  # fairseq's lists
        yield from ((value, False) for value in ("", "0", "-1", "nan", "x", "(", "1,,", "[]", "99999999999999999999", "1,-1"))
    else:
        yield from ((value, False) for value in ("", "0", "-1", "nan", "(", "{", "x", "\N{SNOWMAN}", "a\nb", "x" * 5000))


TRAININGS = (
    ("camlm", commands.pretrain("--lr-scheduler", "polynomial_decay", "--total-num-update", "3", "--no-save"), ("root",)),
    ("mlm", commands.pretrain("--objective", "mlm", "--lr-scheduler", "inverse_sqrt", "--no-save"), ("root",)),
    ("xlme", commands.pretrain("--criterion", "replaced_token", "--arch", "xlme_tiny", "--no-save", "--lr-scheduler",
                               "polynomial_decay", "--total-num-update", "3"), ("root",)),
    ("nlu", commands.nlu("classification", "--no-save", "--lr-scheduler", "linear_by_epoch", "--max-epoch", "2"),
     ("classification", "camlm")),
    ("translation", commands.translation("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1",
                                         "--lr-scheduler", "cosine", "--no-save"), ("bin",)),
    ("generate", commands.generate(), ("bin", "mt")),
    ("interactive", commands.interactive(text="pieces/test.aa"), ("bin", "mt", "pieces")),
    ("validate", commands.validate(), ("bin", "mt")),
)  # fmt: skip

SCRIPTS = (
    (commands.inspect(), ("root",)),
    (commands.prepare(), ("raw",)),
    (commands.encode(), ("raw", "root")),
    (commands.translate(), ("mt", "bin")),
    (commands.align(), ("camlm", "raw")),
    (commands.tatoeba(), ("camlm", "raw")),
    (commands.bucc(), ("camlm", "bucc")),
    (commands.label(), ("tagging-model", "raw")),
    (commands.evaluate("classification"), ("classification-model", "classification")),
)


def cases(rng: random.Random) -> Iterator[Case]:
    """Every option with every value; fairseq's own options, which commands share, with each command in turn."""
    seen: dict[str, int] = {}
    for name, command, needs in TRAININGS:
        for action in actions_of(command):
            option = action.option_strings[-1]
            shared = seen.setdefault(option, 0)
            seen[option] += 1
            for number, (value, refused) in enumerate(values_of(action)):
                if shared and (number + shared) % 8:
                    continue  # of the options that commands share an eighth each
                if option in COSTLY and not refused and float(value or 0) > 1000:
                    continue
                text = value if len(value) < 50 else f"{value[:5]}... ({len(value)})"
                yield Case(f"options of fairseq ({name})", f"{option} {text!r}", (*command, f"{option}={value}"), needs,
                           refused=refused, leaves=MODEL)  # fmt: skip
