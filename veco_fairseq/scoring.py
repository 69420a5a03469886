# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""BLEU as the paper reports it: detokenised sacreBLEU and case-insensitive tokenised BLEU (VECO, section 5.1)."""

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, List, Sequence, Union

from sacrebleu.metrics import BLEU
from sacremoses import MosesTokenizer

from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines

_DETOKENISED = re.compile(r"^D-(\d+)\t[^\t]*\t(.*)$", re.DOTALL)


def score_files(
    hypothesis: Union[str, Path], reference: Union[str, Path], lang: str, generated: bool = False
) -> Dict[str, Any]:
    """:func:`score` for files of one sentence a line, ``generated``: for the output of ``fairseq-generate``.

    Raises:
        UserError: as :func:`score`, or a file cannot be read.
    """
    hypotheses = read_generate_output(hypothesis) if generated else list(read_lines(hypothesis))
    references = list(read_lines(reference))
    if len(hypotheses) != len(references):
        raise UserError(
            f"{hypothesis} has {len(hypotheses):,} sentences, but {reference} has {len(references):,}: "
            "give the output for the whole test set (fairseq-generate --required-batch-size-multiple 1, or it can "
            "leave out the end), and its references"
        )
    return score(hypotheses, references, lang)


def score(hypotheses: Sequence[str], references: Sequence[str], lang: str) -> Dict[str, Any]:
    """Both BLEUs of a system's output.

    Args:
        hypotheses: detokenised text, one sentence each.
        references: as many.
        lang: the language's code; it chooses Moses' rules, and sacreBLEU's tokenisation of Chinese, Japanese
            and Korean.

    Returns:
        ``{"sacrebleu": {...}, "tokenised_bleu": {...}, "lines": int}``, each BLEU with "score", "signature",
        "tokeniser" and "details" (precisions, brevity penalty, lengths).

    Raises:
        UserError: the two differ in length, there is nothing to score, or the language needs another package.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses):,} hypotheses for {len(references):,} references: every line must have its counterpart"
        )
    if not any(line.strip() for line in references):
        raise UserError("the references are empty: there is nothing to score")
    return {
        "sacrebleu": _sacrebleu(hypotheses, references, lang),
        "tokenised_bleu": _tokenised_bleu(hypotheses, references, lang),
        "lines": len(hypotheses),
    }


def _sacrebleu(hypotheses: Sequence[str], references: Sequence[str], lang: str) -> Dict[str, Any]:
    try:
        metric = BLEU(trg_lang=lang)
    except RuntimeError as error:  # Japanese and Korean need their own tokenisers
        raise UserError(f"--lang {lang}: {error}") from error
    return _result(metric, hypotheses, references, "of sacreBLEU, see the signature")


def _tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str], lang: str) -> Dict[str, Any]:
    """What multi-bleu.perl -lc gives on Moses-tokenised text: it doesn't smooth, so neither is it done here."""
    moses = MosesTokenizer(lang)
    texts = [
        [moses.tokenize(line, return_str=True, escape=False) for line in lines] for lines in (hypotheses, references)
    ]
    metric = BLEU(lowercase=True, tokenize="none", force=True, smooth_method="none")
    tokeniser = f"Moses' for '{lang}' (sacremoses {version('sacremoses')}), lower-cased, compounds not split"
    return _result(metric, texts[0], texts[1], tokeniser)


def _result(metric: BLEU, hypotheses: Sequence[str], references: Sequence[str], tokeniser: str) -> Dict[str, Any]:
    result = metric.corpus_score(list(hypotheses), [list(references)])
    signature = str(metric.get_signature())
    return {"score": result.score, "signature": signature, "tokeniser": tokeniser, "details": str(result)}


def score_lines(result: Dict[str, Any]) -> List[str]:
    """Both BLEUs for people, with the signature of the first and the tokenisation of the second."""
    names = (("sacrebleu", "sacreBLEU"), ("tokenised_bleu", "case-insensitive tokenised BLEU"))
    return [
        f"{name} {result[key]['score']:.2f}  {result[key]['signature']}  (tokenisation: {result[key]['tokeniser']})"
        for key, name in names
    ]


def read_generate_output(path: Union[str, Path]) -> List[str]:
    """The hypotheses in what ``fairseq-generate`` printed, in the order of the test set.

    Args:
        path: the standard output, whose lines ``D-<number><tab><score><tab><text>`` hold detokenised text
            (``--remove-bpe sentencepiece``). Of several for one sentence (``--nbest``), the first, best one counts.

    Raises:
        UserError: it cannot be read, has no such lines, or some sentence has none.
    """
    hypotheses: Dict[int, str] = {}
    for line in read_lines(path):
        match = _DETOKENISED.match(line)
        if match:
            hypotheses.setdefault(int(match.group(1)), match.group(2))
    if not hypotheses:
        raise UserError(f"{path}: no line 'D-<number>': expected what fairseq-generate prints (without --quiet)")
    missing = [number for number in range(max(hypotheses) + 1) if number not in hypotheses]
    if missing:
        some = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise UserError(
            f"{path}: no hypothesis for sentence {some} (counted from 0): fairseq-generate leaves out what is too "
            "long, and the end of the test set unless --required-batch-size-multiple is 1"
        )
    return [hypotheses[number] for number in sorted(hypotheses)]
