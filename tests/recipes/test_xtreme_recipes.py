# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The recipes of XTREME's tasks: archives as they are published, files of one's own, the grid, figures by language."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from conftest import REPOSITORY, save_with_vocabulary

from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.understanding.examples import find_files, read_examples

RECIPES = REPOSITORY / "data-bin-recipes"
WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmn"]


def recipe(task, script, *arguments, code=0, recipes=RECIPES, path=()):
    environment = {**os.environ, "VECO_SKIP_SETUP": "1", "OMP_NUM_THREADS": "1"}
    environment["PATH"] = os.pathsep.join([*map(str, path), str(Path(sys.executable).parent), environment["PATH"]])
    command = ["bash", str(recipes / "xtreme" / task / f"{script}.sh"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == code, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout if code == 0 else result.stderr


def squad(path, *ids):
    """Questions on one context each, answered by its third word."""
    qas = [{"id": name, "question": "what ?", "answers": [{"text": "cat", "answer_start": 8}]} for name in ids]
    paragraphs = [{"context": "see the cat .", "qas": [entry]} for entry in qas]
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def archive(path, **members):
    """A .zip or .tar of texts, by their places in it ("/" for "__", "." for "_DOT_")."""
    texts = {name.replace("__", "/").replace("_DOT_", "."): text for name, text in members.items()}
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as file:
            for name, text in texts.items():
                file.writestr(name, text)
        return
    for name, text in texts.items():
        inside = path.parent / f"{path.name}.files" / name
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_bytes(text if isinstance(text, bytes) else text.encode())
    with tarfile.open(path, {".gz": "w:gz", ".tgz": "w:gz", ".bz2": "w:bz2"}[path.suffix]) as file:
        for name in texts:
            file.add(path.parent / f"{path.name}.files" / name, name)


@pytest.fixture
def published(tmp_path):
    """The recipes without their checksums, and a curl that takes files from a folder; returns how to call them."""
    folder, recipes, bin_ = tmp_path / "published", tmp_path / "repository/data-bin-recipes", tmp_path / "bin"
    for each in (folder, bin_):
        each.mkdir()
    shutil.copytree(RECIPES, recipes)
    for name in ("scripts", "veco_fairseq"):
        (recipes.parent / name).symlink_to(REPOSITORY / name)
    for script in recipes.rglob("*.sh"):
        script.write_text(re.sub(r"\b[0-9a-f]{64}\b", "any", script.read_text()))
    (bin_ / "curl").write_text('#!/bin/bash\ncp "$PUBLISHED/$(basename "${@: -1}")" "${@: -2:1}"\n')
    (bin_ / "curl").chmod(0o755)

    def prepare(task, *arguments, code=0):
        os.environ["PUBLISHED"] = str(folder)
        return recipe(task, "prepare", "--out", tmp_path / task, *arguments, code=code, recipes=recipes, path=[bin_])

    return folder, prepare


def ids(folder, split, nlu_task):
    return {lang: [example.id for example in read_examples(path, lang, nlu_task)]
            for lang, path in find_files(folder / "data", split, nlu_task).items()}  # fmt: skip


def test_xnli(published, tmp_path):
    folder, prepare = published
    columns = "language\tgold_label\ta\tb\tc\td\tsentence1\tsentence2\tpromptID\tpairID\n"
    rows = "".join(f"{lang}\tneutral\t\t\t\t\tA {lang}\tB {pair}\t1\t{pair}\n" for lang in ("de", "en") for pair in (7, 8))
    archive(folder / "XNLI-1.0.zip", **{"XNLI-1.0__xnli.dev.tsv": columns + rows, "XNLI-1.0__xnli.test.tsv": columns + rows})
    training = {f"XNLI-MT-1.0__multinli__multinli.train.{lang}.tsv": f"premise\thypo\tlabel\nA\tB {lang}\tcontradictory\n"
                for lang in ("de", "en")}  # fmt: skip
    archive(folder / "XNLI-MT-1.0.zip", **training)
    prepare("xnli", "--langs", "de en")
    out = tmp_path / "xnli"
    assert ids(out, "dev", "classification") == ids(out, "test", "classification") == {"de": ["7", "8"], "en": ["7", "8"]}
    assert ids(out, "train", "classification") == {"de": ["row 1"], "en": ["row 1"]}
    (out / "data/train-fr.tsv").write_text("A\tB\tneutral\n")  # of one's own
    assert prepare("xnli", "--langs", "de en").count("already there") == 2 + 1 + 6
    prepare("xnli", "--langs", "en")
    assert sorted(path.name for path in (out / "data").glob("*.tsv")) == [
        "dev-en.tsv",
        "test-en.tsv",
        "train-en.tsv",
        "train-fr.tsv",
    ]


def test_pawsx(published, tmp_path):
    folder, prepare = published
    head = "id\tsentence1\tsentence2\tlabel\n"
    files = {
        "x-final__de__translated_train.tsv": f"{head}1\ta\tb\t0\n2\n3\tc\td\t1\n4\tNS\td\t1\n5\td\tNS\t1\n",
        "x-final__en__train.tsv": f"{head}1\ta\tb\t0\n",
    }
    for lang in ("de", "en"):
        files |= {f"x-final__{lang}__{split}_2k.tsv": f"{head}{number}\ta\tb\t1\n" for number, split in ((5, "dev"), (6, "test"))}
    archive(folder / "x-final.tar.gz", **files)
    prepare("pawsx")
    assert ids(tmp_path / "pawsx", "train", "classification") == {"de": ["1", "3"], "en": ["1"]}
    for split, number in (("dev", "5"), ("test", "6")):
        assert ids(tmp_path / "pawsx", split, "classification") == {"de": [number], "en": [number]}


def test_udpos(published, tmp_path):
    """Treebanks of a language are put together, without those that have no words."""
    folder, prepare = published
    block = lambda name: f"# sent_id = {name}\n1\tcat\t_\tNOUN\t_\t_\t_\t_\t_\t_\n\n"  # noqa: E731
    files = {f"ud-treebanks-v2.5__UD_X-{bank}__{lang}_{bank.lower()}-ud-{split}.conllu": block(f"{lang}-{bank}")
             for lang, bank in (("en", "EWT"), ("en", "ESL"), ("en", "GUM"), ("de", "GSD"), ("ja", "BCCWJ"), ("ja", "GSD"),
                                ("fr", "FTB"), ("fr", "PUD"), ("ar", "NYUAD"), ("ar", "PADT"))
             for split in ("train", "dev", "test")}  # fmt: skip
    archive(folder / "ud-treebanks-v2.5.tgz", **files)
    prepare("udpos", "--langs", "ar de en fr ja")
    assert ids(tmp_path / "udpos", "test", "tagging") == {
        "ar": ["ar-PADT"], "de": ["de-GSD"], "en": ["en-EWT", "en-GUM"], "fr": ["fr-PUD"], "ja": ["ja-GSD"],
    }  # fmt: skip


@pytest.mark.parametrize("folder_inside", ["", "panx_dataset__"])
def test_panx(folder_inside, published, tmp_path):
    """Archives in an archive."""
    folder, prepare = published
    inner = {}
    for lang in ("de", "en"):
        archive(tmp_path / f"{lang}.tar.gz", **{split: f"{lang}:A\tB-PER\n{lang}:b\tO\n\n" for split in ("train", "dev", "test")})
        inner[f"{folder_inside}{lang}.tar.gz"] = (tmp_path / f"{lang}.tar.gz").read_bytes()
    archive(folder / "panx_dataset.zip", **inner)
    prepare("panx", "--langs", "de en tl")
    data = tmp_path / "panx/data"
    assert read_examples(data / "dev-de.tsv", "de", "tagging")[0].words == ("A", "b")
    assert sorted(path.name for path in data.glob("*.tsv")) == [f"{split}-{lang}.tsv" for split in ("dev", "test", "train")
                                                                for lang in ("de", "en")]  # fmt: skip


def test_questions(published, tmp_path):
    """XQuAD and MLQA have SQuAD to train on; TyDiQA's languages share a file."""
    folder, prepare = published
    squad(folder / "train-v1.1.json", "1", "2")
    squad(folder / "dev-v1.1.json", "3")
    for lang in "ar de el en es hi ru th tr vi zh".split():
        squad(folder / f"xquad.{lang}.json", "x")
    translations = tmp_path / "my translations"
    translations.mkdir()
    squad(translations / "squad.translate.train.en-de.json", "1")
    prepare("xquad", "--translations", translations, "--langs", "en de")
    out = tmp_path / "xquad"
    assert ids(out, "train", "span") == {"en": ["1", "2"], "de": ["1"]}
    assert (ids(out, "dev", "span"), ids(out, "test", "span")) == ({"en": ["3"]}, {"en": ["x"], "de": ["x"]})

    name = "MLQA_V1__test__test-context-{0}-question-{0}.json"
    archive(folder / "MLQA_V1.zip", **{name.format(lang): squad(tmp_path / "q", lang).read_text() for lang in ("de", "en")})
    prepare("mlqa")
    assert ids(tmp_path / "mlqa", "test", "span") == {"de": ["de"], "en": ["en"]}

    for split in ("train", "dev"):
        squad(folder / f"tydiqa-goldp-v1.1-{split}.json", *(f"{lang}-{n}" for lang in ("english", "finnish") for n in range(3)))
    prepare("tydiqa", "--langs", "en fi", "--hold-out", 1)
    out = tmp_path / "tydiqa"
    assert ids(out, "train", "span") == {"en": ["english-0", "english-1"], "fi": ["finnish-0", "finnish-1"]}
    assert ids(out, "dev", "span") == {"en": ["english-2"], "fi": ["finnish-2"]}
    assert len(ids(out, "test", "span")["fi"]) == 3
    refused = prepare("tydiqa", "--langs", "en fi", "--hold-out", 3, code=1)
    assert "0 of its 3 examples would be kept" in refused


def test_retrieval(published, tmp_path):
    """Sentences that are their own translations are found, with the dev set's threshold."""
    folder, prepare = published
    lines = [" ".join(WORDS[(7 * line + 3 * place) % 75] for place in range(6)) for line in range(30)]
    for part, shift in (("sample", 0), ("training", 15)):
        sides = {"zh": enumerate(lines[shift : shift + 12]), "en": enumerate(lines[shift + 2 : shift + 15], start=2)}
        files = {f"bucc2018__zh-en__zh-en.{part}.{side}": "".join(f"{side}-{n}\t{text}\n" for n, text in of_side)
                 for side, of_side in sides.items()}  # fmt: skip
        gold = "".join(f"zh-{n}\ten-{n}\n" for n in range(2, 12))
        archive(folder / f"bucc2018-zh-en.{part}-gold.tar.bz2", **files, **{f"bucc2018__zh-en__zh-en.{part}.gold": gold})
        for lang in ("de", "fr", "ru"):
            archive(folder / f"bucc2018-{lang}-en.{part}-gold.tar.bz2", README="")
    prepare("bucc")
    for lang in ("deu", "fra"):
        for side in (lang, "eng"):
            (folder / f"tatoeba.{lang}-eng.{side}").write_text("".join(f"{line}\n" for line in lines))
    prepare("tatoeba", "--langs", "deu fra")

    from conftest import make_model

    pretrained = save_with_vocabulary(tmp_path / "pretrained", make_model.__wrapped__(), lines, 60)
    told = recipe("bucc", "evaluate", "--out", tmp_path / "bucc", "--pretrained", pretrained, "--", "--score", "cosine", "--cpu")
    assert "[dev set, zh]" in told and "bucc" in told
    assert json.loads((tmp_path / "bucc/scores/bucc.json").read_text())["tasks"]["bucc"] == [{"zh": {"f1": 100.0}}]
    recipe("tatoeba", "evaluate", "--out", tmp_path / "tatoeba", "--pretrained", pretrained, "--", "--cpu")
    scores = json.loads((tmp_path / "tatoeba/scores/tatoeba.json").read_text())
    assert scores["accuracy"]["deu"]["0"] == [1, 1]


@pytest.fixture
def local(tmp_path):
    """Pairs of sentences in two languages, one of them compressed; the label is in the first word."""
    folder = tmp_path / "local files"
    folder.mkdir()
    for split, count in (("dev", 40), ("test_a", 10)):
        for lang in ("en", "de"):
            rows = (
                f"{'yes' if row % 2 else 'no'} {WORDS[row]} {lang}\t{WORDS[row + 9]}\t{'ab'[row % 2]}\n" for row in range(count)
            )
            (folder / f"{split}-{lang}.tsv").write_text("".join(rows))
    subprocess.run(["gzip", folder / "dev-de.tsv"], check=True)
    return folder


def test_from_local_files_to_figures_by_language(tmp_path, local, make_model):
    pretrained = save_with_vocabulary(tmp_path / "pretrained", make_model, ["yes no en de", *WORDS], 44)
    out = tmp_path / "out"
    prepare = ("--out", out, "--local", local, "--train", "dev-@.tsv", "--test", "test_a-@.tsv")
    assert "no dev set for" in recipe("xnli", "prepare", *prepare, "--dev", "dev-@.tsv", "--langs", "de en sw")
    recipe("xnli", "prepare", *prepare, "--hold-out", 8)
    assert [len(rows) for rows in ids(out, "dev", "classification").values()] == [8, 8]
    assert ids(out, "train", "classification")["de"][-1] == "row 32"

    finetune = ("--out", out, "--pretrained", pretrained, "--arch", "veco_nlu_tiny", "--setting", "translate-train", "--plug", "in",
                "--lrs", "0 2e-2", "--epochs", 2, "--batches", 4)  # fmt: skip
    shape = (
        "--",
        "--cpu",
        "--encoder-layers",
        3,
        "--encoder-embed-dim",
        16,
        "--encoder-ffn-embed-dim",
        32,
        "--max-positions",
        64,
        "--max-length",
        32,
    )
    told = recipe("xnli", "finetune", *finetune, *shape)
    assert told.count("on the dev sets; best of") == 2
    folder = out / "checkpoints/translate-train.in.s1"
    grid = json.loads((folder / "grid.json").read_text())
    assert set(grid) == {"batch4.epochs2.lr0", "batch4.epochs2.lr2e-2"}
    best = read_checkpoint(folder / "checkpoint_best.pt")
    assert best["extra_state"]["best"] == max(grid.values())
    assert not list(folder.glob("*/checkpoint_*.pt"))
    assert (folder / "batch4.epochs2.lr0/score").read_text() == f"{grid['batch4.epochs2.lr0']}\n"

    (folder / "batch4.epochs2.lr0/checkpoint_last.pt").touch()  # as if killed at the very end
    again = recipe("xnli", "finetune", *finetune, *shape)
    assert again.count("already there") == 2 and not list(folder.glob("*/checkpoint_*.pt"))
    other = recipe("xnli", "finetune", *finetune, *shape, "--dropout", 0.3, code=1)
    assert "was trained with other options or data" in other and other.count("\n") == 1

    with open(out / "data/train-de.tsv", "a") as file:
        file.write("a\tb\ta\n")
    assert "was trained with other options or data" in recipe("xnli", "finetune", *finetune, *shape, code=1)

    told = recipe("xnli", "evaluate", "--out", out, "--name", "translate-train.in", "--", "--cpu")
    assert "accuracy" in told and "mean" in told
    assert set(json.loads((out / "scores/translate-train.in.json").read_text())["seeds"][0]) == {"de", "en"}
    assert (out / "predictions/translate-train.in/test-de.txt").read_text().count("\n") == 10


@pytest.mark.parametrize(
    "task, expected",
    [("pawsx", "--nlu-task classification"), ("udpos", "--nlu-task tagging"), ("panx", "--nlu-task tagging"),
     ("xquad", "--nlu-task span --max-length 384"), ("mlqa", "--answer-metric mlqa"), ("tydiqa", "--nlu-task span")],
)  # fmt: skip
def test_the_papers_grid(task, expected, tmp_path):
    """fairseq-train is called with every point of it; here by a stand-in that fails at the last."""
    (tmp_path / "data").mkdir()
    (tmp_path / "model.pt").touch()
    (tmp_path / "fairseq-train").write_text(f'#!/bin/bash\nprintf "%s " "$@" >>{tmp_path}/calls; echo >>{tmp_path}/calls\n')
    (tmp_path / "python").write_text(
        '#!/bin/bash\n[[ $2 == *batch64.epochs10.lr9e-6 ]] && exit 9\nmkdir -p "$2"; touch "$2/score"\n'
    )
    for name in ("fairseq-train", "python"):
        (tmp_path / name).chmod(0o755)
    arguments = ("--out", tmp_path, "--pretrained", tmp_path / "model.pt", "--setting", "translate-train", "--", "--cpu")
    recipes = tmp_path / "repository/data-bin-recipes"  # where there is no .venv
    shutil.copytree(RECIPES, recipes)
    recipe(task, "finetune", *arguments, code=9, path=[tmp_path], recipes=recipes)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == len(set(calls)) == 5 * 3 * 3
    assert all(expected in call and "--task veco_nlu" in call and "--train-langs" not in call for call in calls)
    assert "--batch-size 16 --max-epoch 3 --lr 5e-6" in calls[0]


@pytest.mark.parametrize("code, calls, message", [
    (143, 2, "fine-tuning failed (exit code 143): see the lines above"),
    (1, 3, "batch4.epochs2.lr2: failed, see the lines above; the best of the others is kept"),
])  # fmt: skip
def test_a_point_that_diverged_is_left_out_and_a_killed_training_ends_the_grid(code, calls, message, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "model.pt").touch()
    (tmp_path / "fairseq-train").write_text(
        f'#!/bin/bash\necho "$@" >>{tmp_path}/calls\n[[ "$*" != *"--lr 2 "* ]] || exit {code}\n'
    )
    (tmp_path / "python").write_text('#!/bin/bash\nmkdir -p "$2"; touch "$2/score" "$3/grid.json"\n')
    for name in ("fairseq-train", "python"):
        (tmp_path / name).chmod(0o755)
    recipes = tmp_path / "repository/data-bin-recipes"
    shutil.copytree(RECIPES, recipes)
    grid = ("--lrs", "1 2 3", "--epochs", "2", "--batches", "4")
    failed = recipe("udpos", "finetune", "--out", tmp_path, "--pretrained", tmp_path / "model.pt", *grid, "--", "--cpu", code=1,
                    path=[tmp_path], recipes=recipes)  # fmt: skip
    assert message in failed and len((tmp_path / "calls").read_text().splitlines()) == calls


@pytest.mark.parametrize(
    "task, script, arguments, message",
    [
        ("xnli", "prepare", ("--local", "{0}/none"), "none: is not there: --local must be the folder with the task's files"),
        ("xnli", "prepare", ("--local", "{0}"), "has no train set: no file train-@.tsv[.gz], with a language for @ (ar bg"),
        ("xnli", "prepare", ("--local", "{0}", "--train", "t.tsv"), "--train t.tsv: has no @ for the language"),
        ("xnli", "prepare", ("--langs", "en xx"), "--langs xx: must be one of ar bg"),
        ("mlqa", "prepare", ("--local", "{0}", "--translations", "{0}"), "--translations: is for downloads"),
        ("xnli", "finetune", ("--pretrained", "{0}/model.pt", "--epochs", "3 x"), "--epochs 3 x: must be whole numbers"),
        ("udpos", "prepare", ("--hold-out", "x"), "--hold-out x: must be a whole number"),
        ("xnli", "finetune", ("--pretrained", "{0}/none.pt"), "none.pt: is not there: --pretrained must be a checkpoint"),
        ("xnli", "finetune", ("--pretrained", "{0}/model.pt", "--plug", "in"), "give --setting translate-train"),
        ("xnli", "finetune", ("--pretrained", "{0}/model.pt"), "data: is not there: run prepare.sh first"),
        ("panx", "evaluate", (), "data: is not there: run prepare.sh first"),
        ("bucc", "evaluate", (), "--pretrained is needed"),
    ],
)
def test_bad_input(task, script, arguments, message, tmp_path):
    (tmp_path / "model.pt").touch()
    given = [argument.format(tmp_path) for argument in arguments]
    refused = recipe(task, script, "--out", tmp_path / "out", *given, code=1)
    assert message in refused and refused.count("\n") == 1


# How many languages each task has in XTREME (Hu et al., 2020, table 1); those of named entities are all 40.
LANGUAGES = {"bucc": 4, "mlqa": 7, "panx": 40, "pawsx": 7, "tatoeba": 36, "tydiqa": 9, "udpos": 33, "xnli": 15, "xquad": 11}


@pytest.mark.parametrize("task", LANGUAGES)
def test_every_language_of_xtreme_is_prepared(task):
    def languages(of):
        text = (RECIPES / f"xtreme/{of}/prepare.sh").read_text(encoding="utf-8")
        return re.search(r'langs="([a-z ]+)"', text)[1].split()

    found = languages(task)
    assert len(set(found)) == len(found) == LANGUAGES[task]
    if task != "tatoeba":  # whose codes have three letters
        assert set(found) <= set(languages("panx"))
