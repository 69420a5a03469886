# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements: what this machine can do, what training takes of it, and what fairseq's own masked_lm does beside it."""

import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np
import torch
from fairseq import utils
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder
from fairseq.models.roberta import RobertaModel
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from veco_fairseq.criterions.camlm import CamlmCriterion
from veco_fairseq.data.composite import CompositeDataset, CompositeIndex, Half
from veco_fairseq.data.masking import Masker
from veco_fairseq.data.plan import DRAW
from veco_fairseq.data.roots import MASK
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError
from veco_fairseq.models.veco import VecoModel, architecture
from veco_fairseq.operations import counter
from veco_fairseq.tasks.camlm import CamlmTask, CamlmTaskConfig

OURS, PEER, FEED = "camlm", "fairseq masked_lm", "a loader"


class Sizes(NamedTuple):
    """Of the benchmark: the architecture, its vocabulary, and the tokens of a batch.

    Attributes:
        arch: "veco_small", ...; the peer has RoBERTa's layers of the same sizes.
        vocabulary: tokens of the dictionary.
        tokens: of each batch: of x and y together, and of the peer's sentences.
        length: of every sentence, with its special tokens.
        updates: that are timed, after one that is not.
        autocast: "none" or "bf16", which the peer has no way to use on a CPU.
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
    """A source of pairs (see :mod:`veco_fairseq.data.pairs`) with random tokens, all of one length."""

    def __init__(self, name: str, count: int, length: int, vocabulary: int):
        self.name, self.sentences, self.documents, self.dropped = name, count, 1, 0
        self.lengths = np.full((count, 2), length, dtype=np.int32)
        self.tokens = torch.from_numpy(np.random.default_rng(1).integers(4, vocabulary - 1, (count, 2, length - 2)))

    def __len__(self) -> int:
        return self.sentences

    def __getitem__(self, index: int):
        return tuple(self.tokens[index])


def matmul_rate(rows: int, inner: int, columns: int, dtype: torch.dtype, device: str, seconds: float = 1.0) -> float:
    """The best rate of this machine at a product of this shape, in operations a second."""
    a = torch.randn(rows, inner, dtype=dtype, device=device)
    b = torch.randn(inner, columns, dtype=dtype, device=device)
    best, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < seconds:
        begun = time.perf_counter()
        for _ in range(5):
            a @ b
        _wait(device)
        best = min(best, (time.perf_counter() - begun) / 5)
    return 2 * rows * inner * columns / best


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def model_options(sizes: Sizes) -> Namespace:
    return architecture(sizes.arch, autocast=sizes.autocast, max_positions=max(512, 2 * sizes.length))


def dictionary(vocabulary: int) -> Dictionary:
    return dictionary_of([*(f"w{number}" for number in range(vocabulary - 5)), MASK])


def composites(sizes: Sizes, symbols: Dictionary) -> List[Dict[str, Dict]]:
    """A training sample for every update: a monolingual and a bitext batch of ``sizes.tokens`` tokens each."""
    pairs = max(1, sizes.tokens // (2 * sizes.length))
    halves = {
        kind: Half(
            [RandomPairs(kind, pairs, sizes.length, sizes.vocabulary)],
            Masker(symbols, symbols.index(MASK), share),
            tlm=kind == "bitext",
        )
        for kind, share in (("mono", 0.15), ("bitext", 0.25))
    }
    dataset = CompositeDataset(halves, symbols, seed=1)
    samples = []
    for update in range(sizes.updates + 1):
        draws = np.zeros(pairs, dtype=DRAW)
        draws["epoch"], draws["index"] = update, np.arange(pairs)
        samples.append(dataset[CompositeIndex(draws, draws)])
    return samples


def masked_sentences(sizes: Sizes, symbols: Dictionary) -> List[Dict[str, Any]]:
    """The peer's samples: as many tokens a batch, 15% of them masked, in ``sizes.length`` sentences."""
    samples = composites(sizes, symbols)
    batches = []
    for sample in samples:
        of_pairs = sample["mono"]["net_input"]
        tokens, targets = (of_pairs[key].flatten(0, 1) for key in ("tokens", "targets"))
        batches.append({"net_input": {"src_tokens": tokens, "src_lengths": None}, "target": targets,
                        "ntokens": tokens.numel(), "nsentences": len(tokens)})  # fmt: skip
    return batches


def train(which: str, sizes: Sizes) -> Dict[str, float]:
    """Train on random tokens, and measure.

    Returns:
        ``seconds``: the median of an update, ``operations`` of one, ``tokens`` of one (those of the batches, each
        counted once), ``parameters``, ``peak_bytes`` of the process or the GPU.
    """
    torch.manual_seed(1)
    symbols = dictionary(sizes.vocabulary)
    task = SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols, validation_names=[])
    if which == OURS:
        model = VecoModel.build_model(model_options(sizes), task)
        criterion = CamlmCriterion(SimpleNamespace(objective="camlm", no_stop_gradient=False), task)
        samples = composites(sizes, symbols)
    else:
        model = RobertaModel.build_model(model_options(sizes), task)
        criterion = MaskedLmLoss(SimpleNamespace(tpu=False), task)
        samples = [{"all": sample} for sample in masked_sentences(sizes, symbols)]
    model, criterion = model.to(sizes.device).train(), criterion.train()
    optimizer = FairseqAdam(OmegaConf.structured(FairseqAdamConfig(lr=[1e-4], tpu=False)), list(model.parameters()))
    seconds = []
    with counter() as operations:
        update(model, criterion, optimizer, samples[0], sizes.device)
    for sample in samples[1:]:
        started = time.perf_counter()
        update(model, criterion, optimizer, sample, sizes.device)
        _wait(sizes.device)
        seconds.append(time.perf_counter() - started)
    on_gpu = sizes.device == "cuda"
    peak = torch.cuda.max_memory_allocated() if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": statistics.median(seconds),
        "operations": operations.get_total_flops(),
        "tokens": sum(half["ntokens"] for half in samples[0].values()),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "peak_bytes": peak,
    }


def feed(sizes: Sizes) -> Dict[str, float]:
    """Make a training run's samples in this process alone, from files, as one of its loaders does.

    Returns:
        ``seconds``: the median of a sample, ``tokens`` of one, as in :func:`train`.
    """
    count = sizes.updates + 1
    with tempfile.TemporaryDirectory() as folder:
        write_root(Path(folder), sizes, count)
        lengths = {"mono_max_length": sizes.length, "bitext_max_length": sizes.length, "updates_per_epoch": count}
        task = CamlmTask.setup_task(CamlmTaskConfig(data=folder, seed=1, update_freq=[1], **lengths))
        task.load_dataset("train")
        samples = iter(task.get_batch_iterator(task.dataset("train"), max_tokens=sizes.tokens).next_epoch_itr())
        next(samples)
        seconds, tokens, started = [], [], time.perf_counter()
        for sample in samples:
            seconds.append(time.perf_counter() - started)
            tokens.append(sum(half["ntokens"] for half in sample.values()))
            started = time.perf_counter()
    return {"seconds": statistics.median(seconds), "tokens": statistics.median(tokens)}


def write_root(root: Path, sizes: Sizes, count: int) -> None:
    """A data root of random tokens, for ``count`` samples: a language in sentences of 25 tokens, and a pair."""
    rng = np.random.default_rng(1)
    dictionary(sizes.vocabulary).save(str(root / "dict.txt"))
    pairs = count * max(1, sizes.tokens // (2 * sizes.length))
    shapes = {
        "mono/aa/train": (count * sizes.tokens // 25 + 50, 25),
        "bitext/aa-bb/train.aa-bb.aa": (pairs, sizes.length - 1),
        "bitext/aa-bb/train.aa-bb.bb": (pairs, sizes.length - 1),
    }
    for name, (lines, length) in shapes.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        builder = MMapIndexedDatasetBuilder(f"{root / name}.bin", dtype=np.int32)
        for line in rng.integers(4, sizes.vocabulary - 1, (lines, length)):
            line[-1] = 2  # </s>
            builder.add_item(torch.from_numpy(line))
        builder.finalize(f"{root / name}.idx")


def write_hollow_root(root: Path, languages: int, pairs: int, sentences: int) -> None:
    """A data root of the right sizes whose files are holes: language and pair k have ``sentences`` / k sentences.

    Sentences have 5 to 50 tokens, documents 30 lines.
    """
    rng = np.random.default_rng(1)
    root.mkdir(parents=True)
    dictionary(1000).save(str(root / "dict.txt"))

    def write(name: str, sizes: np.ndarray) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with MMapIndexedDataset.Index.writer(f"{root / name}.idx", np.int32) as index:
            index.write(sizes.tolist())
        with open(f"{root / name}.bin", "wb") as tokens:
            tokens.truncate(4 * int(sizes.sum()))

    for number in range(languages):
        sizes = rng.integers(5, 50, max(100, sentences // (number + 1)))
        sizes[30::30] = 1  # the </s> of a blank line
        write(f"mono/l{number}/train", sizes)
    for number in range(pairs):
        names = f"s{number}", f"t{number}"
        for name in names:
            sizes = rng.integers(5, 50, max(100, sentences // (number + 1)))
            write(f"bitext/{'-'.join(names)}/train.{'-'.join(names)}.{name}", sizes)


def start(root: Path) -> Dict[str, float]:
    """Get a training run's data ready, up to its first 100 batches' plan.

    Returns:
        ``seconds``, ``sentences`` (of pairs: of both sides), ``peak_bytes`` beyond what the process took before, and
        ``sizes_bytes`` of the arrays with the sentences' lengths, as they are in the files.
    """
    before = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    task = CamlmTask.setup_task(CamlmTaskConfig(data=str(root), seed=1, update_freq=[1]))
    task.load_dataset("train")
    batches = task.get_batch_iterator(task.dataset("train"), max_tokens=16384).batches(1, 0, 1)
    for _ in itertools.islice(batches, 100):
        pass
    seconds = time.perf_counter() - started
    sides = []
    for half in task.dataset("train").halves.values():
        for source in half.sources:
            sides += [source.dataset] if hasattr(source, "dataset") else [source.source, source.target]
    return {
        "seconds": seconds,
        "sentences": sum(len(side) for side in sides),
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before,
        "sizes_bytes": sum(side.sizes.nbytes for side in sides),
    }


def update(model, criterion, optimizer, sample: Dict[str, Dict], device: str) -> None:
    """An update as fairseq's trainer makes it: backward of each batch, gradient norm, optimizer."""
    if device == "cuda":
        sample = utils.move_to_cuda(sample)
    size = 0
    for half in sample.values():
        loss, sample_size, _ = criterion(model, half)
        loss.backward()
        size += sample_size
    optimizer.multiply_grads(1 / size)
    optimizer.clip_grad_norm(1.0)
    optimizer.step()
    optimizer.zero_grad()


def in_turn(jobs: Dict[str, List[str]], rounds: int, say: Callable[[str], None]) -> Dict[str, List[Dict[str, float]]]:
    """Run the commands in turn, so that what else the machine does hits all alike; each prints a line of JSON."""
    results: Dict[str, List[Dict[str, float]]] = {name: [] for name in jobs}
    for number in range(1, rounds + 1):
        for name, command in jobs.items():
            result = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True)
            if result.returncode != 0:
                raise UserError(f"{name}: ended with exit code {result.returncode} (-9: too little memory); see above")
            results[name].append(json.loads(result.stdout.splitlines()[-1]))
            say(f"round {number} of {rounds}, {name}: {results[name][-1]['seconds']:.2f} s")
    return results


def attention(length: int, tokens: int, heads: int, dim: int, updates: int, device: str) -> Dict[str, float]:
    """Seconds of PyTorch's attention, forward and backward, fused and plain, by "kernel, type"; the best of some.

    Args:
        length: of every sequence; ``tokens`` in all.
        heads, dim: heads, and their width.
        updates: how often it is computed.
    """
    shape = (max(1, tokens // length), length, heads, dim)
    kernels = {"fused": SDPBackend.FLASH_ATTENTION, "plain": SDPBackend.MATH}
    seconds = {}
    for type_name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        for name, kernel in kernels.items():
            q, k, v = (torch.randn(shape, dtype=dtype, device=device).transpose(1, 2).requires_grad_() for _ in range(3))
            mask = torch.zeros(shape[0], 1, 1, length, dtype=dtype, device=device).expand(-1, heads, length, -1)
            best = float("inf")
            for _ in range(updates + 1):
                started = time.perf_counter()
                with sdpa_kernel(kernel):
                    states = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
                states.backward(torch.ones_like(states))
                _wait(device)
                best = min(best, time.perf_counter() - started)
            seconds[f"{name}, {type_name}"] = best
    return seconds


def head_memory(rows: int, dim: int, vocabulary: int, chunked: bool, bf16: bool = False) -> Dict[str, float]:
    """Forward and backward of the LM head's projection and loss on a CPU, ours or PyTorch's plain one.

    Args:
        rows, dim, vocabulary: masked tokens, their dimensions, and rows of the embeddings.
        chunked: ours.
        bf16: under autocast.

    Returns:
        ``seconds``, and ``peak_bytes`` beyond inputs, weights and their gradients.
    """
    from veco_fairseq.modules.masked_loss import masked_loss

    def plain(states: Tensor, weight: Tensor, bias: Tensor, gold: Tensor) -> Tensor:
        logits = torch.nn.functional.linear(states, weight, bias)
        return torch.nn.functional.cross_entropy(logits.float(), gold, reduction="none")

    parameters = [torch.randn(rows, dim), torch.randn(vocabulary, dim), torch.randn(vocabulary)]
    parameters = [(0.02 * parameter).requires_grad_() for parameter in parameters]
    gold = torch.randint(vocabulary, (rows,))
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    function = (lambda *problem: masked_loss(*problem)[0]) if chunked else plain

    def step(count: int) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            nll = function(parameters[0][:count], *parameters[1:], gold[:count])
        nll.sum().backward()

    step(8)  # what only a first call does
    before = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    step(rows)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before}
