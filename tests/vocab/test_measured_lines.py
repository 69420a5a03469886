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
