# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--help`` of fairseq's commands, with the options of the task, criterion, model, optimizer and schedule that are named.

fairseq reads a command line twice: first for these names, and then with their options, too. ``--help`` would end the first
reading, which knows none of these options.
"""

import argparse
from collections.abc import Sequence

from veco_fairseq.help_texts import HelpWithDefaults
from veco_fairseq.options.flags import flag

# Whose options fairseq adds, in the order of the heading.
CHOICES = ("task", "criterion", "arch", "optimizer", "lr_scheduler")
MORE = "Options of {} are listed where the command line names it beside --help. docs/options.md has those of veco_fairseq."


def help_of_all(parser: argparse.ArgumentParser, words: Sequence[str]) -> Sequence[str]:
    """Return the words without ``--help``; where it was among them, the second reading prints the help and ends.

    A command line that asks for help need not name an architecture or a task.
    """
    others = [word for word in words if word not in ("-h", "--help")]
    if len(others) == len(words):
        return words
    for action in parser._actions:
        if action.dest in ("arch", "task") and action.default is None:
            action.default = argparse.SUPPRESS
    known = list(parser._actions)
    chosen = vars(parser.parse_known_args(others)[0])

    def print_help(*_) -> None:
        names = (f"{flag(name)} {chosen[name]}" for name in CHOICES if chosen.get(name))
        group = parser.add_argument_group(f"options of {', '.join(names)}")
        for of_all in (parser._positionals, parser._optionals):
            group._group_actions += [action for action in of_all._group_actions if action not in known]
            of_all._group_actions[:] = [action for action in of_all._group_actions if action in known]
        *most, last = (flag(name) for name in CHOICES if any(action.dest == name for action in known))
        parser.epilog = MORE.format(f"a {', '.join(most)} or {last}" if most else f"another {last}")
        parser.formatter_class = HelpWithDefaults
        parser.print_help()
        parser.exit()

    parser.parse_args = print_help  # type: ignore[method-assign, assignment]
    return others
