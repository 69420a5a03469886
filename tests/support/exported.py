# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translation models to export, with a vocabulary of real pieces, and what fairseq makes of a text with them."""

from functools import partial
from pathlib import Path

import torch
from conftest import changed, save_with_vocabulary
from fairseq.dataclass.configs import GenerationConfig
from torch.nn.utils.rnn import pad_sequence

from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq
from veco_fairseq.checkpoints.translation import build_translation, read_translation
from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.data.symbols import read_symbols
from veco_fairseq.inference.translator import Translator

LANGS = "aa", "bb"
LINES = [f"{a}{b} {b}{c}" for a in "bdg" for b in "aeiou" for c in "lmn"]
PIECES = 24
MAX_POSITIONS = 40


def make_translation(folder: Path, make_model, words=None, updates: int = 0, **extras) -> Path:
    """A small translation model; after 40 updates of fine-tuning its translations differ in words and length.

    Args:
        folder: an empty one; it gets ``mt.pt``, ``sentencepiece.bpe.model`` and ``dict.LANG.txt``.
        words: of the dictionary, made of the pieces; default: these, in their order.
        updates: of fine-tuning.
        extras: of the conversion.
    """
    pretrained = save_with_vocabulary(folder / "pre", make_model, LINES, PIECES, layers=3, max_positions=MAX_POSITIONS)
    spm = folder / "pre/sentencepiece.bpe.model"
    pieces = read_symbols(folder / "pre/dict.txt")[4:]
    for lang in LANGS:
        text = "".join(f"{word} 1\n" for word in (words(pieces) if words else pieces))
        (folder / f"dict.{lang}.txt").write_text(text, encoding="utf-8")
    (folder / spm.name).write_bytes(spm.read_bytes())
    output, dictionary = folder / "mt.pt", folder / f"dict.{LANGS[0]}.txt"
    convert_to_seq2seq(pretrained, output, 2, dictionary=dictionary, allow_new_tokens=True, **extras)
    change(output, languages=LANGS)
    if updates:
        fine_tune(output, updates)
    return output


def change(path: Path, languages=None, **options) -> None:
    """Change what a checkpoint says of its languages and options."""
    with changed(path) as state:
        if languages:
            state["cfg"]["task"].update(source_lang=languages[0], target_lang=languages[1], data=str(path.parent))
            state["task_state"]["languages"] = list(languages)
        for name, value in options.items():
            setattr(state["cfg"]["model"], name, value)


def fine_tune(path: Path, updates: int) -> None:
    """Train a converted model to repeat a part of the source."""
    translation = read_translation(path)
    model = build_translation(translation)
    more = tuple(translation.source_end[1:])
    sources = fairseqs_ids(path.parent, LINES, more)
    end = translation.target.index(translation.target_end)
    ids = [[*row[: 1 + number % len(row)], *([2] if more else []), end] for number, row in enumerate(sources)]
    pad = partial(pad_sequence, batch_first=True, padding_value=1)
    targets, given = (pad([torch.tensor(row) for row in rows]) for rows in (ids, [[end, *row[:-1]] for row in ids]))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(updates):
        batch = pad([torch.tensor(row) for row in sources], padding_side="left")
        logits = model(batch, batch.ne(1).sum(1), given)[0]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=1).backward()
        optimizer.step()
    state = torch.load(path, weights_only=False)
    torch.save({**state, "model": model.state_dict()}, path)


def fairseqs_ids(folder: Path, lines: list[str], more: tuple[str, ...] = ()) -> list[list[int]]:
    """A dictionary's ids of the lines' pieces, and of what follows them."""
    model = load_sentencepiece(folder / "sentencepiece.bpe.model")
    ids = {symbol: number for number, symbol in enumerate(read_symbols(folder / f"dict.{LANGS[0]}.txt"))}
    end = [ids[symbol] for symbol in ("</s>", *more)]
    return [[*(ids.get(piece, ids["<unk>"]) for piece in pieces), *end] for pieces in model.encode(lines, out_type=str)]


def fairseqs_translations(checkpoint: Path, lines: list[str], beam: int = 5) -> list[str]:
    """What ``veco translate`` gives, with the longest translations of ``fairseq-generate``."""
    translator = Translator(
        [checkpoint], data=checkpoint.parent, cpu=True, search=GenerationConfig(beam=beam, max_len_a=0, max_len_b=200)
    )
    return translator.translate(lines)
