# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The model card of an exported model: what the checkpoint says, and nothing of the machine."""

import json
from argparse import Namespace

import pytest
from safetensors.torch import load_file
from support.exported import make_translation

from veco_fairseq.checkpoints.bart import export_translation
from veco_fairseq.checkpoints.card import Facts, scores_list, translating, write_card
from veco_fairseq.checkpoints.huggingface import export_hf
from veco_fairseq.checkpoints.translation import read_translation
from veco_fairseq.errors import UserError
from veco_fairseq.inference.scoring import score

OPTIONS = {
    "arch": "veco_mt_tiny", "encoder_layers": 3, "decoder_layers": 2, "encoder_embed_dim": 16, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "encoder_ffn_embed_dim": 1024, "decoder_ffn_embed_dim": 32, "max_source_positions": 40,
    "data": "/home/somebody/mt.no-de", "finetune_from_model": "/home/somebody/mt.pt", "batch_size": 128, "max_tokens": 4096,
    "update_freq": [4, 8], "distributed_world_size": 2, "lr": [0.004, 0.002], "lr_scheduler": "polynomial_decay",
    "warmup_updates": 1500, "criterion": "label_smoothed_cross_entropy", "label_smoothing": 0.2, "dropout": 0.3, "seed": 7,
}  # fmt: skip


def test_a_model_of_many_directions_says_how_to_choose_one():
    told = translating(["en-de", "de-en", "en-pt_BR"])
    assert 'tokenizer(["<2de> A sentence.", "<2pt_BR> Another one."]' in told and "The token before a source says" in told
    assert "<2" not in translating() and 'tokenizer(["A sentence.", "Another one."]' in translating()


def card(tmp_path, scores="", updates=12345, languages=("no", "de"), extra=None, **options):
    facts = Facts(
        title="Translation from no to de",
        languages=languages,
        pipeline="translation",
        architecture="BartForConditionalGeneration",
        usage="...",
        options=Namespace(**{**OPTIONS, **options}),
        updates=updates,
        tokens=8001,
        parameters=4_263_873,
        extra={"best": 3.45678} if extra is None else extra,
    )
    write_card(tmp_path / "README.md", facts, scores)
    text = (tmp_path / "README.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return text, {row[0]: row[1] for row in rows if len(row) == 2}


def test_what_it_says(tmp_path):
    text, rows = card(tmp_path)
    # Quoted: no is false in YAML.
    assert text.startswith('---\nlanguage:\n- "no"\n- "de"\nlicense: other  # to be filled in\nlibrary_name: transformers\n')
    assert rows == {
        "class": "`BartForConditionalGeneration`, exported from fairseq's `--arch veco_mt_tiny`",
        "encoder": "3 layers of 16, 4 heads, FFN 1,024",
        "decoder": "2 layers of 16, 2 heads, FFN 32",
        "vocabulary": "8,001 tokens",
        "positions": "40",
        "parameters": "4,263,873",
        "data": "mt.no-de (texts: to be filled in)",
        "started from": "mt.pt",
        "updates": "12,345",
        "batch": "128 sentences, at most 4,096 tokens, times 4, on 2 workers",
        "learning rate": "0.004, polynomial_decay, warm-up 1,500",
        "loss": "label_smoothed_cross_entropy, label smoothing 0.2",
        "dropout": "0.3",
        "seed": "7",
        "best loss on held-out text": "3.457",
    }
    assert "somebody" not in text and "## Licence\n\nTo be filled in." in text


def test_what_the_checkpoint_does_not_say(tmp_path):
    """Alone, on one worker, from nothing; and a converted model, whose options of training are nobody's."""
    options = {"batch_size": None, "update_freq": [1], "distributed_world_size": 1, "finetune_from_model": None, "data": ""}
    text, rows = card(tmp_path, languages=(), extra={}, **options)
    assert 'language:\n- "to be filled in"\n' in text
    assert (rows["batch"], rows["started from"], rows["data"]) == ("at most 4,096 tokens", "random weights", "to be filled in")
    assert "best loss on held-out text" not in rows
    _, rows = card(tmp_path, **{**options, "data": "/home/somebody/one/:two"})
    assert rows["data"] == "one, two (texts: to be filled in)"
    (tmp_path / "de:en").mkdir()
    assert card(tmp_path, **{**options, "data": str(tmp_path / "de:en")})[1]["data"] == "de:en (texts: to be filled in)"
    _, rows = card(tmp_path, updates=0)
    assert rows["updates"] == "none: converted, and not fine-tuned" and "learning rate" not in rows
    _, rows = card(tmp_path, extra={"val_loss": 4.5}, finetune_from_model=None, init_from="/home/somebody/xlmr", objective="mlm",
                   criterion="camlm", label_smoothing=0.0, decoder_layers=None, max_positions=70)  # fmt: skip
    assert (rows["best loss on held-out text"], rows["started from"], rows["loss"]) == ("4.500", "xlmr", "camlm, mlm")
    assert "decoder" not in rows and rows["positions"] == "70"
    _, rows = card(tmp_path, extra={"best": 0.0, "val_loss": 4.5}, batch_size=None, max_tokens=None)
    assert (rows["best loss on held-out text"], rows["batch"]) == ("0.000", "times 4, on 2 workers")
    _, rows = card(tmp_path, extra={"best": 78.25}, best_checkpoint_metric="score")  # as the recipes of understanding have it
    assert rows["best score on held-out text"] == "78.250" and "best loss on held-out text" not in rows


def test_scores(tmp_path):
    result = score(["a b c d", "e f g h"], ["a b c d", "e f g i"], lang="de")
    (tmp_path / "score.json").write_text(json.dumps(result))
    found = scores_list([f"test_2016={tmp_path / 'score.json'}"])
    bleu, chrf = result["sacrebleu"], result["chrf"]
    line = f"- test_2016, 2 sentences: sacreBLEU {bleu['score']:.2f}, `{bleu['signature']}`"
    assert found == f"{line}; chrF {chrf['score']:.1f}, `{chrf['signature']}`" and "version:" in found
    (tmp_path / "older.json").write_text(json.dumps({name: result[name] for name in ("sacrebleu", "lines")}))
    assert scores_list([f"test_2016={tmp_path / 'older.json'}"]) == line
    assert f"## Scores\n\n{found}\n" in card(tmp_path, scores=found)[0]
    assert "veco export-hf --scores NAME=FILE" in scores_list()
    with pytest.raises(UserError, match="--scores score.json: not NAME=FILE"):
        scores_list(["score.json"])
    with pytest.raises(UserError, match="--scores =score.json: not NAME=FILE"):
        scores_list(["=score.json"])
    two = scores_list([f"b={tmp_path / 'score.json'}", f"a={tmp_path / 'older.json'}"]).splitlines()
    assert [row[:4] for row in two] == ["- b,", "- a,"]
    bleu = {"score": 31.256, "signature": "version:1"}
    (tmp_path / "c").write_text(json.dumps({"sacrebleu": bleu, "lines": 12345, "chrf": {**bleu, "score": 50.06}}))
    expected = "- a, 12,345 sentences: sacreBLEU 31.26, `version:1`; chrF 50.1, `version:1`"
    assert scores_list([f"a={tmp_path / 'c'}"]) == expected
    (tmp_path / "other.json").write_text(json.dumps({"lines": 3}))
    with pytest.raises(UserError, match="other.json: has no sacrebleu with its signature"):
        scores_list([f"a={tmp_path / 'other.json'}"])


def test_of_a_translation_model_and_of_an_encoder(tmp_path, make_model):
    """From the files: the sizes are those of the models, the parameters those of the tensors."""

    checkpoint = make_translation(tmp_path, make_model)
    export_translation(read_translation(checkpoint), tmp_path / "hf", scores="- of a test set")
    export_hf(tmp_path / "pre/checkpoint_best.pt", tmp_path / "encoder", scores="- of a test set")
    for folder, words in (("hf", ("Translation from aa to bb", "3 layers of 16", "2 layers of 16", "25 tokens")),
                          ("encoder", ("fill-mask", "XLMRobertaForMaskedLM.from_pretrained", "3 layers of 16"))):  # fmt: skip
        text = (tmp_path / folder / "README.md").read_text()
        assert all(word in text for word in words) and "## Scores\n\n- of a test set\n" in text, text
        tensors = load_file(tmp_path / folder / "model.safetensors")
        assert f"| parameters | {sum(tensor.numel() for tensor in tensors.values()):,} |" in text
