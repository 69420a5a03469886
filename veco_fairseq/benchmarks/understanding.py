# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements of fine-tuning for understanding, beside fairseq's RoBERTa and transformers' XLM-R: pairs of three classes."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.roberta import RobertaModel
from torch import nn

from veco_fairseq.benchmarks import peers
from veco_fairseq.benchmarks.comparison import compared, in_bf16
from veco_fairseq.benchmarks.training import Trainer, dictionary, require_length, train
from veco_fairseq.compat import SPEED, patching
from veco_fairseq.criterions.nlu import NluCriterion
from veco_fairseq.errors import UserError

OURS, PEER, TRANSFORMERS = "veco_nlu", "fairseq RoBERTa", "transformers XLM-R"
PREFIX = "veco_nlu_"
CLASSES = 3
HEAD = "sentence_classification_head"


def model_options(args: Namespace) -> Namespace:
    """Return the options of ``--arch``.

    Raises:
        UserError: there is no such architecture, an option is of translation models, or ``--length`` is more than it takes.
    """
    if args.arch not in ARCH_CONFIG_REGISTRY:
        raise UserError(
            f"--arch {args.arch}: there is {', '.join(sorted(n for n in ARCH_CONFIG_REGISTRY if n.startswith(PREFIX)))}"
        )
    if args.decoder_layers:
        raise UserError(f"--decoder-layers: --arch {args.arch} has no decoder: leave it out")
    options = Namespace()
    ARCH_CONFIG_REGISTRY[args.arch](options)
    require_length(args, options)
    return options


def random_sentences(args: Namespace, symbols) -> list[dict[str, dict]]:
    """A sample for every update: random sequences of ``--length`` tokens with random labels, ``--tokens`` in all."""
    generator = torch.Generator().manual_seed(1)
    count, samples = max(1, args.tokens // args.length), []
    for _ in range(args.updates + 1):
        tokens = torch.randint(symbols.nspecial, len(symbols), (count, args.length), generator=generator)
        target = torch.randint(CLASSES, (count,), generator=generator)
        net_input = {"tokens": tokens, "partner": torch.full((count,), -1)}
        samples.append({"all": {"net_input": net_input, "target": target, "ntokens": tokens.numel(), "nsentences": count}})
    return samples


def cross_entropy(model: nn.Module, batch: dict[str, Any]):
    """The criterion of fairseq's RoBERTa; fairseq's own, sentence_prediction, needs scikit-learn."""
    logits, _ = model(batch["net_input"]["tokens"], features_only=True, classification_head_name=HEAD)
    return F.cross_entropy(logits.float(), batch["target"], reduction="sum"), len(batch["target"]), {}


def classifying(which: str, args: Namespace) -> Trainer:
    """Return what fine-tunes a classifier on random tokens: ours, fairseq's RoBERTa as it is, or transformers."""
    torch.manual_seed(1)
    options, symbols = model_options(args), dictionary(args.vocabulary)
    task = SimpleNamespace(source_dictionary=symbols, nlu_task="classification", labels=range(CLASSES), plug_in=False)
    criterion: Any = cross_entropy
    if which == TRANSFORMERS:
        model, criterion = peers.classification(options, symbols, CLASSES)
    elif which == PEER:
        patching.undo(SPEED)
        model = RobertaModel.build_model(options, task)
        model.register_classification_head(HEAD, num_classes=CLASSES)
    else:
        model = ARCH_MODEL_REGISTRY[args.arch].build_model(options, task)
        criterion = NluCriterion(task).train()
    autocast = in_bf16(args, of_fairseq=which == PEER)
    return Trainer(model, criterion, random_sentences(args, symbols), autocast=autocast, device=args.device)


def finetune(args: Namespace) -> dict:
    """``bench.py finetune --arch veco_nlu_*``: print a line for each of the three, and return the figures."""
    if args.job:
        return train(classifying(args.job, args))
    return compared(args, (OURS, PEER, TRANSFORMERS), model_options(args))
