# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""From raw text to a data root: SentencePiece vocabulary, held-out lines, token files.

The root has the layout of :mod:`veco_fairseq.data.roots`. Every part of it (the vocabulary, each language, each pair) is
one step. ``ROOT/preparation.json`` notes what each step was made from, and a step with the same inputs and options is not
done again. A step that was interrupted in the middle of its text goes on there
(:mod:`veco_fairseq.data.prepare.growing`).
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from veco_fairseq.data.prepare.encoding import Counts, Key, Step, Text, encode_rows, encoding, remove_rest, say
from veco_fairseq.data.prepare.growing import PROGRESS_NAME, Progress
from veco_fairseq.data.prepare.text import (
    Options,
    Part,
    Survey,
    has_text,
    held_out,
    is_drawn,
    is_valid,
    split_rows,
    survey_bitext,
    survey_mono,
)
from veco_fairseq.data.sentencepiece import (
    DICT_NAME,
    MASK,
    MODEL_NAME,
    Encoder,
    dictionary_text,
    load_sentencepiece,
    train_sentencepiece,
    write_vocabulary,
)
from veco_fairseq.data.symbols import read_symbols, require_own_pieces
from veco_fairseq.errors import UserError
from veco_fairseq.lock import folder_to_make
from veco_fairseq.manifest import Manifest, checksum, fingerprint
from veco_fairseq.parallel import Run, kept_processes
from veco_fairseq.tables import aligned

MANIFEST_NAME = "preparation.json"
# SentencePiece's memory in training, measured with 100,000 and 300,000 lines.
TRAINING_BYTES_A_CHARACTER = 24
LINES_LOOKED_AT = 10_000
# Less text is read in this process: to start others takes a second.
BYTES_FOR_PROCESSES = 50_000_000


def equal_shares(lines: dict[str, int], limit: int) -> dict[str, int]:
    """Return how many lines of each language to take: ``limit`` in all, equal shares, but no more than a language has."""
    shares = {}
    for position, language in enumerate(sorted(lines, key=lambda name: (lines[name], name))):
        shares[language] = min(lines[language], limit // (len(lines) - position))
        limit -= shares[language]
    return shares


def training_lines(options: Options, surveys: dict[str, Survey]) -> Iterator[str]:
    """Yield the lines to learn the vocabulary from: lines of the training split, at most ``options.vocab_lines``.

    The held-out lines are drawn in the same way. So for a line that is drawn and held out, the next one stands that is neither.
    """
    totals: Counter[str] = Counter()
    for part in options.parts:
        for language in part.languages:
            totals[language] += surveys[part.name].kept
    shares = equal_shares(totals, options.vocab_lines)
    seen: Counter[str] = Counter()
    due: Counter[str] = Counter()
    for part in options.parts:
        for split, lines in split_rows(part, surveys[part.name], options.valid_lines):
            if split == "valid" and part.valid:  # which the totals do not count
                continue
            for language, line in zip(part.languages, lines):
                if has_text(line):
                    due[language] += is_drawn(seen[language], shares[language], totals[language])
                    seen[language] += 1
                    if split == "train" and due[language]:
                        due[language] -= 1
                        yield line


def prepare_root(options: Options) -> dict[str, dict[str, Any]]:
    """Make the root, or the parts of it that are missing; return each step's report.

    Raises:
        UserError: the input is wrong, or the disk is full; the files of a failed step have hidden names. Or another process
            makes the root.
    """
    with folder_to_make(options.output):
        return _prepare(options)


def _prepare(options: Options) -> dict[str, dict[str, Any]]:
    manifest = Manifest(options.output, MANIFEST_NAME, (DICT_NAME,))
    _require_one_order(options, manifest)
    vocabulary_from = _vocabulary_inputs(options)
    vocabulary_is_done = manifest.is_done("vocabulary", vocabulary_from)
    if not vocabulary_is_done:
        manifest.require_all({"vocabulary", *(part.name for part in options.parts)})
    progress = Progress(options.output / PROGRESS_NAME)
    with kept_processes(options.workers) as run:
        # All inputs are read once before anything is written, so that an error in the last file shows at once.
        surveys = _surveys(options, manifest if vocabulary_is_done else None, progress, run)
        if not manifest.path.exists():
            manifest.save()  # from here on the folder is known as a root, whatever interrupts this run
        if surveys:
            progress.save()
        if vocabulary_is_done:
            say("vocabulary: already there")
        else:
            _make_vocabulary(options, surveys, manifest, vocabulary_from)
        _encode(options, surveys, run, manifest=manifest, progress=progress)
    progress.path.unlink(missing_ok=True)
    return {step: entry["report"] for step, entry in manifest.steps.items()}


def _require_one_order(options: Options, manifest: Manifest) -> None:
    """Refuse a pair that the root has in the other order: training would take both for pairs of their own."""
    for part in options.parts:
        other = replace(part, languages=part.languages[::-1]).name
        if part.is_pair and other in manifest.steps:
            raise UserError(
                f"{options.output}: has {other} already, and would have the pair twice: name it so, with its files in this "
                "order, or make another folder"
            )


def _surveys(options: Options, manifest: Manifest | None, progress: Progress, run: Run) -> dict[str, Survey]:
    """Read the parts that are not in the manifest; note in ``progress`` what was found."""
    surveys: dict[str, Survey] = {}
    unread: list[Part] = []
    for part in options.parts:
        if manifest is None or not manifest.is_done(part.name, _part_inputs(part, options, _vocabulary(manifest))):
            known = progress.survey(part.name, _part_inputs(part, options, None))
            if known:
                surveys[part.name] = Survey(**known)
            else:
                unread.append(part)
    size = sum(path.stat().st_size for part in unread for path in (*part.train, *part.valid))
    survey, inputs = partial(_survey, options), {part.name: _part_inputs(part, options, None) for part in unread}
    for part, found in zip(unread, run(partial(partial, survey), unread) if size > BYTES_FOR_PROCESSES else map(survey, unread)):
        surveys[part.name] = found
        progress.surveys[part.name] = [inputs[part.name], asdict(found)]
    return surveys


def _require_unchanged(part: Part, options: Options, progress: Progress) -> None:
    """Refuse texts that are not those of the survey, by whose numbers of lines the held-out ones are chosen; UserError."""
    if progress.survey(part.name, _part_inputs(part, options, None)) is None:
        texts = ", ".join(map(str, (*part.train, *part.valid)))
        raise UserError(f"{part.name}: {texts}: changed while the root was made: run the same command again, which reads it anew")


def _encode(options: Options, surveys: dict[str, Survey], run: Run, *, manifest: Manifest, progress: Progress) -> None:
    """Write the token files that are not in the manifest."""
    model, dictionary = options.output / MODEL_NAME, options.output / DICT_NAME
    encoder = Encoder(load_sentencepiece(model), read_symbols(dictionary), workers=1)
    if (encoder.ids == encoder.unk).mean() > 0.5:
        say("warning: most pieces of the SentencePiece model are not in the dictionary: do they belong together?")
    encode = encoding(run, model, dictionary, leave_out_empty=True)
    for part in options.parts:
        made_from = _part_inputs(part, options, _vocabulary(manifest))
        splits = ("train", "valid") if options.valid_lines or part.valid else ("train",)
        files = {(split, side): part.prefix(split, side) for split in splits for side in range(len(part.languages))}
        step = Step(part.name, made_from, files, surveys[part.name].rows if part.name in surveys else 0)
        if manifest.is_done(part.name, made_from):
            say(f"{part.name}: already there")
        else:
            _require_unchanged(part, options, progress)
            texts = _texts(part, options, surveys[part.name])
            counts = encode_rows(step, texts, encoder, encode, manifest=manifest, progress=progress)
            _require_unchanged(part, options, progress)
            manifest.finish(part.name, made_from, step.names, _report(part, surveys[part.name], counts))
        remove_rest(manifest, [step])


def _vocabulary(manifest: Manifest) -> str:
    return manifest.steps["vocabulary"]["report"]["sha256"]


def _vocabulary_inputs(options: Options) -> dict[str, Any]:
    if options.vocab_size is None:
        model, dictionary = options.given
        processor, symbols = load_sentencepiece(model), read_symbols(dictionary)
        require_own_pieces(processor, model, symbols)
        if MASK in symbols[:-1]:
            raise UserError(
                f"{dictionary}: has {MASK} as token {symbols.index(MASK)} of {len(symbols):,}, but it must be the last for "
                "training: take the line away"
            )
        return {"given": checksum(model.read_bytes(), dictionary.read_bytes())}
    return {
        **({"soft_vocab_limit": True} if options.soft_vocab_limit else {}),
        "vocab_size": options.vocab_size,
        "character_coverage": options.character_coverage,
        "vocab_lines": options.vocab_lines,
        "parts": {part.name: [held_out(part, options.valid_lines), fingerprint(part.train)] for part in options.parts},
    }


def _part_inputs(part: Part, options: Options, vocabulary: str | None) -> dict[str, Any]:
    return {
        "train": fingerprint(part.train),
        "valid": fingerprint(part.valid) or held_out(part, options.valid_lines),
        "vocabulary": vocabulary,
    }


def _survey(options: Options, part: Part) -> Survey:
    say(f"{part.name}: reading {', '.join(str(path) for path in (*part.train, *part.valid))}")
    valid_lines = held_out(part, options.valid_lines)
    if part.is_pair:
        survey = survey_bitext(part.train, valid_lines)
        if part.valid:
            survey.dropped += survey_bitext(part.valid, 0).dropped
        return survey
    if part.valid:
        survey_mono(part.valid[0], 0)
    survey = survey_mono(part.train[0], valid_lines)
    if survey.cut:
        say(f"{part.name}: is one document (no blank line before the held-out lines), so it is cut for validation")
    return survey


def _make_vocabulary(options: Options, surveys: dict[str, Survey], manifest: Manifest, made_from: dict[str, Any]) -> None:
    if options.vocab_size is None:
        model, dictionary = (path.read_bytes() for path in options.given)
    else:
        lines = min(sum(surveys[p.name].kept * len(p.languages) for p in options.parts), options.vocab_lines)
        memory = _memory(options, surveys, lines)
        say(f"vocabulary: training SentencePiece, {options.vocab_size:,} pieces, on about {lines:,} lines{memory}")
        model = train_sentencepiece(
            training_lines(options, surveys),
            options.vocab_size,
            character_coverage=options.character_coverage,
            quiet=lines < 500_000,
            at_most=options.soft_vocab_limit,
        )
        dictionary = dictionary_text(model, options.output / MODEL_NAME)
    files = (MODEL_NAME, DICT_NAME)
    manifest.start("vocabulary", files)
    write_vocabulary(options.output, model, dictionary)
    report = {"sha256": checksum(model, dictionary), "tokens": dictionary.count(b"\n")}
    manifest.finish("vocabulary", made_from, files, report)


def _memory(options: Options, surveys: dict[str, Survey], lines: int) -> str:
    """Return what to say about the memory that training on so many lines takes; nothing where it is little."""
    first = list(itertools.islice(training_lines(options, surveys), LINES_LOOKED_AT))
    gigabytes = sum(map(len, first)) / max(1, len(first)) * lines * TRAINING_BYTES_A_CHARACTER / 1e9
    return f", with about {gigabytes:.1f} GB of memory (--vocab-lines takes fewer lines)" if gigabytes >= 0.5 else ""


def _texts(part: Part, options: Options, survey: Survey) -> list[Text]:
    """Return the texts of a part, which go into the token files of all its sides and splits in one pass."""
    texts = [Text(part.train, "train", is_valid(part, survey, options.valid_lines))]
    return texts + ([Text(part.valid, "valid")] if part.valid else [])


def _report(part: Part, survey: Survey, found: dict[Key, Counts]) -> dict[str, Any]:
    """Return what the manifest says of a part."""
    report: dict[str, Any] = {"rows": survey.rows, "dropped": survey.dropped, "splits": {}}
    for (split, side), count in found.items():
        numbers = {name: value for name, value in asdict(count).items() if name != "in_document"}
        if part.is_pair:
            del numbers["documents"]
        report["splits"].setdefault(split, {})[part.languages[side]] = numbers
    return report


def report_table(reports: dict[str, dict[str, Any]]) -> str:
    """Return the reports of :func:`prepare_root` as a table with a row for each part, split and language."""
    rows = [("part", "split", "language", "lines", "documents", "dropped", "tokens", "unknown", "unknown %")]
    for part, report in sorted(reports.items()):
        for split, languages in report.get("splits", {}).items():
            for language, n in languages.items():
                of_pair = "documents" not in n
                documents = "-" if of_pair else f"{n['documents']:,}"
                dropped = f"{report['dropped']:,}" if of_pair and split == "train" else "-"
                share = f"{100 * n['unknown'] / max(n['tokens'], 1):.3f}"
                numbers = (f"{n['lines']:,}", documents, dropped, f"{n['tokens']:,}", f"{n['unknown']:,}", share)
                rows.append((part, split, language, *numbers))
    return "\n".join(aligned(rows, left=range(3)))
