# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--help`` of fairseq's commands: the options of what the command line names, with their defaults."""

import argparse
import re

import pytest
from fairseq import options

import veco_fairseq.plugin  # noqa: F401
from veco_fairseq.commands import parser
from veco_fairseq.help_texts import with_default


def help_of(capsys, words: str, make=options.get_training_parser) -> str:
    with pytest.raises(SystemExit) as end:
        options.parse_args_and_arch(make(), words.split())
    printed = capsys.readouterr()
    assert end.value.code == 0 and not printed.err
    return " ".join(printed.out.split())


@pytest.mark.parametrize("words", [
    "--task camlm --criterion camlm --arch veco_tiny --help",
    "--help --task camlm --criterion camlm --arch veco_tiny",
    "root -h --task camlm --criterion camlm --arch veco_tiny --max-update 3 --help",
])  # fmt: skip
def test_the_options_of_what_is_named_stand_together(capsys, words):
    printed = help_of(capsys, words)
    before, heading, own = printed.partition(
        "options of --task camlm, --criterion camlm, --arch veco_tiny, --lr-scheduler fixed:"
    )
    assert heading and own.count("data data root") == 1
    for option in ("--mono-batch-size", "--bitext-mask-spread", "--objective", "--knn-targets", "--warmup-updates"):
        assert f" {option} " in own and f" {option} " not in before.partition(" options: ")[2], option  # it is in the usage, too
    assert "--init-from" in before.partition("Model-specific configuration:")[2]
    assert "--max-update" in before and "--max-update" not in own
    assert "(paper: 0.25; default: 0.25)" in own and "-h, --help show this help message and exit" in before


def test_help_needs_neither_architecture_nor_task(capsys):
    printed = help_of(capsys, "--task veco_nlu --help")
    assert "options of --task veco_nlu, " in printed and "--nlu-task" in printed
    assert printed.endswith("Options of a --task, --criterion, --arch, --optimizer or --lr-scheduler are listed where the command "
                            "line names it beside --help. docs/options.md has those of veco_fairseq.")  # fmt: skip
    for make in (options.get_generation_parser, options.get_interactive_generation_parser, options.get_validation_parser):
        printed = help_of(capsys, "-h", make)
        assert "Options of a" in printed and "--path" in printed
    assert "--alpha" in help_of(capsys, "-h --task veco_multilingual_translation", options.get_generation_parser)


def test_other_command_lines_are_read_as_before():
    words = "root --task camlm --criterion camlm --arch veco_tiny --optimizer adam --lr 1e-3".split()
    read = options.parse_args_and_arch(options.get_training_parser(), words)
    assert (read.task, read.bitext_mask_prob, read.lr) == ("camlm", 0.25, [1e-3])


@pytest.mark.parametrize("text, default, expected", [
    ("a share (paper: 0.1)", 0.2, "a share (paper: 0.1; default: 0.2)"),
    ("a spread (paper: 0)", 0.0, "a spread (paper: 0; default: 0.0)"),
    ("lr = (lr * shrink)", 0.1, "lr = (lr * shrink) (default: 0.1)"),
    ("a rate", [0.25, 0.5], "a rate (default: 0.25,0.5)"),
    ("a rate (default: the schedule's)", 3, "a rate (default: the schedule's)"),
    ("a flag", False, "a flag"),
    ("of another option", "${optimization.lr}", "of another option"),
    ("nothing", None, "nothing"),
    ("", 1, "(default: 1)"),
])  # fmt: skip
def test_defaults_of_help_texts(text, default, expected):
    action = argparse.ArgumentParser().add_argument("--x", help=text, default=default)
    assert with_default(text, action) == expected


def test_veco_commands_name_defaults_too():
    printed = " ".join(parser("inspect", "veco inspect").format_help().split())
    assert "(paper: 0.15; default: 0.15)" in printed and "(paper: silent; default: 0.5)" in printed
    assert not re.search(r"default: [^)]*\) \(default", printed)
