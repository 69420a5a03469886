#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Generate the toy corpus: documents in three invented languages that say the same things (see grammar.py)."""

import argparse
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from grammar import (
    FUNCTION_WORDS,
    LANGUAGES,
    LOAN_STEP,
    LOANED,
    LONGEST,
    NAMES,
    SHARES,
    SHORTEST,
    Aa,
    Bb,
    Cc,
    Clause,
    Meaning,
    NounPhrase,
    make_stems,
)

from veco_fairseq.cli import run


class Author:
    """Makes up documents: sentences that keep coming back to the same few nouns and adjectives."""

    def __init__(self, lemmas: Sequence[str], rng: random.Random):
        self.rng = rng
        self.by_category: dict[str, list[str]] = {}
        for lemma in lemmas:
            self.by_category.setdefault(lemma.rsplit("_", 1)[0], []).append(lemma)

    def pick(self, category: str) -> str:
        """Draw a lemma of the category; the first ones are more frequent, as in real text."""
        lemmas = self.by_category[category]
        return self.rng.choices(lemmas, [1 / (rank + 4) for rank in range(len(lemmas))])[0]

    def document(self) -> Iterator[Meaning]:
        """Yield meanings about one topic without end; the caller takes as many as it wants."""
        self.topic = {
            "thing": [self.pick("thing") for _ in range(4)],
            "place": [self.pick("place") for _ in range(2)],
            "adjective": [self.pick("adjective") for _ in range(3)],
        }
        self.hero = self.rng.choice(NAMES)
        self.tense = self.rng.choice((0, 0, 1, 2))
        while True:
            yield self.meaning()

    def on_topic(self, category: str) -> str:
        return self.rng.choice(self.topic[category]) if self.rng.random() < 0.7 else self.pick(category)

    def phrase(self, category: str) -> NounPhrase:
        if category == "thing" and self.rng.random() < 0.12:
            return NounPhrase(self.hero)
        adjectives = tuple(self.on_topic("adjective") for _ in range(self.rng.choice((0, 0, 0, 1))))
        return NounPhrase(
            self.on_topic(category), self.rng.random() < 0.35, self.rng.random() < 0.6, tuple(dict.fromkeys(adjectives))
        )

    def clause(self, simple: bool) -> Clause:
        chance = self.rng.random
        kind = self.rng.choice(("intransitive", "transitive", "transitive", "ditransitive"))
        return Clause(
            verb=self.pick(kind),
            tense=self.tense if chance() < 0.8 else self.rng.randrange(3),
            negated=chance() < 0.12,
            subject=self.phrase("thing"),
            object=self.phrase("thing") if kind != "intransitive" else None,
            recipient=self.phrase("thing") if kind == "ditransitive" else None,
            place=self.phrase("place") if not simple and chance() < 0.4 else None,
            adverb=self.pick("adverb") if not simple and chance() < 0.35 else None,
        )

    def meaning(self) -> Meaning:
        if self.rng.random() < 0.15:
            joint = self.pick(self.rng.choice(("conjunction", "subordinator")))
            return Meaning((self.clause(simple=True), self.clause(simple=True)), joint)
        return Meaning((self.clause(simple=False),), question=self.rng.random() < 0.1)


class Corpus:
    """The languages, and all sentences made so far. No sentence is made twice, so the splits share none."""

    def __init__(self, seed: int, words: int):
        # String seeds: the languages do not change with the number of sentences, nor with the order of the splits.
        self.seed = seed
        counts = {category: max(1, words * share // 100) for category, share in SHARES.items()} | FUNCTION_WORDS
        self.lemmas = [f"{category}_{i}" for category, count in counts.items() for i in range(count)]
        loans = [lemma for lemma in self.lemmas if lemma.split("_")[0] in LOANED][::LOAN_STEP]
        loanwords = make_stems("loanwords", loans, random.Random(f"{seed} loanwords"))
        self.languages = [
            kind(code, self.lemmas, random.Random(f"{seed} {code}"), loanwords) for kind, code in zip((Aa, Bb, Cc), LANGUAGES)
        ]
        self.seen: set[str] = set()

    def documents(self, split: str, sentences: int) -> list[list[tuple[str, ...]]]:
        """Make documents of 5 to 12 sentences (the last may be shorter), each sentence in all languages."""
        rng = random.Random(f"{self.seed} {split}")
        author = Author(self.lemmas, rng)
        documents = []
        while sentences:
            length = min(rng.randint(5, 12), sentences)
            document = []
            for meaning in author.document():
                texts = tuple(language.sentence(meaning) for language in self.languages)
                fits = all(SHORTEST <= len(text.split()) <= LONGEST for text in texts)
                if fits and self.seen.isdisjoint(texts):
                    self.seen.update(texts)
                    document.append(texts)
                    if len(document) == length:
                        break
            documents.append(document)
            sentences -= length
        return documents


def write(path: Path, documents: list[list[str]], blank_lines: bool) -> None:
    separator = "\n\n" if blank_lines else "\n"
    path.write_text(separator.join("\n".join(document) for document in documents) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate the toy corpus.", allow_abbrev=False)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write to")
    for name, default, text in (
        ("seed", 1, "seed of the languages and all sentences"),
        ("words", 24, "content words of each language, not counting inflection"),
        ("pairs", 8000, "sentences of train.*, the same in all languages"),
        ("mono", 3000, "sentences of mono.*, different ones in each language, with a blank line between documents"),
        ("finetune-pairs", 300, "sentences of finetune.*, the first ones of train.*"),
        ("valid", 250, "sentences of valid.*"),
        ("test", 250, "sentences of test.*"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{text} (default: {default})")
    args = parser.parse_args()
    smallest = min(args.words, args.pairs, args.mono, args.finetune_pairs, args.valid, args.test)
    if smallest < 1 or args.finetune_pairs > args.pairs:
        parser.error("sizes must be 1 or more, and --finetune-pairs at most --pairs")
    args.output.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(args.seed, args.words)
    for split, sentences in (("test", args.test), ("valid", args.valid), ("train", args.pairs)):
        documents = corpus.documents(split, sentences)
        for side, code in enumerate(LANGUAGES):
            texts = [[texts[side] for texts in document] for document in documents]
            write(args.output / f"{split}.{code}", texts, blank_lines=False)
            if split == "train":
                lines = [line for document in texts for line in document]
                write(args.output / f"finetune.{code}", [lines[: args.finetune_pairs]], blank_lines=False)
    for side, code in enumerate(LANGUAGES):
        documents = corpus.documents(f"mono {code}", args.mono)
        write(args.output / f"mono.{code}", [[t[side] for t in document] for document in documents], blank_lines=True)
    print(f"{len(corpus.seen) // len(LANGUAGES):,} different sentences in {args.output}")


if __name__ == "__main__":
    run(main)
