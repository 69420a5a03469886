#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Generate the toy corpus: documents in three invented languages that say the same things.

A sentence starts as a meaning (who does what to whom, when, where) and is put into words by three grammars:

    aa  subject-verb-object; article and adjectives before the noun, agreeing in gender and number; prepositions
    bb  subject-object-verb; adjectives after the noun, agreeing in case; case endings, a suffix for definite
        nouns, no articles or prepositions; subordinate clauses first
    cc  verb-subject-object; noun classes marked by prefixes on noun, adjective and verb; article last

The languages share only proper names and loanwords, and even those take different endings, so copying translates hardly
a word. Every sentence has exactly one translation, so a good enough model reaches 100 BLEU.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LANGUAGES = ("aa", "bb", "cc")
# How many of 100 content words are of each category; a few function words are added.
SHARES = {"thing": 36, "place": 9, "intransitive": 9, "transitive": 17, "ditransitive": 6, "adjective": 16, "adverb": 7}
LOANED, LOAN_STEP = ("thing", "place", "adjective"), 2  # every second of these is a loanword
FUNCTION_WORDS = {"conjunction": 2, "subordinator": 3}
NAMES = ("Tamo", "Rilke", "Sunda", "Orfin", "Petka", "Jolas", "Wenna", "Bram", "Ilvo", "Nadek")
# Onsets, vowels and codas of a syllable: the languages look and sound different.
SOUNDS = {
    "aa": ("p t k m n l s r f d".split(), "a e i o u".split(), ["", "", "", "n", "r", "s"]),
    "bb": ("b d g v z j h br gr st".split(), "a e i u y".split(), ["", "", "", "l", "m", "k", "x"]),
    "loanwords": ("c f p t v".split(), "e i o".split(), ["", "", "n", "l"]),
    "cc": ("th w y ng mb q ch l n sh".split(), "a i o u ai".split(), ["", "", "", "h", "w"]),
}
SHORTEST, LONGEST = 4, 10  # words of a sentence, in every language, the final mark included


@dataclass(frozen=True)
class NounPhrase:
    """A noun (or a name) with its number, definiteness and adjectives, all as lemma numbers."""

    noun: str
    plural: bool = False
    definite: bool = True
    adjectives: tuple[str, ...] = ()

    @property
    def is_name(self) -> bool:
        return self.noun in NAMES


@dataclass(frozen=True)
class Clause:
    """Who (``subject``) did what (``verb``), perhaps to what, to whom, where, when."""

    verb: str
    tense: int  # 0 past, 1 present, 2 future
    negated: bool
    subject: NounPhrase
    object: NounPhrase | None = None
    recipient: NounPhrase | None = None
    place: NounPhrase | None = None
    adverb: str | None = None


@dataclass(frozen=True)
class Meaning:
    """One clause, or two joined by a conjunction or subordinator; a statement or a question."""

    clauses: tuple[Clause, ...]
    joined_by: str | None = None
    question: bool = False


def make_stems(sounds: str, lemmas: Sequence[str], rng: random.Random) -> dict[str, str]:
    """Make a stem for each lemma; function words are short."""
    onsets, vowels, codas = SOUNDS[sounds]
    stems: dict[str, str] = {}
    for lemma in lemmas:
        syllables = 1 if lemma.split("_")[0] in FUNCTION_WORDS else rng.choice((1, 2, 2, 2, 3))
        stem = ""
        while len(stem) < 2 or stem in stems.values():
            stem = "".join(rng.choice(onsets) + rng.choice(vowels) + rng.choice(codas) for _ in range(syllables))
        stems[lemma] = stem
    return stems


# The three languages ---------------------------------------------------------------------------------


class Language:
    """A lexicon of invented stems, and the grammar that a subclass adds.

    Args:
        code: one of LANGUAGES.
        lemmas: the meanings that the language has words for.
        rng: the source of all stems and genders; the same state gives the same language.
        loanwords: stems that are not the language's own.
    """

    def __init__(self, code: str, lemmas: Sequence[str], rng: random.Random, loanwords: dict[str, str]):
        self.stems = {name: name for name in NAMES} | make_stems(code, lemmas, rng) | loanwords
        self.kind = {lemma: rng.randrange(6) for lemma in [*lemmas, *NAMES]}  # gender and class follow from it

    def sentence(self, meaning: Meaning) -> str:
        raise NotImplementedError


class Aa(Language):
    """Subject-verb-object, agreement before the noun."""

    def gender(self, noun: str) -> str:
        return "oa"[self.kind[noun] % 2]

    def phrase(self, np: NounPhrase) -> list[str]:
        if np.is_name:
            return [np.noun]
        ending = self.gender(np.noun) + ("s" if np.plural else "")
        article = ("l" if np.definite else "un") + ending
        noun = self.stems[np.noun] + ("es" if np.plural else "")
        return [article, *(self.stems[a] + ending for a in np.adjectives), noun]

    def clause(self, clause: Clause) -> list[str]:
        words = self.phrase(clause.subject) + (["ne"] if clause.negated else [])
        tense = ("ave", "a", "iro")[clause.tense]
        words.append(self.stems[clause.verb] + tense + ("n" if clause.subject.plural else ""))
        if clause.object:
            words += self.phrase(clause.object)
        if clause.recipient:
            words += ["di", *self.phrase(clause.recipient)]
        if clause.place:
            words += ["en", *self.phrase(clause.place)]
        return words + ([self.stems[clause.adverb]] if clause.adverb else [])

    def sentence(self, meaning: Meaning) -> str:
        words = self.clause(meaning.clauses[0])
        if meaning.joined_by:
            words += [self.stems[meaning.joined_by], *self.clause(meaning.clauses[1])]
        return " ".join(words + ["?" if meaning.question else "."])


class Bb(Language):
    """Subject-object-verb, case endings, adjectives after the noun."""

    def phrase(self, np: NounPhrase, case: str) -> list[str]:
        # Two declensions: a noun of the second has another vowel in its case ending.
        vowel = "ei"[self.kind[np.noun] // 3]
        ending = {"subject": "", "object": vowel + "t", "recipient": vowel + "su", "place": vowel + "mme"}[case]
        if np.is_name:
            return [np.noun + ending]
        noun = self.stems[np.noun] + ("or" if np.plural else "") + ("an" if np.definite else "") + ending
        return [noun, *(self.stems[a] + ("ur" if np.plural else "") + ending for a in np.adjectives)]

    def clause(self, clause: Clause) -> list[str]:
        words = [self.stems[clause.adverb]] if clause.adverb else []
        words += self.phrase(clause.subject, "subject")
        for case, np in (("place", clause.place), ("recipient", clause.recipient), ("object", clause.object)):
            if np:
                words += self.phrase(np, case)
        verb = self.stems[clause.verb] + ("nok" if clause.negated else "") + ("du", "", "vash")[clause.tense]
        return words + [verb + ("eg" if clause.subject.plural else "a")]

    def sentence(self, meaning: Meaning) -> str:
        clauses = [self.clause(clause) for clause in meaning.clauses]
        words = clauses[0]
        if meaning.joined_by:
            joint = self.stems[meaning.joined_by]
            if meaning.joined_by.startswith("subordinator"):
                words = [*clauses[1], joint, *clauses[0]]
            else:
                words = [*clauses[0], joint, *clauses[1]]
        return " ".join(words + (["ka", "?"] if meaning.question else ["."]))


class Cc(Language):
    """Verb-subject-object, noun classes by prefix, article last."""

    PREFIXES = (("ki", "vi"), ("mu", "wa"), ("o", "ama"))  # class -> singular, plural

    def prefix(self, np: NounPhrase) -> str:
        return self.PREFIXES[1 if np.is_name else self.kind[np.noun] % 3][np.plural]

    def phrase(self, np: NounPhrase) -> list[str]:
        if np.is_name:
            return [np.noun]
        prefix = self.prefix(np)
        words = [prefix + self.stems[np.noun], *(prefix + self.stems[a] for a in np.adjectives)]
        return words + ([prefix + "le"] if np.definite else [])

    def clause(self, clause: Clause) -> list[str]:
        tense = ("li", "na", "ta")[clause.tense]
        words = [("ha" if clause.negated else "") + self.prefix(clause.subject) + tense + self.stems[clause.verb]]
        words += self.phrase(clause.subject)
        if clause.object:
            words += self.phrase(clause.object)
        if clause.recipient:
            words += ["kwa", *self.phrase(clause.recipient)]
        if clause.place:
            words += ["ndi", *self.phrase(clause.place)]
        return words + ([self.stems[clause.adverb]] if clause.adverb else [])

    def sentence(self, meaning: Meaning) -> str:
        words = ["je"] if meaning.question else []
        words += self.clause(meaning.clauses[0])
        if meaning.joined_by:
            words += [self.stems[meaning.joined_by], *self.clause(meaning.clauses[1])]
        return " ".join(words + ["?" if meaning.question else "."])


# Meanings --------------------------------------------------------------------------------------------


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

    def document(self, sentences: int) -> Iterator[Meaning]:
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
            for meaning in author.document(length):
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
    main()
