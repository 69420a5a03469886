# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""From a pre-trained VECO to a fairseq translation model (VECO, section 3, "Plug-in" for generation).

Encoder layer i takes self-attention and FFN of pre-trained layer i; decoder layer j takes self-attention,
cross-attention and FFN of the layer chosen for j. Sources and targets share one embedding table and one
position scheme, so that the encoder computes H and the decoder, but for its causal mask, S.
"""

import copy
import io
import json
import re
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY, build_model
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from omegaconf import OmegaConf
from torch import Tensor

import veco_fairseq.models.translation  # noqa: F401  registers veco_mt_*
from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.cli import read_lines
from veco_fairseq.data.roots import MASK
from veco_fairseq.errors import UserError
from veco_fairseq.files import atomic_output

MAX_NEW_SHARE = 0.01  # of the dictionary may be tokens that pre-training did not have
NEW_TOKEN_STD = 0.02  # as pre-training starts all embeddings (fairseq's init_bert_params)
PADDING_SYMBOL = re.compile(r"madeupword\d{4,}")  # fairseq-preprocess rounds a dictionary's size up with them

Path_ = Union[str, Path]


class Row(NamedTuple):
    """One row of the table of names: the matched span of a key becomes ``target``.

    Attributes:
        pattern: anchored; its group, if it has one, is the pre-trained layer's number.
        target: the new beginning, "{}" standing for the new layer's number; nothing: the tensor is dropped.
        what: the tensors' name in the report.
    """

    pattern: "re.Pattern[str]"
    target: Optional[str]
    what: str


_LAYER = r"^encoder\.sentence_encoder\.layers\.(\d+)\."
_SELF = re.compile(_LAYER + r"(?=(?:self_attn|self_attn_layer_norm)\.)")
_CROSS = re.compile(_LAYER + r"(?=(?:encoder_attn|encoder_attn_layer_norm)\.)")
_FFN = re.compile(_LAYER + r"(?=(?:fc1|fc2|final_layer_norm)\.)")
_TOKENS = re.compile(r"^encoder\.sentence_encoder\.embed_tokens\.(?=weight$)")
_POSITIONS = re.compile(r"^encoder\.sentence_encoder\.(?=embed_positions\.)")
_EMBEDDING_NORM = re.compile(r"^encoder\.sentence_encoder\.(?=layernorm_embedding\.)")
_VERSION = re.compile(r"^encoder\.sentence_encoder\.(?=version$)")
_EMBEDDINGS = "token embeddings, shared by encoder, decoder and output"

TABLE = (
    Row(_TOKENS, "encoder.embed_tokens.", _EMBEDDINGS),
    Row(_TOKENS, "decoder.embed_tokens.", _EMBEDDINGS),
    Row(_TOKENS, "decoder.output_projection.", _EMBEDDINGS),
    Row(_POSITIONS, "encoder.", "encoder position table"),
    Row(_POSITIONS, "decoder.", "decoder position table"),
    Row(_EMBEDDING_NORM, "encoder.", "encoder embedding LayerNorm"),
    Row(_EMBEDDING_NORM, "decoder.", "decoder embedding LayerNorm"),
    Row(_SELF, "encoder.layers.{}.", "encoder self-attention and its LayerNorm"),
    Row(_FFN, "encoder.layers.{}.", "encoder FFN and its LayerNorm"),
    Row(_SELF, "decoder.layers.{}.", "decoder self-attention and its LayerNorm"),
    Row(_CROSS, "decoder.layers.{}.", "decoder cross-attention and its LayerNorm"),
    Row(_FFN, "decoder.layers.{}.", "decoder FFN and its LayerNorm"),
    Row(_VERSION, "encoder.", "version marks"),
    Row(_VERSION, "decoder.", "version marks"),
    # fairseq's stock decoder has no place for these.
    Row(re.compile(r"^encoder\.lm_head\.(?=weight$)"), None, "LM head's projection, the token embeddings again"),
    Row(re.compile(r"^encoder\.lm_head\.(?=(?:dense|layer_norm)\.|bias$)"), None, "LM head's dense, norm and bias"),
)


class Group(NamedTuple):
    """One line of the report.

    Attributes:
        action: "copied", "dropped" or "new".
        what: the tensors.
        source: where they come from, or how they are initialised, or why they are dropped.
        tensors: how many, each counted once however many names it has; 0 for rows of a table.
        parameters: how many.
    """

    action: str
    what: str
    source: str
    tensors: int
    parameters: int

    def __str__(self) -> str:
        tensors = f"{self.tensors} tensor{'s' if self.tensors != 1 else ''}, " if self.tensors else ""
        return f"{self.action:<8} {self.what}: {self.source} ({tensors}{self.parameters:,} parameters)"


class Pretrained(NamedTuple):
    """What a pre-training checkpoint holds for us.

    Attributes:
        path: the file.
        weights: its state dict.
        model: its model options.
        symbols: its dictionary, in id order.
        objective: the criterion's objective, "camlm" or "mlm"; empty if the file doesn't say.
    """

    path: Path
    weights: Dict[str, Tensor]
    model: Namespace
    symbols: List[str]
    objective: str


def convert_to_seq2seq(
    checkpoint: Path_,
    output: Path_,
    decoder_layers: int,
    layer_selection: str = "last",
    dictionary: Optional[Path_] = None,
    random_cross_attention: bool = False,
    allow_new_tokens: bool = False,
    trust: bool = False,
    seed: int = 1,
) -> Dict[str, Any]:
    """Write the translation model that starts from a pre-training checkpoint.

    Args:
        checkpoint: of ``--task camlm``.
        output: the file to write; beside it ``output`` + ".json" gets the report.
        decoder_layers: the decoder's depth, at most pre-training's.
        layer_selection: which pre-trained layers: "last", "first" or numbers from 0 in the decoder's order, "3,5".
        dictionary: dict.txt of the translation data; default: pre-training's without ``<mask>``.
        random_cross_attention: initialise the cross-attention anew (the XLM-R-initialised baseline).
        allow_new_tokens: take a dictionary of which more than 1% is new.
        trust: unpickle a file that needs more than tensors and plain values.
        seed: of what is newly initialised.

    Returns:
        The report, as in the JSON file.

    Raises:
        UserError: a file is missing, damaged or something else, or the options do not fit the checkpoint.
    """
    _check_output(checkpoint, output)
    # The small things first, so that a typing error does not wait for a large file.
    target = None if dictionary is None else read_dictionary(dictionary)
    pretrained = read_pretrained(checkpoint, trust)
    chosen = choose_layers(layer_selection, decoder_layers, pretrained.model.encoder_layers)
    target = pretraining_dictionary(pretrained.symbols) if target is None else target
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        table, groups = embedding_table(pretrained, target, dictionary, allow_new_tokens)
        config = translation_config(pretrained.model, decoder_layers, dictionary)
        weights, unknown, moved = map_weights(pretrained, chosen, table, random_cross_attention)
        groups = moved + groups
        if random_cross_attention:
            groups.append(_add_random_cross_attention(weights, config["model"], seed))
    check_weights(pretrained.path, weights, unknown, expected_shapes(config["model"], target))
    report = _report(pretrained, output, config["model"], chosen, target, groups)
    _write(output, weights, config, target, report)
    return report


def report_lines(report: Dict[str, Any]) -> List[str]:
    """The report for people, one line for each group of tensors, and how to go on."""
    lines = [str(Group(**group)) for group in report["groups"]]
    lines += [f"note     {note}" for note in report["notes"]]
    return lines + [f"wrote    {report['output']}; fine-tune with {report['finetune_options']}"]


def read_pretrained(path: Path_, trust: bool = False) -> Pretrained:
    """Read a checkpoint of ``--task camlm``.

    Raises:
        UserError: it cannot be read, or is another model's; the message says which.
    """
    state = read_checkpoint(path, trust=trust)
    wanted = "expected a VECO checkpoint, as fairseq-train --task camlm writes it"
    config = state.get("cfg") or {}
    model = config.get("model") or state.get("args")
    if isinstance(model, dict):
        model = Namespace(**model)
    _check_is_veco(path, state["model"], getattr(model, "arch", "unknown"), wanted)
    symbols = (state.get("task_state") or {}).get("symbols")
    if not symbols or model is None:
        raise UserError(f"{path}: it lacks its {'dictionary (task_state, symbols)' if model else 'options'}; {wanted}")
    criterion = config.get("criterion")
    objective = criterion.get("objective") if isinstance(criterion, dict) else getattr(criterion, "objective", None)
    return Pretrained(Path(path), state["model"], model, list(symbols), str(objective or ""))


def _check_is_veco(path: Path_, weights: Dict[str, Tensor], arch: str, wanted: str) -> None:
    """Tell a checkpoint of another model by its names, and say what it is."""
    if any(_CROSS.match(name) for name in weights):
        return
    if any(name.startswith("decoder.layers.") for name in weights):
        kind = f"a translation model (encoder and decoder, --arch {arch})"
    elif any("sentence_encoder." in name for name in weights):
        kind = f"an encoder without cross-attention (RoBERTa or XLM-R, --arch {arch}), start pre-training from it first"
    else:
        kind = f"a model of --arch {arch}"
    raise UserError(f"{path}: this is {kind}; {wanted}")


def choose_layers(selection: str, wanted: int, available: int) -> List[int]:
    """The pre-trained layer of every decoder layer (VECO, Table 4).

    Args:
        selection: "last", "first" or numbers from 0, "3,5", in the decoder's order.
        wanted: how many decoder layers.
        available: how many layers were pre-trained.

    Raises:
        UserError: it asks for layers that there are not.
    """
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


def read_dictionary(path: Path_) -> Dictionary:
    """Read a fairseq dict.txt, as ``Dictionary.load`` does, with errors that name the line.

    Raises:
        UserError: it is missing, empty, not UTF-8, or a line is malformed or there twice.
    """
    dictionary = Dictionary()
    for number, line in enumerate(read_lines(path), 1):
        try:
            dictionary.add_from_file(io.StringIO(line))
        except ValueError as error:
            text = line.strip()[:40]
            raise UserError(f"{path}, line {number}: expected '<token> <count>', found {text!r}") from error
        except RuntimeError as error:
            token = line.rsplit(" ", 1)[0]
            raise UserError(f"{path}, line {number}: {token!r} is there twice; remove one") from error
    if len(dictionary) == dictionary.nspecial:
        raise UserError(f"{path}: empty; expected a fairseq dict.txt, a line '<token> <count>' for every token")
    return dictionary


def pretraining_dictionary(symbols: Sequence[str]) -> Dictionary:
    """The dictionary of pre-training without ``<mask>``, which translation has no use for."""
    dictionary = Dictionary()
    for symbol in symbols:
        if symbol != MASK:
            dictionary.add_symbol(symbol)
    return dictionary


def embedding_table(
    pretrained: Pretrained, target: Dictionary, path: Optional[Path_], allow_new_tokens: bool
) -> Tuple[Tensor, List[Group]]:
    """The rows of the translation dictionary's tokens, matched by token, never by number.

    Args:
        pretrained: has the embeddings, (tokens of pre-training, dim).
        target: the translation data's dictionary.
        path: of ``target``, for messages.
        allow_new_tokens: take more than 1% of tokens that pre-training did not have.

    Returns:
        The embeddings, (tokens of ``target``, dim), and the report's groups about rows.

    Raises:
        UserError: the dictionary has too many new tokens, or the checkpoint's own does not fit its embeddings.
    """
    old = _source_embeddings(pretrained)
    row_of = {symbol: row for row, symbol in enumerate(pretrained.symbols)}
    new = [symbol for symbol in target.symbols if symbol not in row_of]
    padding = [symbol for symbol in new if PADDING_SYMBOL.fullmatch(symbol)]
    _check_new_tokens(new, len(new) - len(padding), target, path, pretrained, allow_new_tokens)
    kept = [symbol for symbol in target.symbols if symbol in row_of]
    table = torch.empty(len(target), old.size(1))
    table[[target.indices[symbol] for symbol in kept]] = old[[row_of[symbol] for symbol in kept]].float()
    table[[target.indices[symbol] for symbol in new]] = torch.randn(len(new), old.size(1)) * NEW_TOKEN_STD
    dropped = [symbol for symbol in pretrained.symbols if symbol not in target.indices]
    dim, groups = old.size(1), []
    if dropped:
        source = f"{len(dropped)} of {len(row_of):,} tokens are not in the dictionary ({_some(dropped)})"
        groups.append(Group("dropped", "rows of the token embeddings", source, 0, len(dropped) * dim))
    if new:
        source = (
            f"{len(new)} of {len(target):,} tokens were not in pre-training ({_some(new)}; {len(padding)} of them only "
            f"round the dictionary's size up), normal with standard deviation {NEW_TOKEN_STD}"
        )
        groups.append(Group("new", "rows of the token embeddings", source, 0, len(new) * dim))
    return table, groups


def _source_embeddings(pretrained: Pretrained) -> Tensor:
    name = "encoder.sentence_encoder.embed_tokens.weight"
    old = pretrained.weights.get(name)
    if old is None:
        raise UserError(f"{pretrained.path}: {name} is missing; expected a VECO checkpoint")
    if old.size(0) != len(pretrained.symbols):
        raise UserError(
            f"{pretrained.path}: {old.size(0):,} rows of token embeddings, but {len(pretrained.symbols):,} tokens in "
            "its dictionary (task_state, symbols); write it again with --task camlm"
        )
    return old


def _check_new_tokens(
    new: Sequence[str], counted: int, target: Dictionary, path: Optional[Path_], pretrained: Pretrained, allow: bool
) -> None:
    """Refuse a dictionary that is not pre-training's; the symbols that round up its size don't count."""
    if allow or counted <= MAX_NEW_SHARE * len(target):
        return
    ordinary = [symbol for symbol in new if not PADDING_SYMBOL.fullmatch(symbol)]
    raise UserError(
        f"{path}: {counted:,} of its {len(target):,} tokens are not among the {len(pretrained.symbols):,} of "
        f"{pretrained.path} ({_some(ordinary)}): prepare the data with pre-training's SentencePiece model and dict.txt "
        "(fairseq-preprocess --srcdict), or add --allow-new-tokens"
    )


def _some(symbols: Sequence[str], limit: int = 5) -> str:
    return ", ".join(repr(symbol) for symbol in symbols[:limit]) + (", ..." if len(symbols) > limit else "")


def translation_options(model: Namespace, decoder_layers: int) -> Tuple[str, Dict[str, Any]]:
    """The preset for a pre-trained model, and its size as the options of fairseq's transformer."""
    preset = re.sub(r"^veco_(?!mt_)", "veco_mt_", getattr(model, "arch", ""))
    return preset if preset in ARCH_CONFIG_REGISTRY else "veco_mt_small", {
        "encoder_layers": model.encoder_layers,
        "encoder_embed_dim": model.encoder_embed_dim,
        "encoder_ffn_embed_dim": model.encoder_ffn_embed_dim,
        "encoder_attention_heads": model.encoder_attention_heads,
        "activation_fn": model.activation_fn,
        "max_source_positions": model.max_positions,
        "max_target_positions": model.max_positions,
        "decoder_layers": decoder_layers,
    }


def _flags(values: Dict[str, Any]) -> List[str]:
    return [part for name, value in values.items() for part in ("--" + name.replace("_", "-"), str(value))]


def finetune_options(model: Namespace, decoder_layers: int) -> str:
    """The options of ``fairseq-train`` that build the converted model: the preset and what differs from it."""
    preset, values = translation_options(model, decoder_layers)
    defaults = Namespace()
    ARCH_CONFIG_REGISTRY[preset](defaults)
    differing = {n: v for n, v in values.items() if n == "decoder_layers" or v != getattr(defaults, n)}
    return " ".join(["--task translation --arch", preset] + _flags(differing))


def translation_config(model: Namespace, decoder_layers: int, dictionary: Optional[Path_]) -> Dict[str, Any]:
    """The options that ``fairseq-train --task translation`` would have stored, as fairseq's own parser makes them."""
    preset, values = translation_options(model, decoder_layers)
    data = "." if dictionary is None else str(Path(dictionary).parent)
    arguments = [data, "--task", "translation", "--arch", preset] + _flags(values)
    parsed = options.parse_args_and_arch(options.get_training_parser("translation"), arguments)
    return OmegaConf.to_container(convert_namespace_to_omegaconf(parsed), resolve=True, enum_to_str=True)


def map_weights(
    pretrained: Pretrained, chosen: Sequence[int], table: Tensor, random_cross_attention: bool
) -> Tuple[Dict[str, Tensor], Dict[str, Tensor], List[Group]]:
    """Rename the pre-trained tensors by :data:`TABLE`.

    Args:
        pretrained: the tensors.
        chosen: the pre-trained layer of every decoder layer.
        table: the token embeddings to use, (tokens, dim).
        random_cross_attention: drop the cross-attention.

    Returns:
        The translation model's tensors, those whose names the table doesn't have, and the report's groups.
    """
    weights: Dict[str, Tensor] = {}
    unknown: Dict[str, Tensor] = {}
    members: Dict[Tuple[str, str, str], Dict[int, Tensor]] = {}
    for name, tensor in pretrained.weights.items():
        rows = [(row, match) for row in TABLE for match in [row.pattern.match(name)] if match]
        if not rows:
            unknown[name] = tensor
        used = False
        for row, match in rows:
            targets = _targets(row, match, chosen)
            if row.pattern is _CROSS and random_cross_attention:
                targets = []
            for target in targets:
                used = True
                weights[target] = table if row.pattern is _TOKENS else tensor.detach().float().clone()
                group = members.setdefault(("copied", row.what, _source(row, chosen)), {})
                group[id(weights[target])] = weights[target]
        if rows and not used:
            reason = _dropped_because(rows[0][0], chosen, random_cross_attention)
            members.setdefault(("dropped", rows[-1][0].what, reason), {})[id(tensor)] = tensor
    order = {row.what: place for place, row in enumerate(TABLE)}
    groups = [Group(*key, len(group), sum(t.numel() for t in group.values())) for key, group in members.items()]
    return weights, unknown, sorted(groups, key=lambda group: (group.action, order[group.what]))


def _targets(row: Row, match: "re.Match[str]", chosen: Sequence[int]) -> List[str]:
    """The new names of the key that ``match`` is of: none, one, or one for every decoder layer that took it."""
    if row.target is None:
        return []
    rest = match.string[match.end():]
    if not match.groups():
        return [row.target + rest]
    layer = int(match.group(1))
    if row.target.startswith("encoder."):
        return [row.target.format(layer) + rest]
    return [row.target.format(place) + rest for place, taken in enumerate(chosen) if taken == layer]


def _source(row: Row, chosen: Sequence[int]) -> str:
    if not row.pattern.groups:
        return "of pre-training"
    if row.target.startswith("encoder."):
        return "of the same layers"
    return f"of layers {', '.join(map(str, chosen))}"


def _dropped_because(row: Row, chosen: Sequence[int], random_cross_attention: bool) -> str:
    if row.pattern is not _CROSS:
        return "no place in fairseq's decoder"
    if random_cross_attention:
        return "--random-cross-attention"
    return f"of the layers other than {', '.join(map(str, chosen))}"


def _add_random_cross_attention(weights: Dict[str, Tensor], model: Namespace, seed: int) -> Group:
    """Initialise every decoder layer's cross-attention as fairseq's stock transformer does."""
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
    return Group("new", what, source, len(added), sum(tensor.numel() for tensor in added))


def expected_shapes(model: Namespace, dictionary: Dictionary) -> Dict[str, torch.Size]:
    """Name and shape of every tensor of fairseq's translation model with these options (takes no memory)."""
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    with torch.device("meta"):
        stock = build_model(copy.copy(model), task)
    return {name: tensor.shape for name, tensor in stock.state_dict().items()}


def check_weights(
    path: Path_, weights: Dict[str, Tensor], unknown: Dict[str, Tensor], expected: Dict[str, torch.Size]
) -> None:
    """Compare the renamed tensors with the model to be built.

    Raises:
        UserError: with everything that is missing, unexpected or of another shape.
    """
    problems = [f"{name} is missing, expected {tuple(expected[name])}" for name in expected if name not in weights]
    problems += [f"{name} {tuple(tensor.shape)} is unexpected" for name, tensor in unknown.items()]
    for name, tensor in weights.items():
        found = tuple(tensor.shape)
        if name not in expected:
            problems.append(f"{name} {found} is unexpected")
        elif found != tuple(expected[name]):
            problems.append(f"{name} is {found}, expected {tuple(expected[name])}")
    if problems:
        raise UserError(f"{path}: its tensors do not fit its own options: {'; '.join(problems)}")


def _report(
    pretrained: Pretrained, output: Path_, model: Namespace, chosen: List[int], target: Dictionary, groups: List[Group]
) -> Dict[str, Any]:
    notes = []
    cross_attention_is_new = any(group.action == "new" and group.tensors for group in groups)
    if pretrained.objective == "mlm" and not cross_attention_is_new:
        notes.append(
            "pre-trained with --objective mlm, so that the cross-attention copied here was never trained; "
            "--random-cross-attention gives the baseline of the paper"
        )
    return {
        "checkpoint": str(pretrained.path),
        "output": str(output),
        "arch": model.arch,
        "decoder_layers_from": chosen,
        "pretraining_tokens": len(pretrained.symbols),
        "tokens": len(target),
        "finetune_options": finetune_options(pretrained.model, len(chosen)),
        "groups": [group._asdict() for group in groups],
        "notes": notes,
    }


def _check_output(checkpoint: Path_, output: Path_) -> None:
    if Path(output).resolve() == Path(checkpoint).resolve():
        raise UserError(f"--output {output}: that is the checkpoint itself; choose another file")
    if Path(output).is_dir():
        raise UserError(f"--output {output}: that is a folder; name a file")


def _write(
    output: Path_, weights: Dict[str, Tensor], config: Dict[str, Any], target: Dictionary, report: Dict[str, Any]
) -> None:
    """Write what fairseq's trainer and generator look for in a checkpoint, and the report beside it."""
    history = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    state = {
        "args": None,
        "cfg": config,
        "model": weights,
        "criterion": None,
        "optimizer_history": [history],
        "task_state": {"symbols": list(target.symbols)},
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
    with atomic_output(output) as file, atomic_output(f"{output}.json") as report_file:
        with open(file, "wb") as stream:
            torch.save(state, stream)
        report_file.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
