# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reads XLM-R's checkpoints, fairseq's and Hugging Face's, into one form."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veco_fairseq.checkpoints.integrity import check_kinds
from veco_fairseq.checkpoints.names import CROSS_ATTENTION, PRETRAINING_ALONE
from veco_fairseq.checkpoints.reading import DamagedCheckpoint, has_model, options_of, read_checkpoint, read_tensors
from veco_fairseq.data.roots import load_dictionary
from veco_fairseq.data.sentencepiece import MASK, MODEL_NAME, load_sentencepiece, ordinary_pieces
from veco_fairseq.data.symbols import SPECIALS, vocabulary_folder
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, read_json, require_file

EMBEDDINGS = "sentence_encoder.embed_tokens.weight"
POSITIONS = "sentence_encoder.embed_positions.weight"
HEAD_BIAS = "lm_head.bias"
TIED_HEAD = "lm_head.weight"  # the embeddings again
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"

# Our names below "encoder.", and Hugging Face's; ".*" stands for weight and bias, "{}" for the layer.
NAMES = (
    (EMBEDDINGS, "roberta.embeddings.word_embeddings.weight"),
    (POSITIONS, "roberta.embeddings.position_embeddings.weight"),
    ("sentence_encoder.layernorm_embedding.*", "roberta.embeddings.LayerNorm.*"),
    ("sentence_encoder.layers.{}.self_attn.q_proj.*", "roberta.encoder.layer.{}.attention.self.query.*"),
    ("sentence_encoder.layers.{}.self_attn.k_proj.*", "roberta.encoder.layer.{}.attention.self.key.*"),
    ("sentence_encoder.layers.{}.self_attn.v_proj.*", "roberta.encoder.layer.{}.attention.self.value.*"),
    ("sentence_encoder.layers.{}.self_attn.out_proj.*", "roberta.encoder.layer.{}.attention.output.dense.*"),
    ("sentence_encoder.layers.{}.self_attn_layer_norm.*", "roberta.encoder.layer.{}.attention.output.LayerNorm.*"),
    ("sentence_encoder.layers.{}.fc1.*", "roberta.encoder.layer.{}.intermediate.dense.*"),
    ("sentence_encoder.layers.{}.fc2.*", "roberta.encoder.layer.{}.output.dense.*"),
    ("sentence_encoder.layers.{}.final_layer_norm.*", "roberta.encoder.layer.{}.output.LayerNorm.*"),
    ("lm_head.dense.*", "lm_head.dense.*"),
    ("lm_head.layer_norm.*", "lm_head.layer_norm.*"),
    (HEAD_BIAS, "lm_head.bias"),
)

# Hugging Face's other tensors: copies of tied ones, and some that masked language modelling does not need.
HF_TIED = {"lm_head.decoder.weight": EMBEDDINGS, "lm_head.decoder.bias": HEAD_BIAS}
HF_LEFT_OUT = re.compile(r"(roberta\.)?(pooler\.|embeddings\.position_ids$)|classifier\.|qa_outputs\.")

MOST = 1_000  # layers, of each of which the names are written out, and attention heads

# A large model's weights can be in several files, which an index of this name lists.
INDEX = ".index.json"
WHOLE = ("model.safetensors", "pytorch_model.bin")
IN_FOLDERS = (*WHOLE, *(f"{name}{INDEX}" for name in WHOLE), "model.pt")

# fairseq's other tensors.
FAIRSEQ_LEFT_OUT = re.compile(r"encoder\.sentence_encoder\.version$|.*_float_tensor$|classification_heads\.")

OTHERWISE, AS_A_FOLDER = "give a model that was trained without", "give the folder that veco export-hf makes of it"
# What models of --task camlm, and those of Hugging Face, can have beside XLM-R's tensors, and what to do then.
BESIDE = (
    (
        re.compile(r".*(adapter|\.lora_)"),
        "has adapters, which XLM-R has not",
        "merge them into its weights, or give the model without",
    ),
    (re.compile(r".*\.relative_bias\."), "was trained with --relative-position-bias, which XLM-R has not", OTHERWISE),
    (re.compile(r".*\.quant_noise\."), "was trained with --quant-noise-pq, whose projection XLM-R has not", OTHERWISE),
    (re.compile(r".*\.embed_tokens\.project\."), "was trained with --embed-dim, which XLM-R has not", AS_A_FOLDER),
    (PRETRAINING_ALONE, "is an XLM-E, which has a generator beside an XLM-R", AS_A_FOLDER),
)


class XlmR(NamedTuple):
    """The content of a file of XLM-R.

    Attributes:
        path: the file.
        weights: by our names below "encoder.", without the tied projection; fp32.
        symbols: the vocabulary, in the order of the embeddings' rows.
        heads, layers: how many attention heads and layers it says that it has; fairseq's, how many layers there are.
        activation: fairseq's name of the function in the layers and in the LM head.
        left_out: names of the tensors that are not used, with their sizes.
    """

    path: Path
    weights: dict[str, Tensor]
    symbols: list[str]
    heads: int
    layers: int
    activation: str
    left_out: dict[str, int]


def names(layers: int) -> dict[str, str]:
    """Return :data:`NAMES` written out for this many layers: our names to Hugging Face's."""
    table = {}
    for ours, theirs in NAMES:
        for layer in range(layers) if "{}" in ours else (0,):
            for suffix in ("weight", "bias") if ours.endswith("*") else ("",):
                table[ours.format(layer).replace("*", suffix)] = theirs.format(layer).replace("*", suffix)
    return table


def read_xlmr(path: Path_) -> XlmR:
    """Read XLM-R from a fairseq checkpoint or folder, a Hugging Face folder, or a .safetensors file or index of one.

    Raises:
        UserError: something is missing or damaged, or has the names of another model.
    """
    path = weights_of(path)
    if path.is_dir():
        raise UserError(
            f"{path}: holds no XLM-R: expected Hugging Face's model.safetensors (or pytorch_model.bin) and "
            "config.json, or fairseq's model.pt and dict.txt"
        )
    if not path.is_file():
        raise UserError(f"{path}: no such file or folder: check --init-from")
    return _read_hugging_face(path) if is_hugging_face(path) else _read_fairseq(path)


def weights_of(path: Path_) -> Path:
    """Return the file of the weights in a folder of an XLM-R, Hugging Face's before fairseq's; any other path as it is."""
    return next((file for file in (Path(path) / name for name in IN_FOLDERS) if file.is_file()), Path(path))


def is_hugging_face(path: Path_) -> bool:
    """Return whether this is a folder of a model of Hugging Face, or a file of its weights, or the index of such files.

    Raises:
        UserError: it is a .bin, as fairseq's may be too, and cannot be read.
    """
    path = Path(path)
    if path.suffix == ".bin" and path.is_file():
        return not has_model(path)
    return path.name.endswith((".safetensors", INDEX)) and path.is_file() or (path / "config.json").is_file()


def _read_hugging_face(path: Path) -> XlmR:
    config = _read_config(path.with_name("config.json"))
    tensors = _read_shards(path) if path.name.endswith(INDEX) else read_tensors(path)
    check_kinds(path, {name: t for name, t in tensors.items() if not HF_LEFT_OUT.match(name)}, "give the model in 16 or 32 bits")
    # XLMRobertaModel's own files have no "roberta." before the encoder's names.
    tensors = {re.sub(r"^(?=embeddings\.|encoder\.)", "roberta.", name): t.float() for name, t in tensors.items()}
    ours = {theirs: name for name, theirs in names(config["num_hidden_layers"]).items()}
    weights = {ours[name]: tensor for name, tensor in tensors.items() if name in ours}
    for name, twin in HF_TIED.items():
        if name in tensors and not (twin in weights and torch.equal(tensors[name], weights[twin])):
            raise UserError(f"{path}: {name} is not tied to the embeddings as in XLM-R: this is another model")
    left_out = {name: tensor.numel() for name, tensor in tensors.items() if HF_LEFT_OUT.match(name)}
    known = {*ours, *left_out, *HF_TIED, TOKEN_TYPES}
    _refuse_unknown(path, [name for name in tensors if name not in known])
    if POSITIONS in weights and TOKEN_TYPES in tensors and tensors[TOKEN_TYPES].any():
        # fairseq's XLM-R has no token types. Hugging Face's has one, which is added to every token and mostly zero.
        weights[POSITIONS] = weights[POSITIONS] + tensors[TOKEN_TYPES][0]
        weights[POSITIONS][SPECIALS.index("<pad>")] = 0  # padding is 0 before the first layer
    symbols = _hugging_face_symbols(path.parent, len(weights.get(EMBEDDINGS, ())))
    return XlmR(path, weights, symbols, config["num_attention_heads"], config["num_hidden_layers"], "gelu", left_out)


def _read_config(path: Path) -> dict[str, Any]:
    """Return the values of config.json that matter here.

    Raises:
        UserError: the file is missing or damaged, or describes another kind of model.
    """
    require_file(path, ": it belongs beside the weights: fetch it with them")
    try:
        config = read_json(path)
        kind, needed = config.get("model_type"), ("num_hidden_layers", "num_attention_heads")
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path}: is damaged ({error}): fetch it again") from error
    if kind != "xlm-roberta" or config.get("hidden_act", "gelu") != "gelu":
        raise UserError(f"{path}: describes a model of type {kind}, with {config.get('hidden_act')}; expected xlm-roberta")
    # Where the file has none, transformers takes 1e-12.
    if (epsilon := config.get("layer_norm_eps", 1e-12)) != 1e-5:
        raise UserError(f"{path}: its LayerNorm adds {epsilon} to the variance, and XLM-R's 1e-05: this is another model")
    # Positions are counted from the padding's number, and a decoder does not look ahead: no tensor shows it.
    for key, usual in (("pad_token_id", SPECIALS.index("<pad>")), ("is_decoder", False)):
        if (found := config.get(key, usual)) != usual:
            raise UserError(f"{path}: has {key} {found}, and XLM-R {usual}: this is another model")
    missing = [key for key in needed if not isinstance(found := config.get(key), int) or not 0 < found <= MOST]
    if missing:
        raise UserError(f"{path}: has no {missing[0]} from 1 to {MOST:,}: fetch it again")
    return config


def _read_shards(index: Path) -> dict[str, Tensor]:
    """Read the weights in all files that an index names; of a tensor that several have, that of the file that it is said to be in.

    Raises:
        UserError: the index is damaged, or a file of it, or one of its tensors, is missing or damaged.
    """
    try:
        files = read_json(index)["weight_map"]
        paths = [index.with_name(name) for name in sorted(set(files.values()))]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{index}: is damaged, or no index of a model's files: fetch it again") from error
    tensors: dict[str, Tensor] = {}
    for path in paths:
        found = read_tensors(path)
        tensors.update({name: t for name, t in found.items() if name not in tensors or files.get(name) == path.name})
    if missing := sorted(files.keys() - tensors.keys()):
        raise DamagedCheckpoint(f"{index}: its files lack {missing[0]}: fetch them again")
    return tensors


def _hugging_face_symbols(folder: Path, rows: int = 0) -> list[str]:
    """Return the vocabulary of XLMRobertaTokenizer, from sentencepiece.bpe.model or tokenizer.json.

    Args:
        rows: of the embeddings; tokens that were added to the tokenizer are only taken for rows that there are.

    Raises:
        UserError: neither is there, or one is damaged.
    """
    if (folder / MODEL_NAME).is_file():
        symbols = [*SPECIALS, *ordinary_pieces(load_sentencepiece(folder / MODEL_NAME)), MASK]
    elif (folder / "tokenizer.json").is_file():
        symbols = _of_tokenizer(folder / "tokenizer.json", lambda content: [piece for piece, _ in content["model"]["vocab"]])
    else:
        raise UserError(f"{folder}: has neither {MODEL_NAME} nor tokenizer.json, which name the tokens: put one there")
    added: dict[int, str] = {}
    for name, pairs in (
        ("added_tokens.json", lambda content: content.items()),
        ("tokenizer.json", lambda content: [(token["content"], token["id"]) for token in content.get("added_tokens") or ()]),
    ):
        if len(symbols) < rows and (folder / name).is_file():
            added.update((number, token) for token, number in _of_tokenizer(folder / name, pairs))
    while len(symbols) < rows and len(symbols) in added:
        symbols.append(added[len(symbols)])
    if not all(isinstance(symbol, str) for symbol in symbols):
        raise UserError(f"{folder / 'tokenizer.json'}: is damaged or no unigram tokenizer: fetch it again")
    return symbols


def _of_tokenizer(path: Path, part: Callable[[Any], Any]) -> list[Any]:
    try:
        return list(part(read_json(path)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: is damaged or no unigram tokenizer: fetch it again") from error


def _read_fairseq(path: Path) -> XlmR:
    state = read_checkpoint(path)
    options = options_of(state, "model")
    heads = getattr(options, "encoder_attention_heads", None)
    if heads is None:
        raise UserError(f"{path}: its options lack --encoder-attention-heads: give a checkpoint of fairseq-train")
    # Names of fairseq's first RoBERTa, which RobertaModel.upgrade_state_dict_named renames.
    tensors = {
        re.sub(r"^decoder\.", "encoder.", name).replace(".emb_layer_norm.", ".layernorm_embedding."): tensor.float()
        for name, tensor in state["model"].items()
    }
    left_out = {name: t.numel() for name, t in tensors.items() if FAIRSEQ_LEFT_OUT.match(name) or CROSS_ATTENTION.match(name)}
    tensors = _split_projections({name: t for name, t in tensors.items() if name not in left_out})
    numbers = [re.match(r"encoder\.sentence_encoder\.layers\.(\d+)\.", name) for name in tensors]
    layers = 1 + max((int(number[1]) for number in numbers if number), default=-1)
    ours = {f"encoder.{name}": name for name in (*names(layers), TIED_HEAD)}
    _refuse_unknown(path, [name for name in tensors if name not in ours])
    weights = {ours[name]: tensor for name, tensor in tensors.items()}
    tied = weights.pop(TIED_HEAD, None)
    if tied is not None and not torch.equal(tied, weights.get(EMBEDDINGS, tied[:0])):
        raise UserError(f"{path}: its {TIED_HEAD} is not tied to the embeddings as in XLM-R: this is another model")
    symbols = (state.get("task_state") or {}).get("symbols") or load_dictionary(vocabulary_folder(path)).symbols
    activation = getattr(options, "activation_fn", None) or "gelu"  # RoBERTa's default
    return XlmR(path, weights, list(symbols), heads, layers, activation, left_out)


def _split_projections(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Split the query, key and value projections, which are one tensor in the first checkpoints of 2019."""
    split = {}
    for name, tensor in weights.items():
        found = re.fullmatch(r"(.*\.self_attn\.)in_proj_(weight|bias)", name)
        if found:
            split.update({f"{found[1]}{p}_proj.{found[2]}": part for p, part in zip("qkv", tensor.chunk(3))})
        else:
            split[name] = tensor
    return split


def _refuse_unknown(path: Path, unknown: list[str]) -> None:
    for pattern, what, advice in BESIDE:
        if any(map(pattern.match, unknown)):
            raise UserError(f"{path}: {what}: {advice}")
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        raise UserError(
            f"{path}: is no XLM-R and no model of --task camlm, one of which is needed: it has {', '.join(unknown[:3])}{more}"
        )
