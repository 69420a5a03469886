# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every recipe runs the commands that its table has; and what the comparisons rest on, read from that table."""

import gzip
import re
import shlex

import pytest

from recipes import RECIPES, SCRIPTS, TABLE, Place, help_of
from recipes.cases import TRANSLATION, UNDERSTANDING, cases
from recipes.showing import show, shown

EXPECTED = {part.split("\n", 1)[0].removeprefix("$ "): part.rstrip("\n") for part in TABLE.read_text().split("\n\n")}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("recipes"))


@pytest.mark.parametrize("case", list(cases()), ids=str)  # however long they are
def test_the_recipe_runs_these_commands(place, case):
    assert place.call(case).rstrip("\n") == EXPECTED[case]


@pytest.mark.parametrize("recipe, case, names", list(shown()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_readme_shows_the_whole_command(place, recipe, case, names):
    """... as the recipe runs it; what differs is to be copied from here."""
    text = (RECIPES / recipe / "README.md").read_text(encoding="utf-8")
    blocks = show(place.call(case), names)
    assert blocks
    for block in blocks:
        assert f"\n{block}" in text, f"{recipe}/README.md does not have:\n{block}"


def test_recipes_of_a_kind_have_the_same_options():
    def options(recipe, step):
        return re.findall(r"\[(--[a-z-]+)", help_of(RECIPES / recipe / f"{step}.sh"))

    translation = TRANSLATION.split()
    understanding = [f"xtreme/{task}" for task in UNDERSTANDING.split()]
    for recipes, step, extra in (
        (translation, "prepare", set()), (translation, "finetune", set()), (translation, "evaluate", set()),
        (["toy", "multi30k"], "train", {"--src", "--tgt"}), (["toy", "multi30k"], "finetune", {"--src", "--tgt"}),
        (["wmt14.en-de", "toy", "multi30k"], "evaluate", {"--src", "--tgt"}), (understanding, "prepare", {"--translations"}),
        (understanding, "finetune", set()), (understanding, "evaluate", set()),
    ):  # fmt: skip
        assert len({frozenset(set(options(recipe, step)) - extra) for recipe in recipes}) == 1, (recipes, step)
    for script in SCRIPTS:
        if script.stem != "compare":
            given = set(re.findall(r"\[(--[a-z-]+)", help_of(script)))
            assert given >= {"--out", "--try"}, script
            assert script.stem.startswith("prepare") or given & {"--seed", "--pretrained", "--pretraining"}, script
            assert not script.stem.startswith("prepare") or script.parent.name == "toy" or "--local" in given, script


@pytest.mark.parametrize("task", TRANSLATION.split())
def test_help_tells_the_layers_of_the_student_that_is_trained(task):
    """... which are not those of finetune.sh."""
    told = re.search(r"--decoder-layers .*\n(?:      .*\n)*?.*\(default: (\w+)\)", help_of(RECIPES / f"{task}/distill.sh"))[1]
    (conversion,) = (
        words for words in commands(f"GPUS=1 {task}/distill --out OUT") if words[1].endswith("convert_to_seq2seq.py")
    )
    assert told == of(conversion, "--decoder-layers") == "1"


def test_every_option_says_the_same_everywhere():
    """... but for its default; a few mean another thing in one recipe."""
    texts = {}
    for script in SCRIPTS:
        for name, text in re.findall(r"^  (--[a-z-]+).*\n((?:      .*\n)+)", help_of(script), re.MULTILINE):
            text = re.sub(r"\s+", " ", text.strip())
            assert text and text.count("(default:") < 2, (script, name, text)
            texts.setdefault(name, {})[re.sub(r" \(default: [^()]*\)$", "", text)] = script
    different = {name: list(said) for name, said in texts.items() if len(said) > 1}
    assert set(different) <= {"--arm", "--name", "--local", "--updates", "--langs", "--test", "--seed", "--seeds"}, different


def test_the_table_has_every_option_of_every_recipe():
    given = {}
    for case in cases():
        words = shlex.split(case.split(" -- ")[0])
        while "=" in words[0]:
            words.pop(0)
        given.setdefault(words[0], set()).update(word for word in words if word.startswith("--"))
    for script in SCRIPTS:
        name = str(script.relative_to(RECIPES).with_suffix(""))
        options = set(re.findall(r"\[(--[a-z-]+)", help_of(script)))
        if name.endswith("/finetune") and name.split("/")[-2] in UNDERSTANDING.split():
            given[name] |= given["xtreme/xnli/finetune"]
        assert options and options <= given[name], f"{name}: {options - given[name]}"


def test_a_training_that_goes_on_keeps_its_log(place, monkeypatch):
    """... apart from those of the others: of each the learning curve is drawn, and not of one that was removed."""
    fill, names, removed = place.fill, ("mlm", "camlm", "xlme.mine"), "camlm"

    def fill_with_logs(script):
        fill(script)
        for name in names:
            place.write(f"OUT/{name}.log", "update 1")
            if name != removed:
                place.write(f"OUT/checkpoints/{name}/checkpoint_last.pt")

    monkeypatch.setattr(place, "fill", fill_with_logs)
    place.call("SAYS=loss multilingual/train --out OUT --xlme-updates 4 --name mine")
    assert sorted(path.stem for path in place.folder.glob("OUT/*.log")) == sorted(names)
    for name in names:
        before = [] if name == removed else ["update 1"]
        *earlier, began, loss, ended = (place.folder / f"OUT/{name}.log").read_text().splitlines()
        assert (earlier, loss) == (before, "loss")
        assert began.startswith(f"[pre-training, {name}] makes ") and ended.startswith(f"[pre-training, {name}] done ")


def test_another_vocabulary_of_pre_training_is_that_of_the_data_too(place, monkeypatch):
    """... although no text has changed: with another --vocab-size or --zero-shot the root alone is made anew."""
    case = 'many-to-many/prepare --out OUT --local LOCAL --langs "de fr" --zero-shot fr-de'
    place.fill("many-to-many/prepare")
    monkeypatch.setattr(place, "fill", lambda script: None)
    for pieces, made_anew in (("8000", True), ("8000", False), ("4000", True)):
        for name in ("dict.txt", "preparation.json"):
            place.write(f"OUT/pretrain/{name}", pieces)
        assert ("binarize.py" in place.call(case)) == made_anew
        assert (place.folder / "OUT/vocabulary/dict.txt").read_text() == f"{pieces}\n<2de> 1\n<2fr> 1\n"


def test_another_root_of_the_comparisons_is_the_monolingual_arms_too(place, monkeypatch):
    """... even if prepare.sh was ended just after the root was made anew: its next call makes no text."""
    place.fill("evidence/prepare")
    monkeypatch.setattr(place, "fill", lambda script: None)
    for pieces in ("8000", "4000"):
        (place.folder / "OUT/pretrain/dict.txt").unlink(missing_ok=True)
        for name in ("dict.txt", "preparation.json"):
            place.write(f"OUT/pretrain/{name}", pieces)
        place.call("evidence/prepare --out OUT --local LOCAL --try")
        assert (place.folder / "OUT/pretrain.mono/dict.txt").read_text() == f"{pieces}\n"


@pytest.mark.parametrize("case, before, after, made, source, count", [
    ("many-to-many/prepare --langs 'de fr' --zero-shot fr-de", "--local LOCAL --try", "--local LOCAL", "valid.de", "valid.de", 25),
    ("many-to-many/prepare --langs 'de fr' --zero-shot fr-de", "--local LOCAL", "--local LOCAL/bible", "test.fr", "bible/test.fr.gz", 25),
    ("multilingual/prepare --langs de", "--local LOCAL", "--local LOCAL --try", "valid.de", "valid.de", 20),
    ("multi30k/prepare", "--local LOCAL --try", "--local LOCAL", "val.de", "val.de.gz", 25),
])  # fmt: skip
def test_other_options_of_the_texts_make_them_anew(place, monkeypatch, case, before, after, made, source, count):
    place.fill(case.split()[0])
    monkeypatch.setattr(place, "fill", lambda script: None)
    for options in (before, after):
        place.call(f"{case} --out OUT {options}")
    path = place.folder / "LOCAL" / source
    text = (gzip.open if path.suffix == ".gz" else open)(path, "rt").read().splitlines()
    assert (place.folder / f"OUT/raw/{made}").read_text().splitlines() == text[:count]


@pytest.mark.parametrize("case, program", [
    ("wmt14.en-de/prepare --out OUT --pretrained MODEL", "scripts/clean.py"),
    ("SAYS=speed evidence/evaluate --out OUT --lr 1e-3 --dropout 0.1", "fairseq-generate"),
])  # fmt: skip
def test_what_a_step_writes_beside_its_output_does_not_make_it_another(place, monkeypatch, case, program):
    """The second call finds all made: a training would not go on with data that were made from other files."""
    place.fill(case.removeprefix("SAYS=speed ").split()[0])
    monkeypatch.setattr(place, "fill", lambda script: None)
    assert program in place.call(case)
    made = {path.name: path.read_text() for path in place.folder.glob("OUT/**/*.done")}
    assert program not in place.call(case)
    assert made and {path.name: path.read_text() for path in place.folder.glob("OUT/**/*.done")} == made


def test_a_fine_tuning_of_the_comparisons_keeps_its_best_checkpoint_alone(place):
    """... with which the test set is translated."""
    run = "xlm.p3.en-de.29000.lr3e-3.dropout0.25.s2"
    place.call("evidence/finetune --out OUT --arm xlm --data en-de.29000 --pretraining 3 --seed 2")
    assert [path.name for path in (place.folder / f"OUT/finetuned/{run}").glob("*.pt")] == ["checkpoint_best.pt"]


def commands(beginning: str) -> list:
    """The commands of all cases that begin so, in words."""
    return [words for case in EXPECTED if case.startswith(beginning) for words in commands_of(case)]


def commands_of(case: str) -> list:
    """The commands of a case, in words."""
    return [shlex.split(line) for line in EXPECTED[case].splitlines() if line[:2] not in ("$ ", "# ", "! ", "> ")]


def of(words: list, option: str):
    """The value that counts of an option in a command: its last one."""
    places = [place for place, word in enumerate(words) if word == option]
    return words[places[-1] + 1] if places else None


def trainings(beginning: str) -> list:
    return [words for words in commands(beginning) if words[0] == "fairseq-train" or "launch.sh" in words[1]]


@pytest.mark.parametrize("recipe", ["toy/finetune --out OUT", "multi30k/finetune --out OUT --src de --tgt fr"])
def test_three_arms_differ_in_where_they_start_alone(recipe):
    arms = {arm: trainings(f"{recipe} --arm {arm}")[0] for arm in ("veco", "xlm", "random")}
    conversions = {arm: [words for words in commands(f"{recipe} --arm {arm}") if words[1].endswith("convert_to_seq2seq.py")]
                   for arm in arms}  # fmt: skip
    assert not conversions["random"] and "--finetune-from-model" not in arms["random"]
    for arm, objective in (("veco", "camlm"), ("xlm", "mlm")):
        (conversion,) = conversions[arm]
        assert of(conversion, "--checkpoint") == f"OUT/checkpoints/{objective}/checkpoint_last.pt"
        assert of(conversion, "--output") == of(arms[arm], "--finetune-from-model")
        assert ("--random-cross-attention" in conversion) == (arm == "xlm")
    assert of(conversions["xlm"][0], "--seed") == "2"  # else all seeds would share one random cross-attention
    rest = [re.sub(r"--finetune-from-model \S+ |finetune\.\w+\.s2", "", " ".join(words)) for words in arms.values()]
    assert len(set(rest)) == 1


@pytest.mark.parametrize("task", ["wmt14.en-de", "wmt14.en-fr", "iwslt14.de-en"])
def test_arms_of_the_published_tasks(task):
    arms = {
        arm: commands(f"GPUS=4 {task}/finetune --out OUT --pretrained MODEL --arm {arm}") for arm in ("veco", "xlm", "random")
    }
    for arm, ran in arms.items():
        (conversion,), (training,) = ([words for words in ran if name in words[1]] for name in ("convert", "launch.sh"))
        assert ("--random-cross-attention" in conversion) == (arm == "xlm") and of(conversion, "--seed") == "2"
        start = None if arm == "random" else of(conversion, "--output")
        assert of(training, "--finetune-from-model") == start and (of(training, "--seed"), of(training, "--workers")) == (
            "2",
            "4",
        )
    ran = commands_of(f"{task}/evaluate --out OUT") + commands(f"{task}/evaluate --out OUT --name mine")
    generate = [words for words in ran if words[0] == "fairseq-generate"]
    assert [(of(words, "--beam"), of(words, "--lenpen")) for words in generate] == [("5", "1.0"), ("4", "0.6")]
    average = [words for words in ran if words[1].endswith("average_checkpoints.py")]
    assert [of(words, "--num-update-checkpoints") for words in average] == ["10", "3"]
    assert [of(words, "--path") for words in generate] == [of(words, "--output") for words in average]


@pytest.mark.parametrize("setting", ["transfer --plug out", "translate-train --plug out", "translate-train --plug in"])
def test_arms_of_understanding(setting):
    found = {arm: trainings(f"xtreme/xnli/finetune --out OUT --pretrained MODEL --arm {arm} --setting {setting}")
             for arm in ("pretrained", "random")}  # fmt: skip
    for arm, ran in found.items():
        assert [of(words, "--seed") for words in ran] == ["2", "3"]
        for words in ran:
            assert of(words, "--finetune-from-model") == (None if arm == "random" else "MODEL")
            assert of(words, "--plug") == setting.split()[-1] and of(words, "--train-langs") == (
                "en" if "transfer" in setting else None
            )


def test_the_threshold_is_the_development_sets():
    dev, _, test, table = commands("xtreme/bucc/evaluate --out OUT --pretrained MODEL --name mine")
    assert "/dev-" in of(dev, "--source") and not [word for word in dev if word.startswith("--threshold")]
    assert "/test-" in of(test, "--source") and "--threshold=-0.25" in test
    assert of(test, "--json") in table[3]
