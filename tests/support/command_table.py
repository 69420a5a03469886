# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every command with each of its options, and what the option must change."""

from pathlib import Path
from unittest import mock
from unittest.mock import call

from support.text_commands import TEXT
from support.translation_commands import TRANSLATION

P = Path
PACKAGE = "veco_fairseq."

MODEL = mock.MagicMock()  # a pre-trained model

RESULT = mock.Mock(
    note="by a", names=["a", "b"], langs=["de"], seeds=[1, 2], of=lambda name, lang: [0.5, 1.0] if name == "a" else []
)
MINED = [mock.Mock(score=0.5), mock.Mock(score=0.2)]

# Of each command: what it needs in any case; the functions that are replaced, with what they return (of iter([...]) each
# call the next one, and of a function what it returns); and its options, each with what it must change: an argument of one of these functions, a call of the
# model, a file or standard output. "= " stands before words that are the whole command line.
COMMANDS = {
    **TEXT,
    **TRANSLATION,
    "align.py": (
        "a.pt --source s --target t".split(),
        {
            "alignment.words.align": [[(0, 1)]],
            "alignment.words.usual_layer": 2,
            "alignment.gold.read_gold": [1],
            "alignment.gold.figures": {"AER": 0.25},
            "inference.pretrained.load_pretrained": MODEL,
            "inference.pretrained.chosen_layers": [5],
            "files.read_translations": (["a"], ["b"]),
        },
        {
            "--source x": {"read_translations.source": P("x")},
            "--target x": {"read_translations.target": P("x")},
            "--output o": {"o": "0-1\n"},
            "--gold g": {
                "read_gold.path": P("g"),
                "read_gold.first": 0,
                "read_gold.source": ["a"],
                "read_gold.target": ["b"],
                "not stdout": "0-1",
                "stdout": "layer 2: AER 25.00 (%), 1 links in 1 pairs\n",
            },
            "--gold g --output o --layer 5": {"o": "0-1\n", "stdout": "layer 5: AER 25.00 (%)"},
            "--gold g --gold-from-1": {"read_gold.first": 1},
            "--layer 5": {"chosen_layers.wanted": ["5"], "chosen_layers.option": "--layer", "align.layer": 5},
            "--layer 0": {"chosen_layers.wanted": ["0"], "align.layer": 5},
            "": {
                "align.layer": 2,
                "align.apart": False,
                "align.names": (P("s"), P("t")),
                "align.source": ["a"],
                "align.target": ["b"],
                "stdout": "0-1\n",
                "load_pretrained.cpu": False,
                "load_pretrained.checkpoint": P("a.pt"),
                "align.max_tokens": 8192,
            },
            "--apart": {"align.apart": True},
            "--regularisation 0.3": {"align.regularisation": 0.3},
            "--iterations 7": {"align.iterations": 7},
            "--max-tokens 99": {"align.max_tokens": 99},
            "--cpu": {"load_pretrained.cpu": True},
        },
    ),
    "retrieve.py tatoeba": (
        "a.pt --pairs n=s,t".split(),
        {
            "retrieval.tatoeba.evaluate": {"n": {0: (0.5, 0.25)}},
            "retrieval.tatoeba.read_pair": iter([("n", "sides"), ("m", "others")]),
            "inference.pretrained.chosen_layers": [5],
            "inference.pretrained.load_pretrained": MODEL,
        },
        {
            "": {"load_pretrained.checkpoint": P("a.pt"), "load_pretrained.cpu": False},
            "--pairs m=a,b": {"read_pair.argument": ["n=s,t", "m=a,b"]},
            "= a.pt --pairs n=a,b m=c,d": {
                "read_pair.argument": ["n=a,b", "m=c,d"],
                "evaluate.pairs": {"n": "sides", "m": "others"},
            },
            "--layers 3 4": {
                "chosen_layers.wanted": ["3", "4"],
                "chosen_layers.option": "--layers",
                "evaluate.layers": [5],
                "evaluate.pairs": {"n": "sides"},
            },
            "--score ratio": {"evaluate.score": "ratio"},
            "--neighbours 7": {"evaluate.neighbours": 7},
            "--max-tokens 99": {"evaluate.max_tokens": 99},
            "--json j": {"j": '"score": "cosine",\n "neighbours": 10,\n "accuracy": {'},
            "--cpu": {"load_pretrained.cpu": True},
        },
    ),
    "retrieve.py bucc": (
        "a.pt --source s --target t --gold g".split(),
        {
            "retrieval.mining.read_sentences": iter([{"p": "a"}, {"q": "b", "r": "c"}]),
            "retrieval.mining.read_gold": {("1", "1")},
            "retrieval.search.candidates": (1, 2),
            "retrieval.mining.mine": MINED,
            "retrieval.mining.best_threshold": 0.4,
            "retrieval.mining.figures": {"F1": 0.5},
            "retrieval.mining.write_pairs": None,
            "retrieval.states.sentence_states": iter([["the x"], ["those of y"]]),
            "inference.pretrained.chosen_layers": [3, 5],
            "inference.pretrained.load_pretrained": MODEL,
        },
        {
            "": {
                "sentence_states.layers": [[5], [5]],
                "sentence_states.lines": [["a"], ["b", "c"]],
                "candidates.x": "the x",
                "candidates.y": "those of y",
                "read_gold.x": ["p"],
                "read_gold.y": ["q", "r"],
                "best_threshold.gold": {("1", "1")},
                "candidates.score": "csls",
                "candidates.k": 10,
                "load_pretrained.cpu": False,
                "load_pretrained.checkpoint": P("a.pt"),
                "sentence_states.name": ["s", "t"],
                "figures.kept": MINED[:1],
                "stdout": "1 pairs of a score of at least 0.4, of 5 and 10 sentences\nF1 50.0 (at the threshold that is best for this)\n",
            },
            "--source x": {"read_sentences.path": [P("x"), P("t")]},
            "--target x": {"read_sentences.path": [P("s"), P("x")]},
            "--gold x": {"read_gold.path": P("x")},
            "--threshold 0.5": {"stdout": "1 pairs of a score of at least 0.5, of 5 and 10 sentences\nF1 50.0\n"},
            "--threshold 0.3": {"stdout": "1 pairs of a score of at least 0.3"},
            "--threshold 0.1": {"stdout": "2 pairs of a score of at least 0.1"},
            "--layer 3": {"chosen_layers.wanted": ["3"], "chosen_layers.option": "--layer"},
            "--lang de --json j": {"j": '"lang": "de"'},
            "--output o": {
                "write_pairs.path": P("o"),
                "write_pairs.pairs": MINED[:1],
                "write_pairs.x": ["p"],
                "write_pairs.y": ["q", "r"],
                "stdout": "wrote o\n",
            },
            "--score ratio": {"candidates.score": "ratio"},
            "--neighbours 7": {"candidates.k": 7},
            "--max-tokens 99": {"sentence_states.max_tokens": [99, 99]},
            "--json j": {
                "j": '"lang": "all",\n "layer": 5,\n "threshold": 0.4,\n "tuned_here": true,\n "pairs": 1,\n "F1": 0.5\n}\n'
            },
            "--threshold 0.1 --json j": {"j": '"threshold": 0.1,\n "tuned_here": false,\n "pairs": 2'},
            "= a.pt --source s --target t --threshold 0 --json j": {
                "j": '"threshold": 0.0,\n "tuned_here": false,\n "pairs": 2\n}'
            },
            "--neighbours 7 --score ratio --json k": {"k": '"score": "ratio",\n "neighbours": 7'},
            "--cpu": {"load_pretrained.cpu": True},
        },
    ),
    "plot_attention.py": (
        "a.pt --source one --target two --output o.png".split(),
        {"plots.plot_attention": None, "inference.pretrained.load_pretrained": MODEL},
        {
            "--source x": {"model.encode": [call("x"), call("two")]},
            "--target x": {"model.encode": [call("one"), call("x")]},
            "": {
                "model.cross_attention": [call(MODEL.encode(), MODEL.encode(), None)],
                "stdout": "wrote o.png\n",
                "load_pretrained.cpu": True,
            },
            "--layer 2": {"model.cross_attention": [call(MODEL.encode(), MODEL.encode(), 2)]},
            "--attention self --layer 0": {"model.self_attention": [call(MODEL.join(), 0)]},
            "--attention self --layer 2": {"model.self_attention": [call(MODEL.join(), 2)]},
            "--output p.png": {"plot_attention.output": P("p.png")},
        },
    ),
    "plot_curves.py": (
        "n=l --output o.png".split(),
        {"plots.plot_curves": None, "curves.read_curve": [(1, 2.0)]},
        {
            "": {
                "read_curve.training": False,
                "plot_curves.ylabel": "loss (bits)",
                "plot_curves.log": False,
                "stdout": "wrote o.png\n",
            },
            "--metric bitext_acc x_score nll": {"plot_curves.ylabel": "bitext_acc (share that is right), x_score (%), nll"},
            "= n=l m=k --output o.png": {
                "read_curve.log": [Path("l"), Path("k")],
                "plot_curves.curves": {"n": [(1, 2.0)], "m": [(1, 2.0)]},
            },
            "--metric ppl loss": {
                "read_curve.metric": ["ppl", "loss"],
                "plot_curves.ylabel": "ppl (perplexity), loss (bits)",
                "plot_curves.curves": {"n ppl": [(1, 2.0)], "n loss": [(1, 2.0)]},
            },
            "--train": {"read_curve.training": True},
            "--label y": {"plot_curves.ylabel": "y"},
            "--title t": {"plot_curves.title": "t"},
            "--output p.png": {"plot_curves.output": P("p.png")},
        },
    ),
    "evaluate_xtreme.py run": (
        "a.pt --data d".split(),
        {
            "inference.evaluation.evaluate": mock.Mock(figures={"de": {"f1": 1.0}}, alone={}),
            "inference.finetuned.load_finetuned": None,
            "inference.evaluation.write_predictions": [],
            "understanding.xtreme.table": "the figures",
            "understanding.xtreme.Result": mock.Mock(langs=["de"]),
        },
        {
            "": {
                "load_finetuned.cpu": False,
                "load_finetuned.options": {"valid_langs": None},
                "evaluate.max_tokens": 8192,
                "stdout": "the figures\n",
            },
            "= a.pt b.pt --data d": {"load_finetuned.checkpoint": [P("a.pt"), P("b.pt")]},
            "--data e": {"load_finetuned.data": P("e")},
            "--split dev": {"evaluate.split": "dev"},
            "--langs de,fr": {"load_finetuned.options": {"valid_langs": "de,fr"}},
            "--answer-metric mlqa": {"load_finetuned.options": {"valid_langs": None, "answer_metric": "mlqa"}},
            "--answer-metric squad": {"load_finetuned.options": {"valid_langs": None, "answer_metric": "squad"}},
            "--max-tokens 99": {"evaluate.max_tokens": 99},
            "--predictions p --split dev": {"write_predictions.folder": P("p"), "write_predictions.split": "dev"},
            "= a.pt b.pt --data d --predictions p": {"write_predictions.folder": [P("p/1"), P("p/2")]},
            "= a.pt b.pt --data d --json j --split dev": {
                "j": '{\n "split": "dev",\n "checkpoints": [\n  "a.pt",\n  "b.pt"\n ],\n "seeds": [\n  {\n   "de": {\n    "f1": 1.0'
            },
            "--cpu": {"load_finetuned.cpu": True},
        },
    ),
    "evaluate_xtreme.py table": (
        ["xnli=f,g"],
        {
            "understanding.xtreme.read_task": iter([RESULT, mock.Mock(note="", seeds=[3])]),
            "understanding.xtreme.table": "the figures",
            "understanding.xtreme.summary": {"xnli": 0.5, "average": 12.34},
            "plots.plot_bars": None,
        },
        {
            "": {"read_task.layer": -1, "stdout": "xnli (by a)\nthe figures\n\nxnli     0.5\naverage  12.3\n"},
            "= tatoeba=h xnli=f --json j": {
                "j": '"tasks": {\n  "xnli": [\n   3\n  ],\n  "tatoeba"',
                "stdout": "xnli\nthe figures\n\ntatoeba (by a)\n",
            },
            "= tatoeba=h xnli=f --json k": {"k": '"notes": {\n  "tatoeba": "by a"\n }'},
            "tatoeba=h": {"read_task.task": ["xnli", "tatoeba"], "read_task.paths": [[P("f"), P("g")], [P("h")]]},
            "= tatoeba=h --layer 3": {"read_task.layer": 3},
            "--plot p.png": {
                "plot_bars.output": P("p.png"),
                "plot_bars.bars": {"xnli": {"de": 0.75}},
                "plot_bars.ylabel": "accuracy or F1 (%)",
                "plot_bars.title": "XTREME tasks by language",
            },
            "--json j": {"j": '"averages": {\n  "xnli": 0.5,\n  "average": 12.34\n },\n "notes": {\n  "xnli": "by a"\n }'},
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
}

# Without a row above: what has tests of its own files, or no options.
ELSEWHERE = {
    "bench.py": "test_bench.py", "check_kills.py": "test_kills.py", "inspect_data.py": "test_inspection.py",
    "plot_layers.py": "test_plots.py", "plot_scores.py": "test_plots.py", "demo_report.py": "no options", "doctor.py": "test_doctor.py",
    "make_options.py": "no options", "mend_fairseq.py": "no options", "versions.py": "test_mending.py",
}  # fmt: skip
