# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tatoeba: the share of sentences that are nearest to their own translation, by layer."""

from collections.abc import Sequence
from pathlib import Path

from veco_fairseq.errors import UserError
from veco_fairseq.files import read_json, read_translations
from veco_fairseq.inference.pretrained import PretrainedModel
from veco_fairseq.retrieval.search import Candidates, accuracy, candidates
from veco_fairseq.retrieval.states import sentence_states

Sides = list[tuple[Path, list[str]]]  # two files and their lines
Accuracies = dict[str, tuple[float, float]]  # layer -> to the target, and to the source


def read_pair(argument: str) -> tuple[str, Sides]:
    """Read the name and the two texts of ``NAME=SRC,TGT``.

    Raises:
        UserError: the argument has another form, or the texts are empty or have different numbers of lines.
    """
    name, equals, files = argument.partition("=")
    source, comma, target = files.partition(",")
    if not (equals and comma):
        raise UserError(f"--pairs {argument}: not NAME=SRC,TGT")
    paths = Path(source), Path(target)
    return name, list(zip(paths, read_translations(*paths)))


def evaluate(
    pretrained: PretrainedModel, pairs: dict[str, Sides], *, layers: Sequence[int], score: str, neighbours: int,
    max_tokens: int,
) -> dict[str, Accuracies]:  # fmt: skip
    """Print each pair's accuracies and their mean, and return them by name.

    Args:
        pairs: from :func:`read_pair`.
        layers: as in :func:`sentence_states`.
        score, neighbours: as in :func:`candidates`.
    """
    print(f"accuracy (%) by layer, to the target / to the source; score: {score}")
    print(f"{'':8} {' '.join(f'{layer:>13}' for layer in layers)}", flush=True)
    figures: dict[str, Accuracies] = {}
    for name, sides in pairs.items():
        x, y = (sentence_states(pretrained, lines, layers=layers, max_tokens=max_tokens, name=str(path)) for path, lines in sides)
        figures[name] = {
            str(layer): _both_ways(*candidates(of_x, of_y, score, neighbours)) for layer, of_x, of_y in zip(layers, x, y)
        }
        _print(name, figures[name])
    if len(figures) > 1:
        columns = {layer: list(zip(*(of_pair[layer] for of_pair in figures.values()))) for layer in map(str, layers)}
        figures["mean"] = {layer: tuple(sum(side) / len(side) for side in sides) for layer, sides in columns.items()}
        _print("mean", figures["mean"])
    return figures


def _both_ways(to_target: Candidates, to_source: Candidates) -> tuple[float, float]:
    return accuracy(to_target), accuracy(to_source)


def _print(name: str, of_pair: Accuracies) -> None:
    print(f"{name:8} {' '.join(f'{100 * a:5.1f} / {100 * b:5.1f}' for a, b in of_pair.values())}", flush=True)


def read_accuracies(path: Path, pair: str) -> dict[int, tuple[float, float]]:
    """Read a pair's accuracies by layer, to the target and to the source, from ``veco retrieve tatoeba --json``.

    Args:
        pair: its name, or mean, which is the pair itself if there is one alone.

    Raises:
        UserError: the file is another one, or has no such pair.
    """
    try:
        pairs = read_json(path)["accuracy"]
        if pair == "mean" and len(pairs) == 1:
            (pair,) = pairs
        if pair not in pairs:
            raise UserError(f"{path}: has no pair {pair} (there is: {', '.join(pairs)})")
        by_layer = sorted((int(layer), both) for layer, both in pairs[pair].items())
        accuracies = {layer: (float(to), float(back)) for layer, (to, back) in by_layer}
        if not accuracies or not all(0 <= value <= 1 for both in accuracies.values() for value in both):
            raise ValueError("no accuracies from 0 to 1")
        return accuracies
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: is not a file of veco retrieve tatoeba --json") from error
