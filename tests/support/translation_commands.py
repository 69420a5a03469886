# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The commands of translation with each of their options: a part of support/command_table.py."""

from pathlib import Path
from unittest import mock

from veco_fairseq.checkpoints.averaging import EPOCH, UPDATE
from veco_fairseq.commands.comet import cache

P = Path
TRANSLATION = {
    "translate.py": (
        ["a.pt"],
        {
            "inference.translator.Translator": None,
            "inference.translator.translate_stream": [["h"]],
            "inference.requests.read_requests": [],
            "inference.requests.in_lines": [],
        },
        {
            "": {
                "Translator.bf16": False,
                "Translator.cpu": False,
                "Translator.to": None,
                "Translator.data": None,
                "Translator.seed": 1,
                "Translator.search.sampling": False,
                "Translator.search.beam": 5,
                "Translator.search.sampling_topk": -1,
                "Translator.search.sampling_topp": -1.0,
                "Translator.search.constraints": None,
                "Translator.search.nbest": 1,
                "read_requests.prefixes": False,
                "read_requests.constraints": False,
                "in_lines.nbest": False,
                "in_lines.number": 0,
                "in_lines.hypotheses": ["h"],
            },
            "b.pt": {"Translator.checkpoints": [P("a.pt"), P("b.pt")]},
            "--sentencepiece m": {"Translator.model": P("m")},
            "--data d": {"Translator.data": P("d")},
            "--to de": {"Translator.to": "de"},
            "--beam 3": {"Translator.search.beam": 3},
            "--lenpen 0.6": {"Translator.search.lenpen": 0.6},
            "--max-len-a 1.1": {"Translator.search.max_len_a": 1.1},
            "--max-len-b 7": {"Translator.search.max_len_b": 7},
            "--batch-size 9": {"Translator.batch_size": 9},
            "--max-tokens 99": {"Translator.max_tokens": 99},
            "--batch-tokens 98": {"Translator.max_tokens": 98},
            "--nbest 4": {"Translator.search.nbest": 4},
            "--sampling": {"Translator.search.sampling": True},
            "--sampling --nbest 7": {"Translator.search.beam": 7, "Translator.search.nbest": 7},
            "--sampling --beam 2 --nbest 2": {"Translator.search.beam": 2, "Translator.search.nbest": 2},
            "--sampling --sampling-topk 6": {"Translator.search.sampling_topk": 6, "Translator.search.sampling_topp": -1.0},
            "--sampling --sampling-topp 0.7": {"Translator.search.sampling_topp": 0.7, "Translator.search.beam": 1},
            "--temperature 0.4": {"Translator.search.temperature": 0.4},
            "--seed 7": {"Translator.seed": 7},
            "--constraints ordered": {"Translator.search.constraints": "ordered", "read_requests.constraints": True},
            "--constraints unordered": {"Translator.search.constraints": "unordered", "read_requests.constraints": True},
            "--prefixes": {"read_requests.prefixes": True, "read_requests.constraints": False},
            "--alignment": {"in_lines.alignment": True, "in_lines.nbest": False},
            "--beam 2 --nbest 2": {"in_lines.nbest": True, "in_lines.alignment": False},
            "--buffer-size 11": {"translate_stream.buffer_size": 11},
            "--amp": {"Translator.bf16": True},
            "--cpu": {"Translator.cpu": True},
        },
    ),
    "convert_to_seq2seq.py": (
        "--checkpoint a.pt --output o.pt --decoder-layers 3".split(),
        {"checkpoints.seq2seq.convert_to_seq2seq": {}, "checkpoints.seq2seq.report_lines": ["the report", "of two lines"]},
        {
            "": {
                "convert_to_seq2seq.allow_new_tokens": False,
                "convert_to_seq2seq.trust": False,
                "convert_to_seq2seq.seed": 1,
                "convert_to_seq2seq.random_cross_attention": False,
                "convert_to_seq2seq.keep_lm_head": False,
                "convert_to_seq2seq.tie_self_attention": False,
                "convert_to_seq2seq.dictionary": None,
                "stdout": "the report\nof two lines\n",
            },
            "--checkpoint b.pt": {"convert_to_seq2seq.checkpoint": P("b.pt")},
            "--output p.pt": {"convert_to_seq2seq.output": P("p.pt")},
            "--decoder-layers 2": {"convert_to_seq2seq.decoder_layers": 2},
            "--decoder-layers 0": {"convert_to_seq2seq.decoder_layers": 0},
            "--decoder-layers all": {"convert_to_seq2seq.decoder_layers": None},
            "--layer-selection first": {"convert_to_seq2seq.layer_selection": "first"},
            "--dict d": {"convert_to_seq2seq.dictionary": P("d")},
            "--random-cross-attention": {"convert_to_seq2seq.random_cross_attention": True},
            "--keep-lm-head": {"convert_to_seq2seq.keep_lm_head": True},
            "--tie-self-attention": {"convert_to_seq2seq.tie_self_attention": True},
            "--allow-new-tokens": {"convert_to_seq2seq.allow_new_tokens": True},
            "--new-tokens random": {"convert_to_seq2seq.new_tokens": "random"},
            "--new-tokens mean": {"convert_to_seq2seq.new_tokens": "mean"},
            "--trust-checkpoint": {"convert_to_seq2seq.trust": True},
            "--seed 7": {"convert_to_seq2seq.seed": 7},
        },
    ),
    "export_ct2.py": (
        "--checkpoint a.pt --output o".split(),
        {
            "checkpoints.ct2.export_ct2": mock.Mock(
                notes=[], source_end=["</s>", "[aa]"], model=mock.Mock(max_source_positions=1023, max_target_positions=256)
            ),
            "checkpoints.ct2.largest_ct2_difference": 0.5,
        },
        {
            "": {
                "stdout": "wrote o (float32)\nnote: give </s> [aa] at the end of every source: CTranslate2 can add one token alone\n"
                "note: give translate_batch max_input_length=1023, max_decoding_length=255: beyond its positions the model ends in an "
                "error\n"
                "largest difference of a token's log-probability to fairseq's model: 5.0e-01\n",
                "export_ct2.data": None,
                "export_ct2.sentencepiece": None,
            },
            "--checkpoint b.pt": {"export_ct2.checkpoint": P("b.pt")},
            "--output p": {"export_ct2.output": P("p"), "largest_ct2_difference.folder": P("p")},
            "--data d": {"export_ct2.data": P("d")},
            "--quantization int8": {"export_ct2.quantization": "int8"},
            "--sentencepiece m": {"export_ct2.sentencepiece": P("m")},
        },
    ),
    "export_hf.py": (
        "--checkpoint a.pt --output o".split(),
        {
            "checkpoints.huggingface.export_hf": mock.Mock(notes=["a note"], dropped=1234, folder="o"),
            "checkpoints.huggingface.largest_difference": 0.5,
            "checkpoints.card.scores_list": "a table",
            "checkpoints.translation.read_translation": lambda path, data, trust: data and "of d",
            "checkpoints.bart.export_translation": mock.Mock(notes=[], dropped=0, folder="o"),
            "checkpoints.bart.largest_translation_difference": 0.5,
        },
        {
            "": {
                "stdout": "note: a note\nwrote o (without the cross-attention's 1,234 parameters)\n"
                "largest difference between an output and that of transformers' model: 5.0e-01\n",
                "export_hf.scores": "a table",
                "export_hf.trust": False,
                "largest_difference.trust": False,
                "read_translation.trust": False,
                "read_translation.data": None,
                "largest_difference.folder": "o",
            },
            "--checkpoint b.pt": {"export_hf.checkpoint": P("b.pt"), "largest_difference.checkpoint": P("b.pt")},
            "--output p": {"export_hf.output": P("p")},
            "--data d": {"read_translation.data": P("d"), "export_translation.translation": "of d"},
            "--sentencepiece m": {"export_hf.sentencepiece": P("m")},
            "--scores a=f b=g": {"scores_list.scores": ["a=f", "b=g"]},
            "--trust-checkpoint": {"export_hf.trust": True, "largest_difference.trust": True, "read_translation.trust": True},
        },
    ),
    "average_checkpoints.py": (
        "--output o.pt".split(),
        {"checkpoints.averaging.average_checkpoints": None, "checkpoints.averaging.last_checkpoints": [P("x.pt"), P("y.pt")]},
        {
            "--inputs a.pt f/b.pt": {
                "average_checkpoints.paths": [P("a.pt"), P("f/b.pt")],
                "average_checkpoints.trust": False,
                "stdout": "wrote o.pt, the mean of 2: a.pt, b.pt\n",
            },
            "--inputs a.pt --output p.pt": {"average_checkpoints.output": P("p.pt")},
            "--inputs d --num-update-checkpoints 3": {
                "last_checkpoints.count": 3,
                "last_checkpoints.name": UPDATE,
                "last_checkpoints.folder": P("d"),
                "last_checkpoints.upper_bound": None,
                "average_checkpoints.paths": [P("x.pt"), P("y.pt")],
            },
            "--inputs d --num-epoch-checkpoints 4": {"last_checkpoints.count": 4, "last_checkpoints.name": EPOCH},
            "--inputs d --num-epoch-checkpoints 4 --checkpoint-upper-bound 7": {"last_checkpoints.upper_bound": 7},
            "--inputs a.pt --trust-checkpoint": {"average_checkpoints.trust": True},
        },
    ),
    "import_veco.py": (
        "--checkpoint a.pt --dict d --output o.pt".split(),
        {
            "checkpoints.release.import_release": {},
            "checkpoints.release.back_to_pretraining": ["copied 7", "left 2"],
            "checkpoints.seq2seq.report_lines": ["the report", "of two lines"],
        },
        {
            "": {
                "import_release.trust": False,
                "import_release.decoder_layers": None,
                "import_release.source_lang": None,
                "stdout": "the report\nof two lines\n",
            },
            "--checkpoint b.pt": {"import_release.checkpoint": P("b.pt")},
            "--dict e": {"import_release.dictionary": P("e")},
            "--output p.pt": {"import_release.output": P("p.pt")},
            "--pretraining": {
                "back_to_pretraining.checkpoint": P("a.pt"),
                "back_to_pretraining.output": P("o.pt"),
                "back_to_pretraining.dictionary": P("d"),
                "back_to_pretraining.trust": False,
                "stdout": "copied 7\nleft 2\nwrote    o.pt\n",
            },
            "--pretraining --trust-checkpoint": {"back_to_pretraining.trust": True},
            "--decoder-layers 2": {"import_release.decoder_layers": 2},
            "--layer-selection first": {"import_release.layer_selection": "first"},
            "--source-lang en --target-lang de": {"import_release.source_lang": "en", "import_release.target_lang": "de"},
            "--trust-checkpoint": {"import_release.trust": True},
        },
    ),
    "score.py": (
        "--hypothesis h --reference r --lang de".split(),
        {"inference.scoring.score_files": {"a": 1}, "inference.scoring.score_lines": ["BLEU 3", "chrF 4"]},
        {
            "--hypothesis x": {
                "score_files.hypothesis": P("x"),
                "score_files.generated": False,
                "score_files.split_compounds": False,
                "score_files.samples": 0,
                "score_files.baseline": None,
                "stdout": "BLEU 3\nchrF 4\n",
            },
            "= --generate-output g --reference r --lang de": {"score_files.hypothesis": P("g"), "score_files.generated": True},
            "--reference x": {"score_files.reference": P("x")},
            "--lang fr": {"score_files.lang": "fr"},
            "--split-compounds": {"score_files.split_compounds": True},
            "--bootstrap 7": {"score_files.samples": 7},
            "--baseline b": {"score_files.baseline": P("b")},
            "--json j": {"j": '"a": 1'},
        },
    ),
    "comet.py": (
        "--source s --hypothesis h --reference r".split(),
        {
            "files.read_lines": iter([["a"], ["b"], ["c"]]),
            "inference.scoring.read_generate_output": ["y"],
            "inference.comet.comet_score": {"comet": {"score": 0.25, "signature": "model"}},
        },
        {
            "": {
                "stdout": "COMET 0.2500  model",
                "comet_score.sources": ["a"],
                "comet_score.hypotheses": ["b"],
                "comet_score.references": ["c"],
                "comet_score.environment": cache(),
                "comet_score.gpus": 0,
                "comet_score.batch_size": 16,
            },
            "--source x": {"read_lines.path": [P("x"), P("h"), P("r")]},
            "--hypothesis x": {"read_lines.path": [P("s"), P("x"), P("r")]},
            "--reference x": {"read_lines.path": [P("s"), P("h"), P("x")]},
            "= --source s --generate-output g --reference r": {
                "read_generate_output.path": P("g"),
                "comet_score.hypotheses": ["y"],
                "comet_score.references": ["b"],
                "read_lines.path": [P("s"), P("r")],
            },
            "--model m": {"comet_score.model": "m"},
            "--environment e": {"comet_score.environment": P("e")},
            "--gpus 2": {"comet_score.gpus": 2},
            "--batch-size 7": {"comet_score.batch_size": 7},
            "--json j": {"j": '"score": 0.25'},
        },
    ),  # fmt: skip
}
