# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""From raw text to translation data, byte for byte what encode_text and fairseq-preprocess make of it together.

The folder has ``dict.LANG.txt``, and ``SPLIT.SRC-TGT.LANG.bin`` and ``.idx`` of every split and language. Each split is
one step: ``binarized.json`` notes what it was made from, and a step that was stopped goes on where it was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veco_fairseq.data.prepare.encoding import Row, Step, encode_rows, remove_rest, say
from veco_fairseq.data.prepare.growing import PROGRESS_NAME, Progress
from veco_fairseq.data.sentencepiece import Encoder, load_sentencepiece
from veco_fairseq.data.symbols import read_entries, read_symbols, require_own_pieces
from veco_fairseq.errors import UserError
from veco_fairseq.files import atomic_output, count_translations, read_lines
from veco_fairseq.manifest import Manifest, checksum, fingerprint

MANIFEST_NAME = "binarized.json"
DICTIONARY = "dictionary"  # the step of the two dict.LANG.txt


@dataclass
class Splits:
    """Which texts become which split.

    Args:
        languages: source and target.
        prefixes: split -> its texts without ``.LANG``; they may be ``.LANG.gz`` or ``.LANG.xz``, too.
    """

    languages: tuple[str, str]
    prefixes: dict[str, str]

    def texts(self, split: str) -> tuple[Path, ...]:
        """A split's texts, source and target.

        Raises:
            UserError: one is not there.
        """
        return tuple(_text(f"{self.prefixes[split]}.{language}") for language in self.languages)

    def file(self, split: str, side: int) -> str:
        """The name of a token file, without .bin and .idx."""
        return f"{split}.{'-'.join(self.languages)}.{self.languages[side]}"


def parse_splits(source: str, target: str, train: str | None, valid: str | None, test: str | None) -> Splits:
    """The splits as fairseq-preprocess numbers them: train; valid, valid1, ...; test, test1, ...

    Args:
        source, target: the languages.
        train, valid, test: prefixes, several of the last two with commas between.

    Raises:
        UserError: both languages are the same, there is no prefix, or an empty one.
    """
    if source == target:
        raise UserError(f"--source-lang and --target-lang are both {source}")
    prefixes = {"train": train} if train else {}
    for split, names in (("valid", valid), ("test", test)):
        for number, prefix in enumerate(names.split(",") if names else ()):
            if not prefix:
                raise UserError(f"--{split}pref {names}: names nothing beside a comma")
            prefixes[f"{split}{number or ''}"] = prefix
    if not prefixes:
        raise UserError("nothing to binarize: give --trainpref, --validpref or --testpref")
    return Splits((source, target), prefixes)


def _text(path: str) -> Path:
    for suffix in ("", ".gz", ".xz"):
        if Path(path + suffix).exists():
            return Path(path + suffix)
    raise UserError(f"{path}[.gz]: no such file: check the prefix and the languages")


def binarize(splits: Splits, model: Path, dictionary: Path, destination: Path, workers: int) -> dict[str, dict[str, Any]]:
    """Make the folder, or what is missing of it; return each step's report.

    Args:
        splits: the texts.
        model: SentencePiece's.
        dictionary: of both languages, the one that belongs to the model.
        destination: the folder.
        workers: threads.

    Raises:
        UserError: anything that is wrong with the input, which is noticed before anything is written, or a full disk.
    """
    names = [f"dict.{language}.txt" for language in splits.languages]
    manifest = Manifest(destination, MANIFEST_NAME, names)
    processor, symbols = load_sentencepiece(model), read_symbols(dictionary)
    require_own_pieces(processor, model, symbols)
    vocabulary = {"vocabulary": checksum(model.read_bytes(), dictionary.read_bytes()), "languages": list(splits.languages)}
    if not manifest.is_done(DICTIONARY, vocabulary):
        manifest.require_all({DICTIONARY, *splits.prefixes})
    steps = []
    for split in splits.prefixes:
        texts = splits.texts(split)
        made_from = {**vocabulary, "texts": fingerprint(texts)}
        files = {(split, side): splits.file(split, side) for side in range(2)}
        rows = 0 if manifest.is_done(split, made_from) else count_translations(*texts)
        steps.append(Step(split, made_from, files, rows))
    if not manifest.is_done(DICTIONARY, vocabulary):
        _write_dictionaries(dictionary, names, vocabulary, manifest)
    encoder = Encoder(processor, symbols, workers=1)
    progress = Progress(destination / PROGRESS_NAME)
    for step in steps:
        if manifest.is_done(step.name, step.made_from):
            say(f"{step.name}: already there")
            continue
        texts = splits.texts(step.name)
        counts = encode_rows(step, _rows(step.name, texts), encoder, workers=workers, manifest=manifest, progress=progress)
        report = {}
        for side, count in enumerate(counts.values()):
            report[splits.languages[side]] = {
                "text": str(texts[side]), "sentences": step.rows, "tokens": count.tokens + step.rows, "unknown": count.unknown,
            }  # fmt: skip
        manifest.finish(step.name, step.made_from, step.names, report)
    remove_rest(manifest, steps)
    progress.path.unlink(missing_ok=True)
    return {step.name: manifest.steps[step.name]["report"] for step in steps}


def _rows(split: str, texts: Sequence[Path]) -> Iterator[Row]:
    return ((split, lines) for lines in zip(*map(read_lines, texts)))


def _write_dictionaries(dictionary: Path, names: Sequence[str], made_from: dict[str, Any], manifest: Manifest) -> None:
    """Both languages' dictionary as fairseq saves it: without what it is told by a line's end."""
    text = "".join(f"{entry.token} {entry.number}\n" for entry in read_entries(dictionary))
    manifest.start(DICTIONARY, names)
    for name in names:
        with atomic_output(manifest.root / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    manifest.finish(DICTIONARY, made_from, names, {"types": text.count("\n")})


def report_lines(reports: dict[str, dict[str, Any]]) -> list[str]:
    """The reports of :func:`binarize`, a line of each text, in the words of fairseq-preprocess's log."""
    return [
        f"[{language}] {n['text']}: {n['sentences']} sents, {n['tokens']} tokens, "
        f"{100 * n['unknown'] / n['tokens']:.3}% replaced (by <unk>)"
        for report in reports.values()
        for language, n in report.items()
    ]
