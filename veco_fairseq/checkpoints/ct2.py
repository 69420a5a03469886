# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A translation model for CTranslate2, by what CTranslate2's own converter is made of."""

import shutil
from argparse import Namespace
from typing import Any

import torch

from veco_fairseq.checkpoints.translation import Translation, build_translation, find_sentencepiece, read_translation
from veco_fairseq.data.sentencepiece import MODEL_NAME
from veco_fairseq.data.symbols import SPECIALS
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, atomic_folder
from veco_fairseq.options.flags import flag

WITHOUT_PLACE = ("cross_self_attention", "no_cross_attention")  # what CTranslate2's own converter passes over, or fails at
DEFAULT_LIMITS = {"max_input_length": 1024, "max_decoding_length": 256}  # CTranslate2's, in pieces


def export_ct2(
    checkpoint: Path_,
    output: Path_,
    *,
    data: Path_ | None = None,
    quantization: str = "float32",
    sentencepiece: Path_ | None = None,
) -> Translation:
    """Write a folder that ``ctranslate2.Translator`` loads; its sources and targets are SentencePiece's pieces.

    Args:
        checkpoint: of ``fairseq-train --task translation --arch veco_mt_*`` or ``veco_transformer_*``, or an average of
            such.
        output: the folder to make.
        data: the folder with the dictionaries; default: the checkpoint's own, or those that it was trained on.
        quantization: one of :data:`veco_fairseq.commands.export_ct2.QUANTIZATIONS`.
        sentencepiece: a model to put into the folder; default: that beside the checkpoint or in the data folder.

    Returns:
        What was read, for :func:`largest_ct2_difference`.

    Raises:
        UserError: the checkpoint cannot be read or is no translation model, it has an LM head or another part that
            CTranslate2 has no place for, the dictionaries are not there, CTranslate2 is not installed or has no such
            quantization, or the folder is there and not empty.
    """
    try:
        import ctranslate2.converters
    except ImportError as error:
        raise UserError("ctranslate2 is not installed: pip install ctranslate2") from error
    types = ctranslate2.specs.model_spec.ACCEPTED_MODEL_TYPES
    if quantization not in types:
        raise UserError(f"quantization {quantization!r}: CTranslate2 has no such type: give one of {', '.join(types)}")
    translation = read_translation(checkpoint, data=data)
    if translation is None:
        raise UserError(
            f"{checkpoint}: is no translation model of fairseq's transformer, veco_mt_* or veco_transformer_*: convert a "
            "pre-trained model first (veco convert); other translation models are for veco translate"
        )
    if translation.keeps_lm_head:
        raise UserError(
            f"{checkpoint}: was converted with --keep-lm-head, which CTranslate2's decoder has no place for: export it "
            "to Hugging Face, or fine-tune a model without"
        )
    _refuse_parts_without_place(translation)
    pieces = find_sentencepiece(translation, sentencepiece)
    with atomic_folder(output) as folder:
        try:
            _converter(translation).convert(str(folder), quantization=quantization, force=True)
        except ValueError as error:  # its reasons, one a line, after the first
            reasons = "; ".join(filter(None, (line.strip("- ") for line in str(error).splitlines()[1:]))) or str(error)
            raise UserError(f"{checkpoint}: CTranslate2 cannot take it: {reasons}: use veco translate") from error
        if pieces is not None:
            shutil.copyfile(pieces, folder / MODEL_NAME)
    return translation


def _refuse_parts_without_place(translation: Translation) -> None:
    """Raise UserError for :data:`WITHOUT_PLACE` and other parts, without which the folder would be another model."""
    model = translation.model
    found = [flag(option) for option in WITHOUT_PLACE if getattr(model, option, False)]
    if model.decoder_normalize_before and getattr(model, "no_decoder_final_norm", False):
        found.append("--no-decoder-final-norm")
    found += translation.parts_without_place
    if found:
        options = ", ".join(found)
        raise UserError(f"{translation.path}: CTranslate2 cannot take it: it has no place for {options}: use veco translate")


def limits(translation: Translation) -> dict[str, int]:
    """Options of ``translate_batch`` for a model with few positions, beyond which CTranslate2 raises a RuntimeError.

    With them a longer source is cut, and a translation is at most as long as fairseq's. Those of :data:`DEFAULT_LIMITS` that
    the model has positions for are left out.
    """
    model = translation.model
    most = {"max_input_length": model.max_source_positions, "max_decoding_length": model.max_target_positions - 1}
    return {name: value for name, value in most.items() if value < DEFAULT_LIMITS[name]}


def _converter(translation: Translation) -> Any:
    """A converter of CTranslate2's that takes the model from memory, and ties nothing."""
    from ctranslate2.converters import fairseq as parts
    from ctranslate2.converters.converter import Converter

    class TranslationConverter(Converter):
        """What CTranslate2's FairseqConverter does once it has read the file."""

        @torch.no_grad()
        def _load(self):
            # A model whose self-attention is tied has the parts of the stock one, and is written as one.
            spec = parts._get_model_spec(Namespace(**{**vars(translation.model), "arch": "transformer"}))
            model = build_translation(translation)
            parts.set_transformer_encoder(spec.encoder, model.encoder)
            parts.set_transformer_decoder(spec.decoder, model.decoder)
            for register, symbols in (
                (spec.register_source_vocabulary, translation.source),
                (spec.register_target_vocabulary, translation.target),
            ):
                register(symbols)  # CTranslate2's converter calls <pad> <blank>, which no program needs and a piece may be called
            # What of config.json the translator goes by.
            spec.config.decoder_start_token = spec.config.eos_token = translation.target_end
            spec.config.add_source_eos = not translation.has_language_tokens
            for name in ("max_source_positions", "max_target_positions"):  # which CTranslate2 itself does not read
                spec.config.add_attribute(name, getattr(translation.model, name))
            return spec

    return TranslationConverter()


@torch.no_grad()
def largest_ct2_difference(translation: Translation, folder: Path_) -> float:
    """Between the log-probabilities of fairseq's model and of the folder on a CPU, of the tokens of random translations."""
    from ctranslate2 import Translator

    generator = torch.Generator().manual_seed(1)
    longest = min(24, translation.model.max_source_positions)
    end = translation.target_end
    model, differences = build_translation(translation), []
    translator = Translator(str(folder), device="cpu", inter_threads=1, intra_threads=1)
    for length in (longest - 2, 1):  # of a source and of its translation, without what ends them
        pieces = [
            [symbols[i] for i in torch.randint(len(SPECIALS), len(symbols), (length,), generator=generator).tolist()]
            for symbols in (translation.source, translation.target)
        ]
        ended = [*pieces[0], *translation.source_end], [*pieces[1], end]
        source, target = (
            torch.tensor([[symbols.index(piece) for piece in line]])
            for symbols, line in zip((translation.source, translation.target), ended)
        )
        begun = torch.cat([target[:, -1:], target[:, :-1]], 1)
        logits = model(source, torch.tensor([source.size(1)]), begun)[0]
        expected = logits.log_softmax(-1).gather(-1, target[..., None]).flatten()
        given = ended[0] if translation.has_language_tokens else pieces[0]
        (found,) = translator.score_batch([given], [pieces[1]])
        differences.append((torch.tensor(found.log_probs) - expected).abs().max().item())
    return max(differences)
