# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The model card, README.md, of an exported model, made from its checkpoint."""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from veco_fairseq.data.languages import sides_of
from veco_fairseq.data.symbols import target_token
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_json, write_text
from veco_fairseq.named import named_files

TO_FILL_IN = "to be filled in"
TRANSLATE = """
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
sources = tokenizer(["A sentence.", "Another one."], padding=True, return_tensors="pt")
print(tokenizer.batch_decode(model.generate(**sources), skip_special_tokens=True))
```
"""
ENCODE = """
```python
from transformers import AutoTokenizer, CLASS

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = CLASS.from_pretrained("FOLDER")
print(model(**tokenizer("A sentence.", return_tensors="pt")))
```
"""


def translating(directions: Sequence[str] = ()) -> str:
    """How to translate, as Markdown; with a model of many directions such as "en-de"."""
    if not directions:
        return TRANSLATE
    first, last = (target_token(sides_of(direction)[1]) for direction in (directions[0], directions[-1]))
    code = TRANSLATE.replace('"A sentence', f'"{first} A sentence').replace('"Another', f'"{last} Another')
    return f"{code}\nThe token before a source says which language to translate it into.\n"


class Facts(NamedTuple):
    """What a card tells.

    Attributes:
        title: of the card.
        languages: their codes; none: to be filled in.
        pipeline: the task, as Hugging Face names it.
        architecture: Hugging Face's class.
        usage: how to use the model, as Markdown.
        options: all that the model was trained with.
        updates: how many it was trained.
        tokens: of the vocabulary.
        parameters: of the model, tied ones once.
        extra: of the checkpoint's ``extra_state``.
    """

    title: str
    languages: Sequence[str]
    pipeline: str
    architecture: str
    usage: str
    options: Namespace
    updates: int
    tokens: int
    parameters: int
    extra: dict[str, Any]


def write_card(path: Path, facts: Facts, scores: str) -> None:
    """Write the card; ``scores`` is of :func:`scores_list`."""
    head = ["---", "language:", *(f"- {json.dumps(language)}" for language in facts.languages or [TO_FILL_IN])]
    head += [f"license: other  # {TO_FILL_IN}", "library_name: transformers", f"pipeline_tag: {facts.pipeline}"]
    head += ["tags:", "- veco", "- fairseq", "---"]
    tables = (("Model", _table(_model(facts))), ("Training", _table(_training(facts))), ("Scores", scores))
    licence = f"{TO_FILL_IN.capitalize()}. The licences of the texts that the model was trained on count, too."
    sections = [("Use", facts.usage.strip()), *tables, ("Licence", licence)]
    text = "\n".join(head) + f"\n\n# {facts.title}\n" + "".join(f"\n## {title}\n\n{body}\n" for title, body in sections)
    write_text(path, text)


def _table(rows: dict[str, Any]) -> str:
    return "\n".join(
        ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items() if value not in (None, ""))]
    )


def _model(facts: Facts) -> dict[str, Any]:
    options = facts.options
    sides = [side for side in ("encoder", "decoder") if getattr(options, f"{side}_layers", None)]
    return {
        "class": f"`{facts.architecture}`, exported from fairseq's `--arch {options.arch}`",
        **{
            side: f"{getattr(options, f'{side}_layers')} layers of {options.encoder_embed_dim}, "
            f"{getattr(options, f'{side}_attention_heads')} heads, FFN {getattr(options, f'{side}_ffn_embed_dim'):,}"
            for side in sides
        },
        "vocabulary": f"{facts.tokens:,} tokens",
        "positions": getattr(options, "max_positions", None) or getattr(options, "max_source_positions", None),
        "parameters": f"{facts.parameters:,}",
    }


def _training(facts: Facts) -> dict[str, Any]:
    if not facts.updates:
        return {"updates": "none: converted, and not fine-tuned"}

    def option(name: str, text: str = "{}", unless: Any = None) -> str:
        value = getattr(facts.options, name, None)
        value = value[0] if isinstance(value, list) and value else value
        return "" if value in (None, "", 0, unless) else text.format(value)

    def listed(*parts: str) -> str:
        return ", ".join(filter(None, parts))

    from fairseq import utils

    parts = [option("batch_size", "{} sentences"), option("max_tokens", "at most {:,} tokens")]
    parts += [option("update_freq", "times {}", unless=1), option("distributed_world_size", "on {} workers", unless=1)]
    folders = [Path(part).name for part in utils.split_paths(option("data")) if part]  # not where they were on a machine
    start = option("finetune_from_model") or option("init_from")
    best = facts.extra.get("best", facts.extra.get("val_loss"))  # of --best-checkpoint-metric: not always a loss
    return {
        "data": f"{', '.join(folders)} (texts: {TO_FILL_IN})" if folders else TO_FILL_IN,
        "started from": Path(start).name if start else "random weights",
        "updates": f"{facts.updates:,}",
        "batch": listed(*parts),
        "learning rate": listed(option("lr"), option("lr_scheduler"), option("warmup_updates", "warm-up {:,}")),
        "loss": listed(option("criterion"), option("objective"), option("label_smoothing", "label smoothing {}")),
        "dropout": option("dropout"),
        "seed": option("seed"),
        f"best {option('best_checkpoint_metric') or 'loss'} on held-out text": f"{float(best):.3f}" if best is not None else "",
    }


def scores_list(scores: Sequence[str] = ()) -> str:
    """The card's list of BLEU.

    Args:
        scores: NAME=FILE of test sets and of what ``veco score --json`` has written.

    Raises:
        UserError: a file is missing, or another one.
    """
    if not scores:
        return f"{TO_FILL_IN.capitalize()}: `veco score --json`, and `veco export-hf --scores NAME=FILE`."
    rows = []
    for name, file in named_files(scores, "NAME=FILE, of a test set and a file of veco score --json", "--scores").items():
        found = read_json(file)
        try:
            bleu, lines = found["sacrebleu"], int(found["lines"])
            # no table: the signature has its bars
            row = f"- {name}, {lines:,} sentences: sacreBLEU {float(bleu['score']):.2f}, `{bleu['signature']}`"
            if chrf := found.get("chrf"):
                row += f"; chrF {float(chrf['score']):.1f}, `{chrf['signature']}`"
            rows.append(row)
        except (ValueError, LookupError, TypeError) as error:
            raise UserError(f"{file}: has no sacrebleu with its signature: is it a file of veco score --json?") from error
    return "\n".join(rows)
