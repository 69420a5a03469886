# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--eval-bleu``, BLEU in validation: its options, checked before a training begins, and a figure for every validation."""

import difflib
import json
import logging
from argparse import Namespace
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import partial
from typing import Any

import sacrebleu
from fairseq.data import data_utils, encoders
from fairseq.dataclass.configs import GenerationConfig
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationConfig
from sacrebleu.metrics import BLEU

from veco_fairseq.arguments import short
from veco_fairseq.compat.patching import replaced
from veco_fairseq.compat.texts import OF_WORDS
from veco_fairseq.data.languages import WITHOUT_SPACES, known_as
from veco_fairseq.errors import UserError
from veco_fairseq.options.borders import check_options

logger = logging.getLogger(__name__)

# What fairseq's search reads; it passes over every other entry of --eval-bleu-args.
READ = ("beam max_len_a max_len_b min_len unnormalized lenpen unkpen temperature match_source_len no_repeat_ngram_size sampling "
        "sampling_topk sampling_topp diverse_beam_groups diverse_beam_strength diversity_rate").split()  # fmt: skip
# Languages whose words sacreBLEU finds by a package, and what validation, which needs none, counts instead.
OTHERWISE = {"ja": "characters", "ko": "what is between spaces"}
KINDS: dict[object, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
}


def check_bleu(cfg: TranslationConfig, symbols: Iterable[str], langs: Iterable[str | None] = ()) -> None:
    """Check the options of ``--eval-bleu``, which fairseq needs, if they are wrong, after the first epoch.

    Args:
        symbols: the target's, to warn of BLEU of pieces.
        langs: to translate into, to tell of those whose BLEU is of something else than that of ``veco score``.

    Raises:
        UserError: an entry of ``--eval-bleu-args`` has no effect or a wrong value, or one of the other options is unknown.
    """
    cfg.eval_bleu_args, cfg.eval_bleu_detok_args = cfg.eval_bleu_args or "{}", cfg.eval_bleu_detok_args or "{}"
    chosen, kinds = json.loads(cfg.eval_bleu_args), {field.name: field.type for field in fields(GenerationConfig)}
    for name, value in chosen.items():
        if name not in READ:
            near = difflib.get_close_matches(name, READ, n=1)
            advice = f"did you mean {near[0]}?" if near else f"it takes {', '.join(READ)}"
            raise UserError(f"--eval-bleu-args: {short(name)} has no effect: {advice}")
        types, wanted = KINDS[kinds[name]]
        if type(value) not in types:
            raise UserError(f"--eval-bleu-args: {name} {short(value)}: must be {wanted}")
    check_options(chosen, "--eval-bleu-args: ")
    try:
        encoders.build_tokenizer(Namespace(tokenizer=cfg.eval_bleu_detok, **json.loads(cfg.eval_bleu_detok_args)))
    except KeyError as error:
        raise UserError(
            f"--eval-bleu-detok {short(cfg.eval_bleu_detok)}: must be one of {', '.join(encoders.TOKENIZER_REGISTRY)}"
        ) from error
    except ImportError as error:
        raise UserError(
            f"--eval-bleu-detok {cfg.eval_bleu_detok}: a package is missing: {' '.join(str(error).split())}"
        ) from error
    remove = cfg.eval_bleu_remove_bpe
    try:
        data_utils.post_process("", remove)
    except NotImplementedError as error:
        raise UserError(
            f"--eval-bleu-remove-bpe {short(remove)}: fairseq does not know such pieces: give sentencepiece, subword_nmt or another "
            "of its kinds"
        ) from error
    symbols = list(symbols)
    joins_words = remove in OF_WORDS and any(symbol.endswith("@@") for symbol in symbols)  # a text may have the sign itself
    if remove != "sentencepiece" and not joins_words and any(symbol.startswith("\u2581") for symbol in symbols):
        logger.warning("--eval-bleu: BLEU is of pieces, not of words: give --eval-bleu-remove-bpe sentencepiece")
        return
    for code in sorted(OTHERWISE.keys() & {known_as(lang or "") for lang in langs}):
        logger.warning(
            f"--eval-bleu: BLEU of {code} is of {OTHERWISE[code]}, and that of veco score of the words of {code}-mecab: the "
            "figures differ, and must not be compared"
        )


def counted_in(lang: str | None) -> AbstractContextManager[None]:
    """Let sacreBLEU, which fairseq gives no language, cut one without spaces: a Chinese sentence is a word for it, and BLEU 0.

    Japanese is cut into characters, too, since its words need a package.
    """
    code = known_as(lang or "")
    if code not in WITHOUT_SPACES:
        return nullcontext()
    cut = partial(sacrebleu.corpus_bleu, tokenize="zh" if code == "zh" else "char")
    return replaced(sacrebleu, "corpus_bleu", cut)


def log_bleu(prefix: str = "") -> None:
    """Log ``PREFIXbleu``: 0 while no translation has a word, for which fairseq logs nothing, and ends in an error.

    Args:
        prefix: of this name, and of the sums ``_PREFIXbleu_counts``, ``_totals``, ``_sys_len`` and ``_ref_len``.
    """
    metrics.log_derived(f"{prefix}bleu", partial(_bleu, prefix), priority=22 if prefix else 20)


def _bleu(prefix: str, meters: dict[str, Any]) -> float:
    if f"_{prefix}bleu_totals" not in meters:
        return 0.0
    counts, totals, sys_len, ref_len = (
        meters[f"_{prefix}bleu_{part}"].sum for part in ("counts", "totals", "sys_len", "ref_len")
    )
    return round(BLEU.compute_bleu(counts, totals, int(sys_len), int(ref_len), smooth_method="exp").score, 2)
