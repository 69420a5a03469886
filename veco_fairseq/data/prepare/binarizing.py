# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""From raw text to translation data, byte for byte what encode_text and fairseq-preprocess make of it together.

The folder has ``dict.LANG.txt``, and ``SPLIT.SRC-TGT.LANG.bin`` and ``.idx`` of every split and language; it may have several
pairs of languages with one vocabulary. The SentencePiece model is copied to it, so that ``veco translate`` finds it. The model,
each dictionary and each split are one step. ``binarized.json`` notes what each step
was made from, and a step that was interrupted goes on where it was.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veco_fairseq.data.prepare.encoding import Step, Text, encode_rows, encoding, remove_rest, say
from veco_fairseq.data.prepare.growing import PROGRESS_NAME, Progress
from veco_fairseq.data.sentencepiece import MODEL_NAME, Encoder, load_sentencepiece
from veco_fairseq.data.symbols import read_entries, read_symbols, require_own_pieces
from veco_fairseq.errors import UserError
from veco_fairseq.files import atomic_output, count_translations
from veco_fairseq.lock import folder_to_make
from veco_fairseq.manifest import Manifest, checksum, fingerprint
from veco_fairseq.parallel import kept_processes

MANIFEST_NAME = "binarized.json"


@dataclass
class Splits:
    """The texts of each split.

    Args:
        languages: source and target.
        prefixes: split -> its texts without ``.LANG``; they may be ``.LANG.gz`` or ``.LANG.xz``, too.
    """

    languages: tuple[str, str]
    prefixes: dict[str, str]

    def texts(self, split: str) -> tuple[Path, ...]:
        """Return a split's texts, source and target.

        Raises:
            UserError: a text does not exist.
        """
        return tuple(_text(f"{self.prefixes[split]}.{language}") for language in self.languages)

    def name(self, split: str) -> str:
        """Return the name of a split's step."""
        return f"{split}.{'-'.join(self.languages)}"


def parse_splits(
    source: str, target: str, *, train: str | None = None, valid: str | None = None, test: str | None = None
) -> Splits:
    """Return the splits, numbered as by fairseq-preprocess: train; valid, valid1, ...; test, test1, ...

    Args:
        source, target: the languages.
        train, valid, test: prefixes, several of the last two with commas between; one with a comma in it, of texts that are there,
            is one.

    Raises:
        UserError: both languages are the same, there is no prefix, or an empty one.
    """
    if source == target:
        raise UserError(f"--source-lang and --target-lang are both {source}")
    prefixes = {"train": train} if train else {}
    for split, names in (("valid", valid), ("test", test)):
        is_one = names and _find(f"{names}.{source}")
        for number, prefix in enumerate([names] if is_one else names.split(",") if names else ()):
            if not prefix:
                raise UserError(f"--{split}pref {names}: names nothing beside a comma")
            prefixes[f"{split}{number or ''}"] = prefix
    if not prefixes:
        raise UserError("nothing to binarize: give --trainpref, --validpref or --testpref")
    return Splits((source, target), prefixes)


def _find(path: str) -> Path | None:
    """Return the text of this name, plain or packed, if there is one."""
    return next((found for suffix in ("", ".gz", ".xz") if (found := Path(path + suffix)).exists()), None)


def _text(path: str) -> Path:
    found = _find(path)
    if found is None:
        raise UserError(f"{path}[.gz]: no such file: check the prefix and the languages")
    return found


def binarize(splits: Splits, model: Path, dictionary: Path, destination: Path, *, workers: int) -> dict[str, dict[str, Any]]:
    """Make the folder, or the parts of it that are missing; return the report of each split.

    Args:
        splits: the texts.
        model: SentencePiece's.
        dictionary: of both languages, the one that belongs to the model.
        destination: the folder.
        workers: processes.

    Raises:
        UserError: the input is wrong, which is noticed before anything is written, or the disk is full. Or another process
            makes the folder.
    """
    with folder_to_make(destination):
        return _binarize(splits, model, dictionary, destination, workers=workers)


def _binarize(splits: Splits, model: Path, dictionary: Path, destination: Path, *, workers: int) -> dict[str, dict[str, Any]]:
    manifest = Manifest(destination, MANIFEST_NAME, map(_dictionary, splits.languages))
    processor, symbols = load_sentencepiece(model), read_symbols(dictionary)
    require_own_pieces(processor, model, symbols)
    vocabulary = {"vocabulary": checksum(model.read_bytes(), dictionary.read_bytes())}
    of_it = {name for name, step in manifest.steps.items() if step["made_from"]["vocabulary"] == vocabulary["vocabulary"]}
    manifest.require_all({*of_it, MODEL_NAME, *map(_dictionary, splits.languages), *map(splits.name, splits.prefixes)})
    copies_model = _copies_model(model, manifest)
    steps = []
    for split in splits.prefixes:
        name, texts = splits.name(split), splits.texts(split)
        made_from = {**vocabulary, "texts": fingerprint(texts)}
        files = {(split, side): f"{name}.{language}" for side, language in enumerate(splits.languages)}
        steps.append(Step(name, made_from, files, 0 if manifest.is_done(name, made_from) else count_translations(*texts)))
    if copies_model and not manifest.is_done(MODEL_NAME, vocabulary):
        _write(MODEL_NAME, model.read_bytes(), vocabulary, manifest, report={})
    for language in splits.languages:
        if not manifest.is_done(_dictionary(language), vocabulary):
            # As fairseq saves it: without the flags at the ends of lines.
            lines = [f"{entry.token} {entry.number}\n" for entry in read_entries(dictionary)]
            _write(_dictionary(language), "".join(lines).encode(), vocabulary, manifest, report={"types": len(lines)})
    encoder = Encoder(processor, symbols, workers=1)
    progress = Progress(destination / PROGRESS_NAME)
    with kept_processes(workers) as run:
        encode = encoding(run, model, dictionary, leave_out_empty=False)
        for split, step in zip(splits.prefixes, steps):
            if manifest.is_done(step.name, step.made_from):
                say(f"{step.name}: already there")
                continue
            texts = splits.texts(split)
            counts = encode_rows(step, [Text(texts, split)], encoder, encode, manifest=manifest, progress=progress)
            report = {}
            for side, count in enumerate(counts.values()):
                report[splits.languages[side]] = {
                    "text": str(texts[side]), "sentences": step.rows, "tokens": count.tokens + step.rows, "unknown": count.unknown,
                }  # fmt: skip
            manifest.finish(step.name, step.made_from, step.names, report)
    remove_rest(manifest, steps)
    progress.path.unlink(missing_ok=True)
    return {step.name: manifest.steps[step.name]["report"] for step in steps}


def _dictionary(language: str) -> str:
    """Return the name of a language's dictionary, and of the step that writes it."""
    return f"dict.{language}.txt"


def _copies_model(model: Path, manifest: Manifest) -> bool:
    """Return whether the model is copied to the folder: no, if it is read from there, or if somebody else put it there.

    Raises:
        UserError: another model, which this command did not write, has its name there.
    """
    there = manifest.root / MODEL_NAME
    if not there.exists():
        return True
    if there.samefile(model):
        return False
    if MODEL_NAME not in manifest.steps and there.read_bytes() != model.read_bytes():
        raise UserError(f"{there}: is another model than {model}, and was not written by this command: name another folder")
    return MODEL_NAME in manifest.steps


def _write(name: str, content: bytes, made_from: dict[str, Any], manifest: Manifest, *, report: dict[str, Any]) -> None:
    """Write a file that belongs to the vocabulary: one step."""
    manifest.start(name, [name])
    with atomic_output(manifest.root / name) as temporary:
        temporary.write_bytes(content)
    manifest.finish(name, made_from, [name], report)


def report_lines(reports: dict[str, dict[str, Any]]) -> list[str]:
    """Return the reports of :func:`binarize` as lines, one for each text, in the words of fairseq-preprocess's log."""
    return [
        f"[{language}] {n['text']}: {n['sentences']} sents, {n['tokens']} tokens, "
        f"{100 * n['unknown'] / n['tokens']:.3}% replaced (by <unk>)"
        for report in reports.values()
        for language, n in report.items()
    ]
