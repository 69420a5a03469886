# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every option of every command arrives where it is needed: with another value than the default.

A command is run with the functions that do its work replaced by ones that write down what they are called with. What
these functions do with it is tested with them.
"""

import contextlib
import copy
import importlib
import inspect
import io
import json
import os
import runpy
import sys
import traceback
from functools import cache, reduce
from pathlib import Path

import pytest
from conftest import REPOSITORY
from malformed.options import parser_of
from support.command_table import COMMANDS, ELSEWHERE, MODEL, PACKAGE

from veco_fairseq.arguments import Number

ITERATOR = type(iter([]))


class Calls:
    """Functions of the package that write down what they are called with."""

    def __init__(self, monkeypatch, results):
        self.made = {}
        for place, result in results.items():
            module, _, name = (PACKAGE + place).rpartition(".")
            function = getattr(importlib.import_module(module), name)
            monkeypatch.setattr(sys.modules[module], name, self.recorder(name, inspect.signature(function), result))

    def recorder(self, name, signature, result):
        result = copy.copy(result) if isinstance(result, ITERATOR) else result  # each row begins with the first one

        def record(*positional, **named):
            bound = signature.bind(*positional, **named)
            bound.apply_defaults()
            self.made.setdefault(name, []).append(bound.arguments)
            if inspect.isfunction(result):
                return result(**bound.arguments)
            return next(result) if isinstance(result, ITERATOR) else result

        return record

    def argument(self, place: str):
        """What ``function.parameter``, or an attribute of it, was called with; of several calls a list."""
        name, parameter, *attributes = place.split(".")
        values = [reduce(getattr, attributes, arguments[parameter]) for arguments in self.made[name]]
        return values[0] if len(values) == 1 else values


def rows():
    for command, (_base, _, options) in COMMANDS.items():
        for words in {**options, **zeros(command, options)}:
            yield pytest.param(command, words, id=f"{command} {words}".strip())


def zeros(command, options) -> dict:
    """Rows for the numbers that may be 0, which is not the same as no number: in the places of their other value."""
    types = {option: action.type for action in actions_of(command) for option in action.option_strings}
    found = {}
    for words, expected in options.items():
        option, _, value = words.partition(" ")
        if isinstance(number := types.get(option), Number) and number.least == 0 and number.above is None and " " not in value:
            places = [place for place, it in expected.items() if type(it) is number.kind and it == number.kind(value)]
            found |= {f"{option} 0": dict.fromkeys(places, number.kind(0))} if places else {}
    return found


def actions_of(command):
    return parser_of((f"scripts/{command.split()[0]}", *command.split()[1:]))._actions


def run_script(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(REPOSITORY / "scripts" / words[0]), *words[1:]])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(sys.argv[0], run_name="__main__")
    assert not end.value.code


def check(command, words, expected, folder):
    """A row, in an empty folder."""
    base, results, _ = COMMANDS[command]
    arguments = words[2:].split() if words.startswith("= ") else [*base, *words.split()]
    MODEL.reset_mock()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")) as output:
        patch.chdir(folder)
        calls = Calls(patch, results)
        run_script([*command.split(), *arguments], patch)
        output.flush()
        printed = output.buffer.getvalue().decode()
        for place, value in expected.items():
            if place.endswith("stdout"):
                assert (value in printed) == (place == "stdout")
            elif place.startswith("model."):
                assert getattr(MODEL, place[6:]).call_args_list == value
            elif "." not in place:
                assert (value or "") in (folder / place).read_text()
            else:
                assert calls.argument(place) == value


@cache
def failures(command, folder) -> dict[str, str]:
    """What is wrong with each row of a command. They run in a fork, which a command changes, such as its log: in one, as each
    costs 0.1 s."""
    options = COMMANDS[command][2]
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            for number, (words, expected) in enumerate({**options, **zeros(command, options)}.items()):
                failure = ""
                try:
                    (row := folder / f"{command} {number}").mkdir()
                    check(command, words, expected, row)
                except BaseException:
                    failure = traceback.format_exc()[-60_000:]
                os.write(writing, f"{json.dumps([words, failure])}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as told:
        found = dict(map(json.loads, told))
    os.waitpid(child, 0)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.mark.parametrize("command, words", list(rows()))
def test_the_option_arrives(command, words, folder):
    assert failures(command, folder).get(words, "it has ended its process") == ""


def options_of(command):
    """The option strings of a command, from its parser."""
    return {option for action in actions_of(command) for option in action.option_strings if option.startswith("--")} - {"--help"}


def test_no_option_is_missing():
    scripts = {path.name for path in (REPOSITORY / "scripts").glob("*.py")}
    assert scripts == {command.split()[0] for command in COMMANDS} | set(ELSEWHERE)
    for command, (_base, _, options) in COMMANDS.items():
        assert options_of(command) <= {word for words in options for word in words.split()}, command
