# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The shell side of the recipes: what --help prints, the installation, and the less usual ends of a step."""

import re
import shutil
import subprocess
import sys

import pytest
from support.modules import load_script
from support.shell import bash
from support.sourced import sourced

from recipes import RECIPES

HELPED = """
# What it makes,
# in two lines.
PROGRAM=a-program
about size N "how large it becomes"
about kind "x|y" "one of the two kinds"
about quick "" "LONG"
# not of the head
parse_options size=5 kind= quick -- "$@"
echo not reached
"""


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_has_the_head_the_options_their_defaults_and_the_program(tmp_path, option):
    result = bash(tmp_path, HELPED.replace("LONG", "do less"), option)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (
        "What it makes,\nin two lines.\n\nusage: run.sh [--size N] [--kind x|y] [--quick] [-- OPTIONS OF a-program]\n"
        "\n  --size N\n      how large it becomes (default: 5)\n\n  --kind x|y\n      one of the two kinds\n\n  --quick\n      do less\n"
    )


@pytest.mark.parametrize("script", ["data-bin-recipes/toy/train.sh", "scripts/launch.sh"])
def test_help_is_printed_whatever_the_folder_is_called(tmp_path, script):
    """... also where awk would take the path for a variable with a value."""
    (tmp_path / "v=1").symlink_to(RECIPES.parent)
    told = [subprocess.run(["bash", f"{folder}/{script}", "--help"], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, text=True,
                           capture_output=True, stdin=subprocess.DEVNULL).stdout for folder in (RECIPES.parent, "v=1")]  # fmt: skip
    assert told[0] == told[1] and told[0].count("\n") > 5


@pytest.mark.parametrize("script", ["evidence/mbart.py", "evidence/plots.py", "evidence/results.py", "evidence/table.py",
                                    "many-to-many/table.py", "multi30k/table.py", "xtreme/examples.py"])  # fmt: skip
def test_scripts_do_not_need_their_docstrings(monkeypatch, capsys, script):
    """PYTHONOPTIMIZE=2 leaves them out, and three scripts had ended in a traceback."""
    monkeypatch.syspath_prepend(RECIPES / "evidence")  # the scripts import each other
    module = load_script(RECIPES / script)
    monkeypatch.setattr(module, "__doc__", None)
    monkeypatch.setattr(sys, "argv", ["a-script", "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0 and "usage: a-script [-h]" in capsys.readouterr().out


def test_help_is_broken_between_words(tmp_path):
    names = [f"name-{number:02}" for number in range(15)]
    abouts = "".join(f"about {name} N '{'letters ' * 40}'\n" for name in names)
    script = f"\n# x\n{abouts}parse_options {'= '.join(names)}= -- --help"
    lines = bash(tmp_path, script).stdout.splitlines()
    assert 100 < max(map(len, lines)) <= 6 + 110
    assert {word for line in lines if "letters" in line for word in line.split()} == {"letters"}
    usage = [line for line in lines if "[" in line]
    assert [line.startswith("       [") for line in usage] == [False, True, True]
    assert re.findall(r"\[--(\S+) N\]", " ".join(usage)) == names


def test_two_dashes_with_nothing_behind_them_are_fine(tmp_path):
    result = bash(tmp_path, 'parse_options size=1 -- "$@"; echo "${OPTIONS[size]} ${#EXTRA[@]}"', "--size", "a=b", "--")
    assert (result.stderr, result.stdout) == ("", "a=b 0\n")


@pytest.mark.parametrize("call, told", [
    ("require_number size count", "--count x3: must be a whole number"),
    ("require_positive size count", "--count x3: must be a whole number"),
    ("OPTIONS[count]=0; require_positive size count", "--count 0: must be 1 or more"),
])  # fmt: skip
def test_each_of_several_numbers_is_looked_at(tmp_path, call, told):
    result = bash(tmp_path, f"parse_options size=1 count=x3 -- ; {call}")
    assert (result.returncode, result.stderr) == (1, f"my recipe/run.sh: error: {told}\n")


def test_the_recipe_sets_up_and_takes_the_installation_before_all_others(tmp_path):
    library = tmp_path / "data-bin-recipes/lib"
    library.mkdir(parents=True)
    for name in ("steps.sh", "waiting.sh"):
        shutil.copy(RECIPES / "lib" / name, library)
    for name, text in (("scripts/setup.sh", "echo sets up"), (".venv/bin/cat", "#!/bin/sh\necho of .venv")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        path.chmod(0o755)

    def run(**environment):
        script = f'source {library}/steps.sh; parse_options --; cat; echo "$PYTHONPATH"'
        environment = {"PATH": "/usr/bin:/bin", **environment}
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=True).stdout

    assert run() == f"sets up\nof .venv\n{tmp_path}\n"
    assert run(PYTHONPATH="/a:/b") == f"sets up\nof .venv\n{tmp_path}:/a:/b\n"


def test_what_was_prepared_anew_is_noticed(tmp_path):
    """A folder of veco prepare is known by what that notes of it."""
    call = 'make() { echo made >"$1"; }; step data data make "{}" root'
    root = tmp_path / "my recipe/root"
    root.mkdir(parents=True)
    for text, told in (("1", "done in"), ("1", "already there"), ("2", "done in"), ("2", "already there")):
        (root / "preparation.json").write_text(text)
        assert told in bash(tmp_path, call).stdout


def test_what_a_step_spoiled_is_not_taken_for_made(tmp_path):
    """It writes its output itself, and failed when it was to make another."""
    call = 'make() { echo "$1" >a.out; [[ $1 != 2 ]]; }; step it a.out make "$1"'
    assert [bash(tmp_path, call, number).returncode for number in "121"] == [0, 1, 0]
    assert (tmp_path / "my recipe/a.out").read_text() == "1\n"


@pytest.mark.parametrize("call, message", [
    ("step it a.out true", "it ended without making a.out"),
    ("step it a.out sh -c 'exit 3'", "it failed (exit code 3): see the lines above"),
    ("touch file; mkdir() { return 1; }; step it file/a.out touch '{}'", "file: cannot be made: choose another --out"),
])  # fmt: skip
def test_a_step_without_its_output_is_one_line(tmp_path, call, message):
    result = bash(tmp_path, f"{call}; echo not reached")
    assert (result.returncode, result.stderr) == (1, f"my recipe/run.sh: error: {message}\n")
    assert "not reached" not in result.stdout


def test_the_script_itself_can_be_ended_between_two_programs(tmp_path):
    assert bash(tmp_path, "run sh -c :; kill $$; echo not reached").returncode == -15


def test_a_file_is_written_anew_and_a_log_is_added_to(tmp_path):
    result = bash(tmp_path, "for n in 1 2; do to_file file echo $n; logged log echo $n; done; cat file log")
    assert result.stdout == "1\n2\n2\n1\n2\n"


def test_a_log_is_whole_when_the_next_command_begins(tmp_path):
    tee = tmp_path / "tee"
    tee.write_text('#!/bin/bash\nsleep 0.2; cat >"${@: -1}"\n')
    tee.chmod(0o755)
    assert bash(tmp_path, f"PATH={tmp_path}:$PATH; logged log echo said; cat log").stdout == "said\n"


def test_other_machines_wait_ten_minutes(tmp_path):
    """... from when they began to wait, and look once a second."""
    script = 'SECONDS=300; sleep() { echo "sleeps $1"; SECONDS=$((SECONDS + 200)); }; await conversion none.pt true'
    result = sourced(tmp_path, script)
    assert result.returncode == 1 and result.stdout.splitlines()[1:] == ["sleeps 1"] * 3
    assert "has not made none.pt after 600 s: see its output" in result.stderr
