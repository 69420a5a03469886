# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""veco clean: each rule by hand, their order, the report, and duplicates."""

import gzip
import json
import lzma
import re
import sys
from types import SimpleNamespace
from unicodedata import normalize

import pytest
from conftest import error_line
from support.preparation import (
    text_lines,
    vocabulary,  # noqa: F401  fixtures
    write_lines,
)

from veco_fairseq.data.cleaning import cleaning
from veco_fairseq.data.cleaning.cleaning import clean, report_table
from veco_fairseq.data.cleaning.rules import RULES, HeldOut, Options, letters_of
from veco_fairseq.data.languages import two_letters
from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines

EN_DE = {"source_lang": "en", "target_lang": "de"}
PAIRS = [
    ("one two", "eins zwei"),
    ("", "leer"),
    ("a \u00ad", "\t "),
    ("one two three", "eins"),
    ("one two three", "eins zwei drei vier fünf sechs sieben"),
    ("Same Words", "same words"),
    ("one two", "eins zwei"),
    ("one  two", "eins zwei "),
    ("A test line: yes!", "kein Test"),
    ("no test", "Eine  Test-Zeile."),
    ("x " * 9, "y " * 9),
    ("“Hello” he said", "„Hallo“ sagte er"),
]


def run_clean(folder, pairs, workers=1, names=("out.en", "out.de"), **options):
    """Clean pairs; the pairs that are left, and the report."""
    inputs = [write_lines(folder / f"in.{side}", [pair[side] for pair in pairs]) for side in (0, 1)]
    outputs = [folder / name for name in names]
    report = clean(tuple(inputs), tuple(outputs), Options(**{**EN_DE, **options}), workers=workers, report=folder / "report.json")
    assert json.loads((folder / "report.json").read_text(encoding="utf-8")) == json.loads(json.dumps(report))
    assert report["pairs"] == len(pairs) and report["kept"] + sum(report["dropped"].values()) == len(pairs)
    return list(zip(*map(read_lines, outputs), strict=True)), report


def dropped(report):
    return {name: count for name, count in report["dropped"].items() if count}


def test_each_rule_and_their_order(tmp_path):
    held_out = write_lines(tmp_path / "test", ["a TEST line -- yes", "eine Test Zeile", "?!"])
    kept, report = run_clean(tmp_path, PAIRS, min_length=2, max_length=8, max_ratio=2.0, held_out=(held_out,))
    assert kept == [("one two", "eins zwei"), ('"Hello" he said', '"Hallo" sagte er')]
    expected = {"empty": 2, "short": 1, "long": 1, "ratio": 1, "copy": 1, "held-out": 2, "duplicate": 2}
    assert dropped(report) == expected and list(report["dropped"]) == [rule.name for rule in RULES]
    assert report["examples"]["empty"] == [(2, "", "leer"), (3, "a \u00ad", "\t ")]
    assert report["examples"]["held-out"] == [(9, "A test line: yes!", "kein Test"), (10, "no test", "Eine  Test-Zeile.")]
    assert report["changed"] == {"source": 4, "target": 5}
    assert report["options"]["max_ratio"] == 2.0 and report["versions"].keys() == {"sacremoses"}


@pytest.mark.parametrize("lines", [1, 2, 3, 100])
def test_a_rules_first_three_pairs_are_shown_whatever_the_chunks(tmp_path, monkeypatch, lines):
    monkeypatch.setattr(cleaning, "LINES_A_BATCH", lines)
    pairs = [("a" * number, "x") if number % 3 else ("", f"{number}") for number in range(1, 19)]
    _, report = run_clean(tmp_path, pairs)
    assert report["examples"] == {"empty": [(number, "", f"{number}") for number in (3, 6, 9)]}


@pytest.mark.parametrize("options, expected", [
    ({}, {"empty": 2, "copy": 1, "duplicate": 2}),
    ({"min_length": 2}, {"empty": 2, "short": 1, "copy": 1, "duplicate": 2}),
    ({"max_length": 5}, {"empty": 2, "long": 2, "copy": 1, "duplicate": 2}),
    ({"max_length": 7}, {"empty": 2, "long": 1, "copy": 1, "duplicate": 2}),
    ({"max_ratio": 2.5}, {"empty": 2, "ratio": 1, "copy": 1, "duplicate": 2}),
    ({"max_ratio": 2.3}, {"empty": 2, "ratio": 2, "copy": 1, "duplicate": 2}),
    ({"copies": True}, {"empty": 2, "duplicate": 2}),
    ({"duplicates": True}, {"empty": 2, "copy": 1}),
    ({"punctuation": "keep"}, {"empty": 2, "copy": 1, "duplicate": 1}),
    ({"controls": True}, {"empty": 2, "copy": 1, "duplicate": 2}),
])  # fmt: skip
def test_each_option(tmp_path, options, expected):
    assert dropped(run_clean(tmp_path, PAIRS, **options)[1]) == expected


def test_what_normalising_leaves(tmp_path):
    pairs = [("a\tb’s’ \u200d", "c\u00ad d « e »  f\u2028g")]
    for options, left in (
        ({}, ("a b's'", 'c  d " e " f\u2028g')),
        ({"punctuation": "perl"}, ("a b's\"", 'c  d " e " f\u2028g')),
        ({"punctuation": "keep"}, ("a b’s’", "c  d « e »  f\u2028g")),
        ({"punctuation": "keep", "controls": True}, ("a\tb’s’ \u200d", "c\u00ad d « e »  f\u2028g")),
    ):
        assert run_clean(tmp_path, pairs, max_ratio=9, **options)[0] == [left]
    pairs = [('5\u00a0000 "a", b', '5\u00a0000 "a", b c')]
    assert run_clean(tmp_path, pairs, source_lang="de", target_lang="en")[0] == [('5,000 "a", b', '5.000 "a," b c')]


def test_lengths_in_pieces(tmp_path, vocabulary):
    model = load_sentencepiece(vocabulary / "spm.model")
    lines = list(zip(text_lines("xx", 200), text_lines("yy", 200, seed=1)))
    sizes = [[len(model.encode(line)) for line in pair] for pair in lines]
    kept, report = run_clean(
        tmp_path, lines, sentencepiece=vocabulary / "spm.model", min_length=8, max_length=20, max_ratio=1.5, duplicates=True
    )
    fits = [pair for pair, size in zip(lines, sizes) if min(size) >= 8 and max(size) <= 20 and max(size) / min(size) <= 1.5]
    assert kept == fits and 20 < len(fits) < 180
    assert dropped(report).keys() == {"short", "long", "ratio"}
    assert report["options"]["sentencepiece"] == str(vocabulary / "spm.model")


@pytest.mark.parametrize("names", [("o.en.gz", "o.de.gz"), ("o.en.xz", "o.de")])
def test_texts_may_be_compressed(tmp_path, names):
    kept, _ = run_clean(tmp_path, PAIRS)
    (tmp_path / "in.en.gz").write_bytes(gzip.compress((tmp_path / "in.0").read_bytes()))
    (tmp_path / "in.de.xz").write_bytes(lzma.compress((tmp_path / "in.1").read_bytes()))
    outputs = tuple(tmp_path / name for name in names)
    clean((tmp_path / "in.en.gz", tmp_path / "in.de.xz"), outputs, Options(**EN_DE), workers=1)
    assert list(zip(*map(read_lines, outputs))) == kept
    start = outputs[0].read_bytes()[:8]
    assert start[:2] == b"\xfd7" or (start[:2] == b"\x1f\x8b" and start[4:] == bytes(4))  # no time of day in it
    clean((tmp_path / "in.en.gz", tmp_path / "in.de.xz"), outputs, Options(**EN_DE, min_length=99), workers=1)
    start = outputs[0].read_bytes()[:2]
    assert start in (b"\xfd7", b"\x1f\x8b") and not [
        *read_lines(outputs[0]),
        *read_lines(outputs[1]),
    ]  # packed, and nothing in it


@pytest.mark.parametrize("workers", [1, 2])
def test_real_pairs_without_their_test_set(tmp_path, shared_data, monkeypatch, workers):
    """The same whatever the number of processes and the size of chunks, which are sent to the processes as they are."""
    monkeypatch.setattr(cleaning, "LINES_A_BATCH", 700)
    lines = [list(read_lines(shared_data / f"newstest/valid_2013.{lang}.gz")) for lang in ("en", "de")]
    test = write_lines(tmp_path / "test", [line.upper().replace(".", " ") for line in lines[0][100:140]])
    pairs = list(zip(*lines)) + list(zip(*lines))[:500]
    kept, report = run_clean(tmp_path, pairs, workers=workers, held_out=(test,))
    assert dropped(report)["held-out"] == 80 and dropped(report)["duplicate"] >= 455
    assert report["kept"] == len(kept) == len(set(kept)) > 2500
    assert sum(report["dropped"].values()) < 620
    if workers == 1:
        (tmp_path / "whole").mkdir()
        monkeypatch.setattr(cleaning, "LINES_A_BATCH", 8192)
        again = run_clean(tmp_path / "whole", pairs, held_out=(test,))
        assert again[0] == kept and again[1] == {**report, "options": again[1]["options"]}


def test_held_out_lines_are_known_by_their_letters():
    held_out = HeldOut(["The cat - sat.", "Ja!", "", "..", "中文，句子", "co-op ERATE", "2010年，在 北京", "ß ΟΔΟΣ", "İyi mı"])
    for line in ("the CAT sat", "«The cat, sat»", "ja", "JA ...", "中文 句子。", "Co-op erate", "cooperate",
                 "中 文 句 子", "2010 年 ， 在北京 。", "SS οδος", "iyi MI", "İYİ mı"):  # fmt: skip
        assert line in held_out
    for line in ("the cat sat down", "the cats sat", "", "...", "cooperated", "the", "中文", "2011 年 在 北京", "a cat sat"):
        assert line not in held_out
    assert letters_of("It's 5 %, Süß_er!") == "its5süss_er"


@pytest.mark.parametrize("line, other", [
    ("उसका घर", "उसकी घर"), ("माँ ने कहा।", "मैं ने कहा"), ("เขาไป", "เขาไม่"), ("كَتَبَ", "كُتِبَ"), ("ব্যাংক কই", "ব্যাংক কে"),
])  # fmt: skip
def test_marks_are_parts_of_held_out_words(line, other):
    """Vowels tell words of Hindi, Thai and Bengali apart, and those of Arabic where they are written."""
    held_out = HeldOut([line])
    assert f"«{line}» !" in held_out and other not in held_out and letters_of(line) == line.strip("।").replace(" ", "")


@pytest.mark.parametrize("line", ["2 Μαΐου", "ΰπνος", "ǰ", "ẖẗẘ"])
def test_letters_whose_capitals_are_of_parts_are_known_in_capitals(line):
    """Each letter has one character, which casefold takes apart, and its capital two or more, of which NFC composes some."""
    assert len(line.upper()) > len(line)
    assert line in HeldOut([line.upper()]) and line.upper() in HeldOut([line])


def test_held_out_lines_are_known_in_parts():
    composed = "Tiếng Việt, 한국어 für Ärzte ❤\ufe0f"
    for line, other in ((composed, normalize("NFD", composed)), (normalize("NFD", composed), composed)):
        assert other in HeldOut([line]) and other.replace("ế", "e").replace("e\u0302\u0301", "e") not in HeldOut([line])
    assert letters_of(composed) == letters_of("tiếng việt 한국어 für ärzte")


def stub(scores):
    """py3langid with these log probabilities of a line's languages."""

    def rank(line):
        return sorted(scores.get(line, {"en": 0.0, "de": 0.0, "fr": -1.0}).items(), key=lambda item: -item[1])

    return SimpleNamespace(rank=rank, classify=lambda line: rank(line)[0])


def test_another_language(tmp_path, monkeypatch):
    scores = {"un deux": {"en": -9.0, "de": -8.0, "fr": -4.0}, "eins zwei": {"en": -3.0, "de": -7.5, "fr": -9.0}}
    monkeypatch.setitem(sys.modules, "py3langid", stub(scores))
    pairs = [("un deux", "zwei eins"), ("one two", "eins zwei"), ("one", "zwei")]
    for margin, left in ((4.4, [2]), (4.5, [1, 2]), (4.99, [1, 2]), (5.0, [0, 1, 2])):
        kept, report = run_clean(tmp_path, pairs, language_margin=margin)
        assert kept == [pairs[place] for place in left] and dropped(report) == (
            {"language": 3 - len(left)} if len(left) < 3 else {}
        )
        assert report["versions"]["py3langid"]
    with pytest.raises(UserError, match=r"--target-lang xx: py3langid knows no such language \(it knows de, en, fr\)"):
        run_clean(tmp_path, pairs, language_margin=5, target_lang="xx")
    monkeypatch.setitem(sys.modules, "py3langid", None)
    with pytest.raises(UserError, match="--language-margin: needs py3langid, which is not installed: pip install py3langid"):
        run_clean(tmp_path, pairs, language_margin=5)


def test_py3langid_itself(tmp_path, shared_data):
    pytest.importorskip("py3langid")
    lines = {lang: list(read_lines(shared_data / f"newstest/valid_2013.{lang}.gz"))[:200] for lang in ("en", "de", "fr")}
    pairs = [*zip(lines["en"], lines["de"]), *zip(lines["en"], lines["fr"])]
    _, report = run_clean(tmp_path, pairs, language_margin=5)
    assert 190 <= dropped(report)["language"] <= 210


def test_the_table(tmp_path):
    lines = report_table(run_clean(tmp_path, PAIRS)[1]).splitlines()
    assert lines[1] == "   12  100.00%  read" and lines[-2] == "    7   58.33%  kept"
    assert "    2   16.67%  dropped: empty: a side has no text" in lines
    assert lines[-1] == "normalising changed 4 lines of the source and 5 of the target"
    chinese = report_table(
        run_clean(tmp_path, [("one two three four", "一二三四"), ("one", "一")] * 3, max_ratio=1.5, duplicates=True)[1]
    )
    assert "warning" not in chinese
    chinese = report_table(run_clean(tmp_path, [("one two three four", "一二三四")] * 3, max_ratio=1.5)[1])
    assert re.search("warning: rule 'ratio' dropped more than half .* --sentencepiece$", chinese)
    same = report_table(run_clean(tmp_path, [("one", "eins")] * 3)[1])
    assert re.search(
        "warning: rule 'duplicate' dropped more than half of the pairs: they stand in the input twice or more$", same
    )


@pytest.mark.parametrize("given, expected", [
    ("en", "en"), ("EN", "en"), ("en_GB", "en"), ("zh-Hant", "zh"), ("eng", "en"), ("deu", "de"), ("ger", "de"), ("fra", "fr"),
    ("fre", "fr"), ("spa", "es"), ("ces", "cs"), ("cze", "cs"), ("nld", "nl"), ("dut", "nl"), ("rum", "ro"), ("swa", "swa"),
])  # fmt: skip
def test_the_code_of_a_language(given, expected):
    assert two_letters("-s", given) == expected


def test_languages_with_rules_by_their_three_letters():
    """As ISO 639 has them, some with two codes."""
    for line in (
        "ara ar", "asm as", "ben bn", "bod tib bo", "bur mya my", "cat ca", "chi zho cmn lzh wuu yue zh", "ces cze cs", "deu ger de", "dut nld nl",
        "dzo dz", "ell gre el", "eng en", "est et", "fin fi", "fra fre fr", "gle ga", "guj gu", "hin hi", "hun hu", "ice isl is",
        "ita it", "jpn ja", "kan kn", "khm km", "kor ko", "lao lo", "lav lv", "lit lt", "mal ml", "mar mr", "ori or", "pan pa",
        "pol pl", "por pt", "ron rum ro", "rus ru", "slk slo sk", "slv sl", "spa es", "swe sv", "tam ta", "tel te", "tha th", "vie vi",
    ):  # fmt: skip
        *codes, expected = line.split()
        assert [two_letters("-s", code) for code in codes] == [expected] * len(codes)


def test_options_that_keep_nothing_or_name_no_language_are_refused(run, tmp_path):
    for path in ("a", "b"):
        write_lines(tmp_path / path, ['"yes", and "no".'])
    command = ("scripts/clean.py", "--inputs", tmp_path / "a", tmp_path / "b", "--outputs", tmp_path / "c", tmp_path / "d")
    refused = error_line(run(*command, "-s", "en", "-t", "de", "--min-length", "7", "--max-length", "6"))
    assert "--min-length 7: is more than --max-length 6: no pair would be kept" in refused
    assert "--target-lang german: is no code of a language" in error_line(run(*command, "-s", "en", "-t", "german"))
    assert "--source-lang e: is no code of a language" in error_line(run(*command, "-s", "e", "-t", "de"))
    done = run(*command, "-s", "eng", "-t", "ces", "--keep-copies")
    assert done.returncode == 0, done.stderr
    assert [list(read_lines(tmp_path / name)) for name in "cd"] == [['"yes," and "no."'], ['"yes", and "no".']]


def test_command(tmp_path, run):
    write_lines(tmp_path / "a", ["one two", "three"])
    write_lines(tmp_path / "b", ["eins zwei", ""])
    result = run("scripts/clean.py", "-s", "en", "-t", "de", "--inputs", "a", "b", "--outputs", "c", "d.gz", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-2] == "    1   50.00%  kept"
    assert (tmp_path / "c").read_text() == "one two\n" and gzip.decompress((tmp_path / "d.gz").read_bytes()) == b"eins zwei\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "d.gz"]
