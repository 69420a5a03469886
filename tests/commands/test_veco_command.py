# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``veco``: its commands, its help, its completion, and that nothing heavy is loaded in vain."""

import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from conftest import REPOSITORY

from veco_fairseq import __main__ as veco
from veco_fairseq import commands
from veco_fairseq.checkpoints import read_checkpoint
from veco_fairseq.commands import GROUPS, MODULES, parser, start
from veco_fairseq.errors import UserError

NAMES = [name for commands in GROUPS.values() for name in commands]
HEAVY = ("torch", "fairseq", "transformers", "matplotlib", "pandas", "omegaconf")
# Runs veco with the arguments after it, and then tells what was loaded.
TELL = f"""
import atexit, sys
atexit.register(lambda: print("LOADED", *sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr))
from veco_fairseq.__main__ main
sys.argv[0] = "veco"
main()
""".replace("__main__ main", "__main__ import main")


def tell(*arguments, **options):
    words = [str(argument) for argument in arguments]
    return subprocess.run(
        [sys.executable, "-c", TELL, *words], capture_output=True, text=True, timeout=120, cwd=REPOSITORY, **options
    )


def test_help_whose_reader_has_gone_away_ends_without_a_traceback():
    """As veco --help | head -n 1."""
    process = subprocess.Popen(
        [sys.executable, "-m", "veco_fairseq", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=REPOSITORY
    )
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", 141)
    process.stderr.close()


def test_every_module_is_a_command_and_every_script_a_shim():
    modules = {path.stem for path in (REPOSITORY / "veco_fairseq/commands").glob("*.py")} - {"__init__"}
    assert modules == {MODULES.get(name, name.replace("-", "_").replace(" ", "_")) for name in NAMES}
    shims = [
        path for path in (REPOSITORY / "scripts").glob("*.py") if "from veco_fairseq.commands import start" in path.read_text()
    ]
    started = {path.read_text().rsplit('start("', 1)[1].split('"')[0] for path in shims}
    assert started == set(NAMES) and len(shims) == len(NAMES)
    assert all(len(path.read_text().splitlines()) == 9 for path in shims)


def test_the_line_that_refuses_a_pickle_names_the_commands_with_trust_checkpoint(tmp_path):
    """Of the others, such as translate, it had said that they have the option, too."""
    torch.save({"model": {}, "part": Fraction(1, 2)}, tmp_path / "odd.pt")
    with pytest.raises(UserError, match=r"veco average, convert, export-hf and import read it with --trust-checkpoint$"):
        read_checkpoint(tmp_path / "odd.pt")
    with_it = {name for name in NAMES if "--trust-checkpoint" in parser(name).format_help()}
    assert with_it == {"average", "convert", "export-hf", "import"}


def test_known_warnings_are_quiet_before_a_command_loads_anything(monkeypatch):
    called = []
    for name in ("quiet_known_warnings", "defer_packages", "run"):
        monkeypatch.setattr(commands, name, lambda *arguments, name=name: called.append(name))
    commands.start("score")
    assert called == ["quiet_known_warnings", "defer_packages", "run"]


def test_the_overview_names_every_command_once(capsys, monkeypatch):
    for words, code in (([], 2), (["--help"], 0), (["-h"], 0)):
        monkeypatch.setattr(sys, "argv", ["veco", *words])
        with pytest.raises(SystemExit) as end:
            veco.main()
        assert end.value.code == code
        printed = capsys.readouterr().out.splitlines()
        assert [line.split("  ")[1] for line in printed if line.startswith("  ")] == NAMES
        assert [line for line in printed if line.startswith("to ")] == [f"to {purpose}:" for purpose in GROUPS]
        assert "  score             BLEU and chrF of a translation" in printed  # beside a column of 16
        assert (
            "veco COMMAND --help" in printed[-2] and "veco completion bash" in printed[-2] and "data-bin-recipes/" in printed[-1]
        )


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_help_of_a_group_names_its_commands(capsys, monkeypatch, option):
    monkeypatch.setattr(sys, "argv", ["veco", "plot", option])
    with pytest.raises(SystemExit) as end:
        veco.main()
    printed = capsys.readouterr().out.splitlines()
    group = [name for name in NAMES if name.startswith("plot ")]
    assert end.value.code == 0 and [line.split("  ")[1] for line in printed if line.startswith("  ")] == group
    assert [line for line in printed if line.startswith("to ")] == ["to look:"]


@pytest.mark.parametrize("words, said", [
    ("trnslate", "trnslate: no such command: did you mean translate?"),
    ("convert_to_seq2seq", "convert_to_seq2seq: no such command: did you mean convert?"),
    ("plot", "plot: no such command: give plot curves or plot scores or plot layers or plot attention"),
    ("plot curve", "plot curve: no such command: did you mean plot curves?"),
    ("xyzzy", "xyzzy: no such command: veco --help lists all commands"),
    ("completion nosuch", "completion nosuch: "),
    ("score", "the following arguments are required: --reference, --lang"),
    ("score --hypothesis missing --reference missing --lang de", "missing: no such file"),
])  # fmt: skip
def test_a_mistake_is_one_line(words, said):
    result = tell(*words.split())
    line = "\n".join(line for line in result.stderr.splitlines() if not line.startswith("LOADED"))
    program = "veco score" if words.startswith("score") else "veco"
    assert result.returncode in (1, 2) and "\n" not in line and line.startswith(f"{program}: error: {said}")


@pytest.mark.parametrize("words, command, rest, folder", [
    (["score", "plot", "-x"], "score", ["plot", "-x"], None), (["plot", "curves", "a=b"], "plot curves", ["a=b"], None),
    (["--user-dir", "own", "import"], "import", [], "own"),
])  # fmt: skip
def test_a_command_gets_the_words_behind_its_name(monkeypatch, words, command, rest, folder):
    started = []
    monkeypatch.setattr(sys, "argv", ["/there/veco_fairseq/__main__.py", *words])
    monkeypatch.setattr(veco, "start", lambda *given: started.append(given))
    veco.main()
    assert started == [(command, folder)] and sys.argv == [f"veco {command}", *rest]


def test_python_m_is_called_veco_in_its_errors(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/there/veco_fairseq/__main__.py", "xyzzy"])
    with pytest.raises(SystemExit) as end:
        veco.main()
    assert end.value.code == 2 and capsys.readouterr().err.startswith("veco: error: xyzzy: no such command")


@pytest.mark.parametrize("code", [None, 0, 3])
def test_what_a_command_returns_is_its_exit_code(monkeypatch, code):
    """veco doctor that finds a problem, for one."""
    monkeypatch.setattr("veco_fairseq.commands.doctor.main", lambda args: code)
    monkeypatch.setattr(sys, "argv", ["veco doctor"])
    monkeypatch.setattr("logging.raiseExceptions", False)
    with pytest.raises(SystemExit) as end:
        start("doctor")
    assert (end.value.code or 0) == (code or 0)


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_the_packages(monkeypatch, capsys, option):
    from importlib.metadata import version

    monkeypatch.setattr(sys, "argv", ["veco", option])
    with pytest.raises(SystemExit) as end:
        veco.main()
    assert end.value.code == 0 and capsys.readouterr().out == f"veco_fairseq {version('veco_fairseq')}\n"


@pytest.mark.parametrize("name", NAMES)
def test_help_loads_nothing_heavy(name):
    """``--help`` of a command, by importing its module and making its parser in a process that has loaded nothing."""
    code = f"""
import sys
from veco_fairseq.commands import parser
parser({name!r}, "veco").format_help()
print(*sorted(set({HEAVY!r}) & set(sys.modules)))"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
    assert (result.stdout.strip(), result.stderr) == ("", "")


def test_every_option_has_a_help_text():
    def missing(of):
        for action in of._actions:
            yield from (
                (option for choice in (action.choices or {}) for option in missing(action.choices[choice]))
                if isinstance(action.choices, dict) and hasattr(next(iter(action.choices.values())), "_actions")
                else ()
            )
            if action.help is None and action.dest != "command":
                yield action.option_strings or action.dest

    assert {name: list(missing(parser(name, "veco"))) for name in NAMES} == {name: [] for name in NAMES}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    lines = [f"{a}{b}l {b}{c} {a}{c}e" for a in "bdgkpt" for b in "aeiou" for c in "lmn"]
    for lang in ("aa", "bb"):
        (folder / f"train.{lang}").write_text("\n".join(lines) + "\n")
    return folder


def test_commands_without_a_model_need_no_pytorch(texts):
    """prepare, clean, binarize, encode, trim-vocab, vocap and score, from text to their results."""
    aa, bb, root = texts / "train.aa", texts / "train.bb", texts / "root"
    model = root / "sentencepiece.bpe.model"
    commands = [
        (
            "prepare",
            "--mono",
            f"aa={aa}",
            "--bitext",
            f"aa-bb={aa},{bb}",
            "--valid-lines",
            2,
            "--vocab-size",
            28,
            "--output",
            root,
        ),
        (
            "clean",
            "-s",
            "en",
            "-t",
            "de",
            "--inputs",
            aa,
            bb,
            "--outputs",
            texts / "clean.aa",
            texts / "clean.bb",
            "--keep-copies",
        ),
        (
            "binarize",
            "-s",
            "aa",
            "-t",
            "bb",
            "--trainpref",
            texts / "train",
            "--sentencepiece",
            model,
            "--dict",
            root / "dict.txt",
            "--destdir",
            texts / "bin",
        ),
        ("encode", "--sentencepiece", model, "--inputs", aa, "--outputs", texts / "pieces"),
        ("trim-vocab", aa, "--sentencepiece", model, "--keep", 24, "--output", texts / "small"),
        ("score", "--hypothesis", aa, "--reference", bb, "--lang", "de"),
        ("vocap", "--corpora", texts / "corpora", "--alp", f"one={model}"),
    ]
    (texts / "corpora").mkdir()
    (texts / "corpora/aa.txt").write_text(aa.read_text())
    for command in commands:
        result = tell(*command)
        assert result.returncode == 0, result.stderr
        assert result.stderr.splitlines()[-1] == "LOADED", command[0]
    assert (root / "bitext/aa-bb/train.aa-bb.aa.bin").is_file() and (texts / "small/dict.txt").is_file()


def test_completion_knows_commands_and_options():
    pytest.importorskip("shtab")
    result = tell("completion")  # of bash
    assert result.returncode == 0 and result.stderr.splitlines()[-1] == "LOADED"
    for word in (
        "translate",
        "export-ct2",
        "attention",
        "--decoder-layers",
        "--bitext-mask-prob",
        "tatoeba",
        "_veco_plot_attention",
    ):
        assert word in result.stdout
    checked = subprocess.run(["bash", "-n"], input=result.stdout, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "\ncomplete -" in result.stdout and "#compdef" not in result.stdout
    zsh = veco.completion("zsh")
    assert zsh.startswith("#compdef veco") and "BLEU and chrF of a translation" in zsh


def test_completion_tells_how_it_is_used(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["veco", "completion", "--help"])
    with pytest.raises(SystemExit) as end:
        veco.main()
    assert not end.value.code and capsys.readouterr().out.startswith("usage: veco completion [SHELL]\n\nPrint a completion")


@pytest.mark.parametrize("command, sub, text", [
    ("retrieve", "tatoeba", "Print the share of sentences that are nearest to their own translation."),
])  # fmt: skip
def test_a_subcommand_says_what_it_does(capsys, command, sub, text):
    with pytest.raises(SystemExit):
        parser(command, f"veco {command}").parse_args([sub, "--help"])
    assert text in " ".join(capsys.readouterr().out.split())


def test_completion_needs_shtab(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["veco"])
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as end:
        veco.completion("bash")
    assert (end.value.code, capsys.readouterr().err) == (
        2,
        "veco: error: completion needs the package shtab: pip install shtab\n",
    )
