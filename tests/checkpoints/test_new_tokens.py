# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The rows of tokens that pre-training did not have, in a converted model."""

import pytest
import sentencepiece
import torch
from conftest import make_dictionary, save_pretrained, save_with_vocabulary
from support.converted import encode, load

from veco_fairseq.checkpoints.embeddings import token_rows
from veco_fairseq.checkpoints.pretrained import read_pretrained
from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq, report_lines
from veco_fairseq.data.exact import spell
from veco_fairseq.data.sentencepiece import load_sentencepiece, train_sentencepiece
from veco_fairseq.data.vocabulary import read_dictionary
from veco_fairseq.errors import UserError

PIECES = ["▁", "a", "b", "c", "d"]  # of a vocabulary of characters alone, whatever the text
NEW = {"▁ab": ["▁", "a", "b"], "ca": ["c", "a"], "▁d▁d": ["▁", "d", "▁", "d"], "aß": ["a"], "<2de>": ["<s>"], "<2zh_CN>": ["<s>"]}
WITHOUT = ["ß", "[de]", "madeupword0000"]  # nothing spells these


@pytest.fixture
def checkpoint(make_model, tmp_path):
    lines = ["ab cd", "ba dc", "d a c b", "bd ca"] * 20
    return save_with_vocabulary(tmp_path / "pretrained", make_model, lines, len(PIECES) + 3, layers=1, dim=32)


@pytest.fixture
def convert(checkpoint, tmp_path):
    """The converted model's rows by token, and the lines of the report."""
    path = tmp_path / "dict.txt"
    path.write_text("".join(f"{token} 1\n" for token in [*WITHOUT, *NEW, *PIECES]), encoding="utf-8")

    def convert(**options):
        output = tmp_path / "out.pt"
        report = convert_to_seq2seq(checkpoint, output, 1, dictionary=path, allow_new_tokens=True, **options)
        words = read_dictionary(path)
        if options.get("keep_lm_head"):
            bias = read_checkpoint(output)["model"]["decoder.output_projection.bias"]
            return dict(zip(words.symbols, bias)), report_lines(report)
        return dict(zip(words.symbols, load(output, words)[0].encoder.embed_tokens.weight.detach())), report_lines(report)

    return convert


def rows_of(checkpoint, name):
    state = read_checkpoint(checkpoint)
    return dict(zip(state["task_state"]["symbols"], state["model"][name]))


def test_tokens_that_a_dictionary_has_twice(checkpoint, tmp_path, monkeypatch):
    """A line with #fairseq:overwrite makes a second row, by which the token is known. The first one had been memory as it was."""
    (tmp_path / "dict.txt").write_text(
        "b 1\nq 1\na 1\nb 2 #fairseq:overwrite\n<s> 1 #fairseq:overwrite\nq 2 #fairseq:overwrite\n"
    )
    target = read_dictionary(tmp_path / "dict.txt")
    assert target.symbols[4:] == ["b", "q", "a", "b", "<s>", "q"]
    old, pretrained = rows_of(checkpoint, "encoder.sentence_encoder.embed_tokens.weight"), read_pretrained(checkpoint)
    monkeypatch.setattr(torch, "empty", lambda *shape: torch.full(shape, torch.nan))
    for new_tokens in ("mean", "random"):
        rows, _ = token_rows(pretrained, target, tmp_path / "dict.txt", True, new_tokens=new_tokens)
        table, bias = rows.values()
        for row, symbol in enumerate(target.symbols):
            assert symbol == "q" or torch.equal(table[row], old[symbol])
        assert table.isfinite().all() and bias.isfinite().all()


def test_a_token_gets_the_mean_of_what_spelt_it(checkpoint, convert):
    old = rows_of(checkpoint, "encoder.sentence_encoder.embed_tokens.weight")
    assert set(PIECES) < set(old) and not set(NEW) & set(old)
    found, report = convert()
    for token, pieces in NEW.items():
        torch.testing.assert_close(found[token], sum(old[piece] for piece in pieces) / len(pieces))
    assert torch.equal(found["<2de>"], old["<s>"]) and torch.equal(found["b"], old["b"])
    random = torch.cat([found[token] for token in WITHOUT])
    assert 0.7 * 32**-0.5 < random.std() < 1.3 * 32**-0.5
    new = [line for line in report if line.startswith("new ")]
    assert "2 of 18 tokens were not in pre-training ('<2de>', '<2zh_CN>'), each the row of <s>" in new[0]
    assert "4 of 18 tokens were not in pre-training ('▁ab', 'ca', '▁d▁d', 'aß'), each the mean of the rows of" in new[1]
    assert "3 of 18 tokens were not in pre-training ('ß', '[de]', 'madeupword0000'; 1 of them only round" in new[2]
    assert len(new) == 3


@torch.no_grad()
def test_a_source_with_its_target_is_to_the_encoder_what_it_was_in_pretraining(make_model, tmp_path):
    """``<2de> x </s>`` is ``<s> x </s>``, before anything is trained."""
    old = make_dictionary()
    pretrained = make_model(old, layers=2, arch="veco_tiny")
    checkpoint = save_pretrained(tmp_path / "pretrained.pt", pretrained, old.symbols)
    path = tmp_path / "dict.txt"
    path.write_text("".join(f"{token} 1\n" for token in [*old.symbols[4:-1], "<2de>"]), encoding="utf-8")
    convert_to_seq2seq(checkpoint, tmp_path / "mt.pt", 1, dictionary=path)  # 1 of 45 is no stranger
    words = read_dictionary(path)
    model = load(tmp_path / "mt.pt", words)[0]
    sources = torch.tensor([[words.bos(), 5, 9, 7, words.eos()], [words.bos(), 11, 12, 13, words.eos()]])
    expected = pretrained.unplugged(sources)
    sources[:, 0] = words.index("<2de>")
    found = encode(model, sources)["encoder_out"][0].transpose(0, 1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_bias_of_the_head_likewise(checkpoint, convert):
    old = rows_of(checkpoint, "encoder.lm_head.bias")
    found, _ = convert(keep_lm_head=True)
    for token, pieces in NEW.items():
        torch.testing.assert_close(found[token], sum(old[piece] for piece in pieces) / len(pieces))
    assert all(found[token] == 0 for token in WITHOUT)


def test_other_words_for_the_rows_are_refused(convert):
    """Each had meant random rows."""
    with pytest.raises(UserError, match="^--new-tokens means: there is mean, random$"):
        convert(new_tokens="means")


def test_random_rows(checkpoint, convert):
    """... as asked for, or where nothing tells how a token was spelt: of <s> that is known."""
    old = rows_of(checkpoint, "encoder.sentence_encoder.embed_tokens.weight")
    found, report = convert(new_tokens="random")
    assert not torch.equal(found["<2de>"], old["<s>"])
    assert 0.8 * 32**-0.5 < torch.cat([found[token] for token in NEW]).std() < 1.2 * 32**-0.5
    assert [line for line in report if line.startswith("new ") and "9 of 18 tokens were not in pre-training" in line]
    checkpoint.with_name("sentencepiece.bpe.model").unlink()
    without, report = convert()
    assert torch.equal(without["<2de>"], old["<s>"]) and torch.equal(without["ca"], found["ca"])
    assert "7 of 18 tokens were not in pre-training" in [line for line in report if line.startswith("new ")][1]


def test_another_sentencepiece_model_beside_the_checkpoint_is_refused(checkpoint, convert):
    model = checkpoint.with_name("sentencepiece.bpe.model")
    model.write_bytes(train_sentencepiece(["xy zw", "wz yx"] * 20, 8, character_coverage=1.0))
    with pytest.raises(UserError, match="sentencepiece.bpe.model: does not belong to the dictionary"):
        convert()


def test_one_token_in_a_hundred_may_be_new(checkpoint, tmp_path):
    """The first five of the strangers are named, and dots stand for more alone."""
    pretrained, path = read_pretrained(checkpoint), tmp_path / "dict.txt"
    known = len(pretrained.symbols) - 4

    def rows(strangers, padding):
        words = [*pretrained.symbols[4:], *(f"x{number}" for number in range(strangers))]
        words += [f"madeupword{number:04}" for number in range(padding - known - strangers - 4)]
        path.write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
        return token_rows(pretrained, read_dictionary(path), path, False, new_tokens="random")

    rows(1, 100)
    rows(2, 200)
    with pytest.raises(UserError, match=r"2 of its 199 tokens .*\('x0', 'x1'\)"):
        rows(2, 199)
    with pytest.raises(UserError, match=r"\('x0', 'x1', 'x2', 'x3', 'x4'\)"):
        rows(5, 100)
    with pytest.raises(UserError, match=r"'x4', \.\.\.\)"):
        rows(6, 100)


def test_spelling_keeps_every_character(tmp_path):
    """Whole words are spelt as the model spells them in a text; what is no beginning of a word has no space before it."""
    lines = ["the cat sat on the mat", "a cat and a hat", "the hat on the cat"] * 9
    (tmp_path / "m").write_bytes(train_sentencepiece(lines, 30, character_coverage=1.0, at_most=True))
    model = load_sentencepiece(tmp_path / "m")
    assert isinstance(model, sentencepiece.SentencePieceProcessor)
    words = ["▁cathat", "▁the", "hatcat", "▁on▁the", "t"]
    assert ["".join(parts) for parts in spell(model, words)] == words
    assert spell(model, ["▁cathat"]) == [model.encode("cathat", out_type=str)]
    assert spell(model, []) == []
