# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--help`` of fairseq's commands, with the options of the task, criterion, model, optimizer and schedule that are named.

fairseq reads a command line twice: first for these names, and then with their options, too. ``--help`` would end the first
reading, which knows none of these options.
"""

import argparse
from collections.abc import Sequence

from veco_fairseq.help_texts import HelpWithDefaults
from veco_fairseq.options.borders import option

# Whose options fairseq adds, in the order of the heading.
CHOICES = ("task", "criterion", "arch", "optimizer", "lr_scheduler")
MORE = "Options of {} are listed where the command line names it beside --help. docs/options.md has those of veco_fairseq."


class HelpOfAll(argparse.Action):
    """Prints the help in the second reading, with what has been added to the parser since the first one."""

    def __init__(self, parser: argparse.ArgumentParser, replaced: argparse.Action):
        super().__init__(replaced.option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=replaced.help)
        self.known = set(map(id, parser._actions))
        self.first: argparse.Namespace | None = None

    def __call__(self, parser, namespace, values, option_string=None):
        if self.first in (None, namespace):  # a reading has one namespace
            self.first = namespace
            return
        names = (f"{option(name)} {chosen}" for name in CHOICES if (chosen := getattr(self.first, name, None)))
        group = parser.add_argument_group(f"options of {', '.join(names)}")
        for of_all in (parser._positionals, parser._optionals):
            added = [action for action in of_all._group_actions if id(action) not in self.known and action is not self]
            of_all._group_actions[:] = [action for action in of_all._group_actions if action not in added]
            group._group_actions += added
        parser.print_help()
        parser.exit()


def help_of_all(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Make ``--help`` of fairseq's parser list every option that the command line could have.

    A command line that asks for help need not name an architecture or a task.
    """
    shown = next((action for action in parser._actions if isinstance(action, argparse._HelpAction)), None)
    if shown is None or not set(shown.option_strings) & set(words):
        return
    parser.formatter_class = HelpWithDefaults
    *names, last = (option(name) for name in CHOICES if any(action.dest == name for action in parser._actions))
    parser.epilog = MORE.format(f"a {', '.join(names)} or {last}" if names else f"another {last}")
    late = HelpOfAll(parser, shown)
    parser._actions[parser._actions.index(shown)] = late
    of_all = parser._optionals._group_actions
    of_all[of_all.index(shown)] = late
    for name in shown.option_strings:
        parser._option_string_actions[name] = late
    for action in parser._actions:
        if action.dest in ("arch", "task") and action.default is None:
            action.default = argparse.SUPPRESS
