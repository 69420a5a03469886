# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""COMET's environment and command line, with stand-ins for Python and for ``comet-score``."""

import re
import sys
from unittest import mock

import pytest
from conftest import error_line

from veco_fairseq.commands.comet import cache
from veco_fairseq.errors import UserError
from veco_fairseq.inference import comet

SCORER = """#!/bin/bash
printf '%s\\n' "$@" >"{0}/arguments"
while (($#)); do
    case $1 in -s | -t | -r) cp "$2" "{0}/text$1" ;; esac
    shift
done
echo "{1}"
exit {2}
"""


@pytest.fixture
def scorer(tmp_path):
    def make(said="hyp.txt\tscore: 0.8321", code=0):
        program = tmp_path / "bin/comet-score"
        program.parent.mkdir()
        program.write_text(SCORER.format(tmp_path, said, code))
        program.chmod(0o755)
        (tmp_path / "comet.version").write_text("unbabel-comet==2.2.7 setuptools<81")
        return tmp_path

    return make


def test_what_comet_is_asked(scorer, tmp_path):
    texts = ["a\u0085b", "c"], ["d", ""], ["f", "g"]
    found = comet.comet_score(scorer(), *texts, model="m", gpus=2, batch_size=7)
    assert found == {"comet": {"score": 0.8321, "signature": "m|comet:2.2.7"}, "lines": 2}
    for option, lines in zip("str", texts):
        assert (tmp_path / f"text-{option}").read_text(encoding="utf-8") == "".join(f"{line}\n" for line in lines)
    arguments = (tmp_path / "arguments").read_text().split("\n")
    named = dict(zip(arguments, arguments[1:]))
    assert [named[name] for name in ("--model", "--gpus", "--batch_size")] == ["m", "2", "7"] and "--only_system" in named


def test_a_carriage_return_within_a_line_ends_none(scorer, tmp_path):
    """comet-score reads with universal newlines, and would pair what comes after it with other lines."""
    comet.comet_score(scorer(), ["a\rb", "c"], ["d", "e"], ["f", "g\rh"])
    for option, wanted in zip("str", (["a b", "c"], ["d", "e"], ["f", "g h"])):
        with open(tmp_path / f"text-{option}", encoding="utf-8") as file:
            assert [line.strip() for line in file.readlines()] == wanted


@pytest.mark.parametrize("said, code", [("hyp.txt\tscore: 0.5", 1), ("no model", 0)])
def test_a_failure_of_comets(scorer, said, code):
    with pytest.raises(UserError, match=f"comet-score: ended with exit code {code} and no score"):
        comet.comet_score(scorer(said, code), ["a"], ["b"], ["c"])


def test_texts_of_other_lengths_or_none(scorer):
    folder = scorer()
    with pytest.raises(UserError, match="2 sources, 1 hypotheses and 1 references: there must be one"):
        comet.comet_score(folder, ["a", "b"], ["c"], ["d"])
    with pytest.raises(UserError, match="the texts are empty"):
        comet.comet_score(folder, [], [], [])


@pytest.mark.parametrize("model, told", [
    ("{0}/none.ckpt", "no such checkpoint$"), ("none.ckpt", "no such checkpoint$"),
    ("{0}/model.ckpt", "installed"), ("Unbabel/XCOMET-XL", "installed"), ("wmt20-comet-da", "installed"),
    ("{0}", r"is no checkpoint, whose name ends in \.ckpt"), ("./model", "is no checkpoint"), ("a/b/model", "is no checkpoint"),
])  # fmt: skip
def test_a_model_is_looked_for_before_anything_is_installed(tmp_path, monkeypatch, model, told):
    (tmp_path / "model.ckpt").touch()

    def install(folder):
        raise UserError("installed")

    monkeypatch.setattr(comet, "make_environment", install)
    with pytest.raises(UserError, match=told):
        comet.comet_score(tmp_path / "none", ["a"], ["b"], ["c"], model=model.format(tmp_path))


def test_comet_is_installed_once(tmp_path, monkeypatch, capfd):
    python, calls, folder = tmp_path / "python", tmp_path / "calls", tmp_path / "environment"
    pip = f'echo pip "$@" >>{calls}; [[ ! -e {tmp_path}/broken ]] && touch "${{0%/*}}/comet-score"'
    python.write_text(f"""#!/bin/bash
echo python "$@" >>{calls}
rm -rf {folder}; mkdir -p {folder}/bin
printf '%s\\n' '#!/bin/bash' '{pip}' >{folder}/bin/pip
chmod +x {folder}/bin/pip
""")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    (tmp_path / "broken").touch()
    with pytest.raises(
        UserError, match="environment: COMET cannot be installed: .*unbabel-comet==2.2.7 setuptools<81 ended with exit code 1"
    ):
        comet.make_environment(folder)
    (tmp_path / "broken").unlink()
    for _ in range(2):
        assert comet.make_environment(folder) == folder / "bin/comet-score"
    once = [f"python -m venv --clear {folder}", "pip install unbabel-comet==2.2.7 setuptools<81"]
    assert calls.read_text().splitlines() == 2 * once  # the one that failed, and one
    (folder / "comet.version").write_text("1.0")
    comet.make_environment(folder)
    assert calls.read_text().splitlines() == 3 * once
    assert "installing COMET there, once" in capfd.readouterr().err


def test_a_folder_of_other_files_is_not_emptied(tmp_path, monkeypatch):
    """As the environment's folder is, before COMET is installed there."""
    (tmp_path / "text").touch()
    monkeypatch.setattr(comet.subprocess, "run", lambda *command, **options: pytest.fail(str(command)))
    with pytest.raises(
        UserError, match=f"^--environment {tmp_path}: holds other files, which would be removed: choose a new folder"
    ):
        comet.make_environment(tmp_path)


def test_unequal_files_end_in_one_line_before_anything_is_installed(run, tmp_path):
    (tmp_path / "empty").touch()
    for name, lines in (("source", 2), ("hypothesis", 1)):
        (tmp_path / name).write_text("a\n" * lines)
    command = ["scripts/comet.py", "--source", tmp_path / "source", "--hypothesis", tmp_path / "hypothesis", "--reference",
               tmp_path / "source", "--environment", tmp_path / "environment", "--json", tmp_path / "scores.json"]  # fmt: skip
    result = run(*command)
    assert result.returncode == 1 and "2 sources, 1 hypotheses and 2 references" in result.stderr
    assert not (tmp_path / "environment").exists() and not (tmp_path / "scores.json").exists()


@pytest.mark.parametrize("environment, place", [
    ({"XDG_CACHE_HOME": "/cache"}, "/cache/veco_fairseq/comet"), ({"XDG_CACHE_HOME": ""}, "/home/me/.cache/veco_fairseq/comet"),
])  # fmt: skip
def test_the_environment_is_in_the_users_cache(monkeypatch, environment, place):
    for name, value in {"HOME": "/home/me", **environment}.items():
        monkeypatch.setenv(name, value)
    assert str(cache()) == place


def test_a_user_without_a_home_folder_gets_help_and_has_to_name_the_environment(run, tmp_path, monkeypatch):
    """Such as in a container whose user has no name; the import of the command had ended in a traceback."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", mock.Mock(side_effect=KeyError("getpwuid(): uid not found: 12345")))
    monkeypatch.delitem(sys.modules, "veco_fairseq.commands.comet")
    (tmp_path / "text").write_text("a\n")
    texts = [word for name in ("--source", "--hypothesis", "--reference") for word in (name, tmp_path / "text")]
    assert "--environment DIR" in run("scripts/comet.py", "--help").stdout
    told = error_line(run("scripts/comet.py", *texts))
    assert re.search(r"error: --environment: is needed here, since you have no cache \(.*\): name a folder$", told), told
