# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements of fine-tuning for translation, beside fairseq without this project's changes, and transformers' BART."""

from argparse import Namespace
from types import SimpleNamespace

import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from veco_fairseq.benchmarks import peers
from veco_fairseq.benchmarks.comparison import compared, in_bf16
from veco_fairseq.benchmarks.training import Trainer, dictionary, require_length, train
from veco_fairseq.compat import SPEED, patching
from veco_fairseq.errors import UserError

OURS, PEER, TRANSFORMERS = "fairseq with veco_fairseq", "fairseq", "transformers BART"
SMOOTHING = 0.1


def model_options(args: Namespace) -> Namespace:
    """Return the options of ``--arch``.

    Raises:
        UserError: it is no architecture of a translation model, or ``--length`` is more than it takes.
    """
    if not args.arch.startswith(("veco_mt_", "veco_transformer_")) or args.arch not in ARCH_CONFIG_REGISTRY:
        known = ", ".join(sorted(name for name in ARCH_CONFIG_REGISTRY if name.startswith("veco_mt_")))
        raise UserError(f"--arch {args.arch}: is no translation model and no veco_nlu_*; translation models are {known}")
    options = Namespace(decoder_layers=args.decoder_layers) if args.decoder_layers else Namespace()
    ARCH_CONFIG_REGISTRY[args.arch](options)
    require_length(args, options)
    return options


def random_pairs(args: Namespace, symbols) -> list[dict[str, dict]]:
    """A sample for every update: random sentences of ``--length`` tokens, as many as fit into ``--tokens`` a side."""
    generator = torch.Generator().manual_seed(1)
    samples = []
    for _ in range(args.updates + 1):
        source, target = torch.randint(
            symbols.nspecial, len(symbols), (2, max(1, args.tokens // args.length), args.length), generator=generator
        )
        net_input = {"src_tokens": source, "src_lengths": torch.full((len(source),), args.length),
                     "prev_output_tokens": target.roll(1, 1)}  # fmt: skip
        samples.append({"all": {"net_input": net_input, "target": target, "ntokens": target.numel(), "nsentences": len(target)}})
    return samples


def translating(which: str, args: Namespace) -> Trainer:
    """Return what trains a translation model on random tokens: ours, fairseq as it is, or transformers."""
    torch.manual_seed(1)
    options, symbols = model_options(args), dictionary(args.vocabulary)
    if which == TRANSFORMERS:
        model, criterion = peers.translation(options, symbols, SMOOTHING)
    else:
        task = SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols)
        if which == PEER:
            patching.undo(SPEED)
        model = ARCH_MODEL_REGISTRY[args.arch].build_model(options, task)
        criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=SMOOTHING).train()
    autocast = in_bf16(args, of_fairseq=which == PEER)
    return Trainer(model, criterion, random_pairs(args, symbols), autocast=autocast, device=args.device)


def finetune(args: Namespace) -> dict:
    """``bench.py finetune``: print a line for each of the three, and return the figures."""
    if args.job:
        return train(translating(args.job, args))
    return compared(args, (OURS, PEER, TRANSFORMERS), model_options(args))
