# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The authors' released checkpoint: a fairseq 0.9 translation model of 24 layers a side, with language tokens."""

import re
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veco_fairseq.checkpoints import names
from veco_fairseq.checkpoints.mapping import Group, check_weights
from veco_fairseq.checkpoints.reading import options_of, read_checkpoint, require_other_file
from veco_fairseq.checkpoints.seq2seq import (
    choose_layers,
    expected_shapes,
    finetune_options,
    translation_config,
    write_translation_model,
)
from veco_fairseq.checkpoints.translation import LANGUAGE_TOKEN
from veco_fairseq.checkpoints.writing import untrained, write_checkpoint
from veco_fairseq.data.sentencepiece import MASK
from veco_fairseq.data.vocabulary import read_dictionary
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_
from veco_fairseq.models.base import architecture
from veco_fairseq.models.veco import VecoEncoder

LAYER = re.compile(r"^(encoder|decoder)\.layers\.(\d+)\.")
CROSS = re.compile(r"^decoder\.layers\.\d+\.(?=encoder_attn)")
EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight",
              "encoder.output_projection.weight")  # fmt: skip
HEADS = re.compile(r"^classification_heads\.")


class Release(NamedTuple):
    """The content of the authors' file.

    Attributes:
        path: the file.
        weights: by name, in fp32, without embeddings.
        embeddings: (tokens, dim), shared by encoder, decoder and output.
        symbols: the tokens of the rows, in their order.
        model: the sizes, as options of pre-training.
        depths: layers of encoder and decoder.
        dropped: tensors that are not used here.
    """

    path: Path
    weights: dict[str, Tensor]
    embeddings: Tensor
    symbols: list[str]
    model: Namespace
    depths: dict[str, int]
    dropped: dict[str, Tensor]

    @property
    def scale(self) -> float:
        """Return what the model multiplies its token embeddings by."""
        return 1.0 if self.model.no_scale_embedding else self.embeddings.size(1) ** 0.5


def read_release(checkpoint: Path_, dictionary: Path_, trust: bool = False) -> Release:
    """Read and check the authors' checkpoint.

    Args:
        checkpoint: their ``model.pt``, or one fine-tuned with their code.
        dictionary: the dict.txt of its training data, with the language tokens at the end.
        trust: unpickle a file that holds more than tensors and plain values.

    Raises:
        UserError: a file is missing, damaged or of another model, or dictionary and checkpoint do not belong together.
    """
    words = read_dictionary(dictionary)
    state = read_checkpoint(checkpoint, trust, mapped=True)
    weights = dict(state["model"])
    if "decoder.layers.0.encoder_attn.k_proj.weight" not in weights or "encoder.embed_tokens.weight" not in weights:
        raise UserError(f"{checkpoint}: is not the authors' model, with encoder.*, decoder.* and encoder_attn tensors")
    dropped = {name: weights.pop(name) for name in list(weights) if HEADS.match(name)}
    tables = {name: weights.pop(name) for name in EMBEDDINGS if name in weights}
    embeddings = tables["encoder.embed_tokens.weight"]
    for name, table in tables.items():
        if table.shape != embeddings.shape or not torch.equal(table, embeddings):
            raise UserError(f"{checkpoint}: {name} is not encoder.embed_tokens.weight: they must be tied")
    symbols = list(words.symbols)
    if len(embeddings) == len(symbols) + 1 and MASK not in symbols:
        symbols.append(MASK)  # the authors' mask is the last row, and not in dict.txt
    if len(embeddings) != len(symbols):
        raise UserError(
            f"{dictionary}: {len(words):,} tokens with fairseq's four, but {checkpoint} has {len(embeddings):,} rows "
            f"of embeddings: there must be one row a token, and perhaps one for {MASK}: give the dict.txt of the model's training"
        )
    depths = {side: _depth(weights, side, checkpoint) for side in ("encoder", "decoder")}
    options = options_of(state, "model")
    dim = embeddings.size(1)
    model = architecture(
        "veco_large",
        encoder_layers=depths["encoder"],
        encoder_embed_dim=dim,
        encoder_ffn_embed_dim=len(weights["encoder.layers.0.fc1.weight"]),
        encoder_attention_heads=getattr(options, "encoder_attention_heads", dim // 64),
        activation_fn=getattr(options, "activation_fn", "gelu"),
        no_scale_embedding=bool(getattr(options, "no_scale_embedding", False)),  # False is fairseq's default, and the authors'
        max_positions=len(weights["encoder.embed_positions.weight"]) - words.pad() - 1,
    )
    in_fp32 = {name: tensor.float() for name, tensor in weights.items()}
    return Release(Path(checkpoint), in_fp32, embeddings.float(), symbols, model, depths, dropped)


def import_release(
    checkpoint: Path_,
    dictionary: Path_,
    output: Path_,
    *,
    decoder_layers: int | None = None,
    layer_selection: str = "last",
    source_lang: str | None = None,
    target_lang: str | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """Write the authors' model as a translation model in this project's layout, ``--arch veco_mt_*``.

    Args:
        checkpoint, dictionary, trust: as in :func:`read_release`.
        output: the file to write; ``output`` + ".json" gets the report.
        decoder_layers: how many of the decoder's layers to keep; None for all.
        layer_selection: which layers: "last", "first", or numbers from 0 in the new decoder's order.
        source_lang, target_lang: of the language tokens, for programs that take their task from the checkpoint.

    Returns:
        The report, as in the JSON file.

    Raises:
        UserError: as in :func:`read_release`; or a choice does not fit the model; or the output is the checkpoint.
    """
    require_other_file(output, checkpoint)
    if (source_lang is None) != (target_lang is None):
        raise UserError("--source-lang and --target-lang: give both or none")
    release = read_release(checkpoint, dictionary, trust)
    target = read_dictionary(dictionary)
    for lang in (source_lang, target_lang):
        if lang is not None and f"[{lang}]" not in target:
            there = ", ".join(filter(LANGUAGE_TOKEN.fullmatch, target.symbols)) or "none"
            raise UserError(f"{dictionary}: has no language token [{lang}] (there are: {there})")
    chosen = choose_layers(layer_selection, decoder_layers, release.depths["decoder"])
    config = translation_config(release.model, len(chosen), {}, dictionary)
    if source_lang and target_lang:
        config["task"].update(_name="veco_translation", source_lang=source_lang, target_lang=target_lang)
    expected = expected_shapes(config["model"], target)
    weights, groups = _taken(release, chosen, len(target), expected)
    check_weights(release.path, weights, {}, expected)
    command = finetune_options(release.model, len(chosen), {}, target=target)
    report = {
        "decoder_layers_from": chosen,
        "tokens": len(target),
        "finetune_options": command.replace("--task translation", f"--task {config['task']['_name']}"),
        "groups": [group._asdict() for group in groups],
        "notes": [f"its token embeddings are multiplied by {release.scale:g}, as in the release"] if release.scale != 1 else [],
    }
    known = {"languages": [None, None]}  # it may be fine-tuned for any two
    return write_translation_model(release.path, output, weights, config=config, target=target, report=report, known=known)


def _taken(
    release: Release, chosen: list[int], tokens: int, expected: dict[str, torch.Size]
) -> tuple[dict[str, Tensor], list[Group]]:
    """Return the translation model's tensors, and the report's groups.

    Args:
        chosen: the release's layer of every decoder layer.
        tokens: of the dictionary; the release may have a row more, of :data:`MASK`.
        expected: names and shapes of the model's tensors.
    """
    table = release.embeddings[:tokens].clone()
    weights = {name: table for name in EMBEDDINGS if name in expected}
    shared = "token embeddings, shared by encoder, decoder and output"
    groups = [Group.of("copied", shared, "of the release", [table])]
    for side, kept in (("encoder", range(release.depths["encoder"])), ("decoder", chosen)):
        taken = _renamed(release.weights, side, list(kept))
        weights.update(taken)
        what = f"{side}: positions, LayerNorm, layers {', '.join(map(str, kept))}"
        groups.append(Group.of("copied", what, "of the release", taken.values()))
    left = {name: t for name, t in release.weights.items()
            if (layer := LAYER.match(name)) and layer[1] == "decoder" and int(layer[2]) not in chosen}  # fmt: skip
    for what, why, tensors in (("decoder layers", "not chosen", left),
                               ("classification heads", "no place here", release.dropped)):  # fmt: skip
        if tensors:
            groups.append(Group.of("dropped", what, why, tensors.values()))
    if len(release.symbols) > tokens:
        groups.append(Group("dropped", f"row of {MASK}", "not in the dictionary", 0, table.size(1)))
    for side in ("encoder", "decoder"):
        if f"{side}.version" in expected:
            weights.setdefault(f"{side}.version", torch.tensor([3.0]))
    return weights, groups


def back_to_pretraining(checkpoint: Path_, dictionary: Path_, output: Path_, trust: bool = False) -> list[Group]:
    """Write the authors' model in the layout of ``--task camlm``, for more pre-training (``--finetune-from-model``).

    The model must not have been fine-tuned: encoder and decoder must still have the same self-attention and FFN. The LM
    head's dense layer, LayerNorm and bias are not in the file, and are newly initialised.

    A model of ``--task camlm`` does not multiply its token embeddings. So those of the release are multiplied here, which gives
    the same H and S, and the new LayerNorm is divided by as much, which leaves the logits as large.

    Raises:
        UserError: as in :func:`read_release`; or the two sides differ; or the output is the checkpoint.
    """
    require_other_file(output, checkpoint)
    release = read_release(checkpoint, dictionary, trust)
    _check_sides_are_one(release)
    words = read_dictionary(dictionary)
    words.add_symbol(MASK)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        ours = {f"encoder.{name}": t for name, t in VecoEncoder(release.model, words).state_dict().items()}
    copied: dict[str, Tensor] = {}
    for name, tensor in release.weights.items():
        if name.startswith("encoder."):
            copied["encoder.sentence_" + name] = tensor
        elif CROSS.match(name):
            copied[name.replace("decoder.", "encoder.sentence_encoder.", 1)] = tensor
    table = ours[names.EMBEDDINGS]
    table[: len(release.embeddings)] = release.embeddings
    table *= release.scale
    ours[f"{names.LM_HEAD}layer_norm.weight"] /= release.scale
    for name in (names.EMBEDDINGS, names.TIED_HEAD):
        copied[name] = table
    new = {name: tensor for name, tensor in ours.items() if name not in copied}
    missing = [name for name in new if not name.startswith(names.LM_HEAD) and not name.endswith("version")]
    if missing:
        raise UserError(f"{release.path}: lacks {len(missing)} tensors of the pre-trained model ({missing[0]}, ...)")
    unknown = {name: tensor for name, tensor in copied.items() if name not in ours}
    check_weights(release.path, {**ours, **copied}, unknown, {name: tensor.shape for name, tensor in ours.items()})
    model = Namespace(**{**vars(release.model), "no_scale_embedding": True})
    config = {"model": model, "task": {"_name": "camlm"}, "criterion": {"_name": "camlm", "objective": "camlm"}}
    state = untrained(config, {**new, **copied}, {"symbols": list(words.symbols)})
    write_checkpoint(output, state)
    source, head = "of the release", "not in the file"
    if release.scale != 1:
        source += f", its token embeddings times {release.scale:g}"
        head += ", and makes up for these embeddings: to translate, give veco convert --keep-lm-head"
    return [
        Group.of("copied", "encoder, cross-attention", source, set(copied.values())),  # the tied table once
        Group.of("new", "LM head's dense, LayerNorm and bias", head, new.values()),
    ]


def _depth(weights: dict[str, Tensor], side: str, path: Path_) -> int:
    numbers = {int(layer[2]) for layer in map(LAYER.match, weights) if layer and layer[1] == side}
    if numbers != set(range(len(numbers))):
        raise UserError(f"{path}: its {side} lacks layers: it has {', '.join(map(str, sorted(numbers)))}")
    return len(numbers)


def _renamed(weights: dict[str, Tensor], side: str, kept: list[int]) -> dict[str, Tensor]:
    """Return the tensors of a side; new layer i is old layer ``kept[i]``, which can be there more than once."""
    found = {}
    for name, tensor in weights.items():
        layer = LAYER.match(name)
        if layer is None and name.startswith(f"{side}."):
            found[name] = tensor
        elif layer and layer[1] == side:
            for new in (place for place, old in enumerate(kept) if old == int(layer[2])):
                found[f"{side}.layers.{new}.{name[layer.end() :]}"] = tensor.clone()
    return found


def _check_sides_are_one(release: Release) -> None:
    if release.depths["encoder"] != release.depths["decoder"]:
        depths = f"{release.depths['encoder']} and {release.depths['decoder']}"
        raise UserError(f"{release.path}: encoder and decoder have {depths} layers: it is not the pre-trained model")
    for name, tensor in release.weights.items():
        if name.startswith("decoder.") and not CROSS.match(name) and not name.endswith("version"):
            other = release.weights.get(name.replace("decoder.", "encoder.", 1))
            if other is None or not torch.equal(other, tensor):
                raise UserError(
                    f"{release.path}: {name} is not the encoder's: the model was fine-tuned, and is no longer one "
                    "encoder with a cross-attention"
                )
