# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reads the tasks' files: sentence pairs, tagged sentences, and questions."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from veco_fairseq.data.languages import known_as
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_json, read_lines


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A row of XNLI or PAWS-X.

    Attributes:
        id: shared by the row's translations: the file's id, or "row N".
        where: the file and line, for messages.
        label: None if the file has none.
    """

    id: str
    where: str
    first: str
    second: str
    label: str | None


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """A sentence of a treebank or of WikiAnn; ``id`` may be empty.

    Attributes:
        tags: one for each word, empty where the word has none; no tags if no word has one.
    """

    id: str
    where: str
    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question on a context.

    Attributes:
        answers: (first character in the context, text) of each; empty if the context has no answer.
    """

    id: str
    where: str
    question: str
    context: str
    answers: tuple[tuple[int, str], ...]


Example = SentencePair | TaggedSentence | Question


def has_gold(example: Example) -> bool:
    """Return whether an example has what is to be predicted: a label, tags, or an answer."""
    if isinstance(example, SentencePair):
        return bool(example.label)
    return bool(example.tags if isinstance(example, TaggedSentence) else example.answers)


def without_text(example: Example) -> Example:
    """Return what training keeps of an example once its tokens are made: everything but the text."""
    texts = {SentencePair: {"first": "", "second": ""}, TaggedSentence: {"words": (), "tags": ()},
             Question: {"question": "", "context": "", "answers": ()}}  # fmt: skip
    return replace(example, **texts[type(example)])


# ---------------------------------------------------------------------------------------------------------------------
# Sentence pairs

# Names of the columns in the releases of PAWS-X, XNLI and SICK. A file without a row of names has the columns sentence,
# sentence, label, as XTREME's files.
INFERENCE = ("contradiction", "entailment", "neutral")  # SICK writes these in capitals
INFERENCE_LABELS = {**{label: label for label in INFERENCE}, "contradictory": "contradiction"}  # the last: XNLI's training
COLUMNS = {
    "first": ("sentence1", "sentence_a", "premise"),
    "second": ("sentence2", "sentence_b", "hypothesis", "hypo"),
    "label": ("label", "gold_label", "entailment_label"),
    "id": ("id", "pair_id", "pairid"),
    "lang": ("language",),
}


def read_sentence_pairs(path: Path, lang: str) -> Iterator[SentencePair]:
    """Yield the rows of a .tsv file, with or without a row of column names.

    In a column gold_label, as SNLI's, - stands for no label: the annotators did not agree. Where there is a column language,
    as in XNLI's file of all languages, only the rows of ``lang`` are read.

    Raises:
        UserError: a row has another number of columns, the columns have other names, or no row is of the language.
    """
    places: dict[str, int] = {}
    width = row = 0
    none = ""
    others: set[str] = set()
    for number, line in enumerate(read_lines(path), start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if number == 1:
            places = _named_columns(cells)
            width = len(cells)
            if places:
                none = "-" if "label" in places and cells[places["label"]].lower() == "gold_label" else ""
                continue
            if any(cell.lower() in COLUMNS["label"] for cell in cells):
                raise UserError(f"{path}, line 1: has names of columns, but not those of sentences: sentence1 and sentence2")
            places = dict(zip(("first", "second", "label"), range(width)))
            if width not in (2, 3):
                raise UserError(f"{path}, line 1: has {width} columns, not 2 sentences and a label, tabs between them")
        if len(cells) != width:
            raise UserError(f"{path}, line {number}: has {len(cells)} columns, but line 1 has {width}")
        if "lang" in places and known_as(cells[places["lang"]]) != known_as(lang):
            others.add(cells[places["lang"]])
            continue
        label = cells[places["label"]] if "label" in places else ""
        row += 1
        name = cells[places["id"]] if "id" in places else f"row {row}"
        where = f"{path}, line {number}"
        label = None if label in ("", none) else INFERENCE_LABELS.get(label.lower(), label)
        yield SentencePair(name, where, cells[places["first"]], cells[places["second"]], label)
    if others and not row:
        raise UserError(f"{path}: has no row of {lang}; its column language has {', '.join(sorted(others))}")


def _named_columns(cells: Sequence[str]) -> dict[str, int]:
    """Return the positions of :data:`COLUMNS`, if these cells are names of columns."""
    found = {}
    for column, names in COLUMNS.items():
        for place, cell in enumerate(cells):
            if cell.lower() in names:
                found[column] = place
    return found if {"first", "second"} <= found.keys() else {}


# ---------------------------------------------------------------------------------------------------------------------
# Tagged sentences


def read_conllu(path: Path, lang: str) -> Iterator[TaggedSentence]:
    """Yield sentences with words and universal parts of speech (columns 2 and 4) of a CoNLL-U file.

    Multiword tokens (``1-2``) and empty nodes (``1.1``) are left out, since their words have lines of their own.

    Raises:
        UserError: a line does not have ten columns.
    """
    for place, block in _blocks(path):
        name, words, tags = None, [], []
        for number, line in enumerate(block, start=place):
            if line.startswith("#"):
                name = _sentence_id(line) or name
                continue
            cells = line.split("\t")
            if len(cells) != 10:
                raise UserError(f"{path}, line {number}: has {len(cells)} columns, not the 10 of CoNLL-U")
            if cells[0].isdecimal():
                words.append(cells[1])
                tags.append(cells[3])
        if words:
            yield TaggedSentence(name or "", f"{path}, line {place}", tuple(words), _known(tags))


def read_tagged_lines(path: Path, lang: str) -> Iterator[TaggedSentence]:
    """Yield sentences of a file with a word and its tag on each line, and a blank line after each sentence.

    WikiAnn writes a word as ``de:Haus``, also where the file's name has deu or de-DE. A test set may have only words, and a
    sentence may begin with ``# sent_id = ...``.

    Raises:
        UserError: a line does not have as many columns as the first, or not one or two.
    """
    columns = 0
    prefix = re.compile("|".join(rf"^{re.escape(code)}:" for code in (lang, known_as(lang))))
    for place, block in _blocks(path):
        name, words, tags = "", [], []
        for number, line in enumerate(block, start=place):
            if _sentence_id(line):
                name = _sentence_id(line)
                continue
            cells = line.rstrip().split("\t") if "\t" in line else re.split(" +", line.strip(" "))  # a word may have U+00A0
            columns = columns or len(cells)
            if len(cells) != columns or columns > 2 or not all(cells):
                wanted = "a word and its tag" if columns != 1 else "only a word, as in the first line"
                raise UserError(f"{path}, line {number}: has {len(cells)} columns, not {wanted}")
            words.append(prefix.sub("", cells[0]) or cells[0])
            tags += [cell.strip() for cell in cells[1:]]
        if words:
            yield TaggedSentence(name, f"{path}, line {place}", tuple(words), _known(tags))


def _known(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags with an empty one for ``_``, which stands for an unknown value; none if all of them are unknown."""
    known = tuple("" if tag == "_" else tag for tag in tags)
    return known if any(known) else ()


def _sentence_id(line: str) -> str:
    """Return the id in a line ``# sent_id = ...``, or an empty text."""
    key, equals, value = line.partition("=")
    return value.strip() if equals and key.split() == ["#", "sent_id"] else ""


def _blocks(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the blocks between blank lines: the number of the first line, and the lines."""
    block: list[str] = []
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            block.append(line)
        elif block:
            yield number - len(block), block
            block = []
    if block:
        yield number - len(block) + 1, block


# ---------------------------------------------------------------------------------------------------------------------
# Questions


def read_questions(path: Path, lang: str) -> Iterator[Question]:
    """Yield the questions of a file in the format of SQuAD, version 1 or 2.

    Raises:
        UserError: the file is no JSON, or a key is missing.
    """
    data = read_json(path)
    try:
        for article in data["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    where = f"{path}, question {entry['id']}"
                    answers = [] if entry.get("is_impossible") else entry.get("answers", [])
                    answers = tuple((answer["answer_start"], answer["text"]) for answer in answers if answer["text"])
                    example = Question(str(entry["id"]), where, entry["question"], paragraph["context"], answers)
                    if not _has_right_types(example):
                        wanted = "texts are strings, and answer_start is a number"
                        raise UserError(f"{where}: is not in SQuAD's format: {wanted}")
                    yield example
    except KeyError as error:
        raise UserError(f"{path}: is not in SQuAD's format: {error} is missing") from error
    except (TypeError, AttributeError) as error:
        raise UserError(f"{path}: is not in SQuAD's format ({error})") from error


def _has_right_types(question: Question) -> bool:
    texts = [question.question, question.context, *(text for _, text in question.answers)]
    return all(type(text) is str for text in texts) and all(type(start) is int for start, _ in question.answers)


# ---------------------------------------------------------------------------------------------------------------------
# A folder's files

READERS: dict[str, dict[str, Callable[[Path, str], Iterator[Example]]]] = {
    "classification": {"tsv": read_sentence_pairs},
    "tagging": {"conllu": read_conllu, "tsv": read_tagged_lines},
    "span": {"json": read_questions},
}
NLU_TASKS = tuple(READERS)
SPLITS = {"valid": ("valid", "dev")}  # other names of a split


def find_files(folder: Path, split: str, nlu_task: str) -> dict[str, Path]:
    """Return language -> file for the files ``SPLIT-LANG.tsv`` (or .conllu, .json; plain, .gz or .xz) in a folder."""
    names = "|".join(map(re.escape, SPLITS.get(split, (split,))))
    suffixes = "|".join(READERS[nlu_task])
    pattern = re.compile(rf"(?:{names})-([\w-]+)\.(?:{suffixes})(?:\.[gx]z)?")
    found = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = pattern.fullmatch(path.name)
        if match:
            if match[1] in found:
                raise UserError(f"{path}: and {found[match[1]].name} are both the {split} set of {match[1]}: keep one")
            found[match[1]] = path
    return found


def read_examples(path: Path, lang: str, nlu_task: str) -> list[Example]:
    """Read all examples of a file.

    Raises:
        UserError: the file is bad (see the readers), or empty.
    """
    suffix = path.name.removesuffix(".gz").removesuffix(".xz").rpartition(".")[2]
    if suffix not in READERS[nlu_task]:
        raise UserError(f"{path}: is not a file of --nlu-task {nlu_task}: *.{', *.'.join(READERS[nlu_task])}, plain, .gz or .xz")
    examples = list(READERS[nlu_task][suffix](path, lang))
    if not examples:
        raise UserError(f"{path}: has no examples")
    return examples
