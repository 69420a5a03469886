# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A SentencePiece model as a tokenizer.json of Hugging Face's tokenizers, with the ids of a fairseq dictionary."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from veco_fairseq.checkpoints.huggingface import write_json
from veco_fairseq.checkpoints.translation import Translation
from veco_fairseq.data.sentencepiece import MODEL_NAME, load_sentencepiece, ordinary_pieces
from veco_fairseq.data.symbols import NO_PIECE, SPECIALS, TARGET_TOKEN

# Below the least probable piece: so that a text never becomes a symbol that is no piece, such as "[en]".
NEVER = 100.0
NO_CHARACTER = "\ufdd0"  # which Unicode keeps free of any meaning


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
        return len(symbols), ["no tokenizer: the package tokenizers is not installed: pip install transformers"]
    except ValueError as error:
        return len(symbols), [f"no tokenizer: {pieces} {error}"]
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": translation.model.max_source_positions,
        **{f"{name}_token": symbol for name, symbol in zip(("bos", "pad", "eos", "unk"), SPECIALS)},
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # a text that has "</s>" in it does not end there
    }
    write_json(folder / "tokenizer_config.json", config)
    words = "pieces of the SentencePiece model are not in the dictionary: each has a row of <unk>'s, and is never generated"
    return len(symbols) + len(more), [f"{len(more):,} {words}"] if more else []


def missing_pieces(model: SentencePieceProcessor, symbols: Sequence[str]) -> list[str]:
    """The pieces that text can become and that the dictionary does not have: each is ``<unk>`` to fairseq."""
    known = set(symbols)
    return [piece for piece in ordinary_pieces(model) if piece not in known]


def fast_tokenizer(model: SentencePieceProcessor, symbols: Sequence[str], source_end: Sequence[str], target_end: str) -> Any:
    """A ``tokenizers.Tokenizer`` that cuts text as the SentencePiece model does.

    A text may begin with the token of a language to translate into, such as ``<2de>``, if the dictionary has it.

    Args:
        model: of unigrams.
        symbols: by id; the dictionary's, and after them :func:`missing_pieces`.
        source_end: the symbols that follow every text.
        target_end: the one that a translation begins with and ends in.

    Raises:
        ImportError: the package tokenizers is not installed.
        ValueError: the model is no unigram model.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import Unigram

    proto = sentencepiece_model_pb2.ModelProto.FromString(model.serialized_model_proto())
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise ValueError("is no unigram model")
    ordinary = set(ordinary_pieces(model))
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.piece in ordinary}
    never = min(scores.values()) - NEVER
    vocabulary = [(symbol, scores.get(symbol, never)) for symbol in symbols]
    unknown = SPECIALS.index("<unk>")
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=unknown, byte_fallback=proto.trainer_spec.byte_fallback))
    tokenizer.normalizer = normalizers.Sequence(_normalizers(proto.normalizer_spec, symbols, scores))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    from_bytes = [decoders.ByteFallback(), decoders.Fuse()] if proto.trainer_spec.byte_fallback else []
    scheme = "always" if proto.normalizer_spec.add_dummy_prefix else "never"
    tokenizer.decoder = decoders.Sequence([decoders.Metaspace(prepend_scheme=scheme), *from_bytes])
    special = dict.fromkeys([*SPECIALS, *source_end, target_end])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    # In "<2de> A sentence." the token is itself, where a text may not have special ones.
    tokenizer.add_tokens([AddedToken(token, normalized=False, rstrip=True) for token in symbols if TARGET_TOKEN.fullmatch(token)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["$A", *source_end],
        pair=["$A", "$B", *source_end],
        special_tokens=[(end, symbols.index(end)) for end in source_end],
    )
    return tokenizer


def _normalizers(rules: Any, symbols: Sequence[str], scores: dict[str, float]) -> list[Any]:
    """What SentencePiece does with a text before it looks for pieces, and a safeguard."""
    from tokenizers import Regex, normalizers

    steps = [normalizers.Precompiled(rules.precompiled_charsmap)] if rules.precompiled_charsmap else []
    if rules.remove_extra_whitespaces:
        # Spaces alone: normalizers.Strip takes other white space, too.
        steps += [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    steps.append(normalizers.Replace(" ", "▁"))
    # "</s>" in a text is its characters. Where all are pieces, they are more probable than NEVER; where one is not, it gets
    # a neighbour that is unknown, too, and is one <unk> with it, or gives way to its bytes.
    for symbol in filter(lambda symbol: symbol in SPECIALS or NO_PIECE.fullmatch(symbol), symbols):
        unknown = set(symbol) - scores.keys()
        instead = {c: c + NO_CHARACTER if "<0x00>" not in scores else f"<0x{ord(c):02X}>" for c in unknown}
        if unknown:
            steps.append(normalizers.Replace(symbol, symbol.translate(str.maketrans(instead))))
    return [*steps, normalizers.Prepend("▁")] if rules.add_dummy_prefix else steps
