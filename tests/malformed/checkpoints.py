# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Checkpoints made by hand: torch can read them, and any part of them is something else."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from malformed import Case, commands

LAST = commands.LAST
# Of a part: where it is, by keys and attributes, and what to put there.
ANYTHING = (None, 7, -1, 1.5, float("nan"), True, "text", "", [], [1, "a", None], {}, {"a": 1}, {1: 2})
PARTS = (
    "args", "cfg", "model", "criterion", "optimizer_history", "task_state", "extra_state", "last_optimizer_state",
    "cfg.model", "cfg.task", "cfg.criterion", "cfg.optimizer", "cfg.lr_scheduler", "cfg.common", "cfg.dataset",
    "cfg.optimization", "cfg.checkpoint", "cfg.generation",
    "cfg.model.arch", "cfg.model.encoder_layers", "cfg.model.encoder_embed_dim", "cfg.model.encoder_attention_heads",
    "cfg.model.dropout", "cfg.model.activation_fn", "cfg.model.max_positions", "cfg.model._name",
    "cfg.task._name", "cfg.task.data", "cfg.criterion._name", "cfg.common.seed",
    "task_state.symbols", "task_state.symbols.3", "task_state.labels", "task_state.languages",
    "optimizer_history.0", "optimizer_history.0.num_updates", "optimizer_history.0.lr_scheduler_state",
    "optimizer_history.0.criterion_name", "optimizer_history.0.optimizer_name",
    "extra_state.train_iterator", "extra_state.train_iterator.epoch", "extra_state.train_iterator.iterations_in_epoch",
    "extra_state.train_iterator.shuffle", "extra_state.train_iterator.len", "extra_state.metrics",
    "extra_state.previous_training_time", "extra_state.val_loss", "extra_state.best",
    "last_optimizer_state.state", "last_optimizer_state.state.0", "last_optimizer_state.state.0.step",
    "last_optimizer_state.state.0.exp_avg", "last_optimizer_state.param_groups", "last_optimizer_state.param_groups.0",
    "last_optimizer_state.param_groups.0.params", "last_optimizer_state.param_groups.0.lr",
)  # fmt: skip


def step_into(part: Any, key: str) -> Any:
    if isinstance(part, Namespace):
        return getattr(part, key)
    return part[int(key)] if isinstance(part, list) or key.isdecimal() else part[key]


def put(state: Any, where: str, value: Any) -> None:
    """Put ``value`` at a place, if there is such a place."""
    *way, last = where.split(".")
    try:
        part = state
        for key in way:
            part = step_into(part, key)
        if isinstance(part, Namespace):
            setattr(part, last, value)
        else:
            part[int(last) if isinstance(part, list) or last.isdecimal() else last] = value
    except (KeyError, AttributeError, IndexError, TypeError):
        pass


def take(state: Any, where: str) -> None:
    """Take a part away, if it is there."""
    *way, last = where.split(".")
    try:
        part = state
        for key in way:
            part = step_into(part, key)
        delattr(part, last) if isinstance(part, Namespace) else part.__delitem__(
            int(last) if isinstance(part, list) or last.isdecimal() else last
        )
    except (KeyError, AttributeError, IndexError, TypeError):
        pass


def changed(path: str, change: Callable[[dict], Any]) -> Callable[[Path], None]:
    """Read a checkpoint, change it and write it again."""

    def damage(folder: Path) -> None:
        import torch

        state = torch.load(folder / path, map_location="cpu", weights_only=False)
        found = change(state)
        torch.save(state if found is None else found, folder / path)

    return damage


def tensors(rng: random.Random) -> Iterator[tuple[str, Callable[[dict], Any]]]:
    """Changes of the model's tensors; each gives the state that it becomes, or None where it is changed in place."""
    import torch

    def of_one(make: Callable[[torch.Tensor], Any], name: str) -> Callable[[dict], Any]:
        def change(state: dict) -> dict:
            names = [key for key, tensor in state["model"].items() if tensor.dim() > 1]
            key = rng_of(name).choice(names)
            state["model"][key] = make(state["model"][key])
            return state

        return change

    makers: dict[str, Callable[[torch.Tensor], Any]] = {
        "transposed": lambda t: t.t().contiguous() if t.dim() == 2 and t.shape[0] != t.shape[1] else t[:-1],
        "with a row more": lambda t: torch.cat([t, t[:1]]), "with no row": lambda t: t[:0], "flat": lambda t: t.flatten(),
        "of int64": lambda t: t.long(), "of complex64": lambda t: t.to(torch.complex64), "of bool": lambda t: t > 0,
        "sparse": lambda t: t.to_sparse(), "a scalar": lambda t: t.sum(), "a list": lambda t: t.tolist(),
        "None": lambda t: None, "a number": lambda t: 1.0, "a string": lambda t: "tensor",
        "of float16": lambda t: t.half(), "of float64": lambda t: t.double(), "of bfloat16": lambda t: t.bfloat16(),
    }  # fmt: skip
    for name, make in makers.items():
        yield f"a tensor {name}", of_one(make, f"{name} {rng.random()}")

    def renamed(state: dict) -> dict:
        state["model"] = {f"module.{key}": tensor for key, tensor in state["model"].items()}
        return state

    def numbered(state: dict) -> dict:
        state["model"] = dict(enumerate(state["model"].values()))
        return state

    yield "names with a prefix", renamed
    yield "numbers as names", numbered
    yield "half of the tensors", lambda state: {**state, "model": dict(list(state["model"].items())[::2])}
    yield "a tensor too many", lambda state: {**state, "model": {**state["model"], "more": torch.ones(2)}}
    yield "a list instead of a dict", lambda state: list(state)
    yield "the model alone", lambda state: {"model": state["model"]}
    yield "a tensor", lambda state: torch.ones(3)


def rng_of(text: str) -> random.Random:
    return random.Random(text)


CAMLM, MT, TAGGING = f"camlm/{LAST}", f"mt/{LAST}", f"tagging-model/{LAST}"
# What reads a checkpoint: its name, the command, what it needs, the checkpoint, and what it may change.
READERS = (
    ("resume camlm", commands.pretrain(save_dir="camlm", updates=4), ("root", "camlm"), CAMLM),
    ("resume translation", commands.translation(save_dir="mt", updates=4), ("bin", "mt"), MT),
    ("resume nlu", commands.nlu("tagging", save_dir="tagging-model", updates=4), ("tagging", "camlm", "tagging-model"), TAGGING),
    ("--restore-file", commands.translation("--restore-file", MT, updates=4), ("bin", "mt"), MT),
    ("--finetune-from-model", commands.nlu("classification"), ("classification", "camlm"), CAMLM),
    ("--finetune-from-model, translation", commands.translation("--finetune-from-model", MT), ("bin", "mt"), MT),
    ("generate", commands.generate(), ("bin", "mt"), MT),
    ("validate", commands.validate(), ("bin", "mt"), MT),
    ("translate", commands.translate(), ("bin", "mt"), MT),
    ("convert", commands.convert(), ("camlm", "root"), CAMLM),
    ("average", ("scripts/average_checkpoints.py", "--inputs", MT, "--output", "mean.pt"), ("mt",), MT),
    ("export_hf", ("scripts/export_hf.py", "--checkpoint", CAMLM, "--output", "hf"), ("camlm",), CAMLM),
    ("export_hf, translation", commands.export_translation(), ("mt", "root"), MT),
    ("export_ct2", ("scripts/export_ct2.py", "--checkpoint", MT, "--output", "ct2"), ("mt",), MT),
    ("retrieve", commands.tatoeba(), ("camlm", "raw"), CAMLM),
    ("align", commands.align(), ("camlm", "raw"), CAMLM),
    ("plot_attention", commands.attention(), ("camlm", "raw"), CAMLM),
    ("evaluate_xtreme", commands.evaluate("tagging"), ("tagging-model", "tagging"), TAGGING),
    ("label_with_teacher", commands.label(), ("tagging-model", "raw"), TAGGING),
    ("count_operations", ("scripts/count_operations.py", CAMLM, "--sample-updates", "1"), ("camlm", "root"), CAMLM),
    ("--init-from", commands.pretrain("--init-from", CAMLM), ("root", "camlm"), CAMLM),
)  # fmt: skip


def cases(rng: random.Random, good: Path) -> Iterator[Case]:
    """Every part that is something else or missing, each read by some of the commands."""
    folders = {path: path.split("/")[0] + "/*" for path in (CAMLM, MT, TAGGING)}
    for what, command, needs, path in READERS:
        changes: list[tuple[str, Callable[[dict], Any]]] = []
        for where in rng.sample(PARTS, 14):
            value = rng.choice(ANYTHING)
            changes.append((f"{where} is {value!r}", lambda state, where=where, value=value: put(state, where, value)))
        for where in rng.sample(PARTS, 5):
            changes.append((f"no {where}", lambda state, where=where: take(state, where)))
        changes += rng.sample(list(tensors(rng)), 8)
        for name, change in changes:
            yield Case("hand-made checkpoints", f"{what}: {name}", command, needs, changed(path, change),
                       leaves=("ckpt/*", folders[path], "predicted/*"), changes=(folders[path],))  # fmt: skip
