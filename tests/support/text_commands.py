# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The commands that get text ready, with each of their options; see :mod:`support.command_table`."""

from pathlib import Path
from unittest import mock

from veco_fairseq.data.cleaning.rules import Options

P = Path
TEXT = {
    "binarize.py": (
        "-s en -t de --trainpref a --sentencepiece m --dict d --destdir o".split(),
        {
            "data.prepare.binarizing.binarize": {},
            "data.prepare.binarizing.parse_splits": "splits",
            "data.prepare.text.default_workers": 6,
        },
        {
            "": {"binarize.splits": "splits", "binarize.workers": 6, "parse_splits.train": "a", "parse_splits.valid": None},
            "--source-lang fr": {"parse_splits.source": "fr", "parse_splits.target": "de"},
            "--target-lang fr": {"parse_splits.source": "en", "parse_splits.target": "fr"},
            "--trainpref b": {"parse_splits.train": "b"},
            "--validpref b,c": {"parse_splits.valid": "b,c", "parse_splits.test": None},
            "--testpref b,c": {"parse_splits.test": "b,c", "parse_splits.valid": None},
            "--sentencepiece n": {"binarize.model": P("n")},
            "--dict e": {"binarize.dictionary": P("e")},
            "--destdir p": {"binarize.destination": P("p")},
            "--workers 5": {"binarize.workers": 5},
        },
    ),
    "clean.py": (
        "-s en -t de --inputs a b --outputs c d".split(),
        {
            "data.cleaning.cleaning.clean": {},
            "data.cleaning.cleaning.report_table": "the table",
            "data.prepare.text.default_workers": 6,
        },
        {
            "": {
                "clean.inputs": (P("a"), P("b")),
                "clean.outputs": (P("c"), P("d")),
                "clean.report": None,
                "clean.workers": 6,
                "clean.options": Options("en", "de"),
                "stdout": "the table\n",
            },
            "--source-lang fr": {"clean.options": Options("fr", "de")},
            "--target-lang fr": {"clean.options": Options("en", "fr")},
            "--inputs x y": {"clean.inputs": (P("x"), P("y"))},
            "--outputs x y": {"clean.outputs": (P("x"), P("y"))},
            "--report r": {"clean.report": P("r")},
            "--punctuation perl": {"clean.options": Options("en", "de", punctuation="perl")},
            "--punctuation keep": {"clean.options": Options("en", "de", punctuation="keep")},
            "--keep-controls": {"clean.options": Options("en", "de", controls=True)},
            "--sentencepiece m": {"clean.options": Options("en", "de", sentencepiece=P("m"))},
            "--min-length 2": {"clean.options": Options("en", "de", min_length=2)},
            "--max-length 9": {"clean.options": Options("en", "de", max_length=9)},
            "--max-ratio 1.5": {"clean.options": Options("en", "de", max_ratio=1.5)},
            "--keep-copies": {"clean.options": Options("en", "de", copies=True)},
            "--language-margin 0": {"clean.options": Options("en", "de", language_margin=0)},
            "--language-margin 5": {"clean.options": Options("en", "de", language_margin=5)},
            "--held-out x y": {"clean.options": Options("en", "de", held_out=(P("x"), P("y")))},
            "--keep-duplicates": {"clean.options": Options("en", "de", duplicates=True)},
            "--workers 5": {"clean.workers": 5},
        },
    ),
    "encode.py": (
        "--sentencepiece m --inputs a b --outputs c d".split(),
        {"data.sentencepiece.encode_text": 1300, "data.prepare.text.default_workers": 6},
        {
            "": {
                "encode_text.source": [P("a"), P("b")],
                "encode_text.target": [P("c"), P("d")],
                "encode_text.workers": [6, 6],
                "stdout": "c: 1,300 lines\nd: 1,300 lines\n",
            },
            "--sentencepiece n": {"encode_text.model": [P("n")] * 2},
            "= --sentencepiece m --inputs b a --outputs d c": {
                "encode_text.source": [P("b"), P("a")],
                "encode_text.target": [P("d"), P("c")],
            },
            "--inputs e --outputs f": {"encode_text.source": P("e"), "encode_text.target": P("f")},
            "--workers 5": {"encode_text.workers": [5, 5]},
        },
    ),
    "trim_vocab.py": (
        "a b --sentencepiece m --keep 9 --output o".split(),
        {
            "data.sentencepiece.load_sentencepiece": "model",
            "data.sentencepiece.write_vocabulary": None,
            "data.prepare.text.default_workers": 6,
            "data.sentencepiece.trim": mock.Mock(model=b"m", dictionary=b"d", kept=1200, pieces=2500, share=0.98765),
        },
        {
            "": {
                "trim.corpora": [P("a"), P("b")],
                "trim.workers": 6,
                "trim.model": "model",
                "write_vocabulary.model": b"m",
                "write_vocabulary.dictionary": b"d",
                "stdout": "o: 1,200 of 2,500 pieces, which are 98.77% of the texts; ",
            },
            "--sentencepiece n": {"load_sentencepiece.path": P("n")},
            "--keep 7": {"trim.keep": 7},
            "--output p": {"write_vocabulary.folder": P("p")},
            "--workers 5": {"trim.workers": 5},
        },
    ),
}
