# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every option of every command arrives where it is needed: with another value than the default.

A command is run with the functions that do its work replaced by ones that write down what they are called with. What
these functions do with it is tested with them.
"""

import importlib
import inspect
import os
import runpy
import sys
import traceback
from pathlib import Path
from unittest import mock
from unittest.mock import call

import pytest
from conftest import REPOSITORY
from malformed.options import parser_of

from veco_fairseq.checkpoints.averaging import EPOCH, UPDATE

P = Path
PACKAGE = "veco_fairseq."
MODEL = mock.MagicMock()  # a pre-trained model
MINED = [mock.Mock(score=0.5), mock.Mock(score=0.2)]
# Of each command: what it needs in any case; the functions that are replaced, with what they return; and its options,
# each with what it must change: an argument of one of these functions, a call of the model, a file or standard output.
# "= " stands before words that are the whole command line.
COMMANDS = {
    "translate.py": (
        ["a.pt"],
        {"inference.translator.Translator": None, "inference.translator.translate_stream": []},
        {
            "b.pt": {"Translator.checkpoints": [P("a.pt"), P("b.pt")]},
            "--sentencepiece m": {"Translator.model": P("m")},
            "--data d": {"Translator.data": P("d")},
            "--beam 3": {"Translator.beam": 3},
            "--lenpen 0.6": {"Translator.lenpen": 0.6},
            "--max-len-a 1.1": {"Translator.max_len_a": 1.1},
            "--max-len-b 7": {"Translator.max_len_b": 7},
            "--batch-size 9": {"Translator.batch_size": 9},
            "--max-tokens 99": {"Translator.max_tokens": 99},
            "--buffer-size 11": {"translate_stream.buffer_size": 11},
            "--amp": {"Translator.bf16": True},
            "--cpu": {"Translator.cpu": True},
        },
    ),
    "align.py": (
        "a.pt --source s --target t".split(),
        {"alignment.words.align": [[(0, 1)]], "alignment.words.usual_layer": 2, "alignment.gold.read_gold": [1],
         "alignment.gold.figures": {"AER": 0.25}, "inference.pretrained.load_pretrained": MODEL,
         "inference.states.chosen_layers": [5], "files.read_translations": (["a"], ["b"])},
        {
            "--source x": {"read_translations.source": P("x")},
            "--target x": {"read_translations.target": P("x")},
            "--output o": {"o": "0-1\n"},
            "--gold g": {"read_gold.path": P("g"), "read_gold.first": 0, "not stdout": "0-1", "stdout": "AER"},
            "--gold g --gold-from-1": {"read_gold.first": 1},
            "--layer 5": {"chosen_layers.wanted": ["5"], "align.layer": 5},
            "--layer 0": {"chosen_layers.wanted": ["0"], "align.layer": 5},
            "": {"align.layer": 2, "align.apart": False, "align.names": (P("s"), P("t")), "stdout": "0-1\n"},
            "--apart": {"align.apart": True},
            "--regularisation 0.3": {"align.regularisation": 0.3},
            "--iterations 7": {"align.iterations": 7},
            "--max-tokens 99": {"align.max_tokens": 99},
            "--cpu": {"load_pretrained.gpu": False},
        },
    ),
    "retrieve.py tatoeba": (
        "a.pt --pairs n=s,t".split(),
        {"retrieval.tatoeba.evaluate": {"n": {0: (0.5, 0.25)}}, "retrieval.tatoeba.read_pair": ("n", "sides"), "inference.states.chosen_layers": [5],
         "inference.pretrained.load_pretrained": MODEL},
        {
            "": {"load_pretrained.checkpoint": P("a.pt"), "load_pretrained.gpu": True},
            "--pairs m=a,b": {"read_pair.argument": "m=a,b"},
            "--layers 3 4": {"chosen_layers.wanted": ["3", "4"], "evaluate.layers": [5]},
            "--score ratio": {"evaluate.score": "ratio"},
            "--neighbours 7": {"evaluate.neighbours": 7},
            "--max-tokens 99": {"evaluate.max_tokens": 99},
            "--json j": {"j": None},
            "--cpu": {"load_pretrained.gpu": False},
        },
    ),
    "retrieve.py bucc": (
        "a.pt --source s --target t --gold g".split(),
        {"retrieval.mining.read_sentences": {"1": "a"}, "retrieval.mining.read_gold": {("1", "1")},
         "retrieval.search.candidates": (1, 2), "retrieval.mining.mine": MINED,
         "retrieval.mining.best_threshold": 0.4, "retrieval.mining.figures": {"F1": 0.5}, "retrieval.mining.write_pairs": None,
         "retrieval.states.sentence_states": ["states"], "inference.states.chosen_layers": [3, 5],
         "inference.pretrained.load_pretrained": MODEL},
        {
            "": {"sentence_states.layers": [[5], [5]], "best_threshold.gold": {("1", "1")}, "candidates.score": "csls"},
            "--source x": {"read_sentences.path": [P("x"), P("t")]},
            "--target x": {"read_sentences.path": [P("s"), P("x")]},
            "--gold x": {"read_gold.path": P("x")},
            "--threshold 0.5": {"stdout": "1 pairs of a score of at least 0.5"},
            "--threshold 0.3": {"stdout": "1 pairs of a score of at least 0.3"},
            "--threshold 0.1": {"stdout": "2 pairs of a score of at least 0.1"},
            "--layer 3": {"chosen_layers.wanted": ["3"]},
            "--lang de --json j": {"j": '"lang": "de"'},
            "--output o": {"write_pairs.path": P("o"), "write_pairs.pairs": MINED[:1], "write_pairs.x": ["1"]},
            "--score ratio": {"candidates.score": "ratio"},
            "--neighbours 7": {"candidates.k": 7},
            "--max-tokens 99": {"sentence_states.max_tokens": [99, 99]},
            "--json j": {"j": '"tuned_here": true'},
            "--neighbours 7 --score ratio --json k": {"k": '"score": "ratio",\n "neighbours": 7'},
            "--cpu": {"load_pretrained.gpu": False},
        },
    ),
    "convert_to_seq2seq.py": (
        "--checkpoint a.pt --output o.pt --decoder-layers 3".split(),
        {"checkpoints.seq2seq.convert_to_seq2seq": {}, "checkpoints.seq2seq.report_lines": []},
        {
            "": {"convert_to_seq2seq.allow_new_tokens": False, "convert_to_seq2seq.trust": False, "convert_to_seq2seq.seed": 1},
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
            "--trust-checkpoint": {"convert_to_seq2seq.trust": True},
            "--seed 7": {"convert_to_seq2seq.seed": 7},
        },
    ),
    "export_ct2.py": (
        "--checkpoint a.pt --output o".split(),
        {"checkpoints.ct2.export_ct2": None},
        {
            "--checkpoint b.pt": {"export_ct2.checkpoint": P("b.pt")},
            "--output p": {"export_ct2.output": P("p")},
            "--data d": {"export_ct2.data": P("d")},
            "--quantization int8": {"export_ct2.quantization": "int8"},
            "--sentencepiece m": {"export_ct2.sentencepiece": P("m")},
        },
    ),
    "export_hf.py": (
        "--checkpoint a.pt --output o".split(),
        {"checkpoints.huggingface.export_hf": mock.Mock(notes=["a note"], dropped=1, folder="o"),
         "checkpoints.huggingface.largest_difference": 0.5},
        {
            "": {"stdout": "a note"},
            "--checkpoint b.pt": {"export_hf.checkpoint": P("b.pt"), "largest_difference.checkpoint": P("b.pt")},
            "--output p": {"export_hf.output": P("p")},
            "--trust-checkpoint": {"export_hf.trust": True, "largest_difference.trust": True},
        },
    ),
    "average_checkpoints.py": (
        "--output o.pt".split(),
        {"checkpoints.averaging.average_checkpoints": None, "checkpoints.averaging.last_checkpoints": [P("x.pt"), P("y.pt")]},
        {
            "--inputs a.pt b.pt": {"average_checkpoints.paths": [P("a.pt"), P("b.pt")]},
            "--inputs a.pt --output p.pt": {"average_checkpoints.output": P("p.pt")},
            "--inputs d --num-update-checkpoints 3": {"last_checkpoints.count": 3, "last_checkpoints.name": UPDATE,
                                                      "average_checkpoints.paths": [P("x.pt"), P("y.pt")]},
            "--inputs d --num-epoch-checkpoints 4": {"last_checkpoints.count": 4, "last_checkpoints.name": EPOCH},
            "--inputs d --num-epoch-checkpoints 4 --checkpoint-upper-bound 7": {"last_checkpoints.upper_bound": 7},
            "--inputs a.pt --trust-checkpoint": {"average_checkpoints.trust": True},
        },
    ),
    "encode.py": (
        "--sentencepiece m --inputs a b --outputs c d".split(),
        {"data.sentencepiece.encode_text": 3, "data.prepare.text.default_workers": 6},
        {
            "": {"encode_text.source": [P("a"), P("b")], "encode_text.target": [P("c"), P("d")], "encode_text.workers": [6, 6]},
            "--sentencepiece n": {"encode_text.model": [P("n")] * 2},
            "= --sentencepiece m --inputs b a --outputs d c": {
                "encode_text.source": [P("b"), P("a")], "encode_text.target": [P("d"), P("c")]},
            "--inputs e --outputs f": {"encode_text.source": P("e"), "encode_text.target": P("f")},
            "--workers 5": {"encode_text.workers": [5, 5]},
        },
    ),
    "import_veco.py": (
        "--checkpoint a.pt --dict d --output o.pt".split(),
        {"checkpoints.release.import_release": {}, "checkpoints.release.back_to_pretraining": [],
         "checkpoints.seq2seq.report_lines": []},
        {
            "--checkpoint b.pt": {"import_release.checkpoint": P("b.pt")},
            "--dict e": {"import_release.dictionary": P("e")},
            "--output p.pt": {"import_release.output": P("p.pt")},
            "--pretraining": {"back_to_pretraining.checkpoint": P("a.pt"), "back_to_pretraining.output": P("o.pt")},
            "--pretraining --trust-checkpoint": {"back_to_pretraining.trust": True},
            "--decoder-layers 2": {"import_release.decoder_layers": 2},
            "--layer-selection first": {"import_release.layer_selection": "first"},
            "--source-lang en --target-lang de": {"import_release.source_lang": "en", "import_release.target_lang": "de"},
            "--trust-checkpoint": {"import_release.trust": True},
        },
    ),
    "label_with_teacher.py": (
        "a.pt --input f/i --output o.conllu".split(),
        {"inference.evaluation.label": [["X"]], "inference.finetuned.load_finetuned": None,
         "understanding.teaching.read_words": [["a"]], "understanding.teaching.ids_like": ["seven"],
         "understanding.teaching.write_conllu": None},
        {
            "": {"write_conllu.ids": ["1"], "load_finetuned.checkpoint": P("a.pt"), "load_finetuned.data": P("f")},
            "--input g/j": {"read_words.path": P("g/j")},
            "--tokenize de": {"read_words.lang": "de"},
            "--like l": {"ids_like.originals": P("l"), "write_conllu.ids": ["seven"]},
            "--output p.conllu": {"write_conllu.path": P("p.conllu")},
            "--max-tokens 99": {"label.max_tokens": 99},
            "--cpu": {"load_finetuned.cpu": True},
        },
    ),
    "plot_attention.py": (
        "a.pt --source one --target two --output o.png".split(),
        {"plots.plot_attention": None, "inference.pretrained.load_pretrained": MODEL},
        {
            "--source x": {"model.encode": [call("x"), call("two")]},
            "--target x": {"model.encode": [call("one"), call("x")]},
            "--layer 2": {"model.cross_attention": [call(MODEL.encode(), MODEL.encode(), 2)]},
            "--attention self --layer 0": {"model.self_attention": [call(MODEL.join(), 0)]},
            "--attention self --layer 2": {"model.self_attention": [call(MODEL.join(), 2)]},
            "--output p.png": {"plot_attention.output": P("p.png")},
        },
    ),
    "plot_curves.py": (
        "n=l --output o.png".split(),
        {"plots.plot_curves": None, "plots.read_curve": [(1, 2.0)]},
        {
            "= n=l m=k --output o.png": {"read_curve.log": ["l", "k"], "plot_curves.curves": {"n": [(1, 2.0)], "m": [(1, 2.0)]}},
            "--metric ppl loss": {"read_curve.metric": ["ppl", "loss"], "plot_curves.ylabel": "ppl (perplexity), loss (bits)",
                                  "plot_curves.curves": {"n ppl": [(1, 2.0)], "n loss": [(1, 2.0)]}},
            "--train": {"read_curve.training": True},
            "--label y": {"plot_curves.ylabel": "y"},
            "--title t": {"plot_curves.title": "t"},
            "--output p.png": {"plot_curves.output": P("p.png")},
        },
    ),
    "score.py": (
        "--hypothesis h --reference r --lang de".split(),
        {"inference.scoring.score_files": {"a": 1}, "inference.scoring.score_lines": []},
        {
            "--hypothesis x": {"score_files.hypothesis": P("x"), "score_files.generated": False},
            "= --generate-output g --reference r --lang de": {"score_files.hypothesis": P("g"), "score_files.generated": True},
            "--reference x": {"score_files.reference": P("x")},
            "--lang fr": {"score_files.lang": "fr"},
            "--split-compounds": {"score_files.split_compounds": True},
            "--bootstrap 7": {"score_files.samples": 7},
            "--baseline b": {"score_files.baseline": P("b")},
            "--json j": {"j": '"a": 1'},
        },
    ),
    "trim_vocab.py": (
        "a b --sentencepiece m --keep 9 --output o".split(),
        {"data.sentencepiece.load_sentencepiece": "model", "data.sentencepiece.write_vocabulary": None, "data.prepare.text.default_workers": 6,
         "data.sentencepiece.trim": mock.Mock(model=b"m", dictionary=b"d", kept=1, pieces=2, share=0.5)},
        {
            "": {"trim.corpora": [P("a"), P("b")], "trim.workers": 6, "trim.model": "model"},
            "--sentencepiece n": {"load_sentencepiece.path": P("n")},
            "--keep 7": {"trim.keep": 7},
            "--output p": {"write_vocabulary.folder": P("p")},
            "--workers 5": {"trim.workers": 5},
        },
    ),
    "vocap.py": (
        "--corpora c --size 90 --output o".split(),
        {"vocab.corpora.find_corpora": {"aa": ["f"]}, "vocab.vocap.Options": None, "vocab.vocap.make_vocabulary": "",
         "vocab.comparison.measure": {}, "vocab.comparison.write_comparison": "", "vocab.comparison.named_models": {"n": "m"}, "data.prepare.text.default_workers": 6},
        {
            "": {"Options.workers": 6},
            "--corpora d e": {"find_corpora.arguments": ["d", "e"]},
            "--size 70": {"Options.size": 70},
            "--alpha 0.3": {"Options.alpha": 0.3},
            "--beta 0.4": {"Options.beta": 0.4},
            "--output p": {"Options.output": P("p")},
            "--step 30": {"Options.step": 30},
            "--largest 40": {"Options.largest": 40},
            "--lines 50": {"Options.lines": 50},
            "--character-coverage 0.9": {"Options.coverage": 0.9},
            "--train-every-size": {"Options.every_size": True},
            "--joint": {"Options.joint": True},
            "--alp n=m --lines 50": {"named_models.arguments": ["n=m"], "measure.lines": 50, "write_comparison.output": P("o")},
            "--workers 5": {"Options.workers": 5},
        },
    ),
    "prepare_root.py": (
        "--mono aa=f --valid-lines 4 --output o".split(),
        {"data.prepare.preparation.prepare_root": None, "data.prepare.preparation.report_table": "", "data.prepare.text.Plan": None,
         "data.prepare.text.parse_parts": "parts", "data.prepare.text.default_workers": 6},
        {
            "": {"Plan.workers": 6, "Plan.parts": "parts"},
            "--mono bb=g": {"parse_parts.mono": ["aa=f", "bb=g"]},
            "--bitext aa-bb=f,g": {"parse_parts.bitext": ["aa-bb=f,g"]},
            "--mono-valid aa=h": {"parse_parts.mono_valid": ["aa=h"]},
            "--bitext-valid aa-bb=h,i": {"parse_parts.bitext_valid": ["aa-bb=h,i"]},
            "--valid-lines 3": {"Plan.valid_lines": 3},
            "--sentencepiece m": {"Plan.sentencepiece": P("m")},
            "--dict d": {"Plan.dictionary": P("d")},
            "--vocab-size 90": {"Plan.vocab_size": 90},
            "--vocab-lines 80": {"Plan.vocab_lines": 80},
            "--character-coverage 0.9": {"Plan.character_coverage": 0.9},
            "--output p": {"Plan.output": P("p")},
            "--workers 5": {"Plan.workers": 5},
        },
    ),
    "evaluate_xtreme.py run": (
        "a.pt --data d".split(),
        {"inference.evaluation.evaluate": mock.Mock(figures={"de": {"f1": 1.0}}, alone={}),
         "inference.finetuned.load_finetuned": None, "inference.evaluation.write_predictions": None,
         "understanding.xtreme.table": "", "understanding.xtreme.Result": None},
        {
            "= a.pt b.pt --data d": {"load_finetuned.checkpoint": [P("a.pt"), P("b.pt")]},
            "--data e": {"load_finetuned.data": P("e")},
            "--split dev": {"evaluate.split": "dev"},
            "--langs de,fr": {"load_finetuned.options": {"valid_langs": "de,fr"}},
            "--answer-metric mlqa": {"load_finetuned.options": {"valid_langs": None, "answer_metric": "mlqa"}},
            "--max-tokens 99": {"evaluate.max_tokens": 99},
            "--predictions p": {"write_predictions.folder": P("p")},
            "= a.pt b.pt --data d --predictions p": {"write_predictions.folder": [P("p/1"), P("p/2")]},
            "--json j": {"j": '"split": "test"'},
            "--cpu": {"load_finetuned.cpu": True},
        },
    ),
    "evaluate_xtreme.py table": (
        ["xnli=f,g"],
        {"understanding.xtreme.read_results": mock.Mock(note="", names=["a"], langs=["de"], seeds=[1], of=lambda *_: [0.5]),
         "understanding.xtreme.table": "", "understanding.xtreme.summary": {"mean": 0.5}, "plots.plot_bars": None},
        {
            "tatoeba=h": {"read_results.paths": [[P("f"), P("g")], [P("h")]]},
            "--layer 3": {"read_results.layer": 3},
            "--plot p.png": {"plot_bars.output": P("p.png"), "plot_bars.bars": {"xnli": {"de": 0.5}}},
            "--json j": {"j": '"mean": 0.5'},
        },
    ),
    "count_operations.py": (
        ["a.pt"],
        {"cost.flops.count_operations": mock.Mock(updates=5, per_update=2.0, total=10.0, error=float("nan"))},
        {
            "b.pt": {"count_operations.checkpoint": ["a.pt", "b.pt"]},
            "--sample-updates 7": {"count_operations.sample_updates": 7},
            "b.pt --equal": {"stdout": "10\n"},
            "b.pt --equal --sample-updates 7": {"count_operations.sample_updates": [7, 7]},
        },
    ),
}  # fmt: skip
# Without a row above: what has tests of its own files, or no options.
ELSEWHERE = {
    "bench.py": "test_bench.py", "check_kills.py": "test_kills.py", "inspect_data.py": "test_inspection.py",
    "plot_layers.py": "test_plots.py", "plot_scores.py": "test_plots.py", "demo_report.py": "no options", "doctor.py": "test_doctor.py",
    "make_options.py": "no options", "mend_fairseq.py": "no options", "versions.py": "test_mending.py",
}  # fmt: skip


class Calls:
    """Functions of the package that write down what they are called with."""

    def __init__(self, monkeypatch, results):
        self.made = {}
        for place, result in results.items():
            module, _, name = (PACKAGE + place).rpartition(".")
            function = getattr(importlib.import_module(module), name)
            monkeypatch.setattr(sys.modules[module], name, self.recorder(name, inspect.signature(function), result))

    def recorder(self, name, signature, result):
        def record(*positional, **named):
            bound = signature.bind(*positional, **named)
            bound.apply_defaults()
            self.made.setdefault(name, []).append(bound.arguments)
            return result

        return record

    def argument(self, place: str):
        """What ``function.parameter`` was called with; of several calls that differ, or are two, a list."""
        name, parameter = place.split(".")
        values = [arguments[parameter] for arguments in self.made[name]]
        return values[0] if len(values) == 1 else values


def rows():
    for command, (base, results, options) in COMMANDS.items():
        for words, expected in options.items():
            yield pytest.param(command, base, results, words, expected, id=f"{command} {words}".strip())


def run_script(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(REPOSITORY / "scripts" / words[0]), *words[1:]])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(sys.argv[0], run_name="__main__")
    assert not end.value.code


def in_a_fork(check):
    """A command changes its process, such as its log."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            check()
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as told:
        failure = told.read()
    os.waitpid(child, 0)
    assert not failure, failure


@pytest.mark.parametrize("command, base, results, words, expected", list(rows()))
def test_the_option_arrives(command, base, results, words, expected, tmp_path, monkeypatch, capsys):
    def check():
        arguments = words[2:].split() if words.startswith("= ") else [*base, *words.split()]
        run_script([*command.split(), *arguments], monkeypatch)
        printed = capsys.readouterr().out
        for place, value in expected.items():
            if place.endswith("stdout"):
                assert (value in printed) == (place == "stdout")
            elif place.startswith("model."):
                assert getattr(MODEL, place[6:]).call_args_list == value
            elif "." not in place:
                assert (value or "") in (tmp_path / place).read_text()
            else:
                assert calls.argument(place) == value

    monkeypatch.chdir(tmp_path)
    MODEL.reset_mock()
    calls = Calls(monkeypatch, results)
    in_a_fork(check)


def options_of(command):
    """The option strings of a command, from its parser."""
    actions = parser_of((f"scripts/{command.split()[0]}", *command.split()[1:]))._actions
    return {option for action in actions for option in action.option_strings if option.startswith("--")} - {"--help"}


def test_no_option_is_missing():
    scripts = {path.name for path in (REPOSITORY / "scripts").glob("*.py")}
    assert scripts == {command.split()[0] for command in COMMANDS} | set(ELSEWHERE)
    for command, (_base, _, options) in COMMANDS.items():
        assert options_of(command) <= {word for words in options for word in words.split()}, command
