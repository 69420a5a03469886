#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Write docs/options.md from the help texts of the commands and of what fairseq-train takes from this plug-in."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))  # the package beside this script, whichever is installed

import fairseq_cli.train  # noqa: E402, F401  before the plug-in, as where --user-dir brings it
from fairseq.criterions import CRITERION_REGISTRY  # noqa: E402
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY, MODEL_REGISTRY  # noqa: E402
from fairseq.models.roberta import RobertaModel  # noqa: E402
from fairseq.models.transformer import TransformerModel  # noqa: E402
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY  # noqa: E402
from fairseq.tasks import TASK_REGISTRY  # noqa: E402

import veco_fairseq.plugin  # noqa: E402, F401
from veco_fairseq.commands import GROUPS, parser  # noqa: E402
from veco_fairseq.help_texts import with_default  # noqa: E402

PAGE = REPOSITORY / "docs/options.md"
HEAD = """# Options

This page is made from the code's help texts by `python scripts/make_options.py`. Please do not edit it: a test compares
it with the code. The first part has the commands of `veco`. The second part has the options of `fairseq-train` that this
project adds. `fairseq-train --user-dir veco_fairseq --task camlm --criterion camlm --arch veco_base --help` prints those of
pre-training beside fairseq's own. "Paper" is [VECO](https://aclanthology.org/2021.acl-long.308/) unless another one is
named. An option that must be given says so.
"""
# What of fairseq-train is this project's: its heading, where its options come from, and whose options are left out.
TASKS = {
    "camlm": "pre-training",
    "veco_nlu": "understanding",
    "translation": "translation (fairseq's own options)",
    "veco_multilingual_translation": "translation in many directions by one model, with the options of translation and these",
}
CRITERIONS = {"camlm": "VECO and XLM", "replaced_token": "XLM-E", "veco_nlu": "understanding"}
MODELS = {
    "veco": ("VECO and XLM", RobertaModel),
    "xlme": ("XLM-E", RobertaModel),
    "veco_nlu": ("understanding", RobertaModel),
    "veco_transformer": ("translation with --keep-lm-head or --tie-self-attention", TransformerModel),
}
# Of models that are fine-tuned, which refuse them: they are registered there because a checkpoint of pre-training has them.
REFUSED = {"veco_nlu": {"--init-from", "--freeze-backbone-updates"}}
WITH_ROBERTA = """The options of fairseq's RoBERTa change any of these numbers: `--encoder-layers`, `--dropout` and others.
This project adds:"""


def value_of(action: argparse.Action) -> str:
    """What stands behind an option's name."""
    if action.nargs == 0:
        return ""
    if action.metavar:
        value = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    elif action.choices:
        value = f"{{{','.join(map(str, action.choices))}}}"
    else:
        value = {int: "N", float: "X"}.get(action.type, "TEXT")
    return f"{value} ..." if action.nargs in ("+", "*") else value


def row(action: argparse.Action, of: argparse.ArgumentParser) -> str:
    """An option's line in a table: its name and value, and its help text with the default."""
    name = ", ".join(action.option_strings) or action.metavar or action.dest
    shown = f"{name} {value_of(action)}".strip() if action.option_strings else name
    text = of._get_formatter()._expand_help(action) if action.help else ""
    text = with_default(text, action)
    if action.required and action.option_strings:
        text = f"{text[:-1]}; required)" if text.endswith(")") else f"{text} (required)"
    shown, text = (part.replace("|", "\\|") for part in (shown, " ".join(text.split())))
    return f"| `{shown}` | {text} |"


def table(of: argparse.ArgumentParser, without: Iterable[str] = ()) -> list[str]:
    """The options of a parser, without its sub-commands and those options that are named."""
    without = set(without)
    rows = [
        row(action, of)
        for action in of._actions
        if action.help != argparse.SUPPRESS
        and not isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
        and without.isdisjoint(action.option_strings)
    ]
    return ["| option | |", "| --- | --- |", *rows, ""] if rows else ["It has no options of its own.", ""]


def of_command(name: str, command: argparse.ArgumentParser, what: str) -> list[str]:
    """The part of a command, and of its sub-commands."""
    lines = [f"### veco {name}", "", what, ""]
    under = [action for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    if not under:
        return lines + table(command)
    for action in under:
        texts = {choice.dest: choice.help for choice in action._choices_actions}
        for sub, parser_of_sub in action.choices.items():
            lines += [f"**`veco {name} {sub}`**: {texts.get(sub, '')}", "", *table(parser_of_sub)]
    return lines


def options_of(registered) -> argparse.ArgumentParser:
    """A parser with the options that a task, criterion, model or schedule registers with fairseq."""
    result = argparse.ArgumentParser(add_help=False)
    registered.add_args(result)
    return result


def names(registered) -> set[str]:
    return {name for action in options_of(registered)._actions for name in action.option_strings}


def architectures(model: str, prefix: str) -> list[str]:
    """A table of the architectures of a model, by their functions' docstrings."""
    found = [name for name in ARCH_MODEL_INV_REGISTRY[model] if name.startswith(prefix)]
    texts = {name: " ".join(ARCH_CONFIG_REGISTRY[name].__doc__.split()).replace("``", "`") for name in found}
    return ["| architecture | |", "| --- | --- |", *(f"| `{name}` | {text} |" for name, text in texts.items()), ""]


def page() -> str:
    """The whole page."""
    lines = [HEAD, "## The commands", ""]
    for group, commands in GROUPS.items():
        lines += [f"To {group}: " + ", ".join(f"[{name}](#veco-{name.replace(' ', '-')})" for name in commands) + ".", ""]
    for commands in GROUPS.values():
        for name in commands:
            command = parser(name, f"veco {name}")
            lines += of_command(name, command, " ".join((command.description or "").split()))
    lines += ["## fairseq-train --user-dir veco_fairseq", ""]
    for name, what in TASKS.items():
        known = names(TASK_REGISTRY["translation"]) if name == "veco_multilingual_translation" else ()
        lines += [f"### --task {name}", "", f"For {what}.", "", *table(options_of(TASK_REGISTRY[name]), known)]
    for name, what in CRITERIONS.items():
        lines += [f"### --criterion {name}", "", f"For {what}.", "", *table(options_of(CRITERION_REGISTRY[name]))]
    for name, (what, theirs) in MODELS.items():
        lines += [f"### --arch {name}_*", "", f"For {what}.", "", *architectures(name, f"{name}_")]
        if theirs is RobertaModel:
            lines += [WITH_ROBERTA, ""]
        lines += table(options_of(MODEL_REGISTRY[name]), names(theirs) | REFUSED.get(name, set()))
    lines += ["### --arch veco_mt_*", "", "Presets of fairseq's own `transformer`, for translation."]
    lines += ["", *architectures("transformer", "veco_mt_")]
    lines += ["### --lr-scheduler linear_by_epoch", "", "For understanding.", ""]
    lines += table(options_of(LR_SCHEDULER_REGISTRY["linear_by_epoch"]))
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(REPOSITORY)}")
