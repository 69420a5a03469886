# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The toy corpus: its three grammars on sentences worked out by hand, and what its splits promise."""

import hashlib
import importlib
import random
import re
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from recipes import RECIPES


@pytest.fixture(scope="module")
def toy():
    """The names of data-bin-recipes/toy/grammar.py and generate.py."""
    sys.path.insert(0, str(RECIPES / "toy"))
    yield SimpleNamespace(**{**vars(importlib.import_module("grammar")), **vars(importlib.import_module("generate"))})
    sys.path.remove(str(RECIPES / "toy"))
    for name in ("grammar", "generate"):
        del sys.modules[name]


@pytest.fixture
def languages(toy):
    """The three languages with stems that are their lemmas' names, and the noun dog of kind 0, cat of kind 5."""
    lemmas = ["dog", "cat", "big", "old", "see", "give", "garden", "today", "subordinator_0"]
    kinds = zip(toy.LANGUAGES, (toy.Aa, toy.Bb, toy.Cc))
    made = {code: kind(code, lemmas, random.Random(1), {}) for code, kind in kinds}
    for language in made.values():
        language.stems.update({lemma: lemma for lemma in lemmas}, subordinator_0="because")
        language.kind.update(dog=0, cat=5, garden=1, Bram=3)
    return made


def test_word_order_agreement_and_case(toy, languages):
    dogs = toy.NounPhrase("dog", plural=True, definite=True, adjectives=("big",))
    cat = toy.NounPhrase("cat", definite=False, adjectives=("old",))
    garden = toy.NounPhrase("garden")
    meaning = toy.Meaning((toy.Clause("see", 0, True, dogs, object=cat, place=garden, adverb="today"),), question=True)
    # The big dogs did not see an old cat in the garden today?
    assert languages["aa"].sentence(meaning) == "los bigos doges ne seeaven una olda cat en la garden today ?"
    assert languages["bb"].sentence(meaning) == ("today dogoran bigur gardenanemme catit oldit seenokdueg ka ?")
    assert languages["cc"].sentence(meaning) == ("je havilisee vidog vibig vile ocat oold ndi mugarden mule today ?")


def test_two_clauses_and_names(toy, languages):
    give = toy.Clause("give", 2, False, toy.NounPhrase("Bram"), toy.NounPhrase("cat"), toy.NounPhrase("dog"))
    see = toy.Clause("see", 1, False, toy.NounPhrase("cat", plural=True), toy.NounPhrase("Bram"))
    meaning = toy.Meaning((give, see), "subordinator_0")
    # Bram will give the cat to the dog because the cats see Bram.
    assert languages["aa"].sentence(meaning) == "Bram giveiro la cat di lo dog because las cates seean Bram ."
    # The subordinate clause comes first in bb.
    assert languages["bb"].sentence(meaning) == ("catoran Bramit seeeg because Bram doganesu catanit givevasha .")
    assert languages["cc"].sentence(meaning) == ("mutagive Bram ocat ole kwa kidog kile because amanasee amacat amale Bram .")


@pytest.mark.parametrize("sounds", ["aa", "cc"])
def test_function_words_have_one_syllable_and_others_up_to_three(toy, sounds):
    """Most have two. A syllable has one vowel, of which ai is a single one."""
    others = [f"thing_{number}" for number in range(200)]
    stems = toy.make_stems(sounds, ["conjunction_0", "subordinator_1", *others], random.Random(1))
    vowels = "|".join(sorted(toy.SOUNDS[sounds][1], key=len, reverse=True))
    counts = [len(re.findall(vowels, stem)) for stem in stems.values()]
    assert counts[:2] == [1, 1] and len(set(stems.values())) == 202
    of_others = Counter(counts[2:])
    assert set(of_others) == {1, 2, 3} and of_others[2] > 90 > 30 < min(of_others[1], of_others[3])


def generate(folder, *options):
    sizes = ["--pairs", "120", "--mono", "90", "--finetune-pairs", "50", "--valid", "20", "--test", "30"]
    return subprocess.run(
        [sys.executable, RECIPES / "toy" / "generate.py", "--output", folder, *sizes, *options],
        capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    assert generate(folder).returncode == 0
    return folder


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize("lang", ["aa", "bb", "cc"])
def test_sizes_lengths_and_no_sentence_twice(corpus, lang):
    splits = {name: lines(corpus / f"{name}.{lang}") for name in ("train", "valid", "test", "mono", "finetune")}
    mono = [line for line in splits["mono"] if line]
    assert [len(splits[name]) for name in ("train", "valid", "test", "finetune")] == [120, 20, 30, 50]
    assert splits["finetune"] == splits["train"][:50]
    sentences = splits["train"] + splits["valid"] + splits["test"] + mono
    assert len(mono) == 90 and len(set(sentences)) == 260
    assert all(4 <= len(line.split()) <= 10 for line in sentences)
    documents = [document.split("\n") for document in "\n".join(splits["mono"]).split("\n\n")]
    assert all(5 <= len(document) <= 12 for document in documents[:-1])


def test_no_sentence_comes_twice_where_there_are_few(toy):
    """Of so few words many are drawn again: a test sentence must not be one of training."""
    corpus = toy.Corpus(1, 4)
    texts = [texts[0] for split in ("test", "train") for document in corpus.documents(split, 400) for texts in document]
    assert len(texts) == len(set(texts)) == 800


def test_same_seed_same_corpus(corpus, tmp_path):
    for options in ((), ("--seed", "2")):
        folder = tmp_path / "-".join(("again", *options))
        assert generate(folder, *options).returncode == 0
        same = [(folder / path.name).read_bytes() == path.read_bytes() for path in corpus.iterdir()]
        assert len(same) == 15
        assert all(same) if not options else not any(same)


def test_more_sentences_do_not_change_the_language_or_the_test_set(corpus, tmp_path):
    assert generate(tmp_path, "--pairs", "200").returncode == 0
    assert lines(tmp_path / "test.bb") == lines(corpus / "test.bb")
    assert lines(tmp_path / "train.bb")[:100] == lines(corpus / "train.bb")[:100]


def called(toy, monkeypatch, folder, **sizes):
    """Make a small corpus in this process, with these options beside one sentence of each kind."""
    options = {"pairs": 1, "mono": 1, "finetune_pairs": 1, "valid": 1, "test": 1, "words": 3, **sizes}
    words = [word for name, number in options.items() for word in (f"--{name.replace('_', '-')}", str(number))]
    monkeypatch.setattr(sys, "argv", ["generate.py", "--output", str(folder), *words])
    toy.main()


@pytest.mark.parametrize("name", ["pairs", "mono", "finetune_pairs", "valid", "test", "words"])
def test_every_size_is_at_least_one(toy, monkeypatch, tmp_path, capsys, name):
    with pytest.raises(SystemExit):
        called(toy, monkeypatch, tmp_path, **{name: 0})
    assert "sizes must be 1 or more" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_smallest_corpus(toy, monkeypatch, tmp_path, capsys):
    """... has different monolingual sentences in each language, and may be fine-tuned on all pairs."""
    called(toy, monkeypatch, tmp_path / "a/b", pairs=2, finetune_pairs=2, words=1)
    assert capsys.readouterr().out == f"7 different sentences in {tmp_path}/a/b\n"
    assert (tmp_path / "a/b/finetune.aa").read_text() == (tmp_path / "a/b/train.aa").read_text()


def test_the_usual_sizes_are_those_of_the_recipe(toy, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["generate.py", "--help"])
    with pytest.raises(SystemExit):
        toy.main()
    told = dict(re.findall(r"--([a-z-]+) N\s(?:[^(]|\n)*\(default:\s+(\d+)\)", capsys.readouterr().out.split("options:")[1]))
    usual = re.search(r"parse_options out= (.*) vocab-size=", (RECIPES / "toy/prepare.sh").read_text())[1]
    assert told == dict(word.split("=") for word in usual.split()) and len(told) == 7


def test_sizes_that_do_not_fit_are_refused(tmp_path):
    result = generate(tmp_path, "--finetune-pairs", "121")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].endswith("sizes must be 1 or more, and --finetune-pairs at most --pairs")


def test_it_is_the_corpus_of_which_the_documents_have_figures(corpus):
    """README and the demo print BLEU of such text. Who changes it measures them again, and puts the new sum here."""
    files = sorted(corpus.iterdir())
    whole = b"".join(path.read_bytes() for path in files)
    assert len(files) == 15 and hashlib.sha256(whole).hexdigest().startswith("64bb8d933afd")
