# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A small random corpus in two languages, and models to start from: all that the trainings need."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq
from veco_fairseq.data.prepare.preparation import prepare_root
from veco_fairseq.data.prepare.text import Options, parse_parts
from veco_fairseq.data.sentencepiece import DICT_NAME
from veco_fairseq.errors import UserError
from veco_fairseq.files import atomic_folder
from veco_fairseq.kills.processes import Command, Process, last_line

LANGUAGES = ("de", "en")
SIZES = {"train": 110, "valid": 14, "dev": 14}  # sentences of each part of the corpus
PIECES = 150
MONO_LINES = 160
MANY_LINES = 40_000  # of the preparation that is killed, in which some seconds pass


class Author:
    """Makes up sentences of invented words, and their translations word for word."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
        self.words = [tuple("".join(self.rng.choices(syllables, k=2)) for _ in LANGUAGES) for _ in range(80)]

    def sentence(self) -> tuple[str, ...]:
        """One sentence in each of the languages."""
        words = self.rng.choices(self.words, k=self.rng.randint(3, 9))
        return tuple(" ".join(word[side] for word in words) for side in range(len(LANGUAGES)))

    def write(self, folder: Path, name: str, lines: int, lines_a_document: int = 0) -> None:
        """Write NAME.LANG: so many lines, translations of each other; with a blank line after each document."""
        sentences = [self.sentence() for _ in range(lines)]
        for side, lang in enumerate(LANGUAGES):
            with open(folder / f"{name}.{lang}", "w", encoding="utf-8") as file:
                for number, sentence in enumerate(sentences, start=1):
                    end_of_document = lines_a_document and number % lines_a_document == 0
                    file.write(sentence[side] + ("\n\n" if end_of_document else "\n"))

    def write_understanding(self, folder: Path) -> None:
        """Write sets of all three tasks, the rows of a language translations of the other's."""
        for task in ("classification", "tagging", "span"):
            (folder / task).mkdir()
        for split in ("train", "dev"):
            rows = [(self.sentence(), self.sentence()) for _ in range(SIZES[split] // 2)]
            for side, lang in enumerate(LANGUAGES):
                pairs = [(a[side], b[side]) for a, b in rows]
                labels = ["yes" if len(a[0]) > len(b[0]) else "no" for a, b in rows]
                lines = [f"{a}\t{b}\t{label}\n" for (a, b), label in zip(pairs, labels)]
                (folder / f"classification/{split}-{lang}.tsv").write_text("".join(lines), encoding="utf-8")
                words = ["".join(f"{word}\t{'VN'[len(word) % 2]}\n" for word in a.split()) for a, _ in pairs]
                (folder / f"tagging/{split}-{lang}.tsv").write_text("\n".join(words), encoding="utf-8")
                paragraphs = [question(str(number), a, b) for number, (a, b) in enumerate(pairs)]
                content = json.dumps({"data": [{"paragraphs": paragraphs}]})
                (folder / f"span/{split}-{lang}.json").write_text(content, encoding="utf-8")


def question(name: str, context: str, other: str) -> dict:
    """A paragraph of a SQuAD file, whose answer is the context's second word."""
    first, answer = context.split()[:2]
    answers = [{"text": answer, "answer_start": len(first) + 1}]
    return {"context": context, "qas": [{"id": name, "question": other, "answers": answers}]}


def finish(command: Command, log: Path, call: Callable[[], object]) -> None:
    """Run a command to its end, in a fork.

    Raises:
        UserError: it fails.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    process = Process(command, log, call)
    try:
        code = process.wait(600)
    finally:
        process.end()
    if code != 0:
        raise UserError(f"{command[0]}: ended with exit code {code}: {last_line(log)}: see {log}")


def make_corpus(folder: Path, seed: int) -> None:
    """Write all data, if they are not there yet.

    Args:
        folder: gets ``text/``, ``root/`` (pre-training), ``mt/`` (translation), ``classification/``, ``tagging/`` and
            ``span/``.
        seed: of the text.
    """
    if folder.exists():
        return
    with atomic_folder(folder) as made:
        text, author = made / "text", Author(seed)
        text.mkdir()
        author.write(text, "mono", MONO_LINES, lines_a_document=8)
        author.write(text, "train", SIZES["train"])
        author.write(text, "valid", SIZES["valid"])
        author.write_understanding(made)
        pair, (source, target) = "-".join(LANGUAGES), LANGUAGES
        parts = parse_parts(
            [f"{lang}={text}/mono.{lang}" for lang in LANGUAGES],
            [f"{pair}={text}/train.{source},{text}/train.{target}"],
            bitext_valid=[f"{pair}={text}/valid.{source},{text}/valid.{target}"],
        )
        options = Options(made / "root", parts, valid_lines=16, vocab_size=PIECES, workers=1)
        # SentencePiece starts threads, of which a process that forks must have none.
        finish(["prepare_root"], made / "logs/root", lambda: prepare_root(options))
        shutil.copytree(made / "root/bitext" / pair, made / "mt")
        for lang in LANGUAGES:
            shutil.copy(made / "root" / DICT_NAME, made / f"mt/dict.{lang}.txt")


def make_inputs(folder: Path, options: str, train: Callable[[], object], pretraining: Command) -> None:
    """Write what else the options of a command name, if it is not there yet.

    Args:
        folder: of the corpus, which gets ``camlm/`` and ``xlm/``, pre-trained for two updates, ``mt.pt``, converted, and
            ``many/``, the text for prepare_root.py.
        options: of the command.
        train: fairseq-train, on sys.argv.
        pretraining: its arguments but for the data and --save-dir.
    """
    converted = folder / "mt.pt"
    if "/many/" in options and not (folder / "many").exists():
        with atomic_folder(folder / "many") as made:
            Author(MANY_LINES).write(made, "train", MANY_LINES)
    for name, more in (("camlm", []), ("xlm", ["--objective", "mlm"])):
        wanted = f"/{name}/" in options or (name == "camlm" and f"/{converted.name}" in options)
        if wanted and not (folder / name).exists():
            with atomic_folder(folder / name) as made:
                command = ["fairseq-train", str(folder / "root"), *pretraining, *more, "--save-dir", str(made)]
                finish([*command, "--max-update", "2"], folder / "logs" / name, train)
    if f"/{converted.name}" in options and not converted.exists():
        checkpoint, dictionary = folder / "camlm/checkpoint_last.pt", folder / "root" / DICT_NAME
        finish(["convert_to_seq2seq"], folder / "logs/mt",
               lambda: convert_to_seq2seq(checkpoint, converted, 2, dictionary=dictionary))  # fmt: skip
