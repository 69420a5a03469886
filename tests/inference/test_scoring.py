# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""BLEU against numbers worked out by hand, and the reading of fairseq-generate's output."""

import json
import math
import random
import re
from unittest import mock

import pytest
from conftest import error_line
from sacrebleu.metrics import BLEU, CHRF

from veco_fairseq.errors import UserError
from veco_fairseq.inference import scoring
from veco_fairseq.inference.scoring import looks_tokenised, read_generate_output, score, score_files, score_lines, tokenise

HYPOTHESIS = ["The cat is on the mat ."]
REFERENCE = ["the cat is on a mat."]


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def test_tokenised_bleu_by_hand():
    """Lower-cased and tokenised: the cat is on the mat . / the cat is on a mat .

    Matches: 6 of 7 tokens ("the" once), 4 of 6 pairs, 2 of 5 triples, 1 of 4 fours; equal lengths.
    """
    result = score(HYPOTHESIS, REFERENCE, lang="en")["tokenised_bleu"]
    assert result["score"] == pytest.approx(100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25)
    assert "case:lc" in result["signature"] and "tok:none" in result["signature"]
    assert "'en'" in result["tokeniser"] and "compounds not split" in result["tokeniser"]


@pytest.mark.parametrize("lang, told", [("de", ""), ("xx", ", of which it has no abbreviations but English ones")])
def test_the_tokenisation_says_whose_abbreviations_it_has(lang, told):
    tokeniser = score(HYPOTHESIS, REFERENCE, lang=lang)["tokenised_bleu"]["tokeniser"]
    assert tokeniser.startswith(f"Moses' for '{lang}'{told} (sacremoses ")


def test_tokenised_text_is_scored_without_sacrebleus_warning(caplog):
    """Of three lines, which comes for references of the same kind, too; the command has its own, of one line."""
    score([HYPOTHESIS[0]] * 200, [HYPOTHESIS[0]] * 200, lang="en")
    assert not caplog.records


def test_sacrebleu_by_hand():
    """Mixed case: 6 of 7, 3 of 6, 1 of 5, and no four, which smoothing counts as 1/2 of 4."""
    result = score(HYPOTHESIS, REFERENCE, lang="en")["sacrebleu"]
    assert result["score"] == pytest.approx(100 * (6 / 7 * 3 / 6 * 1 / 5 * 1 / 8) ** 0.25)
    assert result["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_chrf_by_hand():
    """Without spaces abcd and abce: of 4 to 1 characters 3/4, 2/3, 1/2 and 0 match on both sides; orders 5 and 6 do not count."""
    result = score(["ab cd"], ["a bce"], lang="en")["chrf"]
    assert result["score"] == pytest.approx(100 * (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4)
    assert result["signature"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    longer = score(["ab"], ["ab cd"], lang="en")["chrf"]  # all that is there is right: precision 1, recall 2/4 and 1/3
    precision, recall = 1, (2 / 4 + 1 / 3) / 2
    assert longer["score"] == pytest.approx(100 * 5 * precision * recall / (4 * precision + recall))


def test_brevity_penalty_and_no_smoothing_of_tokenised_bleu():
    """All n-grams match, 5 tokens for 7; and without any four in common BLEU is 0, as multi-bleu has it."""
    result = score(["a b c d e"], ["a b c d e f g"], lang="en")["tokenised_bleu"]
    assert result["score"] == pytest.approx(100 * math.exp(1 - 7 / 5))
    assert score(["a b c x d"], ["a b c d"], lang="en")["tokenised_bleu"]["score"] == 0


def test_lang_chooses_the_tokenisation():
    """ "Nr." before a number is one token in German, two in French; sacreBLEU splits Chinese into characters."""
    hypothesis, reference = ["ja die Nr. 5 ist heute rot"], ["ja die Nr 5 ist heute rot"]
    scores = [score(hypothesis, reference, lang=lang)["tokenised_bleu"]["score"] for lang in ("de", "deu", "de_DE", "fr")]
    german, french = scores[0], scores[3]
    assert scores[:3] == [german] * 3
    assert german == pytest.approx(100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25)
    assert french == pytest.approx(100 * (7 / 8 * 5 / 7 * 3 / 6 * 1 / 5) ** 0.25)
    assert "tok:zh" in score(["一 二 三 四"], ["一二三四"], lang="zh")["sacrebleu"]["signature"]


@pytest.mark.parametrize("lang, tokeniser", [("zh", "zh"), ("zh-CN", "zh"), ("tha", "char"), ("my_MM", "char")])
def test_a_language_without_spaces_has_no_tokenised_bleu(lang, tokeniser):
    """Of one sentence each, abcd and abcx: characters 3/4, 2/3, 1/2 and smoothed 1/2; Moses would see one word."""
    texts = {"zh": ("一二三四", "一二三五"), "char": ("กขคง", "กขคจ")}[tokeniser]
    result = score([texts[0]], [texts[1]], lang=lang)
    assert f"tok:{tokeniser}" in result["sacrebleu"]["signature"] and "tokenised_bleu" not in result
    assert result["sacrebleu"]["score"] == pytest.approx(100 * (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** 0.25)
    assert score_lines(result)[2].startswith("case-insensitive tokenised BLEU: none, since Moses does not tokenise")


def test_compounds_are_split_by_hand():
    """ein rot-weißes haus . / ein rot-blaues haus .: 3 of 4 tokens match; split: ein rot - weißes haus ., 5 of 6."""
    hypothesis, reference = ["Ein rot-weißes Haus."], ["Ein rot-blaues Haus."]
    assert tokenise(hypothesis, "de", True) == ["Ein rot ##AT##-##AT## weißes Haus ."]
    assert tokenise(["R & B <a>"], "en") == ["R & B < a >"]  # not as in XML
    result = score(hypothesis, reference, lang="de", split_compounds=True)["tokenised_bleu"]
    # 5 of 6, (ein rot)(rot -)(haus .) 3 of 5, (ein rot -) 1 of 4, and no four
    assert "83.3/60.0/25.0/0.0" in result["details"] and "compounds split" in result["tokeniser"]
    assert "75.0/33.3/0.0/0.0" in score(hypothesis, reference, lang="de")["tokenised_bleu"]["details"]


def test_confidence_and_paired_test():
    rng = random.Random(1)
    references = [" ".join(rng.choices("abcdef", k=9)) for _ in range(100)]

    def noisy(share):
        return [" ".join(rng.choice("abcdef") if rng.random() < share else w for w in line.split()) for line in references]

    better, worse = noisy(0.2), noisy(0.5)
    result = score(better, references, lang="en", samples=200, baseline=worse)["tokenised_bleu"]
    metric = BLEU(lowercase=True, tokenize="none", force=True, smooth_method="none")
    resampled = []
    for _ in range(200):  # the definition, drawn anew
        rows = rng.choices(range(100), k=100)
        resampled.append(metric.corpus_score([better[i] for i in rows], [[references[i] for i in rows]]).score)
    half = (sorted(resampled)[194] - sorted(resampled)[5]) / 2
    assert result["interval"] == pytest.approx(half, rel=0.3) and abs(result["mean"] - result["score"]) < half
    assert result["baseline"] == pytest.approx(metric.corpus_score(worse, [references]).score)
    assert "|bs:200|" in result["signature"] and result["p"] == pytest.approx(1 / 201)  # none of 200, and the test set itself
    alike = [line.upper() for line in better]  # for a metric that is case-insensitive
    others = [score(better, references, lang="en", baseline=b)["tokenised_bleu"]["p"] for b in (noisy(0.2), better, alike)]
    chrf = score(better, references, lang="en", samples=200, baseline=worse)["chrf"]
    assert chrf["baseline"] == pytest.approx(CHRF().corpus_score(worse, [references]).score) and chrf["p"] < 0.01
    assert others[0] > 0.05 and others[1:] == [1, 1]
    line, *_ = score_lines(score(better, references, lang="en", samples=200, baseline=worse))
    assert re.match(r"sacreBLEU \d+\.\d\d ± \d\.\d\d, baseline \d+\.\d\d, p = 0\.00", line)


def test_generate_output_in_the_order_of_the_test_set(tmp_path):
    lines = [
        "2026-01-01 | INFO | fairseq_cli.generate | D-9 is no hypothesis here",
        "S-2\t▁c",
        "T-2\tc",
        "H-2\t-0.1\t▁drei",
        "D-2\t-0.1\tdrei\tmit Tab",
        "P-2\t-0.1 -0.2",
        "D-0\t-0.5\teins",
        "D-0\t-0.9\tanders",
        "D-10\t-1\telf",
        "D-1\t-0.3\t",
        *(f"D-{number}\t-1\tn{number}" for number in range(9, 2, -1)),
        "Generate test with beam=5: BLEU4 = 1.0",
    ]
    path = write(tmp_path / "gen.txt", "\n".join(lines) + "\n")
    expected = ["eins", "", "drei\tmit Tab", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "elf"]
    assert read_generate_output(path) == expected


@pytest.mark.parametrize(
    "text, message",
    [
        ("D-0\t-1\ta\nD-3\t-1\tb\n", "no hypothesis for sentence 1, 2 "),
        ("D-0\t-1\ta\nD-6\t-1\tb\n", r"no hypothesis for sentence 1, 2, 3, 4, 5 \(counted from 0\)"),
        *((f"D-0\t-1\ta\nD-{last}\t-1\tb\n", r"sentence 1, 2, 3, 4, 5, \.\.\. \(counted from 0\)") for last in (7, 10**14)),
        ("H-0\t-1\ta\n", "no line 'D-<number>'"),
        ("", "no line 'D-<number>'"),
        (b"D-0\t-1\ta\nD-1\t-1\t\xff\n", "line 2"),
    ],
)
def test_generate_output_that_is_none(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_generate_output(write(tmp_path / "gen.txt", text))


@pytest.mark.parametrize(
    "hypothesis, reference, lang, message",
    [
        ("a\nb\n", "a\n", "de", r"hyp has 2 sentences, but .*ref has 1"),
        ("a\n", "a\nb\n", "de", r"hyp has 1 sentences, but .*ref has 2: give the output for .* and its references$"),
        (
            "S-0\ta\nD-0\t-0.5\ta\n",
            "a\n",
            "de",
            r"hyp has 2 .* is what fairseq-generate has printed: give it as --generate-output$",
        ),
        ("", "", "de", "empty"),
        ("a\n", "\n", "de", "empty"),
        (b"a\n\xe4\n", "a\nb\n", "de", r"hyp, line 2"),
        (None, "a\n", "de", r"hyp"),
    ],
)
def test_bad_files(tmp_path, hypothesis, reference, lang, message):
    paths = tmp_path / "hyp", tmp_path / "ref"
    for path, text in zip(paths, (hypothesis, reference)):
        if text is not None:
            write(path, text)
    with pytest.raises(UserError, match=message):
        score_files(*paths, lang=lang)


def test_score_refuses_what_names_no_language():
    with pytest.raises(UserError, match="^--lang German: is no code of a language: give its two letters, such as en$"):
        score(["a"], ["a"], lang="German")


@pytest.mark.parametrize("ours, theirs, tokenised", [
    (["a .", "b . ", "c"], ["a.", "b.", "c ."], True),
    (["a .", "b"], ["a.", "b."], False),  # half of the lines are not most of them
    (["a .", "b ."], ["a .", "b"], False),
    (["a.", "b."], ["a.", "b."], False),
    (["\u2581a b.", "\u2581b"], ["a.", "b"], True),  # pieces of SentencePiece
    (["a@@ b.", "c d@@"], ["a.", "b"], True),  # of subword-nmt
    (["a@@b.", "c@ d"], ["a.", "b"], False),
    ([], [], False),
])  # fmt: skip
def test_text_that_looks_tokenised_beside_references_that_do_not(ours, theirs, tokenised):
    assert looks_tokenised(ours, theirs) == tokenised


@pytest.mark.parametrize("ours, theirs, told", [(1, 10, True), (2, 10, False), (0, 2, True), (0, 1, False), (0, 0, False)])
def test_full_width_signs_that_sentencepiece_has_made_ascii(tmp_path, caplog, ours, theirs, told):
    """Of a perfect translation BLEU is 89 (zho_simpl of FLORES-101)."""
    for name, count in (("hyp", ours), ("ref", theirs)):
        write(tmp_path / name, "你好，世界。\n" * count + "你好,世界。\n" * (10 - count))
    score_files(tmp_path / "hyp", tmp_path / "ref", lang="zh")
    assert ("hyp: has hardly any of the full-width signs of" in caplog.text) == told


def test_files_are_scored_as_their_lines_are(tmp_path, caplog):
    """With the baseline of a file of the same kind, and the warning of the first file alone."""
    texts = {
        "hyp": ["the cat sat .", "a dog ran ."],
        "base": ["a cat sat", "a dog sat"],
        "ref": ["the cat sat.", "a dog ran off."],
    }
    for name, lines in texts.items():
        write(tmp_path / name, "".join(f"{line}\n" for line in lines))
        write(tmp_path / f"gen-{name}", "".join(f"D-{number}\t-1\t{line}\n" for number, line in enumerate(lines)))
    hyp, base, ref = texts.values()
    options = {"lang": "en", "split_compounds": True, "samples": 20}
    expected = score(hyp, ref, baseline=base, **options)
    paths = tmp_path / "hyp", tmp_path / "ref"
    assert score_files(*paths, baseline=tmp_path / "base", **options) == expected
    assert f"{paths[0]}: looks tokenised, and {paths[1]} does not" in caplog.text
    generated = (tmp_path / "gen-hyp", paths[1])
    assert score_files(*generated, generated=True, baseline=tmp_path / "gen-base", **options) == expected
    caplog.clear()
    assert score_files(tmp_path / "base", paths[1], baseline=paths[0], **options) == score(base, ref, baseline=hyp, **options)
    assert "looks tokenised" not in caplog.text
    write(tmp_path / "base", "a\n")
    with pytest.raises(UserError, match=r"base has 1 sentences, but .*ref has 2"):
        score_files(*paths, baseline=tmp_path / "base", **options)
    with pytest.raises(UserError, match=r"gen-hyp has 2 .* has 1: .* fairseq-generate can leave out the end\)$"):
        score_files(generated[0], tmp_path / "base", generated=True, **options)


@pytest.mark.parametrize(
    "langs, tokeniser", [("cmn lzh wuu yue zho ZHO_Hans", "zh"), ("bo bod dz dzo khm km lao lo mya shn_Mymr th", "char")]
)
def test_codes_of_three_letters_choose_sacrebleus_tokeniser_too(langs, tokeniser):
    for lang in langs.split():
        result = score(["a"], ["a"], lang=lang)
        assert f"tok:{tokeniser}|" in result["sacrebleu"]["signature"] and "tokenised_bleu" not in result, lang


def test_a_tokeniser_that_is_not_installed_is_told_in_a_line(monkeypatch):
    monkeypatch.setattr(scoring, "BLEU", mock.Mock(side_effect=RuntimeError("Japanese needs\n  mecab")))
    with pytest.raises(UserError, match="^--lang ja: Japanese needs mecab$"):
        score(["a"], ["a"], lang="ja")


def test_score_refuses_different_lengths():
    with pytest.raises(UserError, match="2 hypotheses for 1 references"):
        score(["a", "b"], ["a"], lang="de")


@pytest.mark.parametrize("samples", [1, -1])
def test_score_refuses_too_few_resamples(samples):
    """sacreBLEU makes none of one, and gives -1 for the mean and the interval."""
    with pytest.raises(UserError, match=f"^--bootstrap {samples}: give a number of resamples, such as 1000$"):
        score(["a b"], ["a b"], lang="de", samples=samples)
    assert "mean" not in score(["a b"], ["a b"], lang="de")["chrf"]
    assert score(["a b"], ["a b"], lang="de", samples=2)["chrf"]["mean"] == 100


def test_command(run, tmp_path):
    reference = write(tmp_path / "ref", REFERENCE[0] + "\n")
    output = tmp_path / "scores.json"
    generated = write(tmp_path / "gen", f"D-0\t-1\t{HYPOTHESIS[0]}\n")
    arguments = "--generate-output", generated, "--reference", reference, "--lang", "en", "--json", output
    done = run("scripts/score.py", *arguments)
    assert done.returncode == 0, done.stderr
    result = score(HYPOTHESIS, REFERENCE, lang="en")
    assert done.stdout.splitlines() == score_lines(result)
    assert "sacreBLEU 32.17  nrefs:1|case:mixed" in done.stdout and "tokenised BLEU 48.89 " in done.stdout
    assert json.loads(output.read_text()) == result


def test_command_with_unequal_files(run, tmp_path):
    paths = write(tmp_path / "hyp", "a\nb\n"), write(tmp_path / "ref", "a\n")
    output = tmp_path / "scores.json"
    arguments = "--hypothesis", paths[0], "--reference", paths[1], "--lang", "de", "--json", output
    done = run("scripts/score.py", *arguments)
    assert "has 2 sentences, but" in error_line(done)
    assert done.stdout == "" and not output.exists()
