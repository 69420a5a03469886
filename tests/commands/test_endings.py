# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What becomes of the output as a command ends: in order with its error, and lost to nobody without a word. And Ctrl-C."""

import errno
import io
import os
import re
import subprocess
import sys

import pytest
from conftest import REPOSITORY

from veco_fairseq import cli
from veco_fairseq.compat.texts import standard_input
from veco_fairseq.errors import UserError


class Output(io.StringIO):
    """Standard output or error that notes what is done to it, and whose flush may fail."""

    def __init__(self, name, noted, error=None):
        super().__init__()
        self.name, self.noted, self.error = name, noted, error

    def write(self, text):
        self.noted.append((self.name, text))
        return len(text)

    def flush(self):
        self.noted.append((self.name, "flush"))
        if self.error is not None:
            raise self.error


@pytest.fixture
def noted(monkeypatch):
    """Begin with a standard output whose flush fails with this; gives what was done then."""

    def noted(error=None):
        found = []
        monkeypatch.setattr(sys, "argv", ["here.py"])
        monkeypatch.setattr(sys, "stdout", Output("out", found, error))
        monkeypatch.setattr(sys, "stderr", Output("err", found))
        monkeypatch.setattr("logging.raiseExceptions", False)
        monkeypatch.setattr(cli, "_give_up_output", lambda: found.append(("out", "given up")))
        monkeypatch.setattr(cli.os, "_exit", lambda code: found.append(("exit", code)))
        return found

    return noted


def test_an_error_comes_behind_what_was_printed_before(noted):
    found = noted()
    cli.print_error("no")
    assert found[0] == ("out", "flush") and found[1] == ("err", "here.py: error: no")
    found = noted(OSError(errno.ENOSPC, "no"))
    cli.print_error("no")
    assert found[:3] == [("out", "flush"), ("out", "given up"), ("err", "here.py: error: no")]


def test_a_reader_that_went_away_is_noticed_at_the_end(noted):
    found = noted(BrokenPipeError())
    with pytest.raises(SystemExit) as end:
        cli.run(lambda: None)
    assert end.value.code == 141 and found == [("out", "flush"), ("out", "given up")]


@pytest.mark.parametrize("error, said", [
    (None, []), (BrokenPipeError(), [("out", "given up")]),
    (OSError(errno.ENOSPC, "no"), "the output cannot be written: the disk is full: free some space or choose another folder"),
    (OSError(errno.EIO, "Input/output error"), "the output cannot be written: Input/output error"),
])  # fmt: skip
def test_the_output_of_fairseqs_commands_is_written_or_an_error(noted, error, said):
    found = noted(error)
    cli.finish_output()
    if isinstance(said, list):
        assert found == [("out", "flush"), *said]
    else:
        assert ("err", f"here.py: error: {said}") in found and found[-1] == ("exit", 1)


def test_without_standard_output_nothing_is_done(noted, monkeypatch):
    """Python has None for what is closed, such as with >&-."""
    found, done = noted(), []
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as end:
        cli.run(lambda: done.append(1))
    assert end.value.code == 1 and not done
    assert found[0] == ("err", "here.py: error: standard output is closed: send it to a file, or to /dev/null")
    cli.finish_output()


def test_without_standard_error_or_input_a_command_goes_on(noted, monkeypatch):
    found = noted()
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit) as end:
        cli.run(lambda: sys.stderr.write("a note") and list(standard_input()))
    assert end.value.code == 1 and found == [("out", "flush")]
    with pytest.raises(UserError, match="standard input is closed: give the text with < FILE or a pipe"):
        standard_input()


def test_a_users_error_is_one_line():
    assert str(UserError("a file:\n  is \t bad ")) == "a file: is bad"


INTERRUPT = """
import sys
from types import SimpleNamespace
def find_spec(name, *rest):
    if name == "{module}":
        raise KeyboardInterrupt
sys.meta_path.insert(0, SimpleNamespace(find_spec=find_spec))
from veco_fairseq.__main__ import main
sys.argv = ["/there/veco", "align", "--help"]
main()
"""


@pytest.mark.parametrize("module", ["difflib", "veco_fairseq.arguments", "veco_fairseq.commands.align"])
def test_ctrl_c_while_modules_are_imported_is_one_line(module):
    code = INTERRUPT.format(module=module)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=REPOSITORY)
    assert (ended.returncode, ended.stdout) == (130, "") and re.fullmatch("veco( align)?: interrupted\n", ended.stderr)


def test_what_is_written_after_its_reader_has_gone_away_goes_nowhere(monkeypatch):
    read, write = os.pipe()
    with os.fdopen(write, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert not cli.reader_is_gone()
        print("a", flush=True)
        assert os.read(read, 9) == b"a\n"
        os.close(read)
        assert cli.reader_is_gone()
        print("b", flush=True)
