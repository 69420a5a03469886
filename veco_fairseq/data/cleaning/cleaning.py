# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Two texts of pairs cleaned as a stream, on all processors; a run that was stopped goes on where it was.

Processes clean chunks of pairs. This one reads, writes what is left in the order of the text, and drops duplicates. Nothing
depends on the number of processes or on the chunks' borders. Until the end the outputs have hidden names, and a hidden
file beside them says how far they have come.
"""

import gzip
import lzma
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np

from veco_fairseq.data.cleaning.cleaner import BYTES_A_HASH, EXAMPLES, Cleaned, Cleaner, Example, Seen
from veco_fairseq.data.cleaning.rules import BY_LENGTH, DUPLICATE, RULES, Options
from veco_fairseq.data.prepare.encoding import Clock, say
from veco_fairseq.data.prepare.growing import GrowingFile, Progress, to_be_repeated
from veco_fairseq.data.sentencepiece import LINES_A_BATCH
from veco_fairseq.files import count_translations, followed, read_lines, write_json
from veco_fairseq.lock import file_to_make
from veco_fairseq.manifest import fingerprint
from veco_fairseq.parallel import in_processes
from veco_fairseq.tables import aligned

PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": partial(gzip.compress, compresslevel=6, mtime=0),
    ".xz": lzma.compress,
}


@dataclass
class State:
    """How far a run has come.

    Attributes:
        pairs: read.
        dropped: pairs, by rule.
        changed: lines of each side that normalising changed.
        examples: of the pairs that were dropped, by rule.
        lengths: in bytes, of both outputs and of the file of hashes.
    """

    pairs: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    changed: list[int] = field(default_factory=lambda: [0, 0])
    examples: dict[str, list[Example]] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)

    def add(self, chunk: Cleaned) -> None:
        self.dropped = dict(Counter(self.dropped) + chunk.dropped)
        self.changed = [count + more for count, more in zip(self.changed, chunk.changed)]
        for name, examples in chunk.examples.items():
            known = self.examples.setdefault(name, [])
            known += [(self.pairs + line, source, target) for line, source, target in examples[: EXAMPLES - len(known)]]
        self.pairs += chunk.pairs


def clean(
    inputs: tuple[Path, Path], outputs: tuple[Path, Path], options: Options, *, workers: int, report: Path | None = None
) -> dict[str, Any]:
    """Write the pairs that are to be kept, normalised, and return how many were dropped by which rule.

    Args:
        inputs: source and target, line N of the one the translation of line N of the other; .gz, .xz or neither.
        outputs: likewise.
        options: what is normalised and dropped.
        workers: processes.
        report: where to write what is returned, as JSON.

    Returns:
        ``{"pairs": int, "kept": int, "dropped": {rule: int}, "changed": {"source": int, "target": int}, "examples":
        {rule: [[line, source, target], ...]}, "options": {...}, "versions": {...}}``; the examples are a rule's first
        three pairs as they were before.

    Raises:
        UserError: anything that is wrong with the input, or a full disk; the same command then goes on. Or another process
            makes one of the outputs.
    """
    with ExitStack() as stack:
        for output in outputs:
            stack.enter_context(file_to_make(output))
        return _make(inputs, outputs, options, workers=workers, report=report)


def _make(
    inputs: tuple[Path, Path], outputs: tuple[Path, Path], options: Options, *, workers: int, report: Path | None
) -> dict[str, Any]:
    total = count_translations(*inputs)
    make = partial(Cleaner, options)
    make()  # what is wrong with the options comes out here, and not in another process
    made_from = _made_from(inputs, outputs, options)
    progress = Progress(outputs[0].with_name(f".{outputs[0].name}.progress.json"))
    parts = [*map(_hidden, outputs), _hidden(outputs[0], ".hashes")]
    begun = progress.begun("clean", made_from)
    state = State(**begun["state"]) if begun else State()
    if begun and all(_can_go_on(*each) for each in zip(parts, [*outputs, None], state.lengths)):
        say(f"going on after {state.pairs:,} of {total:,} pairs")
    else:
        state = State()
    with to_be_repeated(outputs[0]):
        _clean(inputs, parts, state, options, make=make, progress=progress, made_from=made_from, total=total, workers=workers)
        for part, output in zip(parts, outputs):
            os.replace(part, followed(output))
    result = {
        "pairs": state.pairs, "kept": state.pairs - sum(state.dropped.values()),
        "dropped": {rule.name: state.dropped.get(rule.name, 0) for rule in RULES},
        "changed": dict(zip(("source", "target"), state.changed)), "examples": state.examples,
        "options": made_from["options"], "versions": made_from["versions"],
    }  # fmt: skip
    if report is not None:
        write_json(report, result, ensure_ascii=False)
    for path in (parts[-1], progress.path):
        path.unlink(missing_ok=True)
    return result


def _clean(
    inputs: tuple[Path, Path], parts: list[Path], state: State, options: Options, *, make: Callable[[], Cleaner],
    progress: Progress, made_from: dict[str, Any], total: int, workers: int,
) -> None:  # fmt: skip
    """Write the hidden files from where ``state`` says, and bring it to the end of the text."""
    with ExitStack() as stack:
        lengths: list[int | None] = [*state.lengths] or [None] * len(parts)
        files = [stack.enter_context(closing(GrowingFile(part, length))) for part, length in zip(parts, lengths)]
        packs = [PACK.get(Path(name).suffix, bytes) for name in made_from["outputs"]]
        seen = Seen()
        if not options.duplicates:
            for hashes in _hashes(parts[-1]):
                seen.add(hashes)

        def mark() -> None:
            state.lengths = [file.mark() for file in files]
            progress.part = {"name": "clean", "made_from": made_from, "state": asdict(state)}
            progress.save()

        clock = Clock("clean", total, state.pairs)
        chunks = stack.enter_context(closing(in_processes(make, _chunks(inputs, state.pairs), workers)))
        for chunk in chunks:
            sides = chunk.sides
            if not options.duplicates:
                is_new = seen.add(chunk.hashes)
                files[-1].write(chunk.hashes[is_new].tobytes())
                if not is_new.all():
                    sides = _without_duplicates(chunk, is_new)
            for file, pack, text in zip(files, packs, sides):
                if text:
                    file.write(pack(text.encode("utf-8")))
            state.add(chunk)
            if clock.has_come(state.pairs):
                mark()
        for file, pack in zip(files, packs):
            if file.length == 0:
                file.write(pack(b""))  # which unpacks to nothing, where an empty file is no .gz or .xz
        mark()


def _without_duplicates(chunk: Cleaned, is_new: np.ndarray) -> tuple[str, str]:
    """What is left of both sides; the others are noted as dropped."""
    chunk.dropped[DUPLICATE] += int(np.count_nonzero(~is_new))
    source, target = ("".join(f"{line}\n" for line in compress(side.split("\n"), is_new)) for side in chunk.sides)
    return source, target


def _chunks(inputs: tuple[Path, Path], done: int) -> Iterator[tuple[str, str]]:
    """So many pairs at a time, from the first that is not done."""
    pairs = islice(zip(*map(read_lines, inputs)), done, None)
    while rows := list(islice(pairs, LINES_A_BATCH)):
        source, target = zip(*rows)
        yield "\n".join(source), "\n".join(target)


def _hashes(path: Path) -> Iterator[np.ndarray]:
    """What an earlier run has noted of its pairs."""
    with open(path, "rb") as file:
        while block := file.read(2**20 * BYTES_A_HASH):
            yield np.frombuffer(block, dtype="<u8")


def _made_from(inputs: tuple[Path, Path], outputs: tuple[Path, Path], options: Options) -> dict[str, Any]:
    """What the outputs depend on."""
    model = () if options.sentencepiece is None else (options.sentencepiece,)
    versions = {}
    for package in ("sacremoses", *(("py3langid",) if options.language_margin is not None else ())):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    texts = {"inputs": fingerprint(inputs), "sentencepiece": fingerprint(model), "held_out": fingerprint(options.held_out)}
    plain = {name: [str(path) for path in value] if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
             for name, value in asdict(options).items()}  # fmt: skip
    return {"options": plain, "outputs": [path.name for path in outputs], "versions": versions, **texts}


def _hidden(output: Path, more: str = "") -> Path:
    target = followed(output)
    return target.with_name(f".{target.name}{more}.part.tmp")


def _can_go_on(part: Path, output: Path | None, length: int) -> bool:
    """Whether a hidden file has what is noted; what was killed while it got its name has its hidden one again."""
    if output is not None and not part.exists() and output.is_file() and output.stat().st_size == length:
        followed(output).rename(part)
    return part.is_file() and part.stat().st_size >= length


def report_table(result: dict[str, Any]) -> str:
    """What :func:`clean` returns, as a table: a row for each rule."""
    rows = [("pairs", "share", ""), (f"{result['pairs']:,}", "100.00%", "read")]
    for rule in RULES:
        count = result["dropped"][rule.name]
        rows.append((f"{count:,}", f"{count / result['pairs']:.2%}", f"dropped: {rule.name}: {rule.reason}"))
    rows.append((f"{result['kept']:,}", f"{result['kept'] / result['pairs']:.2%}", "kept"))
    lines = aligned(rows, left=[2])
    changed = result["changed"]
    lines.append(f"normalising changed {changed['source']:,} lines of the source and {changed['target']:,} of the target")
    for name, count in result["dropped"].items():
        if count > result["pairs"] / 2:
            remedy = "look at its examples in --report FILE"
            if name in BY_LENGTH:
                remedy += ". In a language without spaces, lengths are to be counted with --sentencepiece"
            elif name == DUPLICATE:
                remedy = "they stand in the input twice or more"
            lines.append(f"warning: rule '{name}' dropped more than half of the pairs: {remedy}")
    return "\n".join(lines)
