# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The lines that a comparison of vocabularies measures, against counts of what each model makes of them."""

import math
from collections import Counter

import pytest
import sentencepiece
from support.vocab import text

from veco_fairseq.data.sentencepiece import train_sentencepiece
from veco_fairseq.vocab.comparison import measure
from veco_fairseq.vocab.corpora import sample


def average(model, lines):
    """ALP of lines all of whose characters the model has."""
    processor = sentencepiece.SentencePieceProcessor(str(model))
    counts = Counter(piece for line in lines for piece in processor.encode(line))
    total = sum(counts.values())
    return sum(count * math.log(count / total) for count in counts.values()) / len(lines)


def test_as_many_lines_of_all_files_are_measured_as_asked_for(tmp_path):
    models = {}
    for name, size in (("small", 40), ("large", 120)):
        models[name] = tmp_path / f"{name}.model"
        models[name].write_bytes(train_sentencepiece(text(1), size, character_coverage=1.0))
    files = [tmp_path / "one", tmp_path / "two"]
    for seed, file in enumerate(files, start=1):
        file.write_text("".join(f"{line}\n" for line in text(seed, lines=30)))
    found = {most: measure(models, {"aa": files}, most, 1)["aa"] for most in (9, 60)}
    drawn = sample(files, 9)[0]
    assert len(drawn) == 9 and 0 < len(set(drawn) - set(text(1, lines=30))) < 9
    for most, lines in ((9, drawn), (60, [*text(1, lines=30), *text(2, lines=30)])):
        assert found[most] == pytest.approx({name: average(model, lines) for name, model in models.items()})
    assert len({round(alp, 3) for of in found.values() for alp in of.values()}) == 4


def test_each_model_measures_words_as_it_normalises_them_itself(tmp_path):
    """The second model reads in small letters, so two spellings are one word for it, and two for the first."""
    lines = [line.title() if number % 2 else line for number, line in enumerate(text(1, letters="abcd"))]
    models = {}
    for name, rule in (("as it is", "identity"), ("small letters", "nmt_nfkc_cf")):
        models[name] = tmp_path / f"{rule}.model"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=str(tmp_path / rule), vocab_size=60, character_coverage=1.0,
            normalization_rule_name=rule, minloglevel=2,
        )  # fmt: skip
    file = tmp_path / "text"
    file.write_text("".join(f"{line}\n" for line in lines[:50]))
    found = measure(models, {"aa": [file]}, 50, 1)["aa"]
    assert found == pytest.approx({name: average(model, lines[:50]) for name, model in models.items()})
    assert found["as it is"] < found["small letters"] - 1
