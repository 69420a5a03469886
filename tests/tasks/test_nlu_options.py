# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every option of fine-tuning, for understanding and for translation, at another value: what task and model make of it."""

import json
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from conftest import REPOSITORY, make_dictionary, save_with_vocabulary
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from fairseq.models.transformer import TransformerModel
from fairseq.tasks import setup_task
from support.nlu import SENTENCES
from support.training import options_of

from veco_fairseq.errors import UserError
from veco_fairseq.models.nlu import VecoNluModel
from veco_fairseq.models.translation import VecoTransformer
from veco_fairseq.models.veco import VecoModel
from veco_fairseq.tasks.nlu import NluTaskConfig
from veco_fairseq.understanding.examples import Question
from veco_fairseq.understanding.metrics import figures
from veco_fairseq.understanding.predictions import Prediction

KINDS = {"classification": [], "tagging": ["--nlu-task", "tagging"],
         "span": ["--nlu-task", "span", "--max-length", "110", "--stride", "16"]}  # fmt: skip


def write_pairs(folder):
    """Rows that are translations: more to train on in French than in English and German, whose files are as long."""
    for lang, times in (("de", 2), ("en", 2), ("fr", 3)):
        for split, rows in (("train", SENTENCES * times), ("dev", SENTENCES)):
            lines = [f"{line} {lang}\t{line}\t{'yes' if 'dog' in line else 'no'}\n" for line in rows]
            (folder / f"{split}-{lang}.tsv").write_text("".join(lines))


def write_tags(folder):
    for lang in ("de", "en", "fr"):
        for split in ("train", "dev"):
            blocks = (
                "".join(f"{word}\t{'N' if word in ('dog', 'cat', 'cats') else 'X'}\n" for word in line.split())
                for line in SENTENCES
            )
            (folder / f"{split}-{lang}.tsv").write_text("\n".join(blocks))


def write_questions(folder):
    """A long context and a short one; the short one's question has no answer."""
    context = "the dog sees the cat and a cat sees the dog here . " * 10
    questions = [
        {"context": context, "qas": [{"id": "1", "question": "who ?", "answers": [{"text": "dog", "answer_start": 4}]}]},
        {"context": "a cat", "qas": [{"id": "2", "question": "where ?", "answers": []}]},
    ]
    for split in ("train", "dev"):
        (folder / f"{split}-en.json").write_text(json.dumps({"data": [{"paragraphs": questions}]}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    for name, write in (("classification", write_pairs), ("tagging", write_tags), ("span", write_questions)):
        (folder / name).mkdir()
        write(folder / name)
    return folder


@pytest.fixture
def start(folder, make_model):
    """What a command line of fairseq-train makes: task, data and model."""
    pretrained = folder / "pretrained/checkpoint_best.pt"
    if not pretrained.exists():
        save_with_vocabulary(pretrained.parent, make_model, SENTENCES * 3, 22, max_positions=128)
        save_with_vocabulary(folder / "vocabulary", make_model, SENTENCES * 3, 24, max_positions=128)

    def start(nlu_task, *more):
        parser = fairseq_options.get_training_parser()
        words = [
            folder / nlu_task, "--user-dir", REPOSITORY / "veco_fairseq", "--task", "veco_nlu", "--criterion", "veco_nlu", "--arch", "veco_nlu_tiny",
            "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "32", "--max-positions", "128", "--finetune-from-model", pretrained,
            "--optimizer", "adam", "--batch-size", "4", *KINDS[nlu_task], *more,
        ]  # fmt: skip
        cfg = convert_namespace_to_omegaconf(
            fairseq_options.parse_args_and_arch(parser, [str(word).replace("FOLDER", str(folder)) for word in words])
        )
        task = setup_task(cfg.task)
        torch.manual_seed(1)
        model = task.build_model(cfg.model)
        for split in ("train", "valid"):
            task.load_dataset(split)
        return SimpleNamespace(task=task, model=model, train=task.dataset("train"), valid=task.dataset("valid"))

    return start


def langs(dataset):
    return sorted({item.x.lang for item in dataset.items})


def translations(made):
    return {(item.x.lang, item.y and item.y.lang) for item in made.train.items}


def answers(made):
    """Figures of an answer that is right but for a German article."""
    question = Question("1", "", "", "", ((0, "Hund"),))
    (sums,) = made.task.sums([Prediction(SimpleNamespace(example=question, lang="de"), "der Hund")]).values()
    return figures(sums)


def words_of_a_batch(made):
    """How many tokens stand for words."""
    return int(made.train.collater(made.train.items[:2])["net_input"]["words"].ge(0).sum())


def moved(made):
    """By how many tokens the second window of the context begins later than the first."""
    first, second = ([span for span in item.x.windows[0].offsets.tolist() if span[0] >= 0] for item in made.train.items[:2])
    return next(place for place in range(len(first)) if first[place:] == second[: len(first) - place])


def reached_by_gradient(made):
    """Whether what is looked at is: the pivot's token alone."""
    made.model.eval()
    tokens = torch.tensor([[0, 10, 11, 2], [0, 12, 13, 2]])
    made.model(tokens, torch.tensor([1, -1]))[0].sum().backward()
    return bool(made.model.encoder.sentence_encoder.embed_tokens.weight.grad[12].any())


# kind of task -> option -> what is looked at, without it and with it
ROWS = {
    "classification": {
        "--train-langs de,fr": (lambda made: langs(made.train), ["de", "en", "fr"], ["de", "fr"]),
        "--valid-langs fr": (lambda made: langs(made.valid), ["de", "en", "fr"], ["fr"]),
        "--max-length 12": (lambda made: int(made.train.sizes.max()) <= 12, False, True),
        "--vocabulary FOLDER/vocabulary": (lambda made: len(made.task.dictionary), 26 - 3 + 1, 28 - 3 + 1),
        "--seed 5": (lambda made: made.train.seed, 1, 5),
        "--train-subset valid": (lambda made: made.task.dataset("valid").seed, None, 1),  # shuffled, to learn from it
        "--head-dropout 0.7": (lambda made: made.model.head.dropout.p, 0.1, 0.7),
        "--dropout 0.3": (lambda made: made.model.head.dropout.p, 0.1, 0.3),
        "--plug in": (lambda made: (made.model.plug_in, made.model.head.dense.in_features), (False, 16), (True, 32)),
    },
    "tagging": {
        "--word-pooling mean": (lambda made: words_of_a_batch(made) > 5 + 4, False, True),
    },
    "span": {
        "--stride 40": (moved, 16, 40),
        "--no-answer": (lambda made: sorted({item.x.example.id for item in made.train.items}), ["1"], ["1", "2"]),
        "--answer-metric mlqa": (answers, {"f1": pytest.approx(200 / 3), "exact": 0}, {"f1": 100, "exact": 100}),
    },
}
PLUGGED_IN = {
    "--pivot-lang de": (translations, {("de", "en"), ("fr", None)}, {("en", "de"), ("fr", None)}),
    "--attach-memory": (reached_by_gradient, False, True),
}


@pytest.mark.parametrize("nlu_task, words", [(nlu_task, words) for nlu_task, rows in ROWS.items() for words in rows])
def test_the_option_changes_task_or_model(start, nlu_task, words):
    look, usual, expected = ROWS[nlu_task][words]
    assert look(start(nlu_task)) == usual
    assert look(start(nlu_task, *words.split())) == expected


@pytest.mark.parametrize("nlu_task, other", [("tagging", "classification"), ("tagging", "span"), ("span", "tagging")])
def test_an_option_of_another_kind_of_task_is_refused(start, nlu_task, other):
    for words in set(ROWS[nlu_task]) - {"--stride 40"}:  # a command for several tasks may have it, as --max-length
        with pytest.raises(UserError, match=f"{words.split()[0]}: is for --nlu-task {nlu_task} alone: leave it out"):
            start(other, *words.split())


@pytest.mark.parametrize("words", PLUGGED_IN)
def test_an_option_of_translations_is_refused_where_nothing_looks_at_them(start, words):
    with pytest.raises(UserError, match=f"^{words.split()[0]}: is for --plug in alone: leave it out$"):
        start("classification", *words.split())


@pytest.mark.parametrize("words", PLUGGED_IN)
def test_the_option_changes_what_is_plugged_in(start, words):
    look, usual, expected = PLUGGED_IN[words]
    assert look(start("classification", "--plug", "in")) == usual
    assert look(start("classification", "--plug", "in", *words.split())) == expected


# Tried elsewhere: what names the data, and where to start from and save (test_nlu.py), and to validate on (test_nlu_sets.py);
# every test here gives --nlu-task.
ELSEWHERE = {"--data", "--nlu-task", "--finetune-from-model", "--save-dir", "--no-save", "--valid-subset"}


def test_no_option_of_understanding_is_missing():
    tried = {word for rows in (*ROWS.values(), PLUGGED_IN) for words in rows for word in words.split()} | ELSEWHERE
    names = {f"--{field.name.replace('_', '-')}" for field in fields(NluTaskConfig) if not field.name.startswith("_")}
    ours = options_of(VecoNluModel) - options_of(VecoModel)
    assert ours and names | ours <= tried, (names | ours) - tried


# Translation


def translator(*words):
    """A model of two encoder layers and two of the decoder."""
    parser = fairseq_options.get_training_parser("translation")
    sizes = [
        "--encoder-layers",
        "2",
        "--encoder-embed-dim",
        "16",
        "--encoder-ffn-embed-dim",
        "32",
        "--encoder-attention-heads",
        "2",
    ]
    args = fairseq_options.parse_args_and_arch(
        parser, ["data", "--task", "translation", "--arch", "veco_transformer_tiny", *sizes, *words]
    )
    dictionary = make_dictionary(mask=False)
    return build_model(args, SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary))


TRANSLATION = {
    "--keep-lm-head": lambda model: (
        hasattr(model.decoder.output_projection, "layer_norm")
        and model.decoder.output_projection.weight is model.encoder.embed_tokens.weight
    ),
    "--tie-self-attention 1,0": lambda model: all(
        getattr(model.decoder.layers[place].self_attn, name) is getattr(model.encoder.layers[1 - place].self_attn, name)
        for place in (0, 1)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj")
    ) and model.decoder.layers[0].self_attn is not model.encoder.layers[1].self_attn,  # which names what it has in its cache
}  # fmt: skip


@pytest.mark.parametrize("words", TRANSLATION)
def test_the_option_changes_the_translation_model(words):
    assert not TRANSLATION[words](translator()) and TRANSLATION[words](translator(*words.split()))


def test_each_layer_is_tied_to_its_own_where_training_leaves_layers_out():
    model = translator("--tie-self-attention", "1,0", "--decoder-layerdrop", "0.9")
    own = [layer.self_attn.q_proj for layer in model.encoder.layers.children()]
    assert [layer.self_attn.q_proj for layer in model.decoder.layers.children()] == own[::-1]


def test_no_option_of_translation_is_missing():
    ours = options_of(VecoTransformer) - options_of(TransformerModel)
    assert ours == {words.split()[0] for words in TRANSLATION}
