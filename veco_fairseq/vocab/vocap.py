# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Makes one vocabulary for all languages from a text of each, and keeps every stage.

``languages/LANG.npz`` has a language's vocabularies of all sizes, ``languages/LANG.tsv`` has what each gains over the one
before, and ``languages/LANG.model`` is the largest of them. The other files are the result: the model, its dict.txt, and
the allocated sizes as a table and a picture. A stage that was made from the same texts and options is not made again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2

from veco_fairseq.data.prepare.text import LEAST_COVERAGE
from veco_fairseq.data.sentencepiece import (
    DICT_NAME,
    MODEL_NAME,
    dictionary_text,
    load_sentencepiece,
    train_sentencepiece,
    write_vocabulary,
)
from veco_fairseq.errors import UserError
from veco_fairseq.files import atomic_output, write_text
from veco_fairseq.lock import folder_to_make
from veco_fairseq.manifest import Manifest, fingerprint
from veco_fairseq.parallel import default_workers, in_parallel
from veco_fairseq.vocab.allocation import Allocation, allocate, sampling_probabilities
from veco_fairseq.vocab.alp import average_log_probability, count_pieces, without_normaliser
from veco_fairseq.vocab.corpora import drawn, sample
from veco_fairseq.vocab.sizes import META, Vocabularies, all_sizes
from veco_fairseq.vocab.union import union_model

MANIFEST_NAME = "vocap.json"
TABLE, PICTURE = "allocation.tsv", "allocation.png"
KINDS = ("model", "tsv", "npz")  # of files of a language


@dataclass
class Options:
    """The options of ``veco vocap``.

    Attributes:
        corpora: the files of each language.
        size: T, the pieces of the vocabulary, with <unk>, <s> and </s>.
        alpha, beta: see :func:`~veco_fairseq.vocab.allocation.allocate`.
        largest, step: sizes of a language's vocabularies: ``step``, 2 ``step``, ... ``largest``.
        lines: the most lines to read of a language; its number of instances counts all.
        coverage: the share of a language's characters that its vocabularies must cover.
        every_size: train a model for every size, as in the paper.
        joint: also train one model on all languages' text, for comparison.
        workers: the number of languages at a time.
    """

    corpora: dict[str, list[Path]]
    output: Path
    size: int
    alpha: float = 0.7
    beta: float = 0.7
    largest: int = 50_000
    step: int = 1000
    lines: int = 1_000_000
    coverage: float = 1.0
    every_size: bool = False
    joint: bool = False
    workers: int = field(default_factory=default_workers)

    def __post_init__(self) -> None:
        for name in ("size", "largest", "step", "lines", "workers"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} {getattr(self, name)}: must be 1 or more")
        for name in ("alpha", "beta"):
            if not getattr(self, name) >= 0:
                raise UserError(f"--{name} {getattr(self, name)}: must be 0 or more")
        if self.step > self.largest:
            raise UserError(f"--step {self.step}: must be at most --largest {self.largest}")
        if not LEAST_COVERAGE <= self.coverage <= 1:
            raise UserError(f"--character-coverage {self.coverage}: must be from {LEAST_COVERAGE} to 1")


def make_vocabulary(options: Options, say: Callable[[str], None]) -> str:
    """Run the stages that are not done yet; return the table of allocated sizes.

    Raises:
        UserError: something is wrong with texts, sizes or the output folder, or another process makes it.
    """
    with folder_to_make(options.output):
        return _make(options, say)


def _make(options: Options, say: Callable[[str], None]) -> str:
    manifest = Manifest(options.output, MANIFEST_NAME, (MODEL_NAME, DICT_NAME, TABLE, PICTURE, "languages"))
    manifest.save()
    for language, paths in options.corpora.items():
        say(f"{language}: {', '.join(map(str, paths))}")
    _make_languages(options, manifest, say)
    # Without the words: those of a hundred languages do not fit into memory.
    vocabularies = {name: Vocabularies.load(_file(options, name, "npz"), with_words=False) for name in options.corpora}
    made_from = {
        "size": options.size, "alpha": options.alpha, "beta": options.beta,
        "languages": {name: manifest.steps[name]["made_from"] for name in vocabularies},
    }  # fmt: skip
    files = (MODEL_NAME, DICT_NAME, TABLE, PICTURE)
    if manifest.is_done("union", made_from):
        say("vocabulary: already there")
    else:
        allocation = allocate(vocabularies, options.size - META, options.alpha, options.beta)
        _tell_of(allocation, options, say)
        manifest.start("union", files)
        _write_union(options, vocabularies, allocation)
        table = _write_table(options, vocabularies, allocation)
        manifest.finish("union", made_from, files, {"table": table})
    if options.joint:
        _make_joint(options, vocabularies, manifest=manifest, made_from=made_from, say=say)
    return manifest.steps["union"]["report"]["table"]


def _file(options: Options, language: str, kind: str) -> Path:
    return options.output / "languages" / f"{language}.{kind}"


def _language_files(language: str) -> list[str]:
    return [f"languages/{language}.{kind}" for kind in KINDS]


def _make_languages(options: Options, manifest: Manifest, say: Callable[[str], None]) -> None:
    jobs = {}
    for language, paths in options.corpora.items():
        made_from = {
            "texts": fingerprint(paths), "largest": options.largest, "step": options.step, "lines": options.lines,
            "coverage": options.coverage, "every_size": options.every_size,
        }  # fmt: skip
        if manifest.is_done(language, made_from):
            say(f"{language}: already there, {_description(manifest.steps[language]['report'], options)}")
        else:
            jobs[language] = made_from
            manifest.start(language, _language_files(language))
    calls = {language: partial(_make_language, options, language) for language in jobs}
    for done, (language, report) in enumerate(in_parallel(calls, options.workers), 1):
        manifest.finish(language, jobs[language], _language_files(language), report)
        say(f"{language} ({done} of {len(jobs)}): {_description(report, options)}; {report['seconds']:.0f} s")


def _description(report: dict[str, Any], options: Options) -> str:
    capped = f", all that its text has, of {options.largest:,}" if report["most"] < options.largest else ""
    return f"{report['vocabularies']} vocabularies of {report['least']:,} to {report['most']:,} pieces{capped}"


def _make_language(options: Options, language: str) -> dict[str, Any]:
    """Run one language's stage, in its own process."""
    started = time.time()
    lines, instances = sample(options.corpora[language], options.lines)
    try:
        model, found = all_sizes(
            lines, instances, largest=options.largest, step=options.step, coverage=options.coverage, every_size=options.every_size
        )
    except UserError as error:
        raise UserError(f"{language}: {error}") from error
    with atomic_output(_file(options, language, "model")) as temporary:
        temporary.write_bytes(model)
    gains = np.diff(found.alp, prepend=-np.inf)
    rows = (f"{size}\t{alp:.3f}\t{gain:.3f}\n" for size, alp, gain in zip(found.sizes, found.alp, gains))
    write_text(_file(options, language, "tsv"), "size\talp\tgain\n" + "".join(rows))
    found.save(_file(options, language, "npz"))
    return {"vocabularies": len(found.sizes), "least": found.sizes[0], "most": found.sizes[-1],
            "instances": instances, "seconds": time.time() - started}  # fmt: skip


def _tell_of(allocation: Allocation, options: Options, say: Callable[[str], None]) -> None:
    sum_of_sizes, pieces = sum(allocation.sizes.values()), len(allocation.pieces)
    say(f"allocation: {sum_of_sizes:,} pieces in sum, {pieces:,} in the union, {allocation.clipped:,} clipped, {META} symbols")
    if pieces + META < options.size:
        say(f"warning: --size {options.size:,} is not reached: all languages have their largest vocabularies")


def _write_union(options: Options, vocabularies: dict[str, Vocabularies], allocation: Allocation) -> None:
    scores = {name: of.of_size(allocation.sizes[name]) for name, of in vocabularies.items()}
    like = load_sentencepiece(_file(options, next(iter(vocabularies)), "model")).serialized_model_proto()
    model = union_model(allocation.pieces, scores, sampling_probabilities(vocabularies, options.alpha), like)
    write_vocabulary(options.output, model, dictionary_text(model, options.output / MODEL_NAME))


def _write_table(options: Options, vocabularies: dict[str, Vocabularies], allocation: Allocation) -> str:
    """Write the table, as the paper's Table 9 with the ALP before and after the union, and its picture."""
    from veco_fairseq.plots import plot_bars

    probabilities = sampling_probabilities(vocabularies, options.alpha)
    union = without_normaliser(sentencepiece_model_pb2.ModelProto.FromString((options.output / MODEL_NAME).read_bytes()))
    rows: list[tuple[Any, ...]] = [("language", "instances", "q", "largest", "size", "alp", "alp_in_union")]
    for name in sorted(vocabularies, key=lambda name: (-allocation.sizes[name], name)):
        of, size = vocabularies[name], allocation.sizes[name]
        own = of.alp[of.sizes.index(size)]
        words = Vocabularies.load(_file(options, name, "npz")).words
        in_union = average_log_probability(count_pieces(words, union), words.sentences)
        of_texts = (name, of.instances, f"{probabilities[name]:.4f}", of.sizes[-1])
        rows.append((*of_texts, size, f"{own:.2f}", f"{in_union:.2f}"))
    table = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    write_text(options.output / TABLE, table)
    bars = {"allocated": {name: allocation.sizes[name] / 1000 for name, *_ in rows[1:]}}
    plot_bars(bars, "thousands of pieces", f"VoCap, {options.size:,} pieces", options.output / PICTURE)
    return table


def _make_joint(
    options: Options, vocabularies: dict[str, Vocabularies], *, manifest: Manifest, made_from: dict[str, Any], say
) -> None:
    """Train one model of ``size`` pieces on sentences with the share q_i of language i, as was usual before VoCap."""
    folder = options.output / "joint"
    files = [f"joint/{name}" for name in (MODEL_NAME, DICT_NAME)]
    if manifest.is_done("joint", made_from):
        say("joint: already there")
        return
    manifest.start("joint", files)
    probabilities = sampling_probabilities(vocabularies, options.alpha)
    total = min(sum(of.instances for of in vocabularies.values()), options.lines)
    say(f"joint: training SentencePiece, {options.size:,} pieces, on about {total:,} lines")
    lines = chain.from_iterable(
        drawn(paths, vocabularies[name].instances, max(1, round(probabilities[name] * total)))
        for name, paths in options.corpora.items()
    )
    model = train_sentencepiece(lines, options.size, character_coverage=options.coverage, option="--size")
    write_vocabulary(folder, model, dictionary_text(model, folder / MODEL_NAME))
    manifest.finish("joint", made_from, files, {"lines": total})
