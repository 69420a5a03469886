# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Converts a pre-trained VECO to a fairseq translation model (VECO, section 3.2).

Encoder layer i takes self-attention and FFN of pre-trained layer i. Decoder layer j takes self-attention, cross-attention
and FFN of the layer chosen for j. Sources and targets share one embedding table and one kind of positions. So the encoder
computes H, and the decoder, apart from its causal mask, S.
"""

import copy
import json
import re
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, build_model
from fairseq.models.transformer import TransformerConfig, TransformerModel
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from omegaconf import OmegaConf
from torch import Tensor

import veco_fairseq.models.translation  # noqa: F401  registers veco_mt_*
from veco_fairseq.checkpoints.embeddings import NEW_TOKENS, token_rows
from veco_fairseq.checkpoints.mapping import HEAD_BIAS, HEAD_TRANSFORM, Group, check_weights, map_weights
from veco_fairseq.checkpoints.names import CROSS_ATTENTION
from veco_fairseq.checkpoints.outlines import shapes_of
from veco_fairseq.checkpoints.pretrained import Pretrained, read_pretrained, refuse_parts_without_place
from veco_fairseq.checkpoints.reading import require_other_file
from veco_fairseq.checkpoints.writing import untrained, write_checkpoint
from veco_fairseq.data.sentencepiece import MASK
from veco_fairseq.data.symbols import TARGET_TOKEN
from veco_fairseq.data.vocabulary import dictionary_of, read_dictionary
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, atomic_output
from veco_fairseq.options.flags import flag


def convert_to_seq2seq(
    checkpoint: Path_,
    output: Path_,
    decoder_layers: int | None,
    *,
    layer_selection: str = "last",
    dictionary: Path_ | None = None,
    random_cross_attention: bool = False,
    keep_lm_head: bool = False,
    tie_self_attention: bool = False,
    allow_new_tokens: bool = False,
    new_tokens: str = "mean",
    trust: bool = False,
    seed: int = 1,
) -> dict[str, Any]:
    """Write a translation model that starts from a pre-training checkpoint.

    Args:
        checkpoint: of ``--task camlm``.
        output: the file to write; ``output`` + ".json" gets the report.
        decoder_layers: the decoder's depth, at most pre-training's; None for pre-training's.
        layer_selection: which pre-trained layers: "last", "first", or numbers from 0 in the decoder's order, "3,5".
        dictionary: dict.txt of the translation data; by default pre-training's without ``<mask>``.
        random_cross_attention: initialise the cross-attention at random (the XLM-R-initialised baseline; for XLM-E).
        keep_lm_head: end the decoder in pre-training's LM head; the model is then a ``veco_transformer_*``.
        tie_self_attention: share each decoder layer's self-attention with the encoder layer that it comes from; the model
            is then a ``veco_transformer_*``.
        allow_new_tokens: accept a dictionary even if more than 1% of its tokens are new.
        new_tokens: "mean" or "random", see :func:`veco_fairseq.checkpoints.embeddings.token_rows`.
        trust: unpickle a file that holds more than tensors and plain values.
        seed: of everything that is newly initialised.

    Returns:
        The report, as in the JSON file.

    Raises:
        UserError: a file is missing, damaged or of another kind, or the options do not fit the checkpoint.
    """
    _check_output(checkpoint, output)
    if new_tokens not in NEW_TOKENS:
        raise UserError(f"--new-tokens {new_tokens}: there is {', '.join(NEW_TOKENS)}")
    # The small files first, so that a typo does not wait for a large file.
    target = None if dictionary is None else read_dictionary(dictionary)
    pretrained = read_pretrained(checkpoint, trust)
    refuse_parts_without_place(pretrained, "fairseq's transformer")
    _check_parts(pretrained, random_cross_attention, keep_lm_head)
    chosen = choose_layers(layer_selection, decoder_layers, pretrained.model.encoder_layers)
    if target is None:  # translation does not need <mask>
        target = dictionary_of(symbol for symbol in pretrained.symbols if symbol != MASK)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        rows, groups = token_rows(pretrained, target, dictionary, allow_new_tokens, new_tokens=new_tokens)
        extras: dict[str, Any] = {"keep_lm_head": True} if keep_lm_head else {}
        if tie_self_attention:
            extras["tie_self_attention"] = ",".join(map(str, chosen))
        config = translation_config(pretrained.model, len(chosen), extras, dictionary)
        left_out = _left_out(random_cross_attention, keep_lm_head)
        weights, unknown, moved = map_weights(
            pretrained, chosen, rows=rows, dropped=left_out, tie_self_attention=tie_self_attention
        )
        groups = moved + groups
        if random_cross_attention:
            groups.append(_add_random_cross_attention(weights, config["model"], seed))
    check_weights(pretrained.path, weights, unknown, expected_shapes(config["model"], target))
    report = _report(pretrained, chosen, extras, target=target, groups=groups)
    return write_translation_model(pretrained.path, output, weights, config=config, target=target, report=report)


def report_lines(report: dict[str, Any]) -> list[str]:
    """Return the report for people: one line for each group of tensors, and the options to go on with."""
    lines = [str(Group(**group)) for group in report["groups"]]
    lines += [f"note     {note}" for note in report["notes"]]
    return lines + [f"wrote    {report['output']}; fine-tune with {report['finetune_options']}"]


def choose_layers(selection: str, wanted: int | None, available: int) -> list[int]:
    """Return the pre-trained layer of every decoder layer (VECO, Table 4).

    Args:
        selection: "last", "first", or numbers from 0, "3,5", in the decoder's order.
        wanted: the number of decoder layers; None for all.
        available: the number of pre-trained layers.

    Raises:
        UserError: a chosen layer does not exist.
    """
    wanted = available if wanted is None else wanted
    has = f"the checkpoint has {available} layers, 0 to {available - 1}"
    if not 1 <= wanted <= available:
        raise UserError(f"--decoder-layers {wanted}: {has}; choose from 1 to {available}")
    if selection == "last":
        return list(range(available - wanted, available))
    if selection == "first":
        return list(range(wanted))
    if not re.fullmatch(r"\d+(,\d+)*", selection):
        raise UserError(f"--layer-selection {selection}: give last, first or layer numbers such as 0,2 ({has})")
    chosen = [int(number) for number in selection.split(",")]
    missing = [number for number in chosen if number >= available]
    if missing:
        raise UserError(f"--layer-selection {selection}: no layer {missing[0]}, {has}")
    if len(chosen) != wanted:
        raise UserError(f"--layer-selection {selection}: {len(chosen)} layers listed for --decoder-layers {wanted}")
    return chosen


def _check_parts(pretrained: Pretrained, random_cross_attention: bool, keep_lm_head: bool) -> None:
    """Raise UserError if the model lacks a part to convert, as XLM-E's discriminator does."""
    if not (pretrained.has_cross_attention or random_cross_attention):
        raise UserError(
            f"{pretrained.path}: the model has no cross-attention to convert: --random-cross-attention starts a new one"
        )
    if keep_lm_head and (not pretrained.has_lm_head or pretrained.has_own_projection):
        head = "an LM head that is not tied to its embeddings, as the decoder's is" if pretrained.has_lm_head else "no LM head"
        raise UserError(f"--keep-lm-head: the model of {pretrained.path} has {head}: leave it out")


def _left_out(random_cross_attention: bool, keep_lm_head: bool) -> dict["re.Pattern[str]", str]:
    """Return what the converted model does not take from pre-training, and why."""
    reasons = {}
    if random_cross_attention:
        reasons[CROSS_ATTENTION] = "--random-cross-attention"
    if not keep_lm_head:
        reasons[HEAD_TRANSFORM] = reasons[HEAD_BIAS] = "no place in fairseq's decoder without --keep-lm-head"
    return reasons


def translation_options(model: Namespace, decoder_layers: int, extras: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the preset for a pre-trained model, and its size as options of fairseq's transformer.

    Args:
        model: pre-training's options.
        decoder_layers: of the translation model.
        extras: the options of ``veco_transformer_*``; without any, the model is fairseq's own.
    """
    family = "veco_transformer_" if extras else "veco_mt_"
    if not getattr(model, "no_scale_embedding", True):  # of the authors' model alone
        family = "veco_mt_scaled_"
    preset = re.sub(r"^(?:veco|xlme)_", family, getattr(model, "arch", ""))
    is_translation = issubclass(ARCH_MODEL_REGISTRY.get(preset, object), TransformerModel)  # or somebody's own for pre-training
    return preset if is_translation else f"{family}small", {
        "encoder_layers": model.encoder_layers,
        "encoder_embed_dim": model.encoder_embed_dim,
        "encoder_ffn_embed_dim": model.encoder_ffn_embed_dim,
        "encoder_attention_heads": model.encoder_attention_heads,
        "activation_fn": model.activation_fn,
        "max_source_positions": model.max_positions,
        "max_target_positions": model.max_positions,
        "decoder_layers": decoder_layers,
        **extras,
    }


def _flags(values: dict[str, Any]) -> list[str]:
    flags = [(flag(name), str(value)) for name, value in values.items()]
    return [part for name, value in flags for part in ([name] if value == "True" else [name, value])]


def finetune_options(model: Namespace, decoder_layers: int, extras: dict[str, Any], *, target: Dictionary) -> str:
    """Return the options of ``fairseq-train`` for the converted model: the task, the preset and what differs from it."""
    preset, values = translation_options(model, decoder_layers, extras)
    defaults = Namespace()
    ARCH_CONFIG_REGISTRY[preset](defaults)
    differing = {n: v for n, v in values.items() if n == "decoder_layers" or v != getattr(defaults, n, None)}
    task = "veco_multilingual_translation" if any(map(TARGET_TOKEN.fullmatch, target.symbols)) else "translation"
    return " ".join([f"--task {task} --arch", preset] + _flags(differing))


def translation_config(model: Namespace, decoder_layers: int, extras: dict[str, Any], dictionary: Path_ | None) -> dict[str, Any]:
    """Return the options that ``fairseq-train --task translation`` would store, made by fairseq's own parser."""
    preset, values = translation_options(model, decoder_layers, extras)
    data = "." if dictionary is None else str(Path(dictionary).parent)
    arguments = [data, "--task", "translation", "--arch", preset] + _flags(values)
    parsed = options.parse_args_and_arch(options.get_training_parser("translation"), arguments)
    config: Any = OmegaConf.to_container(convert_namespace_to_omegaconf(parsed), resolve=True, enum_to_str=True)
    return config


def _add_random_cross_attention(weights: dict[str, Tensor], model: Namespace, seed: int) -> Group:
    """Initialise every decoder layer's cross-attention as fairseq's transformer does."""
    config = TransformerConfig.from_namespace(model)
    added = []
    for number in range(config.decoder.layers):
        layer = TransformerDecoderLayerBase(config)
        for name in ("encoder_attn", "encoder_attn_layer_norm"):
            for rest, tensor in getattr(layer, name).state_dict().items():
                weights[f"decoder.layers.{number}.{name}.{rest}"] = tensor
                added.append(tensor)
    what = "decoder cross-attention and its LayerNorm"
    source = f"as fairseq's transformer initialises them (Xavier, LayerNorm 1 and 0), seed {seed}"
    return Group.of("new", what, source, added)


def expected_shapes(model: Namespace, dictionary: Dictionary) -> dict[str, torch.Size]:
    """Return name and shape of every tensor of fairseq's translation model with these options, without using memory."""
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return shapes_of(lambda: build_model(copy.copy(model), task))


def _report(
    pretrained: Pretrained, chosen: list[int], extras: dict[str, Any], *, target: Dictionary, groups: list[Group]
) -> dict[str, Any]:
    notes = [*pretrained.notes]
    cross_attention_is_new = any(group.action == "new" and group.tensors for group in groups)
    if pretrained.objective == "mlm" and not cross_attention_is_new:
        notes.append(
            "pre-trained with --objective mlm, so the copied cross-attention was never trained; "
            "--random-cross-attention gives the paper's baseline"
        )
    return {
        "decoder_layers_from": chosen,
        "pretraining_tokens": len(pretrained.symbols),
        "tokens": len(target),
        "finetune_options": finetune_options(pretrained.model, len(chosen), extras, target=target),
        "groups": [group._asdict() for group in groups],
        "notes": notes,
    }


def _check_output(checkpoint: Path_, output: Path_) -> None:
    require_other_file(output, checkpoint)
    if Path(output).is_dir():
        raise UserError(f"--output {output}: that is a folder; name a file")


def write_translation_model(
    checkpoint: Path_,
    output: Path_,
    weights: dict[str, Tensor],
    *,
    config: dict[str, Any],
    target: Dictionary,
    report: dict,
    known: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write a checkpoint with what fairseq's trainer and generator need, and the report beside it.

    Args:
        checkpoint: what it was made from.
        output: the file to write; ``output`` + ".json" gets the report.
        weights, config: its tensors and options.
        target: its dictionary.
        report: all but the names of the files and of the architecture.
        known: what its ``task_state`` holds beside the dictionary.

    Returns:
        The report, as in the JSON file.
    """
    report = {"checkpoint": str(checkpoint), "output": str(output), "arch": config["model"].arch, **report}
    state = untrained(config, weights, {"symbols": list(target.symbols), **(known or {})})
    with atomic_output(f"{output}.json") as report_file:
        report_file.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        write_checkpoint(output, state)
    return report
