# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements of the data's way to the trainer: one loader's speed, and getting ready with much data."""

import itertools
import statistics
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder

from veco_fairseq.benchmarks.kernels import peak_bytes, status_bytes
from veco_fairseq.benchmarks.training import criterion_of, dictionary, pretraining, train
from veco_fairseq.benchmarks.turns import command_of, in_turn
from veco_fairseq.cost.inspection import inspect_root
from veco_fairseq.models.base import architecture
from veco_fairseq.tasks.camlm import CamlmTask
from veco_fairseq.tasks.camlm_options import CamlmTaskConfig

FEED = "a loader"


def feed(args: Namespace) -> dict[str, float]:
    """Make a training run's samples in this process alone, from files, as one of its loaders does.

    Returns:
        ``seconds``: the median of a sample, ``tokens`` of one, as in :func:`train`.
    """
    count = args.updates + 1
    with tempfile.TemporaryDirectory() as folder:
        write_root(Path(folder), args, count)
        lengths = {"mono_max_length": args.length, "bitext_max_length": args.length, "updates_per_epoch": count}
        task = CamlmTask.setup_task(CamlmTaskConfig(data=folder, seed=1, update_freq=[1], **lengths))
        task.load_dataset("train")
        samples = iter(task.get_batch_iterator(task.dataset("train"), max_tokens=args.tokens).next_epoch_itr())
        next(samples)
        seconds, tokens, started = [], [], time.perf_counter()
        for sample in samples:
            seconds.append(time.perf_counter() - started)
            tokens.append(sum(batch["ntokens"] for batch in sample.values()))
            started = time.perf_counter()
    return {"seconds": statistics.median(seconds), "tokens": statistics.median(tokens)}


def write_root(root: Path, args: Namespace, count: int) -> None:
    """A data root of random tokens, for ``count`` samples: a language in sentences of 25 tokens, and a pair."""
    rng = np.random.default_rng(1)
    dictionary(args.vocabulary).save(str(root / "dict.txt"))
    pairs = count * max(1, args.tokens // (2 * args.length))
    shapes = {
        "mono/aa/train": (count * args.tokens // 25 + 50, 25),
        "bitext/aa-bb/train.aa-bb.aa": (pairs, args.length - 1),
        "bitext/aa-bb/train.aa-bb.bb": (pairs, args.length - 1),
    }
    for name, (lines, length) in shapes.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        builder = MMapIndexedDatasetBuilder(f"{root / name}.bin", dtype=np.int32)
        for line in rng.integers(4, args.vocabulary - 1, (lines, length)):
            line[-1] = 2  # </s>
            builder.add_item(torch.from_numpy(line))
        builder.finalize(f"{root / name}.idx")


def write_hollow_root(root: Path, languages: int, pairs: int, sentences: int) -> None:
    """A data root of the right sizes whose files are holes: language and pair k have ``sentences`` / k sentences.

    Sentences have 5 to 50 tokens, documents 30 lines; validation sets 100 sentences.
    """
    rng = np.random.default_rng(1)
    root.mkdir(parents=True)
    dictionary(1000).save(str(root / "dict.txt"))

    def write(folder: str, ending: str, sizes: dict[str, np.ndarray]) -> None:
        (root / folder).mkdir(parents=True, exist_ok=True)
        for split, of_split in sizes.items():
            path = root / folder / f"{split}{ending}"
            with MMapIndexedDataset.Index.writer(f"{path}.idx", np.int32) as index:
                index.write(of_split.tolist())
            with open(f"{path}.bin", "wb") as tokens:
                tokens.truncate(4 * int(of_split.sum()))

    def sizes(number: int) -> dict[str, np.ndarray]:
        counts = {"train": max(100, sentences // (number + 1)), "valid": 100}
        return {split: rng.integers(5, 50, count) for split, count in counts.items()}

    for number in range(languages):
        of_language = sizes(number)
        for of_split in of_language.values():
            of_split[30::30] = 1  # the </s> of a blank line
        write(f"mono/l{number}", "", of_language)
    for number in range(pairs):
        pair = f"s{number}-t{number}"
        for lang in pair.split("-"):
            write(f"bitext/{pair}", f".{pair}.{lang}", sizes(number))


def get_ready(root: Path) -> dict[str, float]:
    """Get a training run's data ready, up to its first 100 batches' plan.

    Returns:
        ``seconds``, ``sentences`` (of pairs: of both sides), ``peak_bytes`` beyond what the process took before,
        ``own_bytes`` of what it has taken in the end, without the mapped files, which the system can take back, and
        ``sizes_bytes`` of the arrays with the sentences' lengths, as they are in the files.
    """
    before, own = peak_bytes("cpu"), status_bytes("RssAnon")
    started = time.perf_counter()
    task = CamlmTask.setup_task(CamlmTaskConfig(data=str(root), seed=1, update_freq=[1]))
    task.load_dataset("train")
    batches = task.get_batch_iterator(task.dataset("train"), max_tokens=16384).batches(num_shards=1, shard_id=0, epoch=1)
    for _ in itertools.islice(batches, 100):
        pass
    seconds = time.perf_counter() - started
    sides = []
    for stream in task.dataset("train").streams.values():
        for source in stream.sources:
            sides += [source.dataset] if hasattr(source, "dataset") else [source.source, source.target]
    return {
        "seconds": seconds,
        "sentences": sum(len(side) for side in sides),
        "peak_bytes": peak_bytes("cpu") - before,
        "own_bytes": status_bytes("RssAnon") - own,
        "sizes_bytes": sum(side.sizes.nbytes for side in sides),
    }


def inspect(root: Path) -> dict[str, float]:
    """What ``scripts/inspect_data.py`` does with the root.

    Returns:
        ``seconds``, and ``peak_bytes`` beyond what the process took before.
    """
    before = peak_bytes("cpu")
    started = time.perf_counter()
    options = CamlmTaskConfig(data=str(root), seed=1, update_freq=[1])
    for _ in inspect_root(root, options, 16384, model=architecture("veco_small")):
        pass
    return {"seconds": time.perf_counter() - started, "peak_bytes": peak_bytes("cpu") - before}


def data(args: Namespace) -> dict:
    """``bench.py data``: print tokens a second of a loader and of training, and return them."""
    if args.job:
        return feed(args) if args.job == FEED else train(pretraining(args.job, args))
    ours = criterion_of(args.arch)
    jobs = {name: command_of(args, name) for name in (ours, FEED)}
    figures = {}
    for name, rounds in in_turn(jobs, args.rounds).items():
        figures[name] = statistics.median(result["tokens"] / result["seconds"] for result in rounds)
        print(f"{name:10} {figures[name]:12,.0f} tokens/s")
    figures["ratio"] = figures[FEED] / figures[ours]
    print(f"one loader feeds {figures['ratio']:,.1f} trainers like this")
    return figures


def start(args: Namespace) -> dict:
    """``bench.py start``: print seconds and memory, and return them."""
    if args.job == "write":
        write_hollow_root(args.root, args.languages, args.pairs, args.sentences)
        return {}
    if args.job:
        return get_ready(args.root) if args.job == "start" else inspect(args.root)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        print("writing the index files", flush=True)
        in_turn({"write": command_of(args, "write", root=root)}, 1)
        jobs = {job: command_of(args, job, root=root) for job in ("start", *([] if args.no_inspect else ["inspect"]))}
        results = in_turn(jobs, args.rounds)
    figures = {}
    for job, rounds in results.items():
        figures[job] = {**rounds[0], "seconds": statistics.median(result["seconds"] for result in rounds)}
    ready = figures["start"]
    print(
        f"{ready['sentences']:,} sentences: {ready['seconds']:.1f} s, {ready['peak_bytes'] / 1e6:,.0f} MB with the index files "
        f"that are mapped, {ready['own_bytes'] / 1e6:,.0f} MB of the process's own "
        f"({ready['sizes_bytes'] / 1e6:,.0f} MB are the sentences' sizes)"
    )
    if "inspect" in figures:
        inspected = figures["inspect"]
        print(f"inspect_data.py: {inspected['seconds']:.1f} s, {inspected['peak_bytes'] / 1e6:,.0f} MB")
    return figures
