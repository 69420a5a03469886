# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""trim_vocab.py: a smaller vocabulary that still spells everything."""

import random
from collections import Counter

import pytest
import sentencepiece
from conftest import error_line

from veco_fairseq.data.sentencepiece import ordinary_pieces, train_sentencepiece, trim
from veco_fairseq.data.vocabulary import read_dictionary
from veco_fairseq.errors import UserError


def words(rng, alphabet, count):
    return ["".join(rng.choice(alphabet) for _ in range(rng.randint(2, 7))) for _ in range(count)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A pre-training model of two scripts, and the text of a task that uses one of them, in two files."""
    folder, rng = tmp_path_factory.mktemp("texts"), random.Random(1)
    latin, other = words(rng, "abcdefgh", 40), words(rng, "λμνξοπρσ", 40)
    lines = [" ".join(rng.choices(latin + other, k=8)) for _ in range(400)]
    (folder / "spm.model").write_bytes(train_sentencepiece(lines, 90, character_coverage=1.0))
    for side in ("src", "tgt"):
        task = [" ".join(rng.choices(latin[:20], k=6)) for _ in range(100)]
        (folder / side).write_text("\n".join(task) + "\n", encoding="utf-8")
    return folder


def load(content):
    return sentencepiece.SentencePieceProcessor(model_proto=content)


def test_keeps_characters_and_the_most_frequent_pieces(texts):
    model = sentencepiece.SentencePieceProcessor(model_file=str(texts / "spm.model"))
    corpora = [texts / "src", texts / "tgt"]
    lines = [line for path in corpora for line in path.read_text().splitlines()]
    trimmed = trim(model, corpora, 20, workers=1)
    small = load(trimmed.model)
    pieces = ordinary_pieces(small)
    assert len(pieces) == trimmed.kept == 20 and trimmed.pieces == 87
    assert [line.split(" ")[0] for line in trimmed.dictionary.decode().splitlines()] == pieces
    counts = Counter(piece for line in lines for piece in model.encode(line, out_type=str))
    characters = {"▁", *"abcdefgh"}
    assert characters < set(pieces)
    frequent = sorted((counts[piece] for piece in counts.keys() - characters), reverse=True)[: 20 - 9]
    assert sorted((counts[piece] for piece in set(pieces) - characters), reverse=True) == frequent
    assert trimmed.share == pytest.approx(sum(counts[piece] for piece in pieces) / sum(counts.values()))
    for line in lines:
        assert small.unk_id() not in small.encode(line) and small.decode(small.encode(line)) == line


def test_keeps_characters_however_many_of_them_are_rare(tmp_path):
    """Of 100 lines c and d have 5 each, and the most frequent of the longer pieces nearly all."""
    lines = ["ab"] * 90 + ["ab c", "d ab"] * 5
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in lines))
    model = load(train_sentencepiece(lines, 40, character_coverage=1.0, at_most=True))
    assert set(ordinary_pieces(load(trim(model, [text], 5, workers=1).model))) == {"▁", *"abcd"}


def test_keeps_no_more_than_the_texts_have(texts):
    """With room for all of it the texts are cut as before, and pieces of another script are gone."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(texts / "spm.model"))
    trimmed = trim(model, [texts / "src"], 87, workers=1)
    small = load(trimmed.model)
    assert trimmed.kept < 87 and trimmed.share == 1
    assert set("".join(ordinary_pieces(small))) <= {"▁", *"abcdefgh"}
    for line in (texts / "src").read_text().splitlines():
        assert small.encode(line, out_type=str) == model.encode(line, out_type=str)


def test_bad_input(texts, tmp_path):
    model = sentencepiece.SentencePieceProcessor(model_file=str(texts / "spm.model"))
    (tmp_path / "empty").touch()
    with pytest.raises(UserError, match="empty: holds no text"):
        trim(model, [tmp_path / "empty"], 30, workers=1)
    with pytest.raises(UserError, match="empty, .*empty: hold no text"):
        trim(model, [tmp_path / "empty"] * 2, 30, workers=1)
    with pytest.raises(UserError, match="--keep 8: the texts have 9 different characters: keep at least as many"):
        trim(model, [texts / "src"], 8, workers=1)
    prefix = tmp_path / "bpe"
    sentencepiece.SentencePieceTrainer.train(
        input=texts / "src", model_prefix=prefix, vocab_size=40, model_type="bpe", minloglevel=2
    )
    with pytest.raises(UserError, match="is no unigram model"):
        trim(sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model"), [texts / "src"], 30, workers=1)


def test_command(run, texts, tmp_path):
    command = "scripts/trim_vocab.py", texts / "src", texts / "tgt", "--sentencepiece", texts / "spm.model"
    done = run(*command, "--keep", "20", "--output", tmp_path / "small")
    assert done.returncode == 0 and "20 of 87 pieces, which are " in done.stdout, done.stderr
    assert len(read_dictionary(tmp_path / "small" / "dict.txt")) == 24
    assert load((tmp_path / "small" / "sentencepiece.bpe.model").read_bytes()).vocab_size() == 23
    for name in ("checkpoint_best.pt", "mono", "bitext"):  # whose vocabulary it is
        (tmp_path / f"held {name}" / name).mkdir(parents=True)
        line = error_line(run(*command, "--keep", "20", "--output", tmp_path / f"held {name}"))
        assert f"holds {name}, and the new vocabulary would replace its own" in line
    line = error_line(run("scripts/trim_vocab.py", "none", *command[2:], "--keep", "30", "--output", tmp_path / "new"))
    assert "none: no such file" in line and not (tmp_path / "new").exists()


def test_bytes_stay(texts, tmp_path):
    """With byte fallback a character that no text has is spelt by bytes, before and after."""
    sentencepiece.SentencePieceTrainer.train(
        input=str(texts / "src"), model_prefix=str(tmp_path / "bytes"), vocab_size=330, byte_fallback=True,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "bytes.model"))
    trimmed = trim(model, [texts / "src"], 20, 1)
    small = load(trimmed.model)
    assert trimmed.kept == 20 and len(small) < len(model)
    assert small.encode("ж", out_type=str) == model.encode("ж", out_type=str) and small.decode(small.encode("ж")) == "ж"


def test_symbols_that_a_user_has_defined_stay(texts, tmp_path):
    """No text has them: what puts them there, such as a token of the language to translate into, comes after trimming.

    But fairseq has a ``<mask>`` of its own.
    """
    symbols = ["<2de>", "<2fr>", "<mask>"]
    sentencepiece.SentencePieceTrainer.train(
        input=str(texts / "src"), model_prefix=str(tmp_path / "symbols"), vocab_size=35, user_defined_symbols=symbols,
        minloglevel=2,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "symbols.model"))
    trimmed = trim(model, [texts / "src"], 20, 1)
    small = load(trimmed.model)
    assert trimmed.kept == 20 and len(small) == 20 + 2 + 3 < len(model)
    assert [symbol in small.encode(f"a {symbol} b", out_type=str) for symbol in symbols] == [True, True, False]
    assert {"<2de> 1", "<2fr> 1"} < set(trimmed.dictionary.decode().splitlines())
