# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translation models for CTranslate2: the translations are fairseq's."""

import json
from types import SimpleNamespace

import pytest
import torch
from conftest import changed, error_line
from fairseq.checkpoint_utils import load_model_ensemble
from support import exported
from support.exported import LANGS, LINES, change, fairseqs_translations, make_translation

from veco_fairseq.benchmarks.systems import Search, with_ctranslate2
from veco_fairseq.checkpoints.bart import export_translation
from veco_fairseq.checkpoints.ct2 import export_ct2, largest_ct2_difference, limits
from veco_fairseq.checkpoints.task_state import NOT_FINE_TUNED
from veco_fairseq.checkpoints.translation import build_translation, read_translation
from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.errors import UserError

ctranslate2 = pytest.importorskip("ctranslate2")
KINDS = {
    "stock": {},
    "tied": {"tie_self_attention": True},
    "language tokens": {"words": lambda pieces: [*pieces[::-1], "[aa]", "madeupword0000", "[bb]"]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_translations_are_fairseqs(tmp_path, make_model, kind):
    """With a beam of five, and with no option of the translator; the pieces end in the language token where there is one."""
    checkpoint = make_translation(tmp_path, make_model, updates=40, **KINDS[kind])
    translation = export_ct2(checkpoint, tmp_path / "ct2")
    assert largest_ct2_difference(translation, tmp_path / "ct2") < 1e-4
    pieces = load_sentencepiece(tmp_path / "ct2/sentencepiece.bpe.model")
    end = ["</s>", "[aa]"] if kind == "language tokens" else []
    sources = [[*line, *end] for line in pieces.encode(LINES, out_type=str)]
    found = ctranslate2.Translator(str(tmp_path / "ct2")).translate_batch(sources, beam_size=5)
    wanted = fairseqs_translations(checkpoint, LINES)
    assert len(set(wanted)) > 15
    assert [pieces.decode(result.hypotheses[0]) for result in found] == wanted
    config = json.loads((tmp_path / "ct2/config.json").read_text())
    last = "[bb]" if end else "</s>"
    assert (config["decoder_start_token"], config["eos_token"], config["add_source_eos"]) == (last, last, not end)


def test_the_last_layer_norms_of_pre_norm(tmp_path, make_model):
    """fairseq's loading drops them where the checkpoint's marks of version are not there."""
    checkpoint = make_translation(tmp_path, make_model)
    change(checkpoint, encoder_normalize_before=True, decoder_normalize_before=True)
    with changed(checkpoint) as state:
        for name in [f"{side}.layer_norm.{kind}" for side in ("encoder", "decoder") for kind in ("weight", "bias")]:
            state["model"][name] = torch.rand(16)
    translation = export_ct2(checkpoint, tmp_path / "ct2")
    assert largest_ct2_difference(translation, tmp_path / "ct2") < 1e-4
    models, _ = load_model_ensemble([str(checkpoint)], arg_overrides={"data": str(tmp_path)})
    inputs = torch.tensor([[5, 6, 2]]), torch.tensor([3]), torch.tensor([[2, 7]])
    assert torch.equal(build_translation(translation)(*inputs)[0], models[0].eval()(*inputs)[0])
    change(checkpoint, no_decoder_final_norm=True)
    with changed(checkpoint) as state:
        state["model"] = {name: tensor for name, tensor in state["model"].items() if not name.startswith("decoder.layer_norm.")}
    with pytest.raises(UserError, match="it has no place for --no-decoder-final-norm: use veco translate$"):
        export_ct2(checkpoint, tmp_path / "other")
    with pytest.raises(UserError, match="^quantization 'int9': CTranslate2 has no such type: give one of .*int8.*float32"):
        export_ct2(checkpoint, tmp_path / "other", quantization="int9")


def test_a_piece_may_be_called_blank(tmp_path, make_model):
    """As CTranslate2's own converter calls <pad>, whose vector such a piece had."""
    checkpoint = make_translation(tmp_path, make_model, words=lambda pieces: [*pieces, "<blank>"])
    translation = export_ct2(checkpoint, tmp_path / "ct2")
    (found,) = ctranslate2.Translator(str(tmp_path / "ct2")).score_batch([["<blank>"]], [["<blank>"]])
    place = translation.source.index("<blank>")
    with torch.no_grad():
        logits, _ = build_translation(translation)(torch.tensor([[place, 2]]), torch.tensor([2]), torch.tensor([[2, place]]))
    wanted = logits.log_softmax(-1)[0, [0, 1], [place, 2]]
    torch.testing.assert_close(torch.tensor(found.log_probs), wanted, atol=1e-4, rtol=0)


def test_nothing_is_longer_than_the_positions(tmp_path, make_model):
    """With the options of a model that has 40, not even a source of 60 pieces; without training no translation ends."""
    checkpoint = make_translation(tmp_path, make_model)
    options = limits(export_ct2(checkpoint, tmp_path / "ct2"))
    assert options == {"max_input_length": 40, "max_decoding_length": 39}
    translator = ctranslate2.Translator(str(tmp_path / "ct2"))
    pieces = load_sentencepiece(tmp_path / "ct2/sentencepiece.bpe.model")
    sources = pieces.encode(LINES, out_type=str)
    with pytest.raises(RuntimeError, match="No position encodings are defined for positions >= 40"):
        translator.translate_batch(sources)
    found = translator.translate_batch([*sources, sources[0] * 60], **options)
    assert max(len(result.hypotheses[0]) for result in found) == 39
    found = with_ctranslate2(tmp_path / "ct2", pieces, LINES, search=Search(1, 200, 5, 8), device="cpu", inter_threads=1)
    wanted = fairseqs_translations(checkpoint, LINES)
    assert sum(one == other for one, other in zip(found["translations"], wanted)) > len(LINES) // 2  # some are nearly as likely


def test_a_model_with_many_positions_needs_no_options():
    for positions, options in (
        (1024, {}),
        (512, {"max_input_length": 512}),
        (256, {"max_input_length": 256, "max_decoding_length": 255}),
    ):
        model = SimpleNamespace(max_source_positions=positions, max_target_positions=positions)
        assert limits(SimpleNamespace(model=model)) == options


def test_the_command(run, tmp_path, make_model):
    checkpoint = make_translation(tmp_path, make_model, words=KINDS["language tokens"]["words"])
    command = "scripts/export_ct2.py", "--checkpoint", checkpoint, "--output", tmp_path / "ct2"
    done = run(*command, "--quantization", "int8")
    assert done.returncode == 0, done.stderr
    wrote, note, of_positions, difference = done.stdout.splitlines()
    assert wrote == f"wrote {tmp_path / 'ct2'} (int8)" and "give </s> [aa] at the end of every source" in note
    assert "give translate_batch max_input_length=40, max_decoding_length=39: beyond its positions" in of_positions
    assert 1e-4 < float(difference.split()[-1]) < 1
    assert "ct2: is there already" in error_line(run(*command))
    with changed(checkpoint) as state:
        del state["task_state"]["languages"]
    done = run(*command[:-1], tmp_path / "converted")
    assert done.stdout.splitlines()[1] == f"note: the checkpoint {NOT_FINE_TUNED}"


def test_both_exports_say_what_a_source_begins_with(run, tmp_path, make_model):
    """Without the token, a model of many directions translates something else, in whatever language."""
    checkpoint = make_translation(tmp_path, make_model, words=lambda pieces: [*pieces, "<2aa>", "<2bb>"])
    with changed(checkpoint) as state:
        state["task_state"]["lang_pairs"] = ["aa-bb", "bb-aa", "cc-bb"]
    for name in "export_ct2", "export_hf":
        done = run(f"scripts/{name}.py", "--checkpoint", checkpoint, "--output", tmp_path / name)
        assert "note: begin every source with the token of the language to translate into: <2aa>, <2bb>\n" in done.stdout


def test_the_difference_is_that_of_the_folder(tmp_path, make_model, monkeypatch):
    """... whose sources have few positions."""
    monkeypatch.setattr(exported, "MAX_POSITIONS", 16)
    translation = export_ct2(make_translation(tmp_path, make_model), tmp_path / "ct2")
    weights = dict(translation.weights)
    weights["encoder.layers.0.fc1.bias"] = weights["encoder.layers.0.fc1.bias"] + 0.1
    assert largest_ct2_difference(translation._replace(weights=weights), tmp_path / "ct2") > 1e-3
    table = translation.weights["decoder.embed_positions.weight"].clone()
    table[10:] += torch.linspace(0, 1, table.size(1))  # where only the longer translation goes
    weights = {**translation.weights, "decoder.embed_positions.weight": table}
    assert largest_ct2_difference(translation._replace(weights=weights), tmp_path / "ct2") > 1e-3


def test_the_dictionaries_of_a_folder(tmp_path, make_model):
    """The checkpoint has its own; a folder's must be the same, and are needed where it has none."""
    checkpoint = make_translation(tmp_path, make_model)
    export_ct2(checkpoint, tmp_path / "one", data=tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UserError, match="other: has no dict.LANG.txt"):
        export_ct2(checkpoint, tmp_path / "ct2", data=other)
    lines = (tmp_path / "dict.aa.txt").read_text().splitlines(keepends=True)
    for lang in LANGS:
        (other / f"dict.{lang}.txt").write_text("".join(lines[::-1]))
    with pytest.raises(UserError, match="was trained with another dictionary"):
        export_ct2(checkpoint, tmp_path / "ct2", data=other)
    with changed(checkpoint) as state:
        del state["task_state"]
    export_ct2(checkpoint, tmp_path / "two")  # those of the folder that it was trained on
    (tmp_path / "dict.aa.txt").unlink()
    (tmp_path / "dict.bb.txt").unlink()
    with pytest.raises(UserError, match="has no dict.LANG.txt: name the folder of fairseq-preprocess with --data"):
        export_ct2(checkpoint, tmp_path / "ct2")
    config = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("one", "two")]
    assert config[0] == config[1] and not (tmp_path / "ct2").exists()


def test_what_ctranslate2_cannot_take_is_refused(tmp_path, make_model):
    checkpoint = make_translation(tmp_path, make_model, keep_lm_head=True)
    with pytest.raises(UserError, match="with --keep-lm-head, which CTranslate2's decoder has no place for"):
        export_ct2(checkpoint, tmp_path / "ct2")
    other = make_translation(tmp_path / "other", make_model)
    change(other, activation_fn="tanh")
    with pytest.raises(
        UserError,
        match=r"mt\.pt: CTranslate2 cannot take it: Option --activation-fn tanh is not supported.*: use veco translate$",
    ):
        export_ct2(other, tmp_path / "ct2")
    change(other, activation_fn="gelu", cross_self_attention=True)  # of the same tensors: the folder had been another model
    with pytest.raises(UserError, match=r"mt\.pt: CTranslate2 cannot take it: it has no place for --cross-self-attention: use"):
        export_ct2(other, tmp_path / "ct2")
    change(other, cross_self_attention=False, quant_noise_pq=0.1)
    state = torch.load(other, weights_only=False)
    weights = {f"{side}.quant_noise.weight": torch.rand(16, 16) for side in ("encoder", "decoder")}
    torch.save({**state, "model": {**state["model"], **weights}}, other)
    with pytest.raises(UserError, match="it has no place for --quant-noise-pq: use veco translate$"):
        export_ct2(other, tmp_path / "ct2")
    with pytest.raises(UserError, match="with --quant-noise-pq, which BART has no place for: use veco translate$"):
        export_translation(read_translation(other), tmp_path / "ct2")
    with pytest.raises(UserError, match="is no translation model of fairseq's transformer, veco_mt_"):
        export_ct2(tmp_path / "pre/checkpoint_best.pt", tmp_path / "ct2")
    assert not (tmp_path / "ct2").exists()


def test_a_checkpoint_that_does_not_say_its_languages(tmp_path, make_model):
    """It matters where there are language tokens alone."""
    checkpoint = make_translation(tmp_path, make_model, words=KINDS["language tokens"]["words"])
    with changed(checkpoint) as state:
        del state["task_state"]["languages"]
    assert read_translation(checkpoint).source_end == ["</s>", "[aa]"]  # as the task's options have them
    change(checkpoint, languages=(None, None))
    with changed(checkpoint) as state:
        del state["task_state"]["languages"]
    with pytest.raises(UserError, match=r"has language tokens \(\[aa\], \[bb\]\), and does not say its languages"):
        export_ct2(checkpoint, tmp_path / "ct2")
    with pytest.raises(UserError, match="does not say its languages, and neither does"):
        export_ct2(checkpoint, tmp_path / "ct2", data=tmp_path)
    (tmp_path / "train.aa-bb.aa.idx").touch()  # as fairseq tells them from a folder
    assert export_ct2(checkpoint, tmp_path / "ct2", data=tmp_path).target_end == "[bb]"


def test_a_model_of_many_directions_needs_no_data_beside_the_dictionaries(tmp_path, make_model):
    """Its checkpoint says the languages, where its options have no pair."""
    checkpoint = make_translation(tmp_path, make_model, words=lambda pieces: [*pieces, "<2aa>", "<2bb>"])
    change(checkpoint, languages=(None, None))
    with changed(checkpoint) as state:
        state["task_state"] = {"symbols": state["task_state"]["symbols"], "lang_pairs": ["cc-bb", "bb-aa", "aa-bb"]}
    assert not (tmp_path / "dict.cc.txt").exists()  # the folder may be that of a test set, which has not all of the languages
    assert read_translation(checkpoint, data=tmp_path).langs == ("bb", "aa")


def test_language_tokens_end_nothing_in_a_model_of_many_directions(tmp_path, make_model):
    """Its dictionary has them where it began with the authors' checkpoint; the task has none of them."""
    checkpoint = make_translation(tmp_path, make_model, words=lambda pieces: [*pieces, "[aa]", "[bb]", "<2aa>", "<2bb>"])
    change(checkpoint, languages=(None, None))
    with changed(checkpoint) as state:
        state["task_state"] = {"symbols": state["task_state"]["symbols"], "lang_pairs": ["bb-aa", "aa-bb"]}
    for data in (None, tmp_path):
        translation = read_translation(checkpoint, data=data)
        assert (translation.source_end, translation.target_end) == (["</s>"], "</s>")


def test_a_dictionary_for_each_language(tmp_path, make_model):
    """The source's in another order than the target's, and the SentencePiece model under another name."""
    checkpoint = make_translation(tmp_path, make_model, updates=40)
    wanted = fairseqs_translations(checkpoint, LINES)
    with changed(checkpoint) as state:
        symbols = state["task_state"]["symbols"]
        order = [*range(4), *reversed(range(4, len(symbols)))]
        state["task_state"]["source_symbols"] = [symbols[place] for place in order]
        state["model"]["encoder.embed_tokens.weight"] = state["model"]["encoder.embed_tokens.weight"][order]
    change(checkpoint, share_all_embeddings=False, share_decoder_input_output_embed=True)
    spm = (tmp_path / "sentencepiece.bpe.model").rename(tmp_path / "own.model")
    export_ct2(checkpoint, tmp_path / "ct2", sentencepiece=spm)
    pieces = load_sentencepiece(tmp_path / "ct2/sentencepiece.bpe.model")
    found = ctranslate2.Translator(str(tmp_path / "ct2")).translate_batch(pieces.encode(LINES, out_type=str), beam_size=5)
    assert [pieces.decode(result.hypotheses[0]) for result in found] == wanted
    with pytest.raises(UserError, match="without --share-all-embeddings"):
        export_translation(read_translation(checkpoint), tmp_path / "hf")
