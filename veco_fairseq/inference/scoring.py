# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Scores of translations: the paper's two BLEUs, detokenised and tokenised (VECO, section 6.1), and chrF."""

import logging
import re
from collections.abc import Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest
from sacremoses import MosesTokenizer

from veco_fairseq.data.languages import WITHOUT_SPACES, two_letters
from veco_fairseq.data.moses import has_abbreviations
from veco_fairseq.errors import UserError, require_list
from veco_fairseq.files import read_lines

# sacreBLEU's tokeniser for each language without spaces: characters, where it has none for the language.
TOKENISERS = {**dict.fromkeys(WITHOUT_SPACES, "char"), "zh": "zh", "ja": "ja-mecab"}

logger = logging.getLogger(__name__)

_TOKENISED = re.compile(r" \.\s*$|\u2581|@@(?: |$)")
_FULL_WIDTH = re.compile("[\uff01-\uff5e]")
_COMPOUND = re.compile(r"(\S)-(\S)")
_DETOKENISED = re.compile(r"^D-(\d+)\t[^\t]*\t(.*)$", re.DOTALL)


class _ChrF(CHRF):
    """sacreBLEU's chrF, whose resamples are NumPy's floats, except those without a match: their mean was an error."""

    def _compute_score_from_stats(self, stats: list[int]) -> Any:
        found = super()._compute_score_from_stats(stats)
        found.score = float(found.score)
        return found


def score_files(
    hypothesis: str | Path,
    reference: str | Path,
    *,
    lang: str,
    generated: bool = False,
    split_compounds: bool = False,
    samples: int = 0,
    baseline: str | Path | None = None,
) -> dict[str, Any]:
    """Run :func:`score` on files with one sentence a line, or, if ``generated``, on the output of ``fairseq-generate``.

    Raises:
        UserError: as in :func:`score`; or a file cannot be read.
    """
    references = list(read_lines(reference))
    systems = []
    for path in [hypothesis] + ([] if baseline is None else [baseline]):
        systems.append(read_generate_output(path) if generated else list(read_lines(path)))
        if len(systems[-1]) != len(references):
            raise UserError(
                f"{path} has {len(systems[-1]):,} sentences, but {reference} has {len(references):,}: "
                + _advice_on_lengths(systems[-1], generated)
            )
    if looks_tokenised(systems[0], references):
        logger.warning(
            f"{hypothesis}: looks tokenised, and {reference} does not: scores of text that is not detokenised are wrong"
        )
    if lacks_full_width(systems[0], references):
        logger.warning(
            f"{hypothesis}: has hardly any of the full-width signs of {reference}, such as \uff0c, which SentencePiece makes "
            "ASCII: scores are too low: put them back, or make those of the references ASCII (uconv -x nfkc)"
        )
    against = None if baseline is None else systems[1]
    return score(systems[0], references, lang=lang, split_compounds=split_compounds, samples=samples, baseline=against)


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lang: str,
    split_compounds: bool = False,
    samples: int = 0,
    baseline: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return both kinds of BLEU, and chrF, of a system's output.

    Args:
        hypotheses: detokenised text, one sentence each.
        references: the same number of sentences.
        lang: the language's code; it chooses Moses' rules, and sacreBLEU's tokenisation of Chinese, Japanese, Korean
            and other languages without spaces (:data:`TOKENISERS`).
        split_compounds: for tokenised BLEU, cut words at their hyphens, as papers on WMT14 En-De do.
        samples: bootstrap resamples of the test set for a confidence interval, at least 2; 0 for none.
        baseline: another system's output, for a paired bootstrap test.

    Returns:
        ``{"sacrebleu": {...}, "chrf": {...}, "tokenised_bleu": {...}, "lines": int}``, each with "score", "signature"
        and "details" (of BLEU precisions, brevity penalty, lengths), each BLEU with "tokeniser"; with ``samples`` also
        "mean" and "interval", half the width of the 95% interval; with a ``baseline`` also "baseline", its score, and
        "p", sacreBLEU's, which is about half of that of a two-sided test. There is no "tokenised_bleu" of a language without
        spaces: each sentence would be a token or two.

    Raises:
        UserError: the numbers of sentences differ, there is nothing to score, the language has no such code, it needs another
            package, or there are too few resamples.
    """
    if samples < 0 or samples == 1:  # of one, sacreBLEU gives -1 for the mean
        raise UserError(f"--bootstrap {samples}: give a number of resamples, such as 1000")
    for what, given in (("hypotheses", hypotheses), ("references", references), ("baseline", baseline)):
        require_list(given, what)
    systems = [list(hypotheses)] + ([] if baseline is None else [list(baseline)])
    for system in systems:
        if len(system) != len(references):
            raise UserError(f"{len(system):,} hypotheses for {len(references):,} references: there must be one for each")
    if not any(line.strip() for line in references):
        raise UserError("the references are empty: there is nothing to score")
    code = two_letters("--lang", lang)
    try:
        # sacreBLEU's own warning of tokenised text is of three lines, and comes for references of the same kind, too
        detokenised = BLEU(trg_lang=code, tokenize=TOKENISERS.get(code), force=True)
    except RuntimeError as error:  # Japanese and Korean need their own tokenisers
        raise UserError(f"--lang {lang}: {' '.join(str(error).split())}") from error
    result = {
        "sacrebleu": _result(detokenised, systems, references, tokeniser="of sacreBLEU, see the signature", samples=samples),
        "chrf": _result(_ChrF(), systems, references, samples=samples),
        "lines": len(references),
    }
    if code in WITHOUT_SPACES:
        return result
    # As multi-bleu.perl -lc on Moses-tokenised text, which does not smooth; its -lc changes the letters of ASCII alone.
    tokenised = BLEU(lowercase=True, tokenize="none", force=True, smooth_method="none")
    compounds = f"compounds {'' if split_compounds else 'not '}split"
    english = "" if has_abbreviations(code) else ", of which it has no abbreviations but English ones"
    tokeniser = f"Moses' for '{code}'{english} (sacremoses {version('sacremoses')}), lower-cased, {compounds}"
    texts = [tokenise(lines, code, split_compounds) for lines in (*systems, references)]
    return {**result, "tokenised_bleu": _result(tokenised, texts[:-1], texts[-1], tokeniser=tokeniser, samples=samples)}


def _advice_on_lengths(lines: Sequence[str], generated: bool) -> str:
    """Return what to do where a system's output has not as many lines as the references."""
    if any(map(_DETOKENISED.match, lines)):
        return "it is what fairseq-generate has printed: give it as --generate-output"
    advice = "give the output for the whole test set and its references"
    left_out = " (without --required-batch-size-multiple 1, fairseq-generate can leave out the end)"
    return advice + left_out * generated


def looks_tokenised(hypotheses: Sequence[str], references: Sequence[str]) -> bool:
    """Return whether most hypotheses are tokenised, and the references are not.

    They end in a full stop behind a space, or have the signs of pieces, as fairseq-generate prints them without --remove-bpe.
    """
    ours, theirs = (sum(map(bool, map(_TOKENISED.search, lines))) / max(1, len(lines)) for lines in (hypotheses, references))
    return ours > 0.5 > theirs


def lacks_full_width(hypotheses: Sequence[str], references: Sequence[str]) -> bool:
    """Return whether many references have full-width forms of ASCII, as Chinese and Japanese do, and few hypotheses."""
    ours, theirs = (sum(map(bool, map(_FULL_WIDTH.search, lines))) for lines in (hypotheses, references))
    return theirs > len(references) / 10 and ours <= theirs / 10


def tokenise(lines: Sequence[str], lang: str, split_compounds: bool = False) -> list[str]:
    """Tokenise as Moses; split compounds as Vaswani et al. (2017) for evaluation: a-b becomes a ##AT##-##AT## b."""
    moses = MosesTokenizer(lang)
    texts = [moses.tokenize(line, return_str=True, escape=False) for line in lines]
    return [_COMPOUND.sub(r"\1 ##AT##-##AT## \2", text) for text in texts] if split_compounds else texts


def _result(
    metric: Metric, systems: Sequence[Sequence[str]], references: Sequence[str], *, samples: int, tokeniser: str | None = None
) -> dict[str, Any]:
    found = metric.corpus_score(systems[0], [references], n_bootstrap=samples or 1)
    result = {"score": found.score, "signature": str(metric.get_signature()), "details": str(found)}
    if tokeniser is not None:
        result["tokeniser"] = tokeniser
    if samples:
        result.update(mean=float(found._mean), interval=float(found._ci))
    if len(systems) > 1:
        named = [("baseline", systems[1]), ("system", systems[0])]
        test: Any = PairedTest(named, {found.name: metric}, [references], test_type="bs", n_samples=samples)
        _, tested = test()  # whose own type does not tell the results from the names
        before, after = tested[found.name]
        # sacreBLEU counts the resamples with a larger difference, of which texts that score alike, as but for case, have none
        result.update(baseline=before.score, p=1.0 if before.score == after.score else after.p_value)
    return result


def score_lines(result: dict[str, Any]) -> list[str]:
    """Return the scores for people, with sacreBLEU's signatures and the tokenisation."""
    names = (("sacrebleu", "sacreBLEU"), ("chrf", "chrF2"), ("tokenised_bleu", "case-insensitive tokenised BLEU"))
    lines = []
    for key, name in names:
        if key not in result:
            lines.append(f"{name}: none, since Moses does not tokenise a language without spaces: use sacreBLEU")
            continue
        found = result[key]
        interval = f" ± {found['interval']:.2f}" if "interval" in found else ""
        test = f", baseline {found['baseline']:.2f}, p = {found['p']:.4f}" if "p" in found else ""
        tokenisation = f"  (tokenisation: {found['tokeniser']})" if "tokeniser" in found else ""
        lines.append(f"{name} {found['score']:.2f}{interval}{test}  {found['signature']}{tokenisation}")
    return lines


def read_generate_output(path: str | Path) -> list[str]:
    """Read the hypotheses in the output of ``fairseq-generate``, in the order of the test set.

    Args:
        path: the standard output, whose lines ``D-<number><tab><score><tab><text>`` hold detokenised text
            (``--remove-bpe sentencepiece``). If a sentence has several (``--nbest``), the first and best one counts.

    Raises:
        UserError: the file cannot be read, has no such lines, or a sentence has none.
    """
    hypotheses: dict[int, str] = {}
    for line in read_lines(path):
        match = _DETOKENISED.match(line)
        if match:
            hypotheses.setdefault(int(match.group(1)), match.group(2))
    if not hypotheses:
        raise UserError(f"{path}: no line 'D-<number>': expected what fairseq-generate prints (without --quiet)")
    # a number that is damaged may be as large as any
    missing = list(islice((number for number in range(max(hypotheses) + 1) if number not in hypotheses), 6))
    if missing:
        some = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise UserError(
            f"{path}: no hypothesis for sentence {some} (counted from 0): fairseq-generate leaves out sentences that are "
            "too long, and the end of the test set unless --required-batch-size-multiple is 1"
        )
    return [hypotheses[number] for number in sorted(hypotheses)]
