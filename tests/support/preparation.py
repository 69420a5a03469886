# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Generated text, its vocabulary and options of preparation."""

import random

import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset
from sentencepiece import sentencepiece_model_pb2

from veco_fairseq.data.prepare.text import Options, parse_parts
from veco_fairseq.data.sentencepiece import dictionary_text, load_sentencepiece, train_sentencepiece

LETTERS = {"xx": "abcdefg", "yy": "uvwxyz"}


def text_lines(language, count, seed=0):
    """``count`` lines of random words over the language's letters, the same for the same seed."""
    rng = random.Random(f"{language} {seed}")
    words = ["".join(rng.choices(LETTERS[language], k=rng.randint(2, 5))) for _ in range(60)]
    return [" ".join(rng.choices(words, k=rng.randint(3, 8))) for _ in range(count)]


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A SentencePiece model of both languages with 80 pieces, and its dictionary."""
    folder = tmp_path_factory.mktemp("vocabulary")
    lines = text_lines("xx", 300) + text_lines("yy", 300)
    model = train_sentencepiece(lines, 80, character_coverage=1.0)
    (folder / "spm.model").write_bytes(model)
    (folder / "dict.txt").write_bytes(dictionary_text(model, folder / "spm.model"))
    return folder


def another_model(path, content):
    """Write a SentencePiece model of the same pieces and other bytes."""
    model = sentencepiece_model_pb2.ModelProto.FromString(content)
    model.trainer_spec.model_prefix = "another"
    path.write_bytes(model.SerializeToString())
    return path


def options_with(vocabulary, output, mono=(), bitext=(), valid_lines=0, **options):
    parts = parse_parts(mono, bitext, options.pop("mono_valid", ()), options.pop("bitext_valid", ()))
    files = {"sentencepiece": vocabulary / "spm.model", "dictionary": vocabulary / "dict.txt"}
    return Options(output=output, parts=parts, valid_lines=valid_lines, workers=2, **files, **options)


def decoded(prefix, vocabulary):
    """The lines in a token file, through the dictionary's text and SentencePiece, not through our tables."""
    rows = (vocabulary / "dict.txt").read_text(encoding="utf-8").split("\n")[:-1]
    symbols = ["<s>", "<pad>", "</s>", "<unk>"] + [row.split(" ")[0] for row in rows]
    model = load_sentencepiece(vocabulary / "spm.model")
    lines = []
    for item in MMapIndexedDataset(str(prefix)):
        pieces = [symbols[i] for i in item.tolist()]
        assert pieces[-1] == "</s>"
        lines.append(model.decode(pieces[:-1]))
    return lines
