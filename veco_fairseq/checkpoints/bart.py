# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A fine-tuned translation model as a folder of Hugging Face's BART, which has the same layers, or of two XLM-RoBERTas.

BART's decoder ends in the embeddings alone. A model with pre-training's LM head is therefore an EncoderDecoderModel,
whose two XLM-RoBERTas are of the same layers too, and whose decoder ends in that head.
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from veco_fairseq.checkpoints.card import Facts, scores_list, translating, write_card
from veco_fairseq.checkpoints.huggingface import ACTIVATIONS, Export, import_transformers, xlmr_options
from veco_fairseq.checkpoints.pretrained import updates_of
from veco_fairseq.checkpoints.tokenizer import write_tokenizer
from veco_fairseq.checkpoints.translation import Translation, build_translation, find_sentencepiece
from veco_fairseq.checkpoints.writing import write_config, write_safetensors
from veco_fairseq.checkpoints.xlmr_files import TOKEN_TYPES, names
from veco_fairseq.data.languages import sides_of
from veco_fairseq.data.symbols import SPECIALS
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, atomic_folder
from veco_fairseq.options.flags import flag

# One table under three names in fairseq.
EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
NOWHERE = "no_cross_attention", "cross_self_attention", "no_token_positional_embeddings"  # which CTranslate2 has not, either
# What both of Hugging Face's shapes have, of fairseq's options that the names and sizes of tensors do not tell.
OPTIONS: dict[str, Any] = {
    **dict.fromkeys(NOWHERE, False), "encoder_normalize_before": False, "decoder_normalize_before": False,
    "encoder_learned_pos": True, "decoder_learned_pos": True, "layernorm_embedding": True,
}  # fmt: skip
BOS, PAD, _, UNK = range(len(SPECIALS))
OFFSET = PAD + 1  # of the rows of positions, in fairseq as in Hugging Face
NOT_GENERATED = -1e9  # the logit of a row that fairseq does not have
FAIRSEQS_LONGEST = 200  # fairseq-generate --max-len-b


class Shape(NamedTuple):
    """A model of Hugging Face's.

    Attributes:
        architecture: its class.
        names: fairseq's names of tensors, but for :data:`EMBEDDINGS`, and the class's.
        embeddings: the class's names of these.
        bias: the class's name of the bias of the logits, and its number of dimensions.
        config: the class's options.
    """

    architecture: str
    names: dict[str, str]
    embeddings: tuple[str, ...]
    bias: tuple[str, int]
    config: dict[str, Any]


def export_translation(
    translation: Translation, output: Path_, *, sentencepiece: Path_ | None = None, scores: str = ""
) -> Export:
    """Write a fine-tuned translation model, its tokenizer, the options of its search and its model card.

    Args:
        translation: the model.
        output: the folder to make.
        sentencepiece: its SentencePiece model; default: that beside the checkpoint or in the data folder.
        scores: of the model card, as :func:`veco_fairseq.checkpoints.card.scores_list` gives it.

    Raises:
        UserError: the model is of a shape that Hugging Face has no class for, or the folder is there and not empty.
    """
    model = translation.model
    with atomic_folder(output) as folder:
        _check_options(translation)
        tokens, notes = write_tokenizer(folder, find_sentencepiece(translation, sentencepiece), translation)
        notes += translation.notes
        shape = (encoder_decoder_shape if translation.keeps_lm_head else bart_shape)(model, tokens)
        tensors = _tensors(translation, shape, tokens)
        write_safetensors(folder / "model.safetensors", tensors)
        end = translation.target.index(translation.target_end)
        common = {"bos_token_id": BOS, "pad_token_id": PAD, "eos_token_id": end, "decoder_start_token_id": end}
        sizes = {"architectures": [shape.architecture], "is_encoder_decoder": True, "dtype": "float32", **common}
        write_config(folder / "config.json", {**shape.config, **sizes, "forced_eos_token_id": end})
        write_config(folder / "generation_config.json", {**common, **search_options(translation)})
        write_card(folder / "README.md", _facts(translation, shape, tensors), scores or scores_list())
        if getattr(model, "tie_self_attention", None):
            notes.append("the decoder's self-attention, which was the encoder's, is a copy: transformers cannot tie it")
        if translation.keeps_lm_head:
            notes.append("BART has no LM head: an EncoderDecoderModel of two XLM-RoBERTas")
    return Export(Path(output), 0, notes)


def bart_shape(model: Namespace, tokens: int) -> Shape:
    """BART's names are fairseq's, from which it was ported."""
    config = {
        "model_type": "bart",
        "d_model": model.encoder_embed_dim,
        "activation_function": ACTIVATIONS[model.activation_fn],
        "scale_embedding": not model.no_scale_embedding,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.activation_dropout,
        "max_position_embeddings": model.max_source_positions,
        "tie_word_embeddings": True,
        **{f"{side}_{theirs}": getattr(model, f"{side}_{ours}")
           for side in ("encoder", "decoder")
           for theirs, ours in (("layers", "layers"), ("attention_heads", "attention_heads"), ("ffn_dim", "ffn_embed_dim"))},
        "vocab_size": tokens,
    }  # fmt: skip
    table = {ours: f"model.{ours}" for _, ours, _ in _parts(model)}
    return Shape("BartForConditionalGeneration", table, ("model.shared.weight",), ("final_logits_bias", 2), config)


def encoder_decoder_shape(model: Namespace, tokens: int) -> Shape:
    """Of an XLM-RoBERTa, and one that is a decoder with cross-attention and LM head."""
    prefixes = {"encoder": "encoder.", "decoder": "decoder.roberta."}
    table = {ours: theirs.replace("roberta.", prefixes[side], 1) for side, ours, theirs in _parts(model)}
    for part in ("dense", "layer_norm"):
        for kind in ("weight", "bias"):
            table[f"decoder.output_projection.{part}.{kind}"] = f"decoder.lm_head.{part}.{kind}"
    config = {
        side: {
            **xlmr_options(model, side),
            "hidden_act": ACTIVATIONS[model.activation_fn],
            "max_position_embeddings": model.max_source_positions + OFFSET,
            "is_decoder": side == "decoder",
            "add_cross_attention": side == "decoder",
            "vocab_size": tokens,
        }
        for side in prefixes
    }
    embeddings = tuple(f"{prefix}embeddings.word_embeddings.weight" for prefix in prefixes.values())
    return Shape(
        "EncoderDecoderModel", table, embeddings, ("decoder.lm_head.bias", 1), {"model_type": "encoder-decoder", **config}
    )


def _parts(model: Namespace) -> Iterator[tuple[str, str, str]]:
    """The side of every tensor that both shapes have, and its names in fairseq and in XLM-RoBERTa."""
    for side, depth in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        for name, theirs in names(depth).items():
            ours = name.replace("sentence_encoder.", f"{side}.")
            if ours != name and ours not in EMBEDDINGS:
                yield side, ours, theirs
                if side == "decoder" and ".self_attn" in ours:
                    yield side, ours.replace(".self_attn", ".encoder_attn"), theirs.replace(".attention.", ".crossattention.")


def search_options(translation: Translation) -> dict[str, Any]:
    """The search of ``fairseq-generate --beam 5``, for generation_config.json.

    Both divide a hypothesis's score by its length with the end, go on until there are as many hypotheses as beams
    (``early_stopping``), take an end among the best candidates alone, and have neither padding nor an empty translation. A
    length counts the first token in transformers, and leaves out the first and the last in fairseq.
    """
    longest = min(FAIRSEQS_LONGEST, translation.model.max_target_positions - 1) + 2
    end = translation.target.index(translation.target_end)
    return {
        "num_beams": 5, "early_stopping": True, "length_penalty": 1.0, "min_length": 2, "max_length": longest,
        "suppress_tokens": [PAD], "forced_eos_token_id": end,
    }  # fmt: skip


def _check_options(translation: Translation) -> None:
    """Raise UserError for what Hugging Face's class has no option for."""
    model, path = translation.model, translation.path
    for option, wanted in OPTIONS.items():
        found = getattr(model, option, False)
        if found != wanted:
            trained = f"was trained with{'out' if wanted else ''} {flag(option)}"
            advice = "use veco translate" if option in NOWHERE else "try veco export-ct2"
            raise UserError(f"{path}: {trained}, which BART has no option for: {advice}")
    if parts := ", ".join(translation.parts_without_place):
        raise UserError(f"{path}: was trained with {parts}, which BART has no place for: use veco translate")
    if model.activation_fn not in ACTIVATIONS:
        raise UserError(f"{path}: its --activation-fn {model.activation_fn} is none of transformers': {', '.join(ACTIVATIONS)}")
    if translation.keeps_lm_head and model.activation_fn != "gelu":
        activation = f"its --activation-fn {model.activation_fn} stands in its LM head, too"
        raise UserError(f"{path}: {activation}, and XLM-RoBERTa's always has gelu: convert it without --keep-lm-head")
    if translation.keeps_lm_head and not model.no_scale_embedding:
        raise UserError(f"{path}: was trained without --no-scale-embedding and with an LM head, which XLM-RoBERTa has not")
    if model.max_source_positions != model.max_target_positions:
        both = f"{model.max_source_positions} and {model.max_target_positions}"
        raise UserError(f"{path}: has {both} positions of sources and targets, and BART has one number for both")
    table, *others = (translation.weights.get(name) for name in EMBEDDINGS)
    if table is None or any(other is None or not torch.equal(other, table) for other in others):
        raise UserError(f"{path}: was trained without --share-all-embeddings: BART has one table for both sides and the output")


def _tensors(translation: Translation, shape: Shape, tokens: int) -> dict[str, Tensor]:
    """Hugging Face's names: their tensors, contiguous, in fp32.

    Args:
        translation: the model.
        shape: its names.
        tokens: rows of the embeddings; those after fairseq's are ``<unk>``'s, and are never generated.
    """
    weights = dict(translation.weights)
    table, *_ = (weights.pop(name) for name in EMBEDDINGS)
    bias = weights.pop("decoder.output_projection.bias", torch.zeros(len(table)))
    more = tokens - len(table)
    table = torch.cat([table, table[UNK].expand(more, -1)])
    bias = torch.cat([bias, torch.full((more,), NOT_GENERATED)])
    wrong = sorted(weights.keys() ^ shape.names.keys())
    if wrong:
        what = "has" if wrong[0] in weights else "lacks"
        raise UserError(f"{translation.path}: {what} {wrong[0]}, and {shape.architecture} is otherwise: it cannot be exported")
    tensors = {theirs: weights[ours].clone().contiguous() for ours, theirs in shape.names.items()}
    tensors.update({name: table.clone() for name in shape.embeddings})
    name, dimensions = shape.bias
    tensors[name] = bias.view(*[1] * (dimensions - 1), -1)
    if shape.architecture == "EncoderDecoderModel":
        # What XLM-RoBERTa has beside: one token type, added to every token, and a pooler, which nothing asks.
        dim = table.size(1)
        for prefix in ("encoder.", "decoder.roberta."):
            tensors[TOKEN_TYPES.replace("roberta.", prefix, 1)] = torch.zeros(1, dim)
        tensors.update({"encoder.pooler.dense.weight": torch.zeros(dim, dim), "encoder.pooler.dense.bias": torch.zeros(dim)})
    return tensors


def _facts(translation: Translation, shape: Shape, tensors: dict[str, Tensor]) -> Facts:
    source, target = translation.langs
    directions = translation.directions
    if len(directions) == 1:
        source, target = sides_of(directions[0])
    title = f"Translation from {source} to {target}" if source and target else "Translation"
    if len(directions) > 1:
        title = f"Translation in {len(directions)} directions: {', '.join(directions)}"
    return Facts(
        title=title,
        languages=sorted({lang for pair in directions for lang in sides_of(pair)}) or [lang for lang in (source, target) if lang],
        pipeline="translation",
        architecture=shape.architecture,
        usage=translating(directions),
        options=translation.model,
        updates=updates_of(translation.state),
        tokens=len(translation.target),
        parameters=sum(tensor.numel() for tensor in tensors.values()),
        extra=translation.state.get("extra_state") or {},
    )


@torch.no_grad()
def largest_translation_difference(translation: Translation, folder: Path_) -> float | None:
    """Between the logits of fairseq's model and of the folder loaded by transformers, given random translations.

    Sources and translations are of different lengths in one batch, padded on the sides where each of the two has it.

    Returns:
        The largest absolute difference; None if transformers is not installed.

    Raises:
        UserError: transformers does not find every tensor of its model in the folder.
    """
    transformers = import_transformers()
    if transformers is None:
        return None
    architecture = "EncoderDecoderModel" if translation.keeps_lm_head else "BartForConditionalGeneration"
    theirs, report = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
    wrong = sorted(map(str, [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]))
    if wrong:
        raise UserError(f"{folder}: transformers {transformers.__version__} has no or another {wrong[0]}: try another version")
    ours = build_translation(translation)
    generator = torch.Generator().manual_seed(1)
    longest = min(32, translation.model.max_source_positions)
    end = [translation.source.index(symbol) for symbol in translation.source_end]
    begin = translation.target.index(translation.target_end)

    def batch(vocabulary: int, lengths: Sequence[int], before: list[int], after: list[int]) -> list[Tensor]:
        rows = []
        for length in lengths:
            words = torch.randint(len(SPECIALS), vocabulary, (length - len(before) - len(after),), generator=generator)
            rows.append(torch.tensor([*before, *words.tolist(), *after]))
        return rows

    sources = batch(len(translation.source), [longest, longest // 2, 4], [], end)
    targets = pad_sequence(batch(len(translation.target), [4, longest, longest // 2], [begin], []), True, PAD)
    right, left = (pad_sequence(sources, True, PAD, padding_side=side) for side in ("right", "left"))
    lengths = torch.tensor(list(map(len, sources)))
    mine = ours(left, lengths, targets)[0]
    other = theirs.eval()(input_ids=right, attention_mask=right.ne(PAD).long(), decoder_input_ids=targets).logits
    return (mine - other[..., : mine.size(-1)])[targets.ne(PAD)].abs().max().item()
