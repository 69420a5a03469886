# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which SentencePiece model belongs to a translation model, where there are two."""

import pytest

from veco_fairseq.data import symbols
from veco_fairseq.data.sentencepiece import MODEL_NAME, load_sentencepiece, ordinary_pieces, train_sentencepiece, trim
from veco_fairseq.data.symbols import SPECIALS, own_model
from veco_fairseq.errors import UserError

LINES = [" ".join("abcdefgh"[i % 5 : i % 5 + 3] + "abcdefgh"[i % 7] for i in range(start, start + 6)) for start in range(60)]


@pytest.fixture
def folders(tmp_path):
    """The checkpoint's folder with a model, and the data's with the same one trimmed to its most frequent pieces."""
    (tmp_path / "text").write_text("\n".join(LINES) + "\n")
    folders = [tmp_path / "checkpoint", tmp_path / "data"]
    for folder in folders:
        folder.mkdir()
    model = folders[0] / MODEL_NAME
    model.write_bytes(train_sentencepiece(LINES, 30, character_coverage=1.0))
    trimmed = trim(load_sentencepiece(model), [tmp_path / "text"], 22, workers=1)
    (folders[1] / MODEL_NAME).write_bytes(trimmed.model)
    return folders


def symbols_of(folder):
    return [*SPECIALS, *ordinary_pieces(load_sentencepiece(folder / MODEL_NAME)), "[en_XX]", "<mask>"]


def test_the_model_of_the_dictionary_is_taken_wherever_it_lies(folders):
    """All pieces of the smaller vocabulary are the larger model's, which would cut text into pieces that it lacks."""
    larger, smaller = map(symbols_of, folders)
    assert set(smaller) < set(larger)
    for order in (folders, folders[::-1]):
        assert own_model(order, [larger, larger]) == folders[0] / MODEL_NAME
        assert own_model(order, [smaller, smaller]) == folders[1] / MODEL_NAME
    assert own_model(folders, [larger, smaller]) == folders[0] / MODEL_NAME  # as near to the one as to the other
    assert own_model(folders[::-1], [larger, smaller]) == folders[1] / MODEL_NAME


def test_one_model_is_taken_as_it_is_and_a_damaged_one_beside_another_is_told(folders):
    larger, smaller = map(symbols_of, folders)
    (folders[1] / MODEL_NAME).write_bytes(b"")
    with pytest.raises(UserError, match=f"data/{MODEL_NAME}: "):
        own_model(folders, [larger, larger])
    (folders[1] / MODEL_NAME).unlink()
    assert own_model(folders, [smaller, smaller]) == folders[0] / MODEL_NAME
    (folders[0] / MODEL_NAME).unlink()
    assert own_model(folders, [smaller, smaller]) is None


def test_copies_of_one_model_are_not_read_to_be_compared(folders, monkeypatch):
    larger = symbols_of(folders[0])
    (folders[1] / MODEL_NAME).write_bytes((folders[0] / MODEL_NAME).read_bytes())
    monkeypatch.setattr(symbols, "load_sentencepiece", lambda path: pytest.fail("is read"))
    assert own_model(folders[::-1], [larger, larger]) == folders[1] / MODEL_NAME
