# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A SentencePiece model as a tokenizer.json of Hugging Face's tokenizers, with the ids of a fairseq dictionary."""

import re
import shutil
from collections.abc import Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any
from unicodedata import normalize

from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from veco_fairseq.checkpoints.translation import Translation
from veco_fairseq.checkpoints.writing import write_config
from veco_fairseq.data.sentencepiece import MASK, MODEL_NAME, load_sentencepiece, ordinary_pieces
from veco_fairseq.data.symbols import NO_PIECE, SPECIALS, TARGET_TOKEN

# Below the least probable piece: so that a text never becomes a symbol that is no piece, such as "[en]".
NEVER = 100.0
CONFIG = "tokenizer_config.json"
NOT_INSTALLED = "no tokenizer: the package tokenizers is not installed: pip install transformers"
NO_CHARACTER, BEGINS, NO_MARK = "\ufdd0", "\ufdd1", "\ufdd2"  # which Unicode keeps free of any meaning
# In a regular expression: marks, joiners, marks of voice in half width, and the vowel AM of Thai and Lao, which has a mark.
MARKS = r"\p{M}\x{200c}\x{200d}\x{ff9e}\x{ff9f}\x{e33}\x{eb3}"
_WHOLE = [c for c in map(chr, range(0xC0, 0x12000)) if c == normalize("NFC", c) != normalize("NFD", c)]
_PAIRS = groupby(sorted({pair for c in _WHOLE for pair in pairwise(normalize("NFD", c))}, key=itemgetter(1, 0)), itemgetter(1))
FOLLOWS = {part: "".join(before for before, _ in pairs) for part, pairs in _PAIRS}  # what NFC composes, and after which parts
_PARTS = {*FOLLOWS, *"".join(FOLLOWS.values())}
TWINS = {c: part for c in map(chr, range(0x300, 0x3000)) if (part := normalize("NFC", c)) != c and part in _PARTS}  # kelvin's K
_IN_PARTS = [chr(letter) + voice for letter in range(0xFF66, 0xFF9E) for voice in "\uff9e\uff9f"]
KATAKANA = {parts: whole for parts in _IN_PARTS if len(whole := normalize("NFKC", parts)) == 1}  # in half width
OTHER_SPACES = "".join(c for c in map(chr, range(0x3001)) if c.isspace() and c != " ")  # for Python, and so for fairseq


def write_tokenizer(folder: Path, pieces: Path | None, translation: Translation) -> tuple[int, list[str]]:
    """Write tokenizer.json and tokenizer_config.json, which ``AutoTokenizer`` reads without code of anybody's.

    Args:
        folder: to write to.
        pieces: the SentencePiece model, if there is one.
        translation: the model, whose dictionary is the same for both languages.

    Returns:
        How many ids it has: the dictionary's, and one for each of :func:`missing_pieces`; and lines for the user.
    """
    symbols = translation.source
    if pieces is None:
        return len(symbols), [f"no tokenizer: no {MODEL_NAME} beside the checkpoint or its data: name it with --sentencepiece"]
    model = load_sentencepiece(pieces)
    more = missing_pieces(model, symbols)
    try:
        tokenizer = fast_tokenizer(model, [*symbols, *more], translation.source_end, translation.target_end)
    except ImportError:
        return len(symbols), [NOT_INSTALLED]
    except ValueError as error:
        return len(symbols), [f"no tokenizer: {pieces} {error}"]
    # A text that has "</s>" in it does not end there.
    _save(folder, tokenizer, model_max_length=translation.model.max_source_positions, split_special_tokens=True)
    words = "pieces of the SentencePiece model are not in the dictionary: each has a row of <unk>'s, and is never generated"
    return len(symbols) + len(more), [f"{len(more):,} {words}"] if more else []


def write_xlmr_tokenizer(folder: Path, pieces: Path, symbols: Sequence[str], longest: int) -> list[str]:
    """Write the same for an encoder; and the SentencePiece model, where the ids are in the order that XLM-R gives its pieces.

    Args:
        folder: to write to.
        pieces: the SentencePiece model.
        symbols: the encoder's tokens, by id.
        longest: tokens of a text.

    Returns:
        Lines for the user, if there is no tokenizer.
    """
    model = load_sentencepiece(pieces)
    if more := missing_pieces(model, symbols):
        return [f"no tokenizer: {len(more):,} pieces of {pieces} are no tokens of the model, such as {more[0]!r}"]
    as_in_xlmr = [*SPECIALS, *ordinary_pieces(model), MASK] == symbols
    try:
        tokenizer = xlmr_tokenizer(model, symbols)
    except ImportError:
        if not (as_in_xlmr and _cuts_words(_proto(model))):
            return [NOT_INSTALLED]
        write_config(folder / CONFIG, {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": longest})
    except ValueError as error:
        return [f"no tokenizer: {pieces} {error}"]
    else:
        _save(folder, tokenizer, model_max_length=longest, cls_token="<s>", sep_token="</s>", mask_token=MASK)
    if as_in_xlmr:
        shutil.copyfile(pieces, folder / MODEL_NAME)
    return []


def _save(folder: Path, tokenizer: Any, **options: Any) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = {f"{name}_token": symbol for name, symbol in zip(("bos", "pad", "eos", "unk"), SPECIALS)}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **tokens, "clean_up_tokenization_spaces": False, **options}
    write_config(folder / CONFIG, config)


def missing_pieces(model: SentencePieceProcessor, symbols: Sequence[str]) -> list[str]:
    """The pieces that text can become and that the dictionary does not have: each is ``<unk>`` to fairseq."""
    known = set(symbols)
    return [piece for piece in ordinary_pieces(model) if piece not in known]


def fast_tokenizer(model: SentencePieceProcessor, symbols: Sequence[str], source_end: Sequence[str], target_end: str) -> Any:
    """The ``tokenizers.Tokenizer`` of a translation model.

    A text may begin with the token of a language to translate into, such as ``<2de>``, if the dictionary has it.

    Args:
        model: of unigrams.
        symbols: by id; the dictionary's, and after them :func:`missing_pieces`.
        source_end: the symbols that follow every text.
        target_end: the one that a translation begins with and ends in.

    Raises:
        ImportError: the package tokenizers is not installed.
        ValueError: the model is no unigram model, has its spaces at the ends of words, or a symbol that normalising would change.
    """
    one, two = ["$A", *source_end], ["$A", "$B", *source_end]
    return _unigram_tokenizer(model, symbols, one=one, two=two, special=[*source_end, target_end])


def xlmr_tokenizer(model: SentencePieceProcessor, symbols: Sequence[str]) -> Any:
    """The ``tokenizers.Tokenizer`` of an encoder: XLM-R's, ``<s> A </s>`` and ``<s> A </s> </s> B </s>``.

    In a text ``<mask>`` is the token, with the spaces before it. Where the model adds a space to each text and cuts at spaces, as
    most do, the place of a token does not begin with a space, as in XLM-R.

    Args:
        model: of unigrams.
        symbols: by id.

    Raises:
        ImportError: the package tokenizers is not installed.
        ValueError: the model is no unigram model, has its spaces at the ends of words, or a symbol that normalising would change.
    """
    one = ["<s>", "$A", "</s>"]
    return _unigram_tokenizer(model, symbols, one=one, two=[*one, "</s>", "$B", "</s>"], special=[MASK], by_words=True)


def _unigram_tokenizer(
    model: SentencePieceProcessor,
    symbols: Sequence[str],
    *,
    one: list[str],
    two: list[str],
    special: Sequence[str],
    by_words: bool = False,
) -> Any:
    """A ``tokenizers.Tokenizer`` that cuts text as the SentencePiece model does, and puts symbols around one text or two."""
    proto = _proto(model)
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise ValueError("is no unigram model")
    if proto.trainer_spec.treat_whitespace_as_suffix:
        raise ValueError("has its spaces at the ends of words")
    if changed := _normalised_symbols(proto):
        raise ValueError(f"has a symbol of its own, {changed[0]!r}, which its rules of normalising would change")
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import Unigram

    ordinary = set(ordinary_pieces(model))
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.piece in ordinary}
    never = min(scores.values()) - NEVER
    vocabulary = [(symbol, scores.get(symbol, never)) for symbol in symbols]
    unknown = SPECIALS.index("<unk>")
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=unknown, byte_fallback=proto.trainer_spec.byte_fallback))
    rules = proto.normalizer_spec
    by_words = by_words and _cuts_words(proto)
    targets = [symbol for symbol in symbols if TARGET_TOKEN.fullmatch(symbol)]
    steps = [*_marked(targets, rules), *_as_normalised(model, rules), *_normalizers(rules, symbols, scores, by_words)]
    tokenizer.normalizer = normalizers.Sequence(steps)
    words = [pre_tokenizers.Split(" ", "removed")] if by_words else []
    prepend = "always" if by_words else "never"
    spaces = pre_tokenizers.Metaspace(prepend_scheme=prepend, split=proto.trainer_spec.split_by_whitespace)
    # Other white space, such as U+0085, separates the pieces for fairseq, and is none itself, unless it becomes bytes.
    others = [] if proto.trainer_spec.byte_fallback else [pre_tokenizers.Split(Regex(f"[{OTHER_SPACES}]"), "removed")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*words, spaces, *others])
    # Not decoders.Metaspace, which takes all spaces out of the first piece, not only the one that was added.
    from_bytes = [decoders.ByteFallback()] if proto.trainer_spec.byte_fallback else []
    without_prefix = [decoders.Strip(" ", 1, 0)] if rules.add_dummy_prefix else []
    # tokenizers decodes these tokens as they are normalised.
    named = [decoders.Replace(tokenizer.normalizer.normalize_str(token), token) for token in targets]
    tokenizer.decoder = decoders.Sequence([*named, decoders.Replace("▁", " "), *from_bytes, decoders.Fuse(), *without_prefix])
    all_special = dict.fromkeys([*SPECIALS, *special])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, lstrip=token == MASK) for token in all_special])
    # In "<2de> A sentence." the token is itself, where a text may not have special ones.
    tokenizer.add_tokens([AddedToken(token, normalized=True) for token in targets])  # with the mark before it, as in a text
    tokenizer.post_processor = processors.TemplateProcessing(
        single=one, pair=two, special_tokens=[(symbol, symbols.index(symbol)) for symbol in dict.fromkeys(one) if symbol != "$A"]
    )
    return tokenizer


def _proto(model: SentencePieceProcessor) -> Any:
    return sentencepiece_model_pb2.ModelProto.FromString(model.serialized_model_proto())


def _normalised_symbols(proto: Any) -> list[str]:
    """The symbols that SentencePiece was trained to leave as they are, and that tokenizers would normalise with all other text."""
    plain = sentencepiece_model_pb2.ModelProto.FromString(proto.SerializeToString())
    own = [piece for piece in plain.pieces if piece.type == piece.USER_DEFINED]
    for piece in own:
        piece.type = piece.NORMAL
    model = SentencePieceProcessor(model_proto=plain.SerializeToString()) if own else None
    return [piece.piece for piece in own if model and piece.piece not in model.normalize(piece.piece)]


def _cuts_words(proto: Any) -> bool:
    """Whether the model cuts each word by itself, with one space before it, as XLM-R's does."""
    rules = proto.normalizer_spec
    return bool(rules.add_dummy_prefix and rules.remove_extra_whitespaces and proto.trainer_spec.split_by_whitespace)


def _marked(targets: Sequence[str], rules: Any) -> list[Any]:
    """A mark before a token such as ``<2de>`` that a text begins with, so that it is one there alone, and text elsewhere."""
    from tokenizers import Regex, normalizers

    if not targets:
        return []
    names = "|".join(re.escape(token[1:-1]) for token in targets)
    begun = "|".join(rf"\A{BEGINS}<{re.escape(token[1:-1])}" for token in targets)
    space = " " if rules.add_dummy_prefix else ""  # as where the text behind it begins
    return [
        normalizers.Replace(BEGINS, NO_MARK),  # a text's own one is as unknown
        normalizers.Replace(Regex(rf"\A\s*<(?=(?:{names})>)"), f"{BEGINS}<"),
        normalizers.Replace(Regex(rf"(?<={begun})>\s*(?=\S)"), f">{space}"),
        normalizers.Replace(Regex(rf"(?<={begun})>\s*\z"), ">"),
    ]


def _as_normalised(model: SentencePieceProcessor, rules: Any) -> list[Any]:
    """What SentencePiece does with a text's characters.

    ``Precompiled`` looks up a character together with its marks. It finds none of more than five bytes, such as a Korean
    syllable in parts, and forgets the marks of one whose beginning it finds. So what belongs together is composed before it,
    and the marks that are left stand apart for it.
    """
    from tokenizers import Regex, normalizers

    if not rules.precompiled_charsmap:
        return []
    look_up = normalizers.Precompiled(rules.precompiled_charsmap)
    if not model.normalize("e\u0301").endswith("\u00e9"):
        return [look_up]
    # SentencePiece composes what is all in parts, in their order. NFC would also put parts into their order, and compose what is
    # composed already with a part more, such as a letter that has its circumflex with a tone: these stand apart for it.
    inside = f"(?<=[^{NO_CHARACTER}])"  # not at a text's beginning, where tokenizers cannot
    together = "|".join(f"(?<=[{before}]){part}" for part, before in FOLLOWS.items())
    loose_apart, all_apart = (
        normalizers.Replace(Regex(expression), NO_CHARACTER)
        for expression in (f"{inside}(?=[{MARKS}{''.join(FOLLOWS)}])(?!{together})", f"{inside}(?=[{MARKS}])")
    )
    alike = [normalizers.Replace(one, other) for one, other in {**KATAKANA, **TWINS}.items()]
    return [*alike, loose_apart, normalizers.NFC(), all_apart, look_up, normalizers.Replace(NO_CHARACTER, "")]


def _normalizers(rules: Any, symbols: Sequence[str], scores: dict[str, float], by_words: bool) -> list[Any]:
    """What SentencePiece does with a text's spaces, and a safeguard; some spaces are left to what cuts words."""
    from tokenizers import Regex, normalizers

    steps = []
    if rules.remove_extra_whitespaces:
        # Spaces alone: normalizers.Strip takes other white space, too.
        steps += [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if not by_words:
        steps.append(normalizers.Replace(" ", "▁"))
    # "</s>" in a text is its characters. Where all are pieces, they are more probable than NEVER; where one is not, it gets
    # a neighbour that is unknown, too, and is one <unk> with it, or gives way to its bytes.
    # The model may have a piece such as <2de>, as one of its own symbols, which a text has, too.
    for symbol in (one for one in symbols if one in SPECIALS or NO_PIECE.fullmatch(one) and one not in scores):
        unknown = set(symbol) - scores.keys()
        instead: dict[str, str | int | None] = {
            c: c + NO_CHARACTER if "<0x00>" not in scores else f"<0x{ord(c):02X}>" for c in unknown
        }
        if unknown:
            steps.append(normalizers.Replace(symbol, symbol.translate(str.maketrans(instead))))
    return [*steps, normalizers.Prepend("▁")] if rules.add_dummy_prefix and not by_words else steps
