# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Pairs of three languages in one folder, whose dictionary has a token for each to translate into."""

import random
from pathlib import Path

import pytest
import sentencepiece
from conftest import write_tokens

from veco_fairseq.data.sentencepiece import MODEL_NAME, dictionary_text, train_sentencepiece, write_vocabulary
from veco_fairseq.data.vocabulary import read_dictionary

LANGS = ("aa", "bb", "cc")
SIZES = {"train": {"aa-bb": 90, "aa-cc": 25}, "valid": {"aa-bb": 20, "aa-cc": 11}, "test": {"aa-bb": 9, "bb-cc": 7}}
# A small model of two layers; what it learns does not matter.
MANY = ("--user-dir veco_fairseq --task veco_multilingual_translation --arch veco_mt_tiny --encoder-layers 1 --decoder-layers 1 "
        "--encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2 --optimizer adam --lr 1e-2 --cpu "
        "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --log-format json").split()  # fmt: skip


def sentence(rng: random.Random, lang: str) -> str:
    """Words of a language, which are known by their ending."""
    words = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnr"]
    return " ".join(rng.choice(words) + lang[0] for _ in range(rng.randint(2, 7)))


def write_directions(folder: Path) -> Path:
    """The folder with token files, dictionaries and the SentencePiece model; and SPLIT.PAIR.LANG.txt, the texts."""
    rng, folder = random.Random(3), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{split}.{pair}.{lang}": [sentence(rng, lang) for _ in range(count)] for split, counts in SIZES.items()
             for pair, count in counts.items() for lang in pair.split("-")}  # fmt: skip
    model = train_sentencepiece((line for lines in texts.values() for line in lines), 60, character_coverage=1.0)
    write_vocabulary(folder, model, dictionary_text(model, folder / MODEL_NAME))
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokens = "".join(f"<2{lang}> 1\n" for lang in LANGS)
    for lang in LANGS:
        (folder / f"dict.{lang}.txt").write_text((folder / "dict.txt").read_text() + tokens)
    dictionary = read_dictionary(folder / "dict.aa.txt")
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        write_tokens(folder / name, [[dictionary.index(piece) for piece in pieces.encode(line, out_type=str)] for line in lines])
    return folder


@pytest.fixture(scope="session")
def directions(tmp_path_factory) -> Path:
    """:func:`write_directions`, not to be changed."""
    return write_directions(tmp_path_factory.mktemp("directions") / "data")
