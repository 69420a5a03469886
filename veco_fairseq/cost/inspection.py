# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Shows what training would do with a data root, without training."""

import math
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor

from veco_fairseq.cost.memory import BYTES_A_PARAMETER, Batch, training_memory
from veco_fairseq.criterions.base import PretrainingCriterion
from veco_fairseq.data import roots
from veco_fairseq.data.batches import make_plans, validation_batches
from veco_fairseq.data.dataset import PretrainingDataset, SampleIndex
from veco_fairseq.data.plan import EXAMPLE
from veco_fairseq.data.sources import load_streams
from veco_fairseq.errors import UserError
from veco_fairseq.tables import aligned

COLUMNS = ("kind", "name", "sentences", "documents", "pairs", "dropped", "tokens", "unknown", "longest", "sampled")


def inspect_root(
    root: Path, options, max_tokens: int, *, model: Namespace, device: str = "cpu", examples: int = 0
) -> Iterator[str]:
    """Yield the lines of a report: each split's languages and pairs, its batches, masked examples, and the memory.

    Training's own code reads everything, so this refuses what training would refuse. Of several roots, only the first has
    validation sets that training reads, and the others need no dictionary.

    Args:
        root: one of ``options.data``.
        options: the task's (:class:`veco_fairseq.tasks.camlm_options.CamlmTaskConfig`).
        max_tokens: of a batch, as ``--max-tokens``.
        model: the model's options, from :func:`veco_fairseq.models.base.architecture`.
        device: "cpu" or "cuda", whose memory is estimated.
        examples: the number to show for each language and pair.

    Raises:
        UserError: training would refuse the data or the options.
    """
    paths = list(map(Path, utils.split_paths(options.data)))
    dictionary = roots.load_dictionary_of_all(paths)
    criterion = CRITERION_REGISTRY[ARCH_MODEL_REGISTRY[model.arch].criterion]
    if not issubclass(criterion, PretrainingCriterion):
        raise UserError(f"--arch {model.arch}: is for understanding: give one of pre-training")
    yield f"dictionary: {len(dictionary):,} types, <mask> included"
    for split in ("train", "valid"):
        if split == "valid" and root != paths[0]:
            return
        streams = load_streams(root, split, options, dictionary, masker=criterion.masker)
        yield ""
        yield f"{split}:"
        rows: list[Sequence[str]] = [COLUMNS]
        plans = make_plans(streams, options, max_tokens)
        for kind, plan in plans.items():
            for source, probability in zip(plan.sources, plan.probabilities):
                rows.append(_row(kind, source, probability, dictionary.unk()))
        yield from (f"  {line}" for line in aligned(rows, left=range(2)))
        dataset = PretrainingDataset(streams, dictionary, options.seed)
        if split == "valid":
            yield from _validation(dataset, max_tokens)
            continue
        largest = {}
        for plan in plans.values():
            shapes = [(len(batch), plan.longest(batch)) for batch in plan.epoch(plan.batches_per_pass)]
            largest[plan.kind] = max(shapes, key=math.prod)
            yield f"{plan.kind}: a pass is {_batches([pairs for pairs, _ in shapes], plan.pairs)} of one worker"
        updates = options.updates_per_epoch or max(plan.batches_per_pass for plan in plans.values())
        yield f"an epoch on one worker is {updates:,} updates of {' + '.join(plans)}"
        yield from _memory(largest, streams, model, dictionary, device=device)
        yield from _examples(dataset, dictionary, examples)


def _validation(dataset: PretrainingDataset, max_tokens: int) -> Iterator[str]:
    sizes: dict[str, list[int]] = {}
    for (sample,) in validation_batches(dataset, max_tokens, seed=dataset.seed):
        for kind, pairs in sample._asdict().items():
            if pairs is not None:
                sizes.setdefault(kind, []).append(len(pairs))
    for kind, of_kind in sizes.items():
        yield f"{kind}: validation is {_batches(of_kind, sum(of_kind))} of all workers"


def _batches(sizes: list[int], pairs: int) -> str:
    return f"{pairs:,} pairs in {len(sizes):,} batches of {min(sizes):,} to {max(sizes):,} pairs (mean {np.mean(sizes):.1f})"


def _memory(largest: dict, streams: dict, model: Namespace, dictionary: Dictionary, *, device: str) -> Iterator[str]:
    needs = {
        kind: training_memory(
            model, dictionary, Batch(pairs, length, streams[kind].masker.probability, streams[kind].tlm), device=device
        )
        for kind, (pairs, length) in largest.items()
    }
    kind, memory = max(needs.items(), key=lambda item: item[1].total)
    pairs, length = largest[kind]
    yield (
        f"{model.arch}: {memory.parameters // BYTES_A_PARAMETER:,} parameters; with gradients and Adam {_gib(memory.parameters)}"
    )
    yield (
        f"memory of a worker on a {'GPU' if device == 'cuda' else 'CPU'}, about: {_gib(memory.total)}, of it {_gib(memory.activations)} of activations and "
        f"{_gib(memory.loss)} of the LM head (a {kind} batch of {pairs:,} pairs, {length} tokens a side)"
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:,.2f} GiB"


def _row(kind: str, source, probability: float, unk: int) -> Sequence[str]:
    sides = [source.dataset] if kind == "mono" else [source.source, source.target]
    for side in sides:
        side.check()
    unknown = sum(side.count(unk) for side in sides)
    tokens = sum(int(side.sizes.sum(dtype=np.int64)) - len(side) for side in sides)
    return (
        kind,
        source.name,
        f"{source.sentences:,}",
        f"{source.documents:,}" if kind == "mono" else "-",
        f"{len(source):,}",
        f"{source.dropped:,}",
        f"{tokens:,}",
        f"{unknown:,} ({100 * unknown / max(1, tokens):.2f}%)",
        f"{int(source.lengths.max())}",
        f"{probability:.4f}",
    )


def _examples(dataset: PretrainingDataset, dictionary: Dictionary, count: int) -> Iterator[str]:
    for kind, stream in dataset.streams.items():
        for identity, source in enumerate(stream.sources):
            for index in range(min(count, len(source))):
                example = np.array([(identity, 0, index)], dtype=EXAMPLE)
                batch: dict[str, Tensor] = dataset[SampleIndex(**{kind: example})][kind]["net_input"]
                for side, ids in zip("xy", batch["tokens"][:, 0]):
                    yield f"  {source.name} {side}: " + " ".join(dictionary[int(i)] for i in ids if i != dictionary.pad())
