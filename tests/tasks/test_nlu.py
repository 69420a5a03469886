# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Fine-tuning for understanding: plugged in and out, from raw files to the table."""

import json
import re
from argparse import Namespace

import pytest
import torch
from conftest import error_line, save_with_vocabulary
from support.nlu import SENTENCES, options, write_pairs

from veco_fairseq.checkpoints.pretrained import read_pretrained
from veco_fairseq.criterions.nlu import NluCriterion
from veco_fairseq.errors import UserError
from veco_fairseq.inference.evaluation import evaluate, label
from veco_fairseq.inference.finetuned import Finetuned
from veco_fairseq.tasks.nlu import NluTask, NluTaskConfig
from veco_fairseq.understanding.reading import read_examples
from veco_fairseq.understanding.teaching import ids_like, read_words, write_conllu
from veco_fairseq.understanding.xtreme import read_result

# The commands


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("nlu")


@pytest.fixture
def pretrained(folder, make_model):
    path = folder / "pretrained/checkpoint_best.pt"
    if not path.exists():
        save_with_vocabulary(path.parent, make_model, SENTENCES * 3, 22, max_positions=128)
    return path


def test_sentence_pairs_from_files_to_table(folder, pretrained, run, drawn):
    data = write_pairs(folder / "pairs", extra=["\tthe cat\tno\n"])
    command = options(data, pretrained, folder / "in", "--plug", "in", "--max-epoch", "6")
    trained = run(*command)
    assert trained.returncode == 0, trained.stderr[-3000:]
    assert "1 with an empty sentence" in trained.stderr + trained.stdout
    last = [json.loads(line[line.index("{") :]) for line in trained.stdout.splitlines() if '"valid_score"' in line][-1]
    mean = (float(last["valid_en_score"]) + float(last["valid_de_score"])) / 2
    assert float(last["valid_score"]) == pytest.approx(mean, abs=0.01) and mean > 80
    assert {"dict.txt", "sentencepiece.bpe.model"} <= {path.name for path in (folder / "in").iterdir()}
    again = run(*command)
    assert again.returncode == 0 and "Loaded checkpoint" in again.stdout + again.stderr

    best = folder / "in/checkpoint_best.pt"
    result = run("scripts/evaluate_xtreme.py", "run", best, best, "--data", data, "--cpu",
                 "--predictions", folder / "predicted", "--json", folder / "pairs.json")  # fmt: skip
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert "± 0.0" in result.stdout and "mean" in result.stdout
    seeds = json.loads((folder / "pairs.json").read_text())["seeds"]
    predicted = (folder / "predicted/1/test-de.txt").read_text().split()
    gold = [line.split("\t")[2] for line in (data / "test-de.tsv").read_text().splitlines()]
    right = sum(a == b for a, b in zip(predicted, gold, strict=True))
    assert seeds[0]["de"]["accuracy"] == pytest.approx(100 * right / len(gold)) and len(predicted) == len(gold)

    retrieved = folder / "tatoeba.json"
    accuracy = {"de": {"0": [0.1, 0.2], "1": [0.5, 0.4]}, "mean": {"0": [0, 0]}}
    retrieved.write_text(json.dumps({"score": "cosine", "accuracy": accuracy}))
    table = run("scripts/evaluate_xtreme.py", "table", f"xnli={folder / 'pairs.json'}", f"tatoeba={retrieved}",
                "--plot", folder / "x.png", "--json", folder / "x.json")  # fmt: skip
    assert table.returncode == 0 and table.stderr == "", table.stderr
    averages = json.loads((folder / "x.json").read_text())["averages"]
    assert averages["tatoeba"] == 40 and averages["average"] == pytest.approx((averages["xnli"] + 40) / 2)
    shown = run("scripts/evaluate_xtreme.py", "table", f"tatoeba={retrieved}", f"xnli={folder / 'pairs.json'}").stdout
    assert shown == table.stdout.replace(f"wrote {folder / 'x.png'}\n", "")  # XTREME's order, whatever was given first
    assert "tatoeba (layer 1, by cosine: the target of a pair, English, looks for its source" in table.stdout
    assert read_result(retrieved, 0).of("accuracy", "de") == [20]
    (axes,) = drawn("scripts/evaluate_xtreme.py", "table", f"xnli={folder / 'pairs.json'}", "--plot", folder / "x.png")
    shown = {bars.get_label(): [bar.get_height() for bar in bars] for bars in axes.containers}
    found = json.loads((folder / "pairs.json").read_text())["seeds"][0]
    assert shown == {"xnli": pytest.approx([found[label.get_text()]["accuracy"] for label in axes.get_xticklabels()])}
    assert sorted(label.get_text() for label in axes.get_xticklabels()) == ["de", "en"]
    assert "not TASK=FILE" in error_line(run("scripts/evaluate_xtreme.py", "table", "nli=x.json"))
    assert "is no model of --task veco_nlu" in error_line(
        run("scripts/evaluate_xtreme.py", "run", pretrained, "--data", data, "--cpu")
    )
    read = read_pretrained(best)
    assert read.labels == ["no", "yes"] and read.task.plug == "in"


def setup(data, pretrained, save_dir, **options) -> NluTask:
    cfg = NluTaskConfig(
        data=str(data), finetune_from_model=str(pretrained), save_dir=str(save_dir), train_subset="train", seed=1, **options
    )
    return NluTask.setup_task(cfg)


def learn(task, updates=60):
    """A few updates on the whole split; the model, and the criterion's figures on it afterwards."""
    torch.manual_seed(1)
    task.load_dataset("train")
    task.load_dataset("valid")
    model = task.build_model(Namespace(
        _name="veco_nlu_tiny", arch="veco_nlu_tiny", encoder_embed_dim=16, encoder_ffn_embed_dim=32, max_positions=128,
        dropout=0.0, attention_dropout=0.0,
    ))  # fmt: skip
    criterion = NluCriterion(task)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    dataset = task.dataset("train")
    batch = dataset.collater(dataset.items)
    for _ in range(updates):
        loss, sample_size, _ = criterion(model, batch)
        optimizer.zero_grad()
        (loss / sample_size).backward()
        optimizer.step()
    criterion.eval()
    model.eval()
    valid = task.dataset("valid")
    with torch.no_grad():
        _, _, log = criterion(model, valid.collater(valid.items))
    return model, log


def test_tags_are_learnt_and_given_to_translations(folder, pretrained, tmp_path):
    (tmp_path / "data").mkdir()
    tags = {"the": "D", "a": "D", "dog": "N", "cat": "N", "sees": "V", "is": "V", "are": "V"}
    text = "\n".join("".join(f"{word}\t{tags.get(word, 'X')}\n" for word in line.split()) for line in SENTENCES)
    for split in ("train", "dev"):
        (tmp_path / f"data/{split}-en.tsv").write_text(text)
    task = setup(tmp_path / "data", pretrained, tmp_path, nlu_task="tagging", word_pooling="mean", max_length=12)
    assert task.labels == ["D", "N", "V", "X"]
    model, log = learn(task)
    words = sum(len(line.split()) for line in SENTENCES)
    assert log["en/words"] == words and log["en/right"] > 0.9 * words
    found = label(Finetuned(model, task), [["who", "sees", "the", "cat"], ["the", "dog", "sees", "the", "cat"]])
    assert found == [["X", "V", "D", "N"], ["D", "N", "V", "D", "N"]]

    write_conllu(tmp_path / "train-de.conllu", ["s1"], [["der", "Hund"]], [["D", "N"]])
    (read,) = read_examples(tmp_path / "train-de.conllu", "de", "tagging")
    (tmp_path / "data/test-en.tsv").write_text(re.sub(r"\t.", "", text))
    evaluated = evaluate(Finetuned(model, task), "test")
    assert evaluated.figures == {} and len(evaluated.predictions["en"]) == 6  # there is nothing to count
    assert (read.id, read.words, read.tags) == ("s1", ("der", "Hund"), ("D", "N"))
    (tmp_path / "de.txt").write_text("Das ist ein Hund.\n\n")
    with pytest.raises(UserError, match="line 2: has no word"):
        read_words(tmp_path / "de.txt", "de")
    (tmp_path / "de.txt").write_text("Das ist ein Hund.\n")
    assert read_words(tmp_path / "de.txt", "de") == [["Das", "ist", "ein", "Hund", "."]]
    (tmp_path / "de.txt").write_text("Das ist z. B. ein Hund.\n")
    assert read_words(tmp_path / "de.txt", "deu") == [["Das", "ist", "z.", "B.", "ein", "Hund", "."]]
    with pytest.raises(UserError, match="--tokenize zh-Hans: Moses does not cut a language without spaces"):
        read_words(tmp_path / "de.txt", "zh-Hans")
    with pytest.raises(UserError, match="has 1 sentences, but .*de.txt has 2 lines"):
        ids_like(tmp_path / "train-de.conllu", tmp_path / "de.txt", 2)
    with pytest.raises(UserError, match="test-en.tsv: sentence 1 has no id"):
        ids_like(tmp_path / "data/test-en.tsv", tmp_path / "de.txt", 6)


def test_answers_are_learnt(folder, pretrained, tmp_path):
    (tmp_path / "data").mkdir()
    questions = []
    for number, line in enumerate(SENTENCES):
        answers = [{"text": "dog", "answer_start": line.index("dog")}] if "dog" in line else []
        questions.append({"context": line, "qas": [{"id": str(number), "question": "who ?", "answers": answers}]})
    for split in ("train", "dev"):
        (tmp_path / f"data/{split}-en.json").write_text(json.dumps({"data": [{"paragraphs": questions}]}))
    options = {"nlu_task": "span", "max_length": 100, "stride": 32}
    task = setup(tmp_path / "data", pretrained, tmp_path, no_answer=True, **options)
    _, log = learn(task)
    assert log["en/count"] == 6 and log["en/exact"] >= 5
    task = setup(tmp_path / "data", pretrained, tmp_path, **options)
    task.load_dataset("train")
    assert len(task.dataset("train")) == 3  # those with an answer


def test_rows_are_translations_if_there_are_as_many(folder, pretrained, tmp_path):
    data = write_pairs(tmp_path / "data")
    task = setup(data, pretrained, tmp_path, plug="in", valid_langs="de")
    task.load_dataset("train")
    assert len(task.dataset("train")) == 32 and all(item.both for item in task.dataset("train").items)
    task.load_dataset("test")  # of de alone, which looks at en all the same
    assert [(item.x.lang, item.y.lang) for item in task.dataset("test").items] == [("de", "en")] * 12
    with open(data / "train-en.tsv", "a") as file:
        file.write("a dog\tcats see\tyes\n")
    reason = "de: 1 file of 32 rows for 33 rows in en: without ids no translations"
    with pytest.raises(UserError, match=f"no example of de, en has a translation, .*{reason}"):
        task.load_dataset("train")


def write_tagged(folder, missing):
    """A sentence in de, en and fr under each id but those that are missing."""
    folder.mkdir()
    tags = {"the": "D", "a": "D", "dog": "N", "cat": "N", "sees": "V", "is": "V", "are": "V"}
    for turn, lang in enumerate(("de", "en", "fr")):
        for split in ("train", "dev", "test"):
            blocks = []
            for number, line in enumerate(SENTENCES):
                words = line.split()[turn:] + line.split()[:turn]
                lines = "".join(f"{word}\t{tags.get(word, 'X')}\n" for word in words)
                if number not in missing.get(lang, ()):
                    blocks.append(f"# sent_id = {number}\n{lines}")
            (folder / f"{split}-{lang}.tsv").write_text("\n".join(blocks))
    return folder


def looked_at(task, split):
    """(language, id) -> the language that is looked at, or none."""
    return {(item.x.lang, item.x.example.id): item.y and item.y.lang for item in task.dataset(split).items}


def test_what_is_looked_at_does_not_depend_on_the_languages_asked_for(folder, pretrained, tmp_path, caplog):
    data = write_tagged(tmp_path / "data", {"de": [1], "en": [0, 3]})
    options = {"nlu_task": "tagging", "plug": "in"}
    task = setup(data, pretrained, tmp_path, **options)
    torch.manual_seed(3)
    model = task.build_model(Namespace(
        _name="veco_nlu_tiny", arch="veco_nlu_tiny", encoder_embed_dim=16, encoder_ffn_embed_dim=32, max_positions=128,
    )).eval()  # fmt: skip
    model.requires_grad_(False).head.out_proj.weight.mul_(50)  # so that tags differ
    together = evaluate(Finetuned(model, task), "test")
    pairs = looked_at(task, "test")
    assert {key: lang for key, lang in pairs.items() if key[1] in "013"} == {
        ("de", "0"): None, ("de", "3"): None, ("en", "1"): None,  # en's are in de's file, and not in fr's, too
        ("fr", "0"): None, ("fr", "1"): "en", ("fr", "3"): None,
    }  # fmt: skip
    assert pairs["de", "2"] == "en" and pairs["en", "2"] == "de" and together.alone == {"de": 2, "en": 1, "fr": 2}
    assert "test de: 2 without translation (first: " in caplog.text and "test en: 1 without" in caplog.text
    for langs in ("en", "de", "fr", "fr,en"):
        alone = setup(data, pretrained, tmp_path, valid_langs=langs, **options)
        found = evaluate(Finetuned(model, alone), "test")
        assert looked_at(alone, "test") == {key: lang for key, lang in pairs.items() if key[0] in langs}
        for lang in langs.split(","):
            assert found.figures[lang] == together.figures[lang] and found.alone[lang] == together.alone[lang]
            for one, other in zip(found.predictions[lang], together.predictions[lang], strict=True):
                assert one.value == other.value and one.side.example == other.side.example

    (data / "test-en.tsv").unlink()  # a pivot that is not there is said, too
    alone = evaluate(Finetuned(model, setup(data, pretrained, tmp_path, valid_langs="fr", **options)), "test").alone
    assert alone == {"fr": 6}
    assert "test fr: 6 without translation, since there is no file of en (--pivot-lang) (first: " in caplog.text


def test_without_ids_in_one_language_rows_are_no_translations(folder, pretrained, tmp_path, caplog):
    data = write_pairs(tmp_path / "data")
    rows = (data / "test-de.tsv").read_text().splitlines()[1:]
    lines = ["id\tsentence1\tsentence2\tlabel", *(f"{number}\t{row}" for number, row in enumerate(rows))]
    (data / "test-de.tsv").write_text("\n".join(lines) + "\n")
    task = setup(data, pretrained, tmp_path, plug="in", valid_langs="de")
    task.load_dataset("test")
    assert looked_at(task, "test") == {("de", str(number)): None for number in range(11)}
    assert "test de: 1 file of 11 rows for 12 rows in en: without ids no translations" in caplog.text


def test_training_on_one_language_looks_at_the_same_translations(folder, pretrained, tmp_path):
    data = write_tagged(tmp_path / "data", {"de": [1], "en": [0, 3]})

    def items(langs):
        task = setup(data, pretrained, tmp_path, nlu_task="tagging", plug="in", train_langs=langs)
        task.load_dataset("train")
        found = task.dataset("train").items
        return {(item.x.lang, item.x.example.id): (item.y and item.y.lang, item.both) for item in found}

    together = items(None)
    assert together["de", "2"] == together["fr", "2"] == ("en", True) and ("en", "2") not in together
    assert together["de", "0"] == together["fr", "3"] == (None, False)
    assert items("de") == {("de", number): (None, False) if number in "03" else ("en", False) for number in "02345"}
    assert items("en") == {("en", number): (None, False) if number == "1" else ("de", False) for number in "1245"}


def test_what_cannot_be_trained(folder, pretrained, tmp_path):
    def load(data, split="train", **options):
        setup(data, pretrained, tmp_path, **options).load_dataset(split)

    data = write_pairs(tmp_path / "data", languages=["en"])
    for message, given in {
        "nowhere: no such folder": {"data": "nowhere"},
        "has no train set of --nlu-task tagging: files such as train-en.conllu": {
            "data": tmp_path / "empty", "nlu_task": "tagging"
        },
        "has no train set of fr; there is en": {"train_langs": "fr"},
        "--max-length 195: must be at least 196": {"nlu_task": "span", "max_length": 195},
        "--max-length 7: must be at least 8": {"max_length": 7},
        "nowhere: has no dict.txt and sentencepiece.bpe.model": {"vocabulary": "nowhere"},
        "has no test set of de; there is en": {"split": "test", "valid_langs": "de"},
    }.items():  # fmt: skip
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(UserError, match=re.escape(message)):
            load(**{"data": data, **given})
    setup(data, pretrained, tmp_path, nlu_task="span", max_length=196)
    setup(data, pretrained, tmp_path, max_length=8)
    tiny = {"_name": "veco_nlu_tiny", "encoder_layers": 1, "encoder_embed_dim": 8, "max_positions": 128}
    for message, given, of_model in (
        ("--max-length 129: the model has 128 positions", {"max_length": 129}, {}),
        ("--init-from: is for pre-training: give --finetune-from-model", {}, {"init_from": "xlmr"}),
        ("--freeze-backbone-updates: is for pre-training: give", {}, {"freeze_backbone_updates": 3}),
    ):
        with pytest.raises(UserError, match=message):
            setup(data, pretrained, tmp_path, **given).build_model(Namespace(**tiny, **of_model))
    (data / "dev-en.tsv").write_text("".join(f"{sentence}\t{sentence}\n" for sentence in SENTENCES))
    with pytest.raises(UserError, match="dev-en.tsv: has no labels or answers to choose a checkpoint by"):
        load(data, split="valid")
    setup(data, pretrained, tmp_path).load_dataset("valid", training=False)  # to be predicted
