# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The recipes of XTREME's tasks: archives as they are published, files of one's own, the grid, figures by language."""

import json
import os
import re
import shutil
import tarfile
import zipfile

import pytest
from conftest import REPOSITORY, save_with_vocabulary
from support.xtreme import RECIPES, WORDS, ids, recipe

from veco_fairseq.understanding.reading import read_examples


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


def test_xnli(published, tmp_path):
    folder, prepare = published
    columns = "language\tgold_label\ta\tb\tc\td\tsentence1\tsentence2\tpromptID\tpairID\n"
    sets = {
        f"XNLI-1.0__xnli.{split}.tsv": columns
        + "".join(f"{lang}\tneutral\t\t\t\t\tA {lang}\tB {pair}\t1\t{lang}-{pair}\n" for lang in ("de", "en") for pair in pairs)
        for split, pairs in (("dev", (7, 8)), ("test", (5, 6)))
    }
    archive(folder / "XNLI-1.0.zip", **sets)
    training = {f"XNLI-MT-1.0__multinli__multinli.train.{lang}.tsv": f"premise\thypo\tlabel\nA\tB {lang}\tcontradictory\n"
                for lang in ("de", "en")}  # fmt: skip
    archive(folder / "XNLI-MT-1.0.zip", **training)
    prepare("xnli", "--langs", "de en")
    out = tmp_path / "xnli"
    for split, pairs in (("dev", (7, 8)), ("test", (5, 6))):
        assert ids(out, split, "classification") == {lang: [f"{lang}-{pair}" for pair in pairs] for lang in ("de", "en")}
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
        "x-final__de__translated_train.tsv": f"{head}1\ta\tb\t0\n2\n3\tc\td\t1\n4\tNS\td\t1\n5\td\tNS\t1\n6\te\tf\t1\tg\n",
        "x-final__en__train.tsv": f"{head}1\ta\tb\t0\n",
    }
    for lang in ("de", "en"):
        files |= {f"x-final__{lang}__{split}_2k.tsv": f"{head}{lang}-{split}\ta\tb\t1\n" for split in ("dev", "test")}
    archive(folder / "x-final.tar.gz", **files)
    prepare("pawsx")
    assert ids(tmp_path / "pawsx", "train", "classification") == {"de": ["1", "3"], "en": ["1"]}
    for split in ("dev", "test"):
        assert ids(tmp_path / "pawsx", split, "classification") == {lang: [f"{lang}-{split}"] for lang in ("de", "en")}


def test_udpos(published, tmp_path):
    """Treebanks of a language are put together by name, capitals first, without those that have no words."""
    folder, prepare = published
    block = lambda name: f"# sent_id = {name}\n1\tcat\t_\tNOUN\t_\t_\t_\t_\t_\t_\n\n"  # noqa: E731
    files = {f"ud-treebanks-v2.5__UD_X-{bank}__{lang}_{bank.lower()}-ud-{split}.conllu": block(f"{lang}-{bank}-{split}")
             for lang, bank in (("en", "LinES"), ("en", "EWT"), ("en", "ESL"), ("en", "PUD"), ("en", "ParTUT"), ("en", "GUM"), ("de", "GSD"), ("ja", "BCCWJ"), ("ja", "GSD"),
                                ("fr", "FTB"), ("fr", "PUD"), ("ar", "NYUAD"), ("ar", "PADT"))
             for split in ("train", "dev", "test")}  # fmt: skip
    archive(folder / "ud-treebanks-v2.5.tgz", **files)
    prepare("udpos", "--langs", "ar de en fr ja")
    banks = {"ar": ["PADT"], "de": ["GSD"], "en": ["EWT", "GUM", "LinES", "PUD", "ParTUT"], "fr": ["PUD"], "ja": ["GSD"]}
    for split in ("train", "dev", "test"):
        langs = banks if split != "train" else ["en"]  # the others' training sets are gold, and no translations
        expected = {lang: [f"{lang}-{bank}-{split}" for bank in banks[lang]] for lang in langs}
        assert ids(tmp_path / "udpos", split, "tagging") == expected


@pytest.mark.parametrize("folder_inside", ["", "panx_dataset__"])
def test_panx(folder_inside, published, tmp_path):
    """Archives in an archive."""
    folder, prepare = published
    inner = {}
    for lang in ("de", "en"):
        archive(
            tmp_path / f"{lang}.tar.gz",
            **{split: f"{lang}:{split}\tB-PER\n{lang}:b\tO\n\n" for split in ("train", "dev", "test")},
        )
        inner[f"{folder_inside}{lang}.tar.gz"] = (tmp_path / f"{lang}.tar.gz").read_bytes()
    archive(folder / "panx_dataset.zip", **inner)
    prepare("panx", "--langs", "de en tl")
    data = tmp_path / "panx/data"
    for split, lang in (("train", "en"), ("dev", "de"), ("test", "de")):
        assert read_examples(data / f"{split}-{lang}.tsv", lang, "tagging")[0].words == (split, "b")
    of_german = ["dev-de.tsv", "test-de.tsv"]  # its training set is gold, and no translation
    assert sorted(path.name for path in data.glob("*.tsv")) == sorted(["dev-en.tsv", "test-en.tsv", "train-en.tsv", *of_german])


def test_questions(published, tmp_path):
    """XQuAD and MLQA have SQuAD to train on; TyDiQA's languages share a file."""
    folder, prepare = published
    squad(folder / "train-v1.1.json", "1", "2")
    squad(folder / "dev-v1.1.json", "3")
    for lang in "ar de el en es hi ru th tr vi zh".split():
        squad(folder / f"xquad.{lang}.json", lang)
    translations = tmp_path / "my translations"
    translations.mkdir()
    squad(translations / "squad.translate.train.en-de.json", "1")
    prepare("xquad", "--translations", translations, "--langs", "en de")
    out = tmp_path / "xquad"
    assert ids(out, "train", "span") == {"en": ["1", "2"], "de": ["1"]}
    assert (ids(out, "dev", "span"), ids(out, "test", "span")) == ({"en": ["3"]}, {"en": ["en"], "de": ["de"]})

    name = "MLQA_V1__test__test-context-{0}-question-{0}.json"
    archive(folder / "MLQA_V1.zip", **{name.format(lang): squad(tmp_path / "q", lang).read_text() for lang in ("de", "en")})
    prepare("mlqa")
    sets = {"train": {"en": ["1", "2"]}, "dev": {"en": ["3"]}, "test": {"de": ["de"], "en": ["en"]}}
    assert {split: ids(tmp_path / "mlqa", split, "span") for split in sets} == sets

    for split in ("train", "dev"):
        squad(folder / f"tydiqa-goldp-v1.1-{split}.json", *(f"{lang}-{n}" for lang in ("english", "finnish") for n in range(3)))
    prepare("tydiqa", "--langs", "en fi", "--hold-out", 1)
    out = tmp_path / "tydiqa"
    assert ids(out, "train", "span") == {"en": ["english-0", "english-1"]}
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
    first = [(tmp_path / f"bucc/data/{split}-zh.source").read_text().split("\n")[0] for split in ("dev", "test")]
    assert first == [f"zh-0\t{lines[0]}", f"zh-0\t{lines[15]}"]
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
