# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Values at and beyond the borders for every option of every command that takes a number, a name or a path.

The options come from the parsers themselves, so that a new one is tried like the others.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from malformed import REPOSITORY, Case, commands

# What no option for a number may be, whatever it means.
NO_NUMBER = ("", "nan", "inf", "-inf", "x", "1e999", "0x10", "1,")
# What a command may leave that notices something late.
LEFT = ("ckpt/*", "predicted/*")


def parser_of(command: tuple[str, ...]) -> argparse.ArgumentParser:
    """The parser that a command parses its options with, all of its options added."""
    from fairseq import options

    found = []

    def parse_script(parser, args=None, namespace=None):
        found.append(parser)
        if parser._subparsers is None:
            raise SystemExit
        return parse_known_args(parser, args, namespace)

    def parse_fairseq(parser, *args, **kwargs):
        found.append(parser)
        parse_args_and_arch(parser, *args, **kwargs)
        raise SystemExit

    parse_known_args, parse_args_and_arch = argparse.ArgumentParser.parse_known_args, options.parse_args_and_arch
    is_script = command[0].endswith(".py")
    hook = (argparse.ArgumentParser, "parse_known_args", parse_script) if is_script else (
        options, "parse_args_and_arch", parse_fairseq)  # fmt: skip
    with mock.patch.object(*hook), mock.patch.object(sys, "argv", list(command)), contextlib.suppress(SystemExit):
        if is_script:
            runpy.run_path(str(REPOSITORY / command[0]), run_name="__main__")
        else:
            sys.modules["fairseq_cli." + command[0].removeprefix("fairseq-")].cli_main()
    return found[-1]


def actions_of(command: tuple[str, ...]) -> Iterator[argparse.Action]:
    """The options that take a value."""
    for action in parser_of(command)._actions:
        if action.option_strings and action.nargs != 0 and action.option_strings != ["--user-dir"]:
            yield action


def values_of(action: argparse.Action, rng: random.Random) -> list[tuple[str, bool]]:
    """Values to try, and whether they must be refused: those that break most, and some of the others."""
    kind = getattr(action.type, "kind", action.type)
    if action.choices is not None:
        return [(value, True) for value in ("", "none of these", f"{next(iter(action.choices))} ")]
    if kind in (int, float):
        always = [("0", False), ("-1", False), ("99999999999999999999", kind is int), ("nan", True)]
        others = [(value, True) for value in NO_NUMBER]
        if kind is int:
            others += [(value, True) for value in ("1.5", "1e20", "2147483648", "-99999999999999999999")]
        else:
            others += [(value, False) for value in ("-0.5", "1.5", "1e20", "1e-320", "1")]
        return [*always, *rng.sample(others, 2)]
    if getattr(action.type, "__name__", "") == "<lambda>":  # fairseq's lists
        return [(value, False) for value in ("", "0", "-1", "nan", "x", "(", "1,,", "[]", "99999999999999999999", "1,-1")]
    others = ("0", "-1", "nan", "(", "{", "x", "\N{SNOWMAN}", "a\nb", "x" * 5000)
    return [("", False), *((value, False) for value in rng.sample(others, 2))]


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
    (commands.binarize(), ("raw", "root")),
    (commands.clean(), ("raw", "root")),
    (commands.translate(), ("mt", "bin")),
    (commands.align(), ("camlm", "raw")),
    (commands.tatoeba(), ("camlm", "raw")),
    (commands.bucc(), ("camlm", "bucc")),
    (commands.label(), ("tagging-model", "raw")),
    (commands.evaluate("classification"), ("classification-model", "classification")),
)


def cases(rng: random.Random, good: Path) -> Iterator[Case]:
    """Every option of every command; those that fairseq's commands share, a part with each of them."""
    seen: dict[str, int] = {}
    for name, command, needs in TRAININGS:
        for action in actions_of(command):
            option = action.option_strings[-1]
            shared = seen.get(option, 0)
            seen[option] = shared + 1
            for _number, (value, refused) in enumerate(values_of(action, rng)):
                if not shared or rng.random() < 0.15:
                    yield case(f"options of fairseq, {name}", command, option, value, needs, refused)
    for command, needs in SCRIPTS:
        for action in actions_of(command):
            for value, refused in values_of(action, rng):
                name = f"options of {command[0].removeprefix('scripts/')}"
                yield case(name, command, action.option_strings[-1], value, needs, refused)


ENDS = ("--max-epoch", "2")  # also where --max-update 0 sets no end


def case(kind: str, command: tuple[str, ...], option: str, value: str, needs: tuple[str, ...], refused: bool) -> Case:
    text = value if len(value) < 50 else f"{value[:5]}... ({len(value)})"
    name = f"{' '.join(command[1:2]) if command[1] in ('tatoeba', 'bucc', 'run') else ''} {option} {text!r}".strip()
    return Case(
        kind, name, (*command, *ENDS * (command[0] == "fairseq-train"), f"{option}={value}"), needs, refused=refused, leaves=LEFT
    )
