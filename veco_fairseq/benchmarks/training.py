# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements of training, beside fairseq's own masked_lm with its RoBERTa, and transformers' XLM-R."""

import statistics
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.profiler
from fairseq import utils
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.roberta import RobertaModel
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from veco_fairseq.benchmarks import peers
from veco_fairseq.benchmarks.comparison import compared, in_bf16
from veco_fairseq.benchmarks.kernels import peak_bytes
from veco_fairseq.compat import SPEED, patching
from veco_fairseq.cost.flops import counter
from veco_fairseq.criterions.base import PretrainingCriterion
from veco_fairseq.criterions.knn import KnnCamlmCriterion, KnnCamlmCriterionConfig
from veco_fairseq.criterions.replaced_token import ReplacedTokenCriterion, ReplacedTokenCriterionConfig
from veco_fairseq.data.dataset import PretrainingDataset, SampleIndex
from veco_fairseq.data.plan import EXAMPLE
from veco_fairseq.data.sentencepiece import MASK
from veco_fairseq.data.sources import Stream
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError
from veco_fairseq.models.base import architecture
from veco_fairseq.modules.rates import wait

OURS, PEER, TRANSFORMERS = "camlm", "fairseq masked_lm", "transformers XLMRobertaForMaskedLM"
CRITERIONS: dict[str, tuple[type[PretrainingCriterion], type]] = {
    OURS: (KnnCamlmCriterion, KnnCamlmCriterionConfig),
    "replaced_token": (ReplacedTokenCriterion, ReplacedTokenCriterionConfig),
}
OPERATIONS_SHOWN = 15  # of a profile
BITEXT_MASKED = {"camlm": 0.25, "replaced_token": 0.15}  # by criterion; of monolingual text it is 0.15


class RandomPairs:
    """A source of pairs (see :mod:`veco_fairseq.data.pairs`) of random tokens, all of one length.

    Their frequencies follow Zipf's law: the r-th token's is as 1 / r.
    """

    def __init__(self, name: str, count: int, length: int, vocabulary: int):
        self.name, self.sentences, self.documents, self.dropped = name, count, 1, 0
        self.lengths = np.full((count, 2), length, dtype=np.int32)
        logarithms = np.random.default_rng(1).uniform(0, np.log(vocabulary - 4), (count, 2, length - 2))
        self.tokens = torch.from_numpy(3 + np.exp(logarithms).astype(np.int64))

    def __len__(self) -> int:
        return self.sentences

    def __getitem__(self, index: int):
        return tuple(self.tokens[index])


def model_options(args: Namespace) -> Namespace:
    return architecture(args.arch, autocast=args.autocast, max_positions=max(512, 2 * args.length))


def criterion_of(arch: str) -> str:
    """The name of the criterion that trains an architecture.

    Raises:
        UserError: there is no such architecture.
    """
    return ARCH_MODEL_REGISTRY[architecture(arch).arch].criterion


def require_length(args: Namespace, options: Namespace) -> None:
    """Raise UserError if a model with these options has fewer positions than ``--length``."""
    if args.length > options.max_source_positions:
        raise UserError(f"--length {args.length}: --arch {args.arch} takes up to {options.max_source_positions} tokens")


def dictionary(vocabulary: int) -> Dictionary:
    return dictionary_of([*(f"w{number}" for number in range(vocabulary - 5)), MASK])


def random_samples(args: Namespace, symbols: Dictionary) -> list[dict[str, dict]]:
    """A training sample for every update: a monolingual and a bitext batch of ``--tokens`` tokens each."""
    pairs = max(1, args.tokens // (2 * args.length))
    streams = {
        kind: Stream(
            [RandomPairs(kind, pairs, args.length, args.vocabulary)],
            CRITERIONS[criterion_of(args.arch)][0].masker(symbols, symbols.index(MASK), share),
            tlm=kind == "bitext",
        )
        for kind, share in (("mono", 0.15), ("bitext", BITEXT_MASKED[criterion_of(args.arch)]))
    }
    dataset = PretrainingDataset(streams, symbols, seed=1)
    samples = []
    for update in range(args.updates + 1):
        examples = np.zeros(pairs, dtype=EXAMPLE)
        examples["epoch"], examples["index"] = update, np.arange(pairs)
        samples.append(dataset[SampleIndex(examples, examples)])
    return samples


def masked_sentences(args: Namespace, symbols: Dictionary) -> list[dict[str, dict]]:
    """The peer's samples: as many tokens a batch, 15% of them masked, in sentences of ``--length`` tokens."""
    samples = []
    for sample in random_samples(args, symbols):
        of_pairs = sample["mono"]["net_input"]
        tokens, targets = (of_pairs[key].flatten(0, 1) for key in ("tokens", "targets"))
        samples.append({"all": {"net_input": {"src_tokens": tokens, "src_lengths": None}, "target": targets,
                                "ntokens": tokens.numel(), "nsentences": len(tokens)}})  # fmt: skip
    return samples


class Trainer:
    """A model, its criterion, optimizer, and a sample for every update.

    Args:
        model, samples: of any kind that ``criterion(model, batch)`` takes; a sample has one or several batches.
        criterion: returns the loss, the sample size and a log, as fairseq's do.
        autocast: whether this class opens autocast with bf16; our pre-training does so itself.
        device: "cpu" or "cuda".
    """

    def __init__(
        self, model: torch.nn.Module, criterion: Callable, samples: list[dict[str, dict]], *, autocast: bool, device: str
    ):
        self.model, self.criterion, self.samples, self.device = model.to(device).train(), criterion, samples, device
        self.bf16 = autocast
        adam = OmegaConf.structured(FairseqAdamConfig(lr=[1e-4], tpu=False))
        self.optimizer = FairseqAdam(adam, list(model.parameters()))

    def update(self, sample: dict[str, dict]) -> dict[str, float]:
        """An update as fairseq's trainer makes it: backward of each batch, gradient norm, optimizer.

        Returns:
            What the criterion logs, summed up, and ``seconds``.
        """
        started = time.perf_counter()
        if self.device == "cuda":
            sample = utils.move_to_cuda(sample)
        logged: Counter[str] = Counter()
        if isinstance(self.criterion, PretrainingCriterion):
            self.criterion.begin_update(0, self.model, sample)
        for batch in sample.values():
            with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
                loss, sample_size, log = self.criterion(self.model, batch)
            loss.backward()
            logged.update({**log, "sample_size": sample_size})
        self.optimizer.multiply_grads(1 / logged["sample_size"])
        self.optimizer.clip_grad_norm(1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        wait(self.device)
        return {**logged, "seconds": time.perf_counter() - started}


def pretraining(which: str, args: Namespace, **options: Any) -> Trainer:
    """Return what pre-trains on random tokens.

    Args:
        which: a peer's name, or the criterion that trains the architecture.
        args: ``bench.py pretrain``'s: ``arch``, of which the peers have the sizes, ``vocabulary``, ``tokens`` of each batch
            (of x and y together, and of a peer's sentences), ``length`` of every sentence with its special tokens,
            ``updates`` that are timed, ``autocast``, which fairseq has on a GPU alone, and ``device``.
        options: of the criterion.
    """
    torch.manual_seed(1)
    symbols, of_model = dictionary(args.vocabulary), model_options(args)
    task = SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols, validation_names=[],
                           cfg=SimpleNamespace(no_tlm=False))  # fmt: skip
    if which == PEER:
        patching.undo(SPEED)
        model, criterion = RobertaModel.build_model(of_model, task), MaskedLmLoss(SimpleNamespace(tpu=False), task)
    elif which == TRANSFORMERS:
        model, criterion = peers.masked_lm(of_model, symbols)
    else:
        model = ARCH_MODEL_REGISTRY[args.arch].build_model(of_model, task)
        criterion_class, config = CRITERIONS[which]
        criterion = criterion_class(config(**options), task).train()
        return Trainer(model, criterion, random_samples(args, symbols), autocast=False, device=args.device)
    autocast = in_bf16(args, of_fairseq=which == PEER)  # --amp, here with bf16 in place of fp16
    return Trainer(model, criterion, masked_sentences(args, symbols), autocast=autocast, device=args.device)


def train(trainer: Trainer) -> dict[str, float]:
    """Train on all samples, and measure.

    Returns:
        ``seconds``: the median of an update, ``operations`` of one, ``tokens`` of one (those of the batches, each
        counted once), ``parameters``, ``peak_bytes`` of the process or the GPU.
    """
    with counter() as operations:
        in_vain = trainer.update(trainer.samples[0]).get("operations in vain", 0)
    trainer.update(trainer.samples[0])  # the kernel clears new memory in the first two
    seconds = [trainer.update(sample)["seconds"] for sample in trainer.samples[1:]]
    return {
        "seconds": statistics.median(seconds),
        "operations": operations.get_total_flops() - in_vain,
        "tokens": sum(stream["ntokens"] for stream in trainer.samples[0].values()),
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "peak_bytes": peak_bytes(trainer.device),
    }


def profile(trainer: Trainer) -> dict[str, float]:
    """Print the operations that take most of the last update's time, and return every one's share of it."""
    *before, last = trainer.samples
    for sample in before:
        trainer.update(sample)
    on_gpu = trainer.device == "cuda"
    activity = torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profiler:
        seconds = trainer.update(last)["seconds"]
    times = {event.key: event.self_device_time_total if on_gpu else event.self_cpu_time_total
             for event in profiler.key_averages()}  # fmt: skip
    shares = {name: time / sum(times.values()) for name, time in times.items()}
    print(f"{seconds:.2f} s, of which")
    for name in sorted(shares, key=shares.__getitem__, reverse=True)[:OPERATIONS_SHOWN]:
        print(f"{shares[name]:6.1%}  {name}")
    return shares


def pretrain(args: Namespace) -> dict:
    """``bench.py pretrain``: print a line for each of the three, or a profile, and return the figures."""
    ours = criterion_of(args.arch)
    if args.job:
        return train(pretraining(args.job, args))
    if args.profile:
        return profile(pretraining(ours, args))
    return compared(args, (ours, PEER, TRANSFORMERS), model_options(args))
