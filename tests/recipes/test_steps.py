# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Options and steps at their borders: what is a number, what is made anew, and what is said when nothing is made."""

import os
import shutil
import subprocess

import pytest
from support.shell import ENVIRONMENT, bash

from recipes import RECIPES, Place


@pytest.mark.parametrize("value", ["x3", "1.5", "-1", "", "3 4"])
def test_what_is_no_whole_number(tmp_path, value):
    result = bash(tmp_path, 'parse_options size=1 -- "$@"; require_number size; echo ran', "--size", value)
    assert (result.returncode, result.stderr) == (1, f"my recipe/run.sh: error: --size {value}: must be a whole number\n")


@pytest.mark.parametrize("langs, said", [
    ("", "--langs is empty: give the languages but the pivot"), (" ", "--langs is empty: give the languages but the pivot"),
    ("de en", "--langs de en: leave out en, the pivot"),
])  # fmt: skip
def test_the_languages_of_the_multilingual_recipe_are_those_beside_the_pivot(tmp_path, langs, said):
    command = ["bash", RECIPES / "multilingual/prepare.sh", "--out", "out", "--local", "none", "--langs", langs]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (1, f"multilingual/prepare.sh: error: {said}\n")


@pytest.mark.parametrize("lines, told", [("a\nb\n\nd\ne\n", "line 2 is blank in "), ("a\n\nc\nd\n\n", "line 5 is blank in ")])
def test_blank_lines_are_at_the_same_places_in_every_language(tmp_path, lines, told):
    """All are left out of the pairs, and each text here has one: what is between them would be paired with its neighbours."""
    for split in ("train", "valid"):
        (tmp_path / f"{split}.en").write_text("a\n\nc\nd\ne\n")
        (tmp_path / f"{split}.de").write_text(lines)
    command = ["bash", RECIPES / "multilingual/prepare.sh", "--out", "out", "--local", tmp_path, "--langs", "de"]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path)
    assert result.returncode == 1 and f"multilingual/prepare.sh: error: {told}" in result.stderr
    assert not list((tmp_path / "out/raw").glob("train.en-de.*"))


@pytest.mark.parametrize("recipe, name, lang", [
    ("prepare", "bible/train", "fr"), ("prepare", "newstest/valid_2013", "de"),
    ("prepare_bible", "bible/train", "mi"), ("prepare_bible", "bible_nt_lowres/test", "sw"),
])  # fmt: skip
def test_blank_lines_are_at_the_same_places_in_both_texts_of_a_comparison(tmp_path, recipe, name, lang):
    """... plain or .gz, in all that blank lines are left out of; each text of this name has as many."""
    place = Place(tmp_path)
    place.write(f"LOCAL/{name}.en.gz", "a\n\nc\nd\ne")
    place.write(f"LOCAL/{name}.{lang}.gz", "a\nb\nc\n\ne")
    (told,) = [line for line in place.call(f"evidence/{recipe} --out OUT --local LOCAL").splitlines() if line.startswith("! ")]
    pair = f"LOCAL/{name}.en.gz or LOCAL/{name}.{lang}.gz"
    assert told.startswith(f"! evidence/{recipe}.sh: error: line 2 is blank in {pair} alone: ")
    split = name.rsplit("/", 1)[1].split("_")[0]
    assert not list(place.folder.glob(f"OUT/**/raw/{split}.en-{lang}.*"))


def test_numbers_and_choices_that_are_taken(tmp_path):
    script = """parse_options a=0 b=1 c=10 d=80 kind=y -- "$@"; require_number a b c d; require_positive b c d
        require_choice kind x y; echo "${#EXTRA[@]}" """
    result = bash(tmp_path, script, "--")  # nothing follows it, as in a command that was put together
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")
    octal = bash(tmp_path, "parse_options a=08 --; require_positive a")
    assert "--a 08: must be a whole number" in octal.stderr
    assert "--a 0: must be 1 or more" in bash(tmp_path, "parse_options b=1 a=0 --; require_positive b a").stderr
    assert "--kind xy: must be one of: x y" in bash(tmp_path, "parse_options kind=xy --; require_choice kind x y").stderr


SCRIPTS = {
    "toy/prepare": "seed words pairs mono finetune-pairs valid test vocab-size",
    "multi30k/prepare": "vocab-size",
    "many-to-many/prepare": "vocab-size",
    "multilingual/prepare": "vocab-size",
    "multilingual/train": "xlm-updates frozen-updates updates xlme-updates warmup seed",
    "wmt14.en-de/prepare": "keep",
    "evidence/cost": "pretraining",
    "evidence/understand": "seed pretraining",
}
CHOICES = {
    "multi30k/prepare": {"src": "en de fr cs", "tgt": "en de fr cs"},
    "evidence/understand": {"plug": "out in"},
    **{f"evidence/{name}": {"arm": ""} for name in ("attention", "cost", "evaluate", "finetune")},
}


@pytest.mark.parametrize("script", sorted({*SCRIPTS, *CHOICES}))
def test_each_script_looks_at_its_options(script, tmp_path):
    """... before it makes anything, or asks for a text: what bash would read as octal is no number."""
    told = {name: f"--{name} 08: must be a whole number" for name in SCRIPTS.get(script, "").split()}
    told |= {name: f"--{name} 08: must be one of: {choices}" for name, choices in CHOICES.get(script, {}).items()}
    path = RECIPES / f"{script}.sh"
    call = f"for name in {' '.join(told)}; do (source {path} --out out --$name 08) || :; done"
    result = subprocess.run(["bash", "-c", call, path], capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path)
    errors = result.stderr.splitlines()
    assert len(errors) == len(told) and not list(tmp_path.iterdir())
    for error, message in zip(errors, told.values()):
        assert error.startswith(f"{script}.sh: error: {message}")


@pytest.mark.parametrize("script", ["finetune", "evaluate"])
@pytest.mark.parametrize("data", ["en-de", "500", "en.500", "en-de.05", "en-de.x"])
def test_what_is_no_direction_with_a_number_of_pairs(script, data, tmp_path):
    command = ["bash", RECIPES / f"evidence/{script}.sh", "--out", "out", "--data", data]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path)
    assert result.returncode == 1 and not list(tmp_path.iterdir())
    assert result.stderr.startswith(f"evidence/{script}.sh: error: --data {data}: must be one of: en-de.2000 ")


@pytest.mark.parametrize("script", ["attention", "cost"])
def test_what_has_no_pre_training_is_not_asked_for(script, tmp_path):
    command = ["bash", RECIPES / f"evidence/{script}.sh", "--out", "out", "--arm", "random"]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (1, f"evidence/{script}.sh: error: --arm random: is not pre-trained\n")


def test_a_step_that_makes_nothing_is_none(tmp_path):
    result = bash(tmp_path, "step nothing a.out true; echo not reached")
    assert (result.returncode, result.stdout) == (1, "[nothing] makes a.out\n")
    assert result.stderr == "my recipe/run.sh: error: nothing ended without making a.out\n"
    assert not (tmp_path / "my recipe/a.out.done").exists()


def test_the_seconds_of_a_step_are_its_own(tmp_path):
    script = "unset SECONDS; SECONDS=100; wait_and_make() { SECONDS=$((SECONDS + $1)); touch $2; }"  # a variable like all others
    told = bash(tmp_path, f"{script}; for n in 7 30; do step it $n.out wait_and_make $n $n.out; done").stdout
    assert [line for line in told.splitlines() if "done" in line] == ["[it] done in 7 s", "[it] done in 30 s"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "my recipe").mkdir()
    (tmp_path / "my recipe/file").touch()
    for call, folder in (("step any file/a.out touch '{}'", "file"), ("training any file/a touch", "file/a")):
        reason = "File exists" if folder == "file" else "Not a directory"
        told = bash(tmp_path, call).stderr
        assert told == f"my recipe/run.sh: error: {folder}: cannot be made ({reason}): choose another --out\n"


def test_a_step_that_was_done_and_fails_is_no_longer_done(tmp_path):
    """Half of it may be there, of what the first command would make."""
    make = "make() { echo $1 >>a.out; [[ $1 == whole ]]; }; step any a.out make"
    assert bash(tmp_path, f"{make} whole").returncode == 0
    assert "any failed (exit code 1)" in bash(tmp_path, f"{make} half").stderr
    assert "already there" not in bash(tmp_path, f"{make} whole").stdout


def test_what_a_step_that_failed_has_left_is_no_part_of_the_next(tmp_path):
    """It may be of another text."""
    make = "make() { mkdir -p $1 && touch $1/$2 && [[ $2 == new ]]; }; step any out make '{}'"
    assert "any failed (exit code 1)" in bash(tmp_path, f"{make} old").stderr
    assert bash(tmp_path, f"{make} new").stderr == "" and os.listdir(tmp_path / "my recipe/out") == ["new"]


@pytest.mark.parametrize("folder", ["a b", "[a]*&'\\\\"])
def test_a_folder_is_the_same_however_it_is_named(tmp_path, folder):
    """... and a training in it goes on, and is not refused as another one."""
    script = """parse_options out= -- "$@"; choose_out; training it "$OUT/it" touch "$OUT/it/checkpoint_last.pt" """
    names = [folder, f"{folder}/", f"{folder}//", f"./{folder}", f"{tmp_path}/my recipe/{folder}", f"../my recipe/{folder}/"]
    for number, out in enumerate(names):
        result = bash(tmp_path, script, "--out", out)
        assert result.stderr == "" and ("already there" in result.stdout) == (number > 0)
    told = bash(tmp_path, 'for out in / // /a/ a ""; do parse_options out= -- --out "$out"; echo "${OPTIONS[out]}"; done')
    assert told.stdout.splitlines() == ["/", "/", "/a", f"{tmp_path}/my recipe/a", ""]


@pytest.mark.parametrize("option", ["local DIR", "pretrained FILE", "checkpoint NAME"])
def test_a_step_is_the_same_however_its_files_are_given(tmp_path, option):
    """... but a name is not the one of a file."""
    name, kind = option.split()
    script = f"""about {option} "any"; parse_options {name}= -- "$@"; step it it to_file "{{}}" echo "${{OPTIONS[{name}]}}" """
    told = [bash(tmp_path, script, f"--{name}", given) for given in ("a b", "a b/", "./a b", f"{tmp_path}/my recipe/a b")]
    assert ["already there" in result.stdout for result in told] == [False, *[kind != "NAME"] * 3]
    assert (tmp_path / "my recipe/it").read_text() == f"{tmp_path}/my recipe/a b\n"


def test_a_number_is_no_file(tmp_path):
    """... in the folder of the call, where 2>1 leaves one: from there, the training is the same one."""
    script = 'train() { touch "$3/checkpoint_last.pt"; }; training any it train --seed 1 it'
    assert " done in " in bash(tmp_path, f"{script}; rm it.done").stdout
    (tmp_path / "my recipe/1").write_text("an error\n")
    assert bash(tmp_path, script).stderr == ""


def test_a_data_root_is_known_by_its_preparation(tmp_path):
    root = tmp_path / "my recipe/root"
    root.mkdir(parents=True)
    (root / "preparation.json").write_text("1")
    (root / "mono").mkdir()
    for number, name in enumerate(("root", "root/mono")):
        step = f"step any {number}.out to_file '{{}}' ls {name}"
        (root / "preparation.json").write_text("1")
        assert " done in " in bash(tmp_path, step).stdout
        (root / "log").write_text("of no matter")
        assert "already there" in bash(tmp_path, step).stdout
        (root / "preparation.json").write_text("2")
        assert " done in " in bash(tmp_path, step).stdout


def test_a_folder_with_a_vocabulary_is_known_by_its_dictionary(tmp_path):
    """As --arm random has it, which takes only the vocabulary that lies beside a checkpoint."""
    folder, call = tmp_path / "my recipe/saved", "step any it.out to_file '{}' ls saved"
    folder.mkdir(parents=True)
    for text, told in (("a 1", "done in"), ("a 1", "already there"), ("b 1", "done in")):
        (folder / "dict.txt").write_text(text)
        (folder / "checkpoint_last.pt").write_text(f"another one than before: {told}")
        assert told in bash(tmp_path, call).stdout
    for name in ("sentencepiece.bpe.model", "model.pt"):  # of a vocabulary and of weights from elsewhere
        for text in ("one", "two"):
            (folder / name).write_text(text)
            assert [bash(tmp_path, call).stdout.count("done in") for _ in range(2)] == [1, 0]


def test_another_number_of_processors_is_no_other_step(tmp_path):
    step = "made() { echo $* >$1; }; nproc() { echo $N; }; step any a.out on_all_processors made '{}'"
    assert " done in " in bash(tmp_path, f"N=4; {step}").stdout
    assert (tmp_path / "my recipe/a.out").read_text() == "a.out.partial --workers 4\n"
    assert "already there" in bash(tmp_path, f"N=8; {step}").stdout


def test_the_recipes_own_code_and_programs_come_first(tmp_path):
    """... before those of the user, which stay; and setup.sh is asked first, which may leave the installation as it is."""
    folders = {name: tmp_path / name for name in ("data-bin-recipes/lib", "data-bin-recipes/any", "scripts", ".venv/bin")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    for name in ("steps.sh", "waiting.sh"):
        shutil.copy(RECIPES / "lib" / name, folders["data-bin-recipes/lib"])
    (folders["scripts"] / "setup.sh").write_text("echo set up")
    script = folders["data-bin-recipes/any"] / "run.sh"
    script.write_text('source "$(dirname "$0")/../lib/steps.sh"; parse_options -- "$@"; echo "$PYTHONPATH $PATH $USER_DIR"')
    for given, path in ((ENVIRONMENT, ""), ({"PATH": "/usr/bin:/bin", "PYTHONPATH": "/mine"}, ":/mine")):
        result = subprocess.run(["bash", script], capture_output=True, text=True, env=given)
        assert (
            result.stdout == f"set up\n{tmp_path}{path} {tmp_path}/.venv/bin:{given['PATH']} {tmp_path}/veco_fairseq{os.linesep}"
        )


# Both begin the step before either has ended it: the one that makes it waits for the other's "waits".
AT_ONCE = """
slow() { until grep -qs waits told.*; do sleep 0.1; done; mkdir "$1" && echo made >"$1/file"; }
once() { step any out slow {} >told.$1; }
once 1 & once 2 & wait
"""


def test_of_two_processes_one_makes_it_and_the_other_waits(tmp_path):
    """They had removed each other's files: both could fail, and what was there before was gone."""
    result = bash(tmp_path, AT_ONCE)
    folder = tmp_path / "my recipe"
    told = [(folder / f"told.{number}").read_text().splitlines() for number in (1, 2)]
    assert result.stderr == "" and sorted(map(len, told)) == [2, 2]
    assert ["[any] waits: another process makes out", "[any] already there: out"] in told
    assert sorted(path.name for path in folder.iterdir()) == ["out", "out.done", "run.sh", "told.1", "told.2"]
    assert (folder / "out/file").read_text() == "made\n"


def test_what_another_process_has_failed_to_make_is_made(tmp_path):
    result = bash(tmp_path, AT_ONCE.replace("mkdir", "mkdir failed 2>/dev/null && return 1; mkdir"))
    assert result.stderr == "my recipe/run.sh: error: any failed (exit code 1): see the lines above\n"
    assert (tmp_path / "my recipe/out/file").read_text() == "made\n"
    assert not list((tmp_path / "my recipe").glob(".out.lock"))


def test_a_process_that_has_waited_for_the_first_waits_for_the_second_too(tmp_path):
    """The first has removed the file when it let go of it, and the second has made it again."""
    script = """exec 8>>lock; flock 8; HELD= LOCK=
        (exec 8>&-; hold lock waits >told || :; echo holds >>told; release) & until grep -qs waits told; do sleep 0.1; done
        rm lock; exec 9>>lock; flock 9; exec 8>&-
        until [[ $(wc -l <told) == 2 ]]; do sleep 0.1; done; exec 9>&-; wait; cat told"""
    assert bash(tmp_path, script).stdout == "waits\nwaits\nholds\n"


def test_a_step_that_ends_its_script_leaves_no_lock(tmp_path):
    result = bash(tmp_path, "make() { die 'has no text'; }; step any out make '{}'")
    assert (result.returncode, result.stderr) == (1, "my recipe/run.sh: error: has no text\n")
    assert os.listdir(tmp_path / "my recipe") == ["run.sh"]


def test_a_step_is_the_same_one_in_every_locale(tmp_path, monkeypatch):
    """As in a terminal with UTF-8 and in a job without."""
    folder = tmp_path / "my recipe/ördner"
    folder.mkdir(parents=True)
    (folder / "text").write_text("a")
    step = 'step part "ördner/part ß" to_file "{}" cat ördner/text; training tuning ördner/tuned mkdir -p ördner/tuned'
    told = []
    for locale in ("C.UTF-8", "C", "C.UTF-8"):
        monkeypatch.setitem(ENVIRONMENT, "LC_ALL", locale)
        result = bash(tmp_path, f"{step}; touch ördner/tuned/checkpoint_last.pt")
        assert result.stderr == ""
        told.append(result.stdout.count("already there"))
    assert told == [0, 2, 2]


def test_variables_of_other_programs_change_no_step(tmp_path, monkeypatch):
    """POSIXLY_CORRECT changes how bash reads a quoted brace, and nproc obeys OMP_NUM_THREADS."""
    monkeypatch.setitem(ENVIRONMENT, "POSIXLY_CORRECT", "1")
    monkeypatch.setitem(ENVIRONMENT, "OMP_NUM_THREADS", "1")
    script = """step first "$PWD/a b" to_file "{}" printf '%s\\n' x; cat "$PWD/a b"
        nproc() { echo ${OMP_NUM_THREADS:-7}; }; on_all_processors echo"""
    result = bash(tmp_path, script)
    assert result.stdout.splitlines()[-2:] == ["x", "--workers 7"], result.stderr
