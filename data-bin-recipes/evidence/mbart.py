#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Make a translation model of what fairseq's multilingual_denoising has trained (mBART), for fine-tuning.

Its symbols are those of the translation data, then [LANG] of each language, then <mask>. The row of <2LANG>, which the
translation data has before each source, begins as that of [LANG], which pre-training has at the ends of a text.
"""

import argparse
from pathlib import Path

import torch

from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.cli import run
from veco_fairseq.data.symbols import target_token
from veco_fairseq.data.vocabulary import read_dictionary
from veco_fairseq.errors import UserError
from veco_fairseq.files import atomic_output

TABLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")


def translation_model(state: dict, symbols: list[str], languages: list[str]) -> dict:
    """The model's tensors, with one row of each embedding table for each symbol of the translation data."""
    model = dict(state["model"])
    first = len(symbols)
    for name in TABLES:
        table = model[name]
        if len(table) != first + len(languages) + 1:
            raise UserError(f"{name}: has {len(table):,} rows, not {first:,} + {len(languages)} languages + <mask>")
        table = table.clone()
        for number, lang in enumerate(languages):
            table[symbols.index(target_token(lang))] = table[first + number]
        model[name] = table[:first]
    return {**state, "model": model}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("dict", type=Path, help="of the translation data")
    parser.add_argument("--langs", required=True, metavar="LANG,...", help="as in pre-training")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    state = read_checkpoint(args.checkpoint)
    model = translation_model(state, read_dictionary(args.dict).symbols, args.langs.split(","))
    with atomic_output(args.output) as file:
        torch.save({**model, "last_optimizer_state": None}, file)


if __name__ == "__main__":
    run(main)
