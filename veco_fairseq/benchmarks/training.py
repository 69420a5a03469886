# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements of training, beside fairseq's own masked_lm with its RoBERTa."""

import statistics
import time
from argparse import Namespace
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

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

from veco_fairseq.benchmarks.kernels import matmul_rate, peak_bytes, wait
from veco_fairseq.benchmarks.turns import command_of, in_turn
from veco_fairseq.cost.flops import counter
from veco_fairseq.criterions.base import PretrainingCriterion
from veco_fairseq.criterions.knn import KnnCamlmCriterion, KnnCamlmCriterionConfig
from veco_fairseq.criterions.replaced_token import ReplacedTokenCriterion, ReplacedTokenCriterionConfig
from veco_fairseq.data.dataset import PretrainingDataset, SampleIndex
from veco_fairseq.data.plan import EXAMPLE
from veco_fairseq.data.roots import MASK
from veco_fairseq.data.sources import Stream
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.models.base import architecture

OURS, PEER = "camlm", "fairseq masked_lm"
CRITERIONS = {
    OURS: (KnnCamlmCriterion, KnnCamlmCriterionConfig),
    "replaced_token": (ReplacedTokenCriterion, ReplacedTokenCriterionConfig),
}
OPERATIONS_SHOWN = 15  # of a profile
BITEXT_MASKED = {"camlm": 0.25, "replaced_token": 0.15}  # by criterion; of monolingual text it is 0.15


class Sizes(NamedTuple):
    """Of the benchmark: the architecture, its vocabulary, and the tokens of a batch.

    Attributes:
        arch: "veco_small", "xlme_base", ...; the peer has RoBERTa's layers of the same sizes.
        vocabulary: tokens of the dictionary.
        tokens: of each batch: of x and y together, and of the peer's sentences.
        length: of every sentence, with its special tokens.
        updates: that are timed, after one that is not.
        autocast: "none" or "bf16", which the peer has on a GPU alone.
        device: "cpu" or "cuda".
    """

    arch: str
    vocabulary: int
    tokens: int
    length: int
    updates: int
    autocast: str
    device: str


class RandomPairs:
    """A source of pairs (see :mod:`veco_fairseq.data.pairs`) of random tokens, all of one length.

    Their frequencies follow Zipf's law: the r-th token's is as 1 / r.
    """

    def __init__(self, name: str, count: int, length: int, vocabulary: int):
        self.name, self.sentences, self.documents, self.dropped = name, count, 1, 0
        self.lengths = np.full((count, 2), length, dtype=np.int32)
        logarithms = np.random.default_rng(1).uniform(0, np.log(vocabulary - 5), (count, 2, length - 2))
        self.tokens = torch.from_numpy(3 + np.exp(logarithms).astype(np.int64))

    def __len__(self) -> int:
        return self.sentences

    def __getitem__(self, index: int):
        return tuple(self.tokens[index])


def model_options(sizes: Sizes) -> Namespace:
    return architecture(sizes.arch, autocast=sizes.autocast, max_positions=max(512, 2 * sizes.length))


def criterion_of(arch: str) -> str:
    """The name of the criterion that trains an architecture.

    Raises:
        UserError: there is no such architecture.
    """
    return ARCH_MODEL_REGISTRY[architecture(arch).arch].criterion


def dictionary(vocabulary: int) -> Dictionary:
    return dictionary_of([*(f"w{number}" for number in range(vocabulary - 5)), MASK])


def random_samples(sizes: Sizes, symbols: Dictionary) -> list[dict[str, dict]]:
    """A training sample for every update: a monolingual and a bitext batch of ``sizes.tokens`` tokens each."""
    pairs = max(1, sizes.tokens // (2 * sizes.length))
    streams = {
        kind: Stream(
            [RandomPairs(kind, pairs, sizes.length, sizes.vocabulary)],
            CRITERIONS[criterion_of(sizes.arch)][0].masker(symbols, symbols.index(MASK), share),
            tlm=kind == "bitext",
        )
        for kind, share in (("mono", 0.15), ("bitext", BITEXT_MASKED[criterion_of(sizes.arch)]))
    }
    dataset = PretrainingDataset(streams, symbols, seed=1)
    samples = []
    for update in range(sizes.updates + 1):
        examples = np.zeros(pairs, dtype=EXAMPLE)
        examples["epoch"], examples["index"] = update, np.arange(pairs)
        samples.append(dataset[SampleIndex(examples, examples)])
    return samples


def masked_sentences(sizes: Sizes, symbols: Dictionary) -> list[dict[str, Any]]:
    """The peer's samples: as many tokens a batch, 15% of them masked, in ``sizes.length`` sentences."""
    samples = random_samples(sizes, symbols)
    batches = []
    for sample in samples:
        of_pairs = sample["mono"]["net_input"]
        tokens, targets = (of_pairs[key].flatten(0, 1) for key in ("tokens", "targets"))
        batches.append({"net_input": {"src_tokens": tokens, "src_lengths": None}, "target": targets,
                        "ntokens": tokens.numel(), "nsentences": len(tokens)})  # fmt: skip
    return batches


class Trainer:
    """A model on random tokens, its criterion, optimizer, and a sample for every update.

    Args:
        which: :data:`PEER`, or the criterion that trains the architecture.
        sizes: of all.
        options: of the criterion.
    """

    def __init__(self, which: str, sizes: Sizes, options: dict[str, Any] | None = None):
        torch.manual_seed(1)
        symbols = dictionary(sizes.vocabulary)
        task = SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols, validation_names=[],
                               cfg=SimpleNamespace(no_tlm=False))  # fmt: skip
        if which == PEER:
            model = RobertaModel.build_model(model_options(sizes), task)
            criterion = MaskedLmLoss(SimpleNamespace(tpu=False), task)
            self.samples = [{"all": sample} for sample in masked_sentences(sizes, symbols)]
        else:
            model = ARCH_MODEL_REGISTRY[sizes.arch].build_model(model_options(sizes), task)
            criterion_class, config = CRITERIONS[which]
            criterion = criterion_class(config(**(options or {})), task)
            self.samples = random_samples(sizes, symbols)
        self.model, self.criterion, self.device = model.to(sizes.device).train(), criterion.train(), sizes.device
        self.bf16 = sizes.autocast == "bf16"
        adam = OmegaConf.structured(FairseqAdamConfig(lr=[1e-4], tpu=False))
        self.optimizer = FairseqAdam(adam, list(model.parameters()))

    def autocast(self) -> AbstractContextManager:
        """The peer's: fairseq has one on GPUs (``--amp``), here with bf16 in place of fp16, and none on a CPU."""
        if self.device == "cpu" or isinstance(self.criterion, PretrainingCriterion) or not self.bf16:
            return nullcontext()
        return torch.autocast(self.device, torch.bfloat16)

    def update(self, sample: dict[str, dict]) -> dict[str, float]:
        """An update as fairseq's trainer makes it: backward of each batch, gradient norm, optimizer.

        Returns:
            What the criterion logs, summed up, and ``seconds``.
        """
        started = time.perf_counter()
        if self.device == "cuda":
            sample = utils.move_to_cuda(sample)
        logged: dict[str, float] = Counter()
        if isinstance(self.criterion, PretrainingCriterion):
            self.criterion.begin_update(0, self.model, sample)
        for batch in sample.values():
            with self.autocast():
                loss, sample_size, log = self.criterion(self.model, batch)
            loss.backward()
            logged.update({**log, "sample_size": sample_size})
        self.optimizer.multiply_grads(1 / logged["sample_size"])
        self.optimizer.clip_grad_norm(1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        wait(self.device)
        return {**logged, "seconds": time.perf_counter() - started}


def train(which: str, sizes: Sizes) -> dict[str, float]:
    """Train on random tokens, and measure.

    Returns:
        ``seconds``: the median of an update, ``operations`` of one, ``tokens`` of one (those of the batches, each
        counted once), ``parameters``, ``peak_bytes`` of the process or the GPU.
    """
    trainer = Trainer(which, sizes)
    with counter() as operations:
        trainer.update(trainer.samples[0])
    seconds = [trainer.update(sample)["seconds"] for sample in trainer.samples[1:]]
    return {
        "seconds": statistics.median(seconds),
        "operations": operations.get_total_flops(),
        "tokens": sum(stream["ntokens"] for stream in trainer.samples[0].values()),
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "peak_bytes": peak_bytes(sizes.device),
    }


def profile(which: str, sizes: Sizes) -> dict[str, float]:
    """Print the operations that take most of an update's time, and return every one's share of it.

    Args:
        which, sizes: as of :class:`Trainer`.
    """
    trainer = Trainer(which, sizes)
    trainer.update(trainer.samples[0])
    on_gpu = sizes.device == "cuda"
    activity = torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profiler:
        seconds = trainer.update(trainer.samples[1])["seconds"]
    times = {event.key: event.self_device_time_total if on_gpu else event.self_cpu_time_total
             for event in profiler.key_averages()}  # fmt: skip
    shares = {name: time / sum(times.values()) for name, time in times.items()}
    print(f"{seconds:.2f} s, of which")
    for name in sorted(shares, key=shares.get, reverse=True)[:OPERATIONS_SHOWN]:
        print(f"{shares[name]:6.1%}  {name}")
    return shares


def sizes_of(args: Namespace) -> Sizes:
    """The sizes that bench.py's options give."""
    return Sizes(args.arch, args.vocabulary, args.tokens, args.length, args.updates, args.autocast, args.device)


def pretrain(args: Namespace) -> dict:
    """``bench.py pretrain``: print a line for each of the two, or a profile, and return the figures."""
    sizes = sizes_of(args)
    if args.job:
        return train(args.job, sizes)
    if args.profile:
        return profile(criterion_of(args.arch), sizes)
    options = model_options(sizes)
    shape = (args.tokens, options.encoder_embed_dim, options.encoder_ffn_embed_dim)
    rates = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        rates[name] = matmul_rate(*shape, dtype=dtype, device=args.device)
        print(f"matrix products ({shape[0]} x {shape[1]} x {shape[2]}), {name}: {rates[name] / 1e9:,.0f} GFLOP/s")
    ours = criterion_of(args.arch)
    jobs = {name: command_of(args, name) for name in (ours, PEER)}
    results = in_turn(jobs, args.rounds, print)
    figures = {"matmul_rate": rates}
    print(f"{'':20} {'s/update':>9} {'TFLOP/update':>13} {'GFLOP/s':>8} {'MFU':>6} {'tokens/s':>9} {'peak GiB':>9}")
    for name, rounds in results.items():
        best = {key: rounds[0][key] for key in ("operations", "tokens", "parameters")}
        best["seconds"] = statistics.median(result["seconds"] for result in rounds)
        best["peak_bytes"] = max(result["peak_bytes"] for result in rounds)
        best["rate"] = best["operations"] / best["seconds"]
        in_bf16 = args.autocast == "bf16" and (name == ours or args.device == "cuda")
        best["mfu"] = best["rate"] / rates["bf16" if in_bf16 else "fp32"]
        figures[name] = {**best, "rounds": rounds}
        print(
            f"{name:20} {best['seconds']:9.2f} {best['operations'] / 1e12:13.2f} {best['rate'] / 1e9:8,.0f} "
            f"{best['mfu']:6.1%} {best['tokens'] / best['seconds']:9,.0f} {best['peak_bytes'] / 2**30:9.2f}"
        )
    ratios = [
        mine["operations"] / mine["seconds"] / (peer["operations"] / peer["seconds"])
        for mine, peer in zip(results[ours], results[PEER])
    ]
    figures["ratio"] = statistics.median(ratios)
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"operations a second, ours to fairseq's: {figures['ratio']:.2f} (by round: {each})")
    return figures
