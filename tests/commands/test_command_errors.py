# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Arguments that do not go together, and outputs that would replace an input: one line, and nothing is written."""

import errno
import logging
import os
import re
import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest
from conftest import REPOSITORY, error_line

from veco_fairseq import cli
from veco_fairseq.arguments import Parser
from veco_fairseq.commands.convert import number_of_layers
from veco_fairseq.errors import UserError

ERRORS = {
    "average_checkpoints.py --inputs d a.pt --num-epoch-checkpoints 2 --output o": "take one folder",
    "average_checkpoints.py --inputs a.pt --checkpoint-upper-bound 2 --output o": "--checkpoint-upper-bound: goes with",
    "average_checkpoints.py --inputs d --output o": "d: is a folder: say which of its checkpoints",
    "average_checkpoints.py --inputs d --num-update-checkpoints 1 --output d/checkpoint_1_10.pt": "would overwrite --inputs",
    "average_checkpoints.py --inputs a.pt b.pt --output b.pt": "would overwrite --inputs",
    "import_veco.py --checkpoint a.pt --dict b.pt --output o --pretraining --layer-selection first": "which --layer-selection is for",
    "import_veco.py --checkpoint a.pt --dict b.pt --output o --pretraining --source-lang en": "which --source-lang is for",
    "import_veco.py --checkpoint a.pt --dict b.pt --output o --source-lang en": "give both or none",
    "encode.py --sentencepiece a.pt --inputs a.pt b.pt --outputs o": "2 --inputs, but 1 --outputs",
    "encode.py --sentencepiece a.pt --inputs b.pt --outputs o p": "1 --inputs, but 2 --outputs",
    "encode.py --sentencepiece a.pt --inputs b.pt --outputs b.pt": "would overwrite --inputs",
    "binarize.py -s aa -t bb --trainpref a --sentencepiece a.pt --dict d/dict.aa.txt --destdir d": "would overwrite --dict",
    "binarize.py -s aa -t aa --trainpref a --sentencepiece a.pt --dict b.pt --destdir d": "--source-lang and --target-lang are both aa",
    "binarize.py -s aa -t bb --sentencepiece a.pt --dict b.pt --destdir d": "nothing to binarize: give --trainpref",
    "clean.py -s en -t de --inputs a.pt b.pt --outputs c b.pt": "would overwrite --inputs b.pt",
    "clean.py -s en -t de --inputs a.pt b.pt --outputs c c": "is --outputs, too",
    "clean.py -s en -t de --inputs a.pt b.pt --outputs c e --report a.pt": "would overwrite --inputs a.pt",
    "clean.py -s en -t de --inputs a.pt b.pt --outputs c e --held-out f": "f: no such file",
    "score.py --hypothesis a.pt --reference b.pt --lang de --bootstrap 1": "--bootstrap 1: give a number of resamples",
    "score.py --hypothesis a.pt --reference b.pt --lang de --json b.pt": "would overwrite --reference",
    "translate.py a.pt --max-len-a 0 --max-len-b 0": "--max-len-a 0 and --max-len-b 0: must allow at least 1 tokens",
    "translate.py a.pt --nbest 6": "--nbest 6: a search with --beam 5 finds at most 5",
    "translate.py a.pt --sampling --beam 4": "with --sampling, the best of 4 draws would be no draw: leave it out, or give --nbest 4",
    "translate.py a.pt --sampling-topk 6": "go with --sampling",
    "translate.py a.pt --sampling --sampling-topk 6 --sampling-topp 0.5": "give only one of them",
    "translate.py a.pt --sampling --constraints ordered": "constraints need a search",
    "retrieve.py bucc a.pt --source a.pt --target b.pt": "give --gold, to find the threshold",
    "retrieve.py bucc a.pt --source a.pt --target b.pt --threshold 1 --output b.pt": "would overwrite --target",
    "retrieve.py tatoeba a.pt --pairs n=a.pt,b.pt n=b.pt,a.pt": "--pairs: a name comes twice",
    "plot_scores.py a=a.pt --output o": "a=a.pt: not GROUP/NAME=FILE",
    "plot_curves.py a.pt --output o": "a.pt: not NAME=FILE",
    "plot_curves.py n=a.pt --output a.pt": "would overwrite",
    "prepare_root.py --mono aa=a.pt --valid-lines 1 --output o --sentencepiece b.pt": "--sentencepiece MODEL and --dict DICT together",
    "prepare_root.py --mono aa=d/text --valid-lines 1 --output d --vocab-size 9 --sentencepiece d/dict.txt": "--output d: would overwrite --sentencepiece",
    "evaluate_xtreme.py run a.pt --data d --predictions d": "--predictions d: would overwrite --data",
    "evaluate_xtreme.py run a.pt --data d --predictions d/new": "--predictions d/new: lies in --data d",
    "evaluate_xtreme.py run a.pt --data d --json d/text": "--json d/text: would overwrite --data d",
    "convert_to_seq2seq.py --checkpoint a.pt --decoder-layers 1": "the following arguments are required: --output",
    "trim_vocab.py a.pt --sentencepiece d/sentencepiece.bpe.model --keep 9 --output d": "would overwrite --sentencepiece",
    "align.py a.pt --source a.pt --target b.pt --output b.pt": "would overwrite --target",
    "label_with_teacher.py a.pt --input b.conllu --output b.conllu": "would overwrite --input",
    "convert_to_seq2seq.py --checkpoint a.pt --output a.pt --decoder-layers 1": "would overwrite --checkpoint",
    "export_ct2.py --checkpoint a.pt --output d --data d": "--output d: would overwrite --data",
}  # fmt: skip


@pytest.mark.parametrize("words", ERRORS)
def test_it_is_refused_in_one_line(run, tmp_path, words):
    for name in ("a.pt", "b.pt", "b.conllu", "d/text", "d/dict.txt", "d/sentencepiece.bpe.model", "d/checkpoint_1_10.pt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    script, *arguments = words.split()
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    result = run(f"scripts/{script}", *arguments, cwd=tmp_path)
    line = error_line(result)
    assert line.startswith(f"{script}: error: ") and ERRORS[words] in line and result.returncode in (1, 2)
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_wrong_command_line_ends_with_2(run):
    assert run("scripts/score.py", "--no-such").returncode == 2
    assert run("scripts/translate.py").returncode == 2


def raising(error):
    raise error


def wrapped():
    """As fairseq's trainer does, which names no cause."""
    try:
        raise UserError("the data are wrong")
    except UserError:
        raise Exception("in a worker")  # noqa: B904


def caused():
    """As a worker's error, whose cause is set and not raised."""
    error = Exception("in a worker")
    error.__cause__ = UserError("the text is wrong")
    raise error


REMOTE = "veco_fairseq.errors.UserError: the first\n\nDuring handling of it:\nveco_fairseq.errors.UserError: the last\n"


@pytest.mark.parametrize("main, code, said", [
    (lambda: None, 0, ""), (lambda: 0, 0, ""), (lambda: 3, 3, ""),
    (lambda: raising(UserError("no such thing")), 1, "here.py: error: no such thing\n"),
    (lambda: raising(KeyboardInterrupt()), 130, "here.py: interrupted\n"),
    (wrapped, 1, "here.py: error: the data are wrong\n"), (caused, 1, "here.py: error: the text is wrong\n"),
    (lambda: raising(RuntimeError(REMOTE)), 1, "here.py: error: the last\n"),
    (lambda: raising(BrokenPipeError()), 141, ""),
    (lambda: raising(OSError(errno.EACCES, "no", "f")), 1,
     "here.py: error: f: permission denied: change its rights or choose another path\n"),
    (lambda: raising(OSError(errno.EDQUOT, "no")), 1,
     "here.py: error: the output cannot be written: your disk quota is used up: free some space or choose another folder\n"),
])  # fmt: skip
def test_exit_codes(monkeypatch, capsys, main, code, said):
    monkeypatch.setattr(sys, "argv", ["/there/here.py"])
    monkeypatch.setattr("logging.raiseExceptions", True)
    monkeypatch.setattr(cli, "_give_up_output", lambda: None)
    with pytest.raises(SystemExit) as end:
        cli.run(main)
    assert not logging.raiseExceptions  # or each line of a log that cannot be written would print a traceback
    assert (end.value.code, capsys.readouterr().err) == (code, said)


@pytest.mark.parametrize("number, said", [
    (errno.ENOENT, "no such file or folder: check the path"), (errno.EISDIR, "is a folder, where a file is needed"),
    (errno.ENOTDIR, "part of the path is a file, where a folder is needed"), (errno.ENAMETOOLONG, "the name is too long: check the path"),
    (errno.ELOOP, "the links lead round in a circle: check the path"), (errno.EROFS, "the file system is read-only: choose another folder"),
    (errno.EFBIG, "the file would be larger than allowed here: raise ulimit -f or choose another folder"),
    (errno.ENOSPC, "the disk is full: free some space or choose another folder"), (errno.EIO, None),
])  # fmt: skip
def test_errors_of_the_system_that_a_user_can_mend(number, said):
    for name in ("a file", b"a file"):
        assert cli.user_message(OSError(number, "no", name)) == (said and f"a file: {said}")
    if number in (errno.EFBIG, errno.ENOSPC):
        assert cli.user_message(OSError(number, "no")) == f"the output cannot be written: {said}"


def test_what_fairseq_logs_at_import_stays_out_of_a_commands_output():
    code = """
import logging
from veco_fairseq.cli import run
def main():
    logging.basicConfig(level=logging.DEBUG)  # as some modules of fairseq do
    logging.getLogger("fairseq.tasks").info("unasked for")
    logging.getLogger("fairseq.tasks").warning("worth knowing")
run(main)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=60)
    assert (result.returncode, result.stdout) == (0, "")
    assert "worth knowing" in result.stderr and "unasked for" not in result.stderr


@pytest.mark.parametrize("level, expected", [("info", logging.INFO), (None, logging.WARNING), ("", logging.WARNING)])
def test_loglevel_of_the_environment_says_what_is_logged(monkeypatch, level, expected):
    monkeypatch.setattr("logging.raiseExceptions", False)
    monkeypatch.setenv("LOGLEVEL", level) if level is not None else monkeypatch.delenv("LOGLEVEL", raising=False)
    before, found = logging.getLogger().level, []
    try:
        with pytest.raises(SystemExit):
            cli.run(lambda: found.append(logging.getLogger().level))
    finally:
        logging.getLogger().setLevel(before)
    assert found == [expected]


@pytest.mark.parametrize("encoding, printed", [("ascii", r"d\xe9pot \u65e5"), ("utf-8", "d\u00e9pot \u65e5")])
def test_what_a_locale_lacks_is_printed_as_its_number(run, encoding, printed):
    """The name of a root, and quotes in the help, had ended in a traceback."""
    code = r"from veco_fairseq.cli import run; run(lambda: print('d\u00e9pot \u65e5'))"
    result = run(sys.executable, "-c", code, PYTHONIOENCODING=encoding)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{printed}\n", "")


def test_a_file_whose_name_is_not_utf8_is_refused_before_anything_is_made(run, tmp_path):
    """It had ended in a traceback after the vocabulary had been trained."""
    path = os.fsencode(tmp_path) + b"/caf\xe9.aa"
    Path(os.fsdecode(path)).write_text("a b c\n" * 40)
    root = tmp_path / "root"
    for command in (
        ["prepare_root.py", "--mono", f"aa={os.fsdecode(path)}", "--valid-lines", "3", "--vocab-size", "12", "--output", root],
        ["vocap.py", "--corpora", tmp_path, "--size", "12", "--output", root],
    ):
        line = error_line(run(f"scripts/{command[0]}", *command[1:], LC_ALL="C.UTF-8"))
        assert re.search(r"/caf\\udce9\.aa: is not UTF-8: rename the file, or make a link to it$", line) and not root.exists()


def test_a_loglevel_that_python_does_not_have_is_a_mistake_of_one_line(run):
    result = run("scripts/inspect_data.py", "--help", LOGLEVEL="trace")
    assert error_line(result).endswith(
        "error: LOGLEVEL=TRACE: is no level of the log: give DEBUG, INFO, WARNING or ERROR, or unset it"
    )


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("no"), OSError(errno.EIO, "no", "file"), OSError(errno.ENOENT, "no")], ids=repr
)
def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch, error):
    """So do errors of the system that a user cannot mend, or that name no file; also where causes lead round in a circle."""
    monkeypatch.setattr("logging.raiseExceptions", False)
    error.__cause__ = Exception("another")
    error.__cause__.__cause__ = error
    with pytest.raises(type(error)):
        cli.run(lambda: raising(error))


def test_a_command_without_a_name_is_called_python(monkeypatch):
    monkeypatch.setattr(sys, "argv", [""])
    assert cli.program_name() == "python"


@pytest.mark.parametrize(
    "text, number", [("0", 0), ("12", 12), ("all", None), ("-1", ...), ("1.5", ...), ("two", ...), ("", ...)]
)
def test_a_number_of_layers_is_whole_or_all(text, number):
    if number is ...:
        with pytest.raises(ArgumentTypeError, match=f"^{text}: give a number, or all$"):
            number_of_layers(text)
    else:
        assert number_of_layers(text) == number


def test_an_option_of_several_values_that_comes_again_adds_its_values():
    parser = Parser()
    parser.add_argument("--files", nargs="+", default=["none"])
    parser.add_mutually_exclusive_group().add_argument("--more", nargs="+")
    parser.add_argument("--two", nargs=2)
    commands = parser.add_subparsers().add_parser("sub")
    commands.add_argument("--pairs", nargs="+")
    for _ in range(2):
        found = parser.parse_args("--files a b --more x --two c d --files e --more y --two f g sub --pairs 1 --pairs 2 3".split())
        assert vars(found) == {"files": ["a", "b", "e"], "more": ["x", "y"], "two": ["f", "g"], "pairs": ["1", "2", "3"]}
    assert parser.parse_args([]).files == ["none"]
