# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""translate.py's lines, parts and batches. That it translates as fairseq-generate does stands in test_end_to_end."""

import io
import logging
import runpy
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from conftest import REPOSITORY, error_line, make_dictionary
from fairseq.dataclass.configs import GenerationConfig

from veco_fairseq.data.sentencepiece import MODEL_NAME, ordinary_pieces, train_sentencepiece
from veco_fairseq.data.vocabulary import dictionary_of, read_dictionary
from veco_fairseq.errors import UserError
from veco_fairseq.inference.requests import Hypothesis, Request
from veco_fairseq.inference.translator import Draws, Part, Translator, _pieces, translate_stream


class Upper:
    """Stands in for the model: no pieces but letters, and a translation in capitals."""

    def encode(self, lines, out_type):
        words = [line.split() for line in lines]
        return [[("" if i else "▁") + c for word in line for i, c in enumerate(word)] for line in words]

    def decode(self, pieces):
        return "".join(pieces).replace("▁", " ").strip()


@pytest.fixture
def translator():
    translator = Translator.__new__(Translator)
    translator.pieces, translator.max_pieces, translator.search = Upper(), 6, GenerationConfig(lenpen=2.0)
    translator.lengths, translator.beside = mock.Mock(begin=lambda sizes: [99] * len(sizes)), 1
    translator.draws, translator.turn = Draws(1, torch.device("cpu")), mock.MagicMock()

    def translate(parts, done):
        for place in reversed(range(len(parts))):
            done([place])
        marks = ("", "!")
        return [
            [Hypothesis(Upper().decode(part.source).upper() + mark, -float(size), [(0, 0)], size) for mark in marks]
            for part in parts
            for size in [len(part.source)]
        ]

    translator._translate = translate
    return translator


def test_order_empty_lines_and_long_ones(translator):
    lines = ["ab", "", "abc def gh", "x", ""]
    notes, done = [], []
    found = list(translate_stream(translator, map(Request, lines), 2, note=notes.append, translated=done.append))
    assert [best.text for best, *_ in found] == ["AB", "", "ABC DEF GH", "X", ""] == translator.translate(lines)
    # in two parts of six and two pieces, each translated as a whole: "abc def" has two words
    score = (-6 * 6**2 - 2 * 2**2) / 8**2
    assert found[2] == [Hypothesis(text, score, [(0, 0), (2, 2)], 8) for text in ("ABC DEF GH", "ABC DEF! GH!")]
    assert found[1] == [Hypothesis("", 0.0, [])]
    assert notes == ["line 3: 8 pieces, the model takes 6: translated in 2 parts"]
    assert done == [1, 1] + [0, 1, 0, 1] + [1]  # the empty ones, then batch by batch, a long one with its first part
    assert list(translate_stream(translator, [], 2, note=notes.append)) == []


def test_a_long_line_is_told_by_its_number_in_the_whole_text(translator):
    notes = []  # it is the second line of the third buffer
    list(translate_stream(translator, map(Request, "ab cd ef gh ij abcdefgh kl".split()), 2, note=notes.append))
    assert [note.partition(":")[0] for note in notes] == ["line 6"]


def test_a_word_that_is_cut_is_one_word(translator):
    """Six of its pieces, and the other two with the next words: both parts begin in word 0, and the last one with word 3."""
    (best, _), *_ = translator.hypotheses([Request("abcdefgh ij kl mn")])
    assert best.text == "ABCDEF GH IJ KL MN" and best.links == [(0, 0), (0, 1), (3, 4)]
    assert translator.hypotheses([Request("abcd efgh ijkl mn")])[0][0].links == [(0, 0), (1, 1), (2, 2)]  # of 4, 4 and 6 pieces


def test_batches_are_within_both_limits(translator, monkeypatch):
    """``</s>`` counts; what the batches are is test_batches_by_length's."""
    translator.batch_size, translator.max_tokens = 3, 20
    translator.task = mock.Mock(source_dictionary=make_dictionary(), target_dictionary=make_dictionary())
    translator.search = GenerationConfig()
    asked = mock.Mock(return_value=[])
    monkeypatch.setattr("veco_fairseq.inference.translator.by_length", asked)
    Translator._translate(translator, [Part(["a", "b"], [], []), Part(["x"], [], [])], list)
    (lengths, *limits), _ = asked.call_args
    assert lengths == [3, 2] and limits == [20, 3]


@pytest.mark.parametrize("token", [[], [7]])
@pytest.mark.parametrize("bf16", [True, False])
def test_answers_go_to_their_lines_and_links_are_of_the_text_alone(translator, monkeypatch, token, bf16):
    """Sources are padded on the left, may begin with the task's token, and come in another order than they were given."""
    words = dictionary_of(["▁a", "▁b", "▁c", "<2bb>"])  # 4 to 7
    dataset, seen, task = mock.MagicMock(), [], mock.Mock(source_dictionary=words, target_dictionary=words)
    sources = torch.tensor([[1, *token, 4, 5, 2], [*token, 4, 5, 6, 2]])
    dataset.collater.return_value = {"id": torch.tensor([1, 0]), "net_input": {"src_tokens": sources}}
    task.build_dataset_for_inference.return_value = dataset
    # a row for each source token: the first answer's pieces look at b and at a, the second's at c; more still at what is no text
    mark = [[0.9, 0.9]] * len(token)
    rows = [[[0.4, 0.5], *mark, [0.1, 0.4], [0.3, 0.2], [0.2, 0.0]], [*mark, [0.1, 0.1], [0.0, 0.4], [0.6, 0.1], [0.2, 0.3]]]
    task.inference_step.return_value = [
        [{"tokens": torch.tensor(ids), "score": score, "attention": torch.tensor(rows[line])} for score in (-1.0 - line, -9.0)]
        for line, ids in enumerate(([5, 4], [6, 2]))
    ]
    translator.batch_size, translator.max_tokens, translator.task, translator.bf16 = 3, 20, task, bf16
    translator.search, translator.device, translator.models = GenerationConfig(), torch.device("cpu"), mock.sentinel.models
    translator.generator = mock.Mock(eos=2)
    monkeypatch.setattr(torch, "autocast", lambda *words, **named: seen.append((words, named)) or mock.MagicMock())
    parts = [Part(["▁a", "▁b", "▁c"], [], []), Part(["▁a", "▁b"], ["▁c"], [])]
    done = []
    found = Translator._translate(translator, parts, done.append)
    assert [[(one.text, one.score) for one in line] for line in found] == [[("c", -2.0)], [("b a", -1.0)]]
    assert found[1][0].length == found[0][0].length == 2  # with </s>
    assert found[1][0].links == [(0, 1), (1, 0)] and found[0][0].links == [(2, 0)] and done == [[0, 1]]
    named = task.inference_step.call_args.kwargs
    assert named["prefix_tokens"].tolist() == [[6], [1]] and named["constraints"] is None
    assert seen == [(("cpu", torch.bfloat16), {"enabled": bf16})]
    Translator._translate(translator, [part._replace(prefix=[]) for part in parts], done.append)
    assert task.inference_step.call_args.kwargs["prefix_tokens"] is None


def test_bad_input(run, tmp_path):
    command = "scripts/translate.py", "--cpu"
    assert "none.pt: no such checkpoint: check the path" in error_line(run(*command, "none.pt"))
    (tmp_path / "cut.pt").write_bytes(b"PK")
    assert "cut.pt: cannot be read (2 bytes)" in error_line(run(*command, tmp_path / "cut.pt"))
    assert "--buffer-size 0: must be at least 1" in error_line(run(*command, "none.pt", "--buffer-size", "0"))


@pytest.mark.parametrize("error, message", [
    (FileNotFoundError(2, "No such file", "old/dict.en.txt"), "old/dict.en.txt: is not there, where m.pt has its data: give --data DIR"),
    (lambda *_, **__: read_dictionary("old/dict.en.txt"), "old/dict.en.txt: is not there, where m.pt has its data: give --data DIR"),
    (UserError("m.pt: is damaged"), "^m.pt: is damaged$"),
])  # fmt: skip
def test_what_fairseq_misses_in_a_model_is_told(monkeypatch, tmp_path, error, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.pt").write_bytes(b"")
    monkeypatch.setattr("veco_fairseq.inference.translator.require_translation", lambda path: None)
    monkeypatch.setattr("fairseq.checkpoint_utils.load_model_ensemble_and_task", mock.Mock(side_effect=error))
    with pytest.raises(UserError, match=message):
        Translator(["m.pt"])


def test_a_model_that_does_not_translate_is_told_before_what_it_lacks(monkeypatch, tmp_path):
    """And so is one of an ensemble, of which fairseq looks at the first one's task alone; one good model is not looked at."""
    paths = [tmp_path / name for name in ("fine.pt", "pre.pt")]
    for path in paths:
        path.write_bytes(b"")

    def looked_at(path):
        if path != paths[0]:
            raise UserError(f"{path}: is no translation model")

    monkeypatch.setattr("veco_fairseq.inference.translator.require_translation", looked_at)
    load = mock.Mock(side_effect=UserError("no such folder: the first argument is the data root"))
    monkeypatch.setattr("fairseq.checkpoint_utils.load_model_ensemble_and_task", load)
    for given, message, loads in (
        (paths[1:], "pre.pt: is no tr", 1),
        (paths, "pre.pt: is no tr", 1),
        (paths[:1], "no such f", 2),
    ):
        with pytest.raises(UserError, match=message):
            Translator(given)
        assert load.call_count == loads


def test_standard_input_is_utf_8_without_its_mark_and_lines_end_at_line_feeds_alone(monkeypatch):
    seen = []
    monkeypatch.setattr("veco_fairseq.inference.translator.Translator", lambda *positional, **named: None)
    monkeypatch.setattr(
        "veco_fairseq.inference.translator.translate_stream",
        lambda translator, requests, *rest, **calls: seen.extend(request.source for request in requests) or [],
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\ufeffä\rb\nc".encode()), encoding="latin-1"))
    monkeypatch.setattr(sys, "argv", ["translate.py", "a.pt"])
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with pytest.raises(SystemExit):
        runpy.run_path(str(REPOSITORY / "scripts/translate.py"), run_name="__main__")
    assert seen == ["ä\rb", "c"]


@pytest.mark.parametrize("size", [1, 2])
def test_with_a_buffer_of_one_line_each_translation_comes_out_at_once(monkeypatch, capsys, size):
    """Whoever asks line by line, and waits for an answer, would wait for ever."""
    written, seen = io.BytesIO(), []
    written.close = lambda: None

    def translations(translator, lines, buffer_size, *, note, translated):
        translated(2)
        note("of a long line")
        yield [Hypothesis("a", 0.0, [])]
        seen.append(written.getvalue())
        yield [Hypothesis("b", 0.0, [])]

    monkeypatch.setattr("veco_fairseq.inference.translator.Translator", lambda *positional, **named: None)
    monkeypatch.setattr("veco_fairseq.inference.translator.translate_stream", translations)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(written)))
    monkeypatch.setattr(sys, "argv", ["translate.py", "a.pt", "--buffer-size", str(size)])
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with pytest.raises(SystemExit):
        runpy.run_path(str(REPOSITORY / "scripts/translate.py"), run_name="__main__")
    assert seen == [b"a\n" if size == 1 else b""] and written.getvalue() == b"a\nb\n"
    assert capsys.readouterr().err == "of a long line\n"


def test_the_model_beside_the_checkpoint_goes_before_the_datas_unless_the_dictionary_is_the_datas(tmp_path):
    """Both folders have one."""
    own, other = (train_sentencepiece(text_of(letters), 16, character_coverage=1.0) for letters in ("abcd", "efgh"))
    for name, model in (("checkpoint", own), ("data", other)):
        (tmp_path / name).mkdir()
        (tmp_path / name / MODEL_NAME).write_bytes(model)
    folders = [tmp_path / "checkpoint", tmp_path / "data"]
    assert _pieces(None, folders, []).serialized_model_proto() == own
    assert _pieces(None, folders[::-1], []).serialized_model_proto() == other
    dictionary = dictionary_of(ordinary_pieces(_pieces(tmp_path / "data" / MODEL_NAME, folders, [])))
    assert _pieces(None, folders, [dictionary, dictionary]).serialized_model_proto() == other
    (tmp_path / "checkpoint" / MODEL_NAME).unlink()
    assert _pieces(None, folders, []).serialized_model_proto() == other


def test_a_sentencepiece_model_that_is_nowhere_or_another_is_told(tmp_path):
    folders = [tmp_path / "checkpoint", tmp_path / "data"]
    with pytest.raises(UserError, match=f"{MODEL_NAME}: is neither in {folders[0]} nor in {folders[1]}: give --sentencepiece"):
        _pieces(None, folders, [])
    path = tmp_path / "given"
    path.write_bytes(train_sentencepiece(text_of("abcd"), 16, character_coverage=1.0))
    loaded = _pieces(path, folders, [])
    own, other = dictionary_of(ordinary_pieces(loaded)), make_dictionary()
    assert _pieces(loaded, folders, [other]) is loaded and len(_pieces(str(path), folders, [own, own])) == 16
    for dictionaries in ((own, other), (other, own)):  # of the source and of the target
        with pytest.raises(UserError, match="given: does not belong to the dictionary"):
            _pieces(path, folders, dictionaries)


def text_of(letters):
    return [f"{a}{b}{c} {c}{a}" for a in letters for b in letters for c in letters]


@pytest.mark.parametrize("token, longest", [(False, 6), (True, 5)])
def test_a_line_must_fit_every_model_of_an_ensemble(monkeypatch, tmp_path, token, longest):
    """With ``</s>``, and with a language token where the task has one."""
    models = [mock.MagicMock(), mock.MagicMock()]
    for model, positions in zip(models, (10, 7)):
        model.to.return_value.eval.return_value = model
        model.encoder.max_positions.return_value = positions
    names = ["build_dataset_for_inference", "source_dictionary", "target_dictionary", "build_generator"]
    loaded = (
        models,
        mock.MagicMock(),
        mock.Mock(spec=names + ["tokens_beside"] * token, **({"tokens_beside": 2} if token else {})),
    )
    monkeypatch.setattr("veco_fairseq.inference.translator.require_translation", lambda path: None)
    monkeypatch.setattr("fairseq.checkpoint_utils.load_model_ensemble_and_task", lambda *_, **__: loaded)
    checkpoints = [tmp_path / "a.pt", tmp_path / "b.pt"]
    for path in checkpoints:
        path.touch()
    translator = Translator(checkpoints, model=mock.sentinel.pieces)
    assert translator.max_pieces == longest and (translator.batch_size, translator.max_tokens) == (64, 8192)
    assert (translator.search.beam, translator.search.max_len_a, translator.search.max_len_b) == (5, 1.5, 20)
    loaded[2].build_generator.assert_called_with(models, translator.search)
    for model in models:
        model.prepare_for_inference_.assert_called_once_with(loaded[1])
    task, encoder = mock.Mock(spec=names), mock.Mock(spec=["encoder"])
    for loaded in (([encoder], None, task), (models, None, mock.Mock(spec=names[1:]))):  # noqa: B007
        kind = type(loaded[0][0]).__name__
        with pytest.raises(
            UserError, match=rf"a\.pt: is a {kind}, not a translation model: make one with veco convert, and fine-tune it"
        ):
            Translator(checkpoints, model=mock.sentinel.pieces)


@pytest.mark.parametrize("data, overrides", [(None, {"eval_bleu": False}), (Path("bin"), {"eval_bleu": False, "data": "bin"})])
@pytest.mark.parametrize("cpu, there, device", [(False, True, "cuda"), (False, False, "cpu"), (True, True, "cpu")])
def test_the_model_goes_where_it_is_asked_for_and_its_data_is_the_one_named(
    tmp_path, monkeypatch, data, overrides, cpu, there, device
):
    (tmp_path / "a.pt").touch()
    model = mock.MagicMock(**{"to.return_value.eval.return_value.encoder.max_positions.return_value": 9})
    task = mock.MagicMock(spec=["build_dataset_for_inference", "source_dictionary", "target_dictionary", "build_generator"])
    config, asked = mock.MagicMock(**{"task.data": "trained-on"}), []
    load = mock.Mock(return_value=([model], config, task))
    monkeypatch.setattr("veco_fairseq.inference.translator._pieces", lambda *words: asked.append(words))
    monkeypatch.setattr("fairseq.checkpoint_utils.load_model_ensemble_and_task", load)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    translator = Translator(
        [tmp_path / "a.pt"], model=mock.sentinel.pieces, data=data, cpu=cpu, bf16=True, batch_size=3, max_tokens=70, seed=9
    )
    load.assert_called_once_with([str(tmp_path / "a.pt")], arg_overrides=overrides)
    model.to.assert_called_once_with(torch.device(device))
    of_it = translator.device.type, translator.bf16, translator.batch_size, translator.max_tokens
    assert of_it == (device, True, 3, 70)
    assert translator.draws.seed == 9 and [one.type for one in translator.draws.devices] == [device] * (device == "cuda")
    dictionaries = task.source_dictionary, task.target_dictionary
    assert asked == [(mock.sentinel.pieces, [tmp_path, Path("trained-on")], dictionaries)]
