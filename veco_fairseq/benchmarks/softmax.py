# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A training step with a large vocabulary: the full softmax on masked rows, ours of it, and k-NN target sampling."""

import statistics
from argparse import Namespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from veco_fairseq.benchmarks.kernels import peak_bytes, plain_loss
from veco_fairseq.benchmarks.training import OURS, criterion_of, pretraining
from veco_fairseq.benchmarks.turns import command_of, in_turn
from veco_fairseq.errors import UserError
from veco_fairseq.modules import prediction

PLAIN, FUSED, KNN = "full softmax", "fused full softmax", "k-NN, k"


def due_rows(targets: int, vocabulary: int, refresh: int) -> float:
    """How many rows of the table are made anew at an update, in the long run.

    A token that is a target of an update with probability p has its row made anew every ``refresh`` - 1 + 1 / p updates.

    Args:
        targets: of an update, whose frequencies follow Zipf's law.
        vocabulary: tokens of the dictionary, of which 5 are special.
        refresh: updates that a row is used for.
    """
    ranks = np.arange(1, vocabulary - 4)
    share = np.log1p(1 / ranks) / np.log(vocabulary - 4)
    p = -np.expm1(targets * np.log1p(-share))
    return float((1 / (refresh - 1 + 1 / p)).sum())


def measure(which: str, args: Namespace) -> dict[str, float]:
    """Train with one of the softmaxes.

    With k-NN the table is as in a long run: the batches' targets are in it, but for as many as come of age an update.

    Args:
        which: :data:`PLAIN`, :data:`FUSED`, or :data:`KNN` with a number after it.
        args: ``bench.py knn``'s: sizes of model and batches, ``refresh`` (updates), ``rest`` (tokens that stand for all
            others).

    Returns:
        ``seconds`` of an update (median), ``peak_bytes``; of k-NN ``vocabulary`` (the mean of V' over batches),
        ``due`` (rows looked up an update) and ``look_up_seconds`` an update.
    """
    if which == PLAIN:
        prediction.masked_loss = plain_loss
    options = {"knn_targets": int(which.split()[-1]), "knn_rest": args.rest} if which.startswith(KNN) else {}
    trainer = pretraining(OURS, args, **options)
    criterion: Any = trainer.criterion
    sampler = criterion.sampler
    trainer.update(trainer.samples[0])
    results = []
    for sample in trainer.samples[1:]:
        if sampler is not None:
            targets = torch.cat([half["net_input"]["targets"].flatten() for half in sample.values()])
            _make_due(sampler, targets[targets.ne(1)].to(args.device), trainer.model, args.refresh)
        results.append(trainer.update(sample))
    figures = {"seconds": statistics.median(result["seconds"] for result in results)}
    figures["peak_bytes"] = peak_bytes(args.device)
    if sampler is not None:
        batches = sum(result["knn_batches"] for result in results)
        figures["vocabulary"] = sum(result["knn_vocabulary"] for result in results) / batches
        figures["due"] = sum(result["knn_looked_up"] for result in results) / len(results)
        figures["look_up_seconds"] = statistics.median(result["knn_ms"] / 1000 for result in results)
    return figures


def _make_due(sampler, targets: Tensor, model, refresh: int) -> None:
    with model.autocast(targets.device):
        sampler.look_up(targets, model.encoder.sentence_encoder.embed_tokens)
    sampler.looked_up, sampler.seconds = 0, 0.0
    due = round(due_rows(len(targets), len(sampler.made_at), refresh))
    sampler.made_at[targets.unique()[:due]] = -1


def knn(args: Namespace) -> dict:
    """``bench.py knn``: print a line for each softmax, and return the figures."""
    if args.job:
        return measure(args.job, args)
    if criterion_of(args.arch) != OURS:
        raise UserError(f"--arch {args.arch}: k-NN target sampling goes with --criterion {OURS}: give a veco_*")
    names = [PLAIN, FUSED, *(f"{KNN} {k}" for k in args.neighbours)]
    results = in_turn({name: command_of(args, name) for name in names}, args.rounds)
    figures = {}
    print(f"{'':20} {'s/update':>9} {'to plain':>9} {'to fused':>9} {'peak GiB':>9} {'subset':>8} {'looked up':>10} {'share':>6}")
    for name, rounds in results.items():
        of = {key: statistics.median(result[key] for result in rounds) for key in rounds[0]}
        for other in (PLAIN, FUSED):
            each = [theirs["seconds"] / ours["seconds"] for ours, theirs in zip(rounds, results[other])]
            of[f"speed to {other}"] = statistics.median(each)
        figures[name] = {**of, "rounds": rounds}
        line = f"{name:20} {of['seconds']:9.2f} {of[f'speed to {PLAIN}']:8.2f}x {of[f'speed to {FUSED}']:8.2f}x"
        line += f" {of['peak_bytes'] / 2**30:9.2f}"
        if "due" in of:
            line += f" {of['vocabulary']:8,.0f} {of['due']:10,.0f} {of['look_up_seconds'] / of['seconds']:6.1%}"
        print(line)
    return figures
