# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Real text of many languages goes through a vocabulary and comes back."""

import gzip
import itertools

import pytest
from support.vocab import SPACE

from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.vocab.corpora import find_corpora
from veco_fairseq.vocab.vocap import Options, make_vocabulary

LANGUAGES = {
    "bible": "en de fr es ru zh cs mi tl", "bible_nt_lowres": "sw eu",
}  # fmt: skip


def real_corpora(data, most: int):
    """The Bible's training text of each language, every n-th line, as lists of lines."""
    found = {}
    for folder, languages in LANGUAGES.items():
        for language in languages.split():
            with gzip.open(data / folder / f"train.{language}.gz", "rt", encoding="utf-8", newline="\n") as stream:
                lines = [line.rstrip("\n") for line in stream if line.strip()]
            found[language] = lines[:: max(1, len(lines) // most)]
    return found


def lines_of_data(data):
    """Every line of every text in the data, tables and question files as they are."""
    for path in sorted(data.rglob("*.gz")):
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as stream:
            for line in stream:
                yield line.rstrip("\n")


def check_round_trip(processor, lines, characters) -> int:
    """Decoding gives the normalised line back; unknown is only what the corpora did not have."""
    count = 0
    while batch := list(itertools.islice(lines, 4096)):
        encoded = processor.encode(batch)
        for line, ids, restored in zip(batch, encoded, processor.decode(encoded)):
            count += 1
            if processor.unk_id() in ids:
                pieces = processor.encode(line, return_type="proto").pieces
                unknown = "".join(piece.piece for piece in pieces if piece.id == processor.unk_id())
                assert not set(unknown) & characters, line
            else:
                assert restored == processor.normalize(line).replace(SPACE, " ").strip(), line
    return count


def test_real_text_round_trips(shared_data, tmp_path):
    texts = real_corpora(shared_data, 500)
    for language, lines in texts.items():
        (tmp_path / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = Options(find_corpora([str(tmp_path)]), tmp_path / "out", 9000, largest=3000, step=500)
    make_vocabulary(options, lambda message: None)
    processor = load_sentencepiece(tmp_path / "out/sentencepiece.bpe.model")
    assert len(processor) == 9000
    characters = {c for lines in texts.values() for line in lines for c in processor.normalize(line)}
    assert check_round_trip(processor, itertools.islice(lines_of_data(shared_data), 0, None, 40), characters) > 20_000


@pytest.mark.slow
def test_all_real_text_round_trips(shared_data, tmp_path):
    """Every line of every file, with a vocabulary of every 20th and of those that have a character for the first time."""
    characters = set()
    with open(tmp_path / "all.txt", "w", encoding="utf-8", newline="\n") as stream:
        for number, line in enumerate(lines_of_data(shared_data)):
            if number % 20 == 0 or not set(line) <= characters:
                characters |= set(line)
                stream.write(line + "\n")
    options = Options({"all": [tmp_path / "all.txt"]}, tmp_path / "out", 20_003, largest=20_000, step=20_000)
    make_vocabulary(options, print)
    processor = load_sentencepiece(tmp_path / "out/sentencepiece.bpe.model")
    of_corpus = {c for line in open(tmp_path / "all.txt", encoding="utf-8", newline="\n") for c in processor.normalize(line)}
    count = check_round_trip(processor, lines_of_data(shared_data), of_corpus)
    print(f"{count:,} lines, {len(of_corpus):,} characters")
    assert count > 500_000
