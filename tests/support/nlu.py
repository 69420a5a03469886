# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Small models and data of fine-tuning for understanding."""

from argparse import Namespace
from types import SimpleNamespace

import torch
from conftest import make_dictionary
from support.models import all_random

from veco_fairseq.models.nlu import VecoNluModel

SENTENCES = ["the dog sees the cat", "who sees the cat", "a dog and a cat are here", "the cat is there",
             "here is a dog", "cats see"]  # fmt: skip


def make_nlu(nlu_task="classification", outputs=3, plug_in=False, seed=1, dropout=0.1, **options) -> VecoNluModel:
    torch.manual_seed(seed)
    args = Namespace(
        arch=options.pop("arch", "veco_nlu_tiny"), encoder_layers=options.pop("encoder_layers", 3), encoder_embed_dim=16, encoder_ffn_embed_dim=32,
        encoder_attention_heads=4, max_positions=64, dropout=dropout, attention_dropout=dropout, **options,
    )  # fmt: skip
    task = SimpleNamespace(
        source_dictionary=make_dictionary(), nlu_task=nlu_task, labels=list(map(str, range(outputs))), plug_in=plug_in
    )
    return all_random(VecoNluModel.build_model(args, task))


TOKENS = torch.tensor([[0, 10, 11, 12, 2], [0, 20, 21, 2, 1], [0, 30, 2, 1, 1]])


def save_finetuned(path, model, nlu_task, labels, plug="out"):
    config = {"model": model.args, "task": {"nlu_task": nlu_task, "plug": plug}, "criterion": {"_name": "veco_nlu"}}
    state = {"symbols": make_dictionary().symbols, "labels": labels}
    torch.save({"args": None, "cfg": config, "model": model.state_dict(), "task_state": state}, path)
    return path


def options(data, pretrained, save_dir, *more):
    return ("fairseq-train", data, "--user-dir", "veco_fairseq", "--task", "veco_nlu", "--criterion", "veco_nlu",
            "--arch", "veco_nlu_tiny", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "32",
            "--max-positions", "128", "--finetune-from-model", pretrained, "--optimizer", "adam", "--lr", "0.003",
            "--batch-size", "8", "--save-dir", save_dir, "--no-epoch-checkpoints", "--log-format", "json", "--cpu",
            "--best-checkpoint-metric", "score", "--maximize-best-checkpoint-metric", *more)  # fmt: skip


def write_pairs(path, rows=32, languages=("en", "de"), extra=()):
    """Whether both sentences have a dog; de says the same in capitals, which are other tokens."""
    path.mkdir()
    for lang in languages:
        for split, count in (("train", rows), ("dev", 12), ("test", 12)):
            pairs = [(SENTENCES[i % 6], SENTENCES[(i * 5 + 2) % 6]) for i in range(count)]
            lines = [f"{a}\t{b}\t{'yes' if 'dog' in a else 'no'}\n" for a, b in pairs]
            (path / f"{split}-{lang}.tsv").write_text("".join([*lines, *(extra if split == "train" else ())]))
    return path
