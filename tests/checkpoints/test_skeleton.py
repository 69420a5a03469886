# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Checkpoints made by hand: parts that are missing or of another kind are named."""

import copy
import math
from argparse import Namespace
from contextlib import nullcontext

import pytest
import torch
from conftest import make_dictionary, save_pretrained
from fairseq.optim.adafactor import FairseqAdafactor
from fairseq.optim.adam import Adam

from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.checkpoints.skeleton import check_moments, making_sense_of
from veco_fairseq.errors import UserError


@pytest.fixture
def good(tmp_path, make_model):
    """A checkpoint's state, as fairseq-train writes it."""
    path = save_pretrained(tmp_path / "good.pt", make_model(arch="veco_tiny"), make_dictionary().symbols)
    return torch.load(path, weights_only=True)


def put(state, *way, value):
    *keys, last = way
    part = state
    for key in keys:
        part = getattr(part, key) if isinstance(part, Namespace) else part[key]
    if isinstance(part, Namespace):
        setattr(part, last, value)
    else:
        part[last] = value


def test_parts_of_a_checkpoint(good, tmp_path):
    path = tmp_path / "a.pt"
    torch.save(good, path)
    read_checkpoint(path)
    table = "encoder.sentence_encoder.embed_tokens.weight"
    good["model"] = {table: good["model"][table]}  # which is soon written
    for way, value, words in (
        (["cfg"], 7, "its cfg is 7, and must be a dict"),
        (["cfg", "model"], [1], "its cfg, model is a list, and must be a dict"),
        (["cfg", "model", "dropout"], 1.5, "its options: --dropout 1.5: must be below 1"),
        (["cfg", "model", "encoder_layers"], -1, "its options: --encoder-layers -1: must be at least 1"),
        (["cfg", "model", "encoder_layers"], [], "its options: --encoder-layers []: must be a whole number"),
        (["cfg", "criterion", "_name"], True, "its cfg, criterion, _name is True, and must be a name"),
        (["args"], "text", "its args is 'text', and must be a dict"),
        (["args"], "x" * 99, f"its args is '{'x' * 59}, and must be a dict"),
        (["task_state"], [], "its task_state is a list, and must be a dict"),
        (["task_state", "symbols"], "abc", "its task_state, symbols is 'abc', and must be a list"),
        (["task_state", "symbols", 5], 3, "its task_state, symbols, 5 is 3, and must be a string"),
        (["task_state", "languages"], ["en"], "its task_state, languages is a list, and must be two strings"),
        (["model", table], 1.0, f"its model, {table} is 1.0, and must be a tensor"),
        (["model", table], torch.ones(3, dtype=torch.int64), "is a tensor of int64"),
        (["model", table], torch.ones(3, dtype=torch.complex64), "is a tensor of complex64"),
        (["model", table], torch.ones(3).to_sparse(), "is a tensor of torch.sparse_coo"),
        (["model", table], torch.ones(3).to(torch.float8_e4m3fn), "is a tensor of float8_e4m3fn, and must be one of numbers"),
        (["model", 3], torch.ones(3), "its model, the name of a tensor is 3, and must be a string"),
        (["optimizer_history"], {}, "its optimizer_history is a dict, and must be a list"),
        (["optimizer_history", 0], None, "its optimizer_history, 0 is a NoneType, and must be a dict"),
        (["optimizer_history", 0, "num_updates"], -1, "num_updates is -1, and must be a number of updates"),
        (["optimizer_history", 0, "num_updates"], 1.5, "num_updates is 1.5, and must be a whole number"),
        (["optimizer_history", 0, "num_updates"], 2**31, "num_updates is 2147483648, and must be a number of updates"),
        (
            ["optimizer_history", 0, "lr_scheduler_state"],
            [],
            "its optimizer_history, 0, lr_scheduler_state is a list, and must be",
        ),
        (["extra_state"], [], "its extra_state is a list"),
        (["extra_state", "previous_training_time"], "1", "previous_training_time is '1', and must be a whole number or a number"),
        (
            ["extra_state", "train_iterator", "iterations_in_epoch"],
            -1,
            "iterations_in_epoch is -1, and must be a whole number of at",
        ),
        (["extra_state", "train_iterator", "epoch"], 2**31, "train_iterator, epoch is 2147483648, and must be a whole number"),
        (
            ["extra_state", "train_iterator", "passes"],
            {1: {"mono": [5, 4]}, 2: {"mono": [5, 0]}},
            "its extra_state, train_iterator, passes, 2 is a dict, and must be two whole numbers for each kind",
        ),
        (["extra_state", "train_iterator", "shuffle"], 1, "train_iterator, shuffle is 1, and must be true or false"),
        (["task_state", "languages"], ["en", 3], "its task_state, languages is a list, and must be two strings"),
        (["task_state", "labels"], ["a", None], "its task_state, labels, 1 is a NoneType, and must be a string"),
        (["task_state", "neighbours"], [], "its task_state, neighbours is a list, and must be a dict"),
        (["cfg", "task", 3], "x", "the name of an option is 3, and must be a string"),
        (["cfg", "optimizer"], {"_name": 3}, "its cfg, optimizer, _name is 3, and must be a name"),
        (["args"], Namespace(arch=3), "its args, arch is 3, and must be a name"),
        (["args"], Namespace(dropout=1.5), "its options: --dropout 1.5: must be below 1"),
        (["cfg", "task", "mono_max_length"], -1, "its options: --mono-max-length -1"),
        (["model", table], torch.ones(2, dtype=torch.int64), "is a tensor of int64, and must be one of numbers"),
        (["model", table], torch.ones(1, dtype=torch.complex64), "is a tensor of complex64"),
        (["model", table], torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "torch.strided on cpu"),
        (["last_optimizer_state"], {"loss_scale": "x"}, "last_optimizer_state, loss_scale is 'x'"),
        (
            ["last_optimizer_state"],
            {"param_groups": [{"params": 3}]},
            "param_groups, 0 is a dict, and must be a dict with params",
        ),
        (
            ["last_optimizer_state"],
            {"param_groups": [{"params": [], "lr": math.inf}]},
            "0, lr is inf, and must be a finite number",
        ),
        (["last_optimizer_state"], {"param_groups": [{"params": [], "lr": -(10**400)}]}, "000, and must be a finite number"),
        (["extra_state", "train_iterator"], 3, "its extra_state, train_iterator is 3, and must be a dict"),
        (["extra_state", "train_iterator", "epoch"], 0, "train_iterator, epoch is 0, and must be a whole number of at least 1"),
        (["extra_state", "train_iterator", "epoch"], True, "train_iterator, epoch is True, and must be a whole number"),
        (["last_optimizer_state"], 3, "its last_optimizer_state is 3"),
        (["last_optimizer_state"], {"state": {0: 1}}, "its last_optimizer_state, state, 0 is 1, and must be a dict"),
        (["last_optimizer_state"], {"param_groups": [1]}, "param_groups, 0 is 1, and must be a dict with params"),
    ):
        state = copy.deepcopy(good)
        put(state, *way, value=value)
        torch.save(state, path)
        with pytest.raises(UserError) as caught:
            read_checkpoint(path)
        assert str(caught.value).startswith(f"{path}: ") and words in str(caught.value)


def test_what_may_be_there(good, tmp_path):
    """... as other programs write it: parts that are missing or nothing, borders, counters, and numbers as tensors."""
    good["model"]["updates"] = torch.tensor(3)
    good["task_state"].update(languages=[None, "de"], labels=[], lang_pairs=["a-b"])
    good["extra_state"].update(previous_training_time=torch.tensor(1.5), best=None, val_loss=2)
    good["extra_state"]["train_iterator"] = {"epoch": 2**31 - 1, "iterations_in_epoch": 0, "shuffle": True}
    good["optimizer_history"][0] = {"num_updates": 2**31 - 1}
    good["last_optimizer_state"] = {"state": {0: {}}, "param_groups": [{"params": [0], "lr": 0.0}], "loss_scale": 128}
    good["args"] = Namespace(arch=None)
    torch.save(good, tmp_path / "a.pt")
    assert read_checkpoint(tmp_path / "a.pt")["task_state"]["languages"] == [None, "de"]
    torch.save(
        {"model": {}, "cfg": None, "task_state": None, "extra_state": None, "last_optimizer_state": None}, tmp_path / "b.pt"
    )
    assert read_checkpoint(tmp_path / "b.pt")["model"] == {}


def test_moments_of_adam():
    """None for a parameter that had no gradient, or all three; the step is a count."""
    weight = torch.nn.Parameter(torch.ones(2))
    for kind in (Adam, torch.optim.SGD):
        optimizer = kind([weight], lr=0.1)
        optimizer.state[weight] = {}
        check_moments("a.pt", optimizer)
        whole = {"step": 0, "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
        for change, words in (
            ({}, None),
            ({"step": torch.tensor(-1.0)}, None),
            ({"step": -1}, "a.pt: its last_optimizer_state, step is -1, and must be a whole number of at least 0"),
            ({"step": 1.0}, "step is 1.0, and must be"),
            ({"step": True}, "step is True, and must be"),
            ({"exp_avg": [1.0, 2.0]}, r"has exp_avg of list for a parameter of \[2\]: .* --reset-optimizer"),
            ({"exp_avg_sq": None}, "has no exp_avg_sq for a parameter" if kind is Adam else None),
            ({"exp_avg_sq": None, "exp_avg": None}, "has no exp_avg for a parameter" if kind is Adam else None),
        ):
            changed = {**whole, **change}
            optimizer.state[weight] = {name: value for name, value in changed.items() if value is not None}
            with pytest.raises(UserError, match=words) if words else nullcontext():
                check_moments("a.pt", optimizer)


def test_moments_of_another_shape():
    weight = torch.nn.Parameter(torch.ones(2, 3))
    optimizer = torch.optim.Adam([weight])
    optimizer.state[weight] = {"step": 1, "exp_avg": torch.ones(2, 3), "exp_avg_sq": torch.ones(2, 3)}
    check_moments("a.pt", optimizer)
    optimizer.state[weight]["exp_avg_sq"] = torch.ones(3, 2)
    with pytest.raises(UserError, match=r"a\.pt: its last_optimizer_state has exp_avg_sq of \[3, 2\] for .* \[2, 3\]"):
        check_moments("a.pt", optimizer)


class LowRankAdam(torch.optim.Adam):
    """One of somebody else's, with moments of lower rank."""


def test_the_moments_of_somebody_elses_optimizer_are_its_own_affair():
    weight = torch.nn.Parameter(torch.ones(2, 3))
    for kind in (LowRankAdam, type("OfAdam", (Adam,), {"__module__": "own"})):
        optimizer = kind([weight])
        optimizer.state[weight] = {"step": 0.5, "exp_avg": torch.ones(1, 3)}
        check_moments("a.pt", optimizer)


def test_moments_of_adafactor():
    """Of a matrix, a mean of each row and of each column."""
    weight = torch.nn.Parameter(torch.ones(2, 3))
    optimizer = FairseqAdafactor(Namespace(adafactor_eps="(1e-30, 1e-3)", clip_threshold=1.0, decay_rate=-0.8, beta1=0.9, lr=[1e-3],
                                           weight_decay=0.0, scale_parameter=False, relative_step=False, warmup_init=False),
                                 [weight]).optimizer  # fmt: skip
    weight.sum().backward()
    optimizer.step()
    check_moments("a.pt", optimizer)
    optimizer.state[weight]["exp_avg_sq_col"] = torch.ones(2)
    with pytest.raises(UserError, match=r"has exp_avg_sq_col of \[2\] for a parameter of \[2, 3\]"):
        check_moments("a.pt", optimizer)


def test_making_sense_of_a_file():
    with pytest.raises(UserError, match=r"a\.pt: cannot be used \(KeyError: 'x'\): give one"):
        with making_sense_of("a.pt"):
            {}["x"]
    for error in (UserError("known"), FileNotFoundError(2, "no", "file"), MemoryError(), torch.OutOfMemoryError()):
        with pytest.raises(type(error)):
            with making_sense_of("a.pt"):
                raise error
    with pytest.raises(UserError) as told:
        with making_sense_of("a.pt, b.pt", "look again"):
            raise ValueError(f"\n{'x' * 130}\nmore")
    assert str(told.value) == f"a.pt, b.pt: cannot be used (ValueError: {'x' * 120}): look again"
    with pytest.raises(KeyError):
        with making_sense_of("a.pt", but=KeyError):
            {}["x"]
