# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The three grammars of the toy corpus; each puts a meaning (who does what to whom, when, where) into words.

    aa  subject-verb-object; article and adjectives before the noun, agreeing in gender and number; prepositions
    bb  subject-object-verb; adjectives after the noun, agreeing in case; case endings, a suffix for definite
        nouns, no articles or prepositions; subordinate clauses first
    cc  verb-subject-object; noun classes marked by prefixes on noun, adjective and verb; article last

The languages share only proper names and loanwords, and even those take different endings, so copying translates hardly
a word. Every sentence has exactly one translation, so a good enough model reaches 100 BLEU.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

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
