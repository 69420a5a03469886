# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Writes the plugged-out encoder, pre-trained or fine-tuned, as a folder of Hugging Face's XLM-RoBERTa."""

import sys
from argparse import Namespace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor

from veco_fairseq.checkpoints.card import ENCODE, Facts, scores_list, write_card
from veco_fairseq.checkpoints.kinds import require_registered
from veco_fairseq.checkpoints.names import CROSS_ATTENTION, LM_HEAD, TIED_HEAD
from veco_fairseq.checkpoints.pretrained import (
    WANTED,
    Pretrained,
    discriminator,
    read_pretrained,
    refuse_parts_without_place,
)
from veco_fairseq.checkpoints.tokenizer import write_xlmr_tokenizer
from veco_fairseq.checkpoints.writing import write_config, write_safetensors
from veco_fairseq.checkpoints.xlmr_files import POSITIONS, TOKEN_TYPES, names
from veco_fairseq.data.languages import sides_of
from veco_fairseq.data.sentencepiece import MODEL_NAME, load_sentencepiece
from veco_fairseq.data.symbols import SPECIALS, require_own_pieces, vocabulary_folder
from veco_fairseq.data.vocabulary import dictionary_of
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, atomic_folder


class Head(NamedTuple):
    """What stands on the encoder: Hugging Face's class for it, its task, and our names and theirs (as in ``xlmr_files.NAMES``)."""

    architecture: str
    pipeline: str
    names: dict[str, str]


MASKED_LM = Head("XLMRobertaForMaskedLM", "fill-mask", {})  # its names are the encoder's own
NO_HEAD = Head("XLMRobertaModel", "feature-extraction", {})
HEADS = {
    "classification": Head(
        "XLMRobertaForSequenceClassification",
        "text-classification",
        {"head.dense.*": "classifier.dense.*", "head.out_proj.*": "classifier.out_proj.*"},
    ),
    "tagging": Head("XLMRobertaForTokenClassification", "token-classification", {"head.out_proj.*": "classifier.*"}),
    "span": Head("XLMRobertaForQuestionAnswering", "question-answering", {"head.out_proj.*": "qa_outputs.*"}),
}

# Hugging Face's names of fairseq's activations
ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "tanh": "tanh", "linear": "linear", "gelu_accurate": "gelu_new",
               "gelu_fast": "gelu_new"}  # fmt: skip

# What a folder is made of: also a translation model, which export_hf does not see.
EXPORTED = (
    f"{WANTED}, or a translation model of veco_mt_*, veco_transformer_* or fairseq's transformer; others are for veco translate"
)


class Export(NamedTuple):
    """The result of :func:`export_hf`.

    Attributes:
        folder: the output.
        dropped: the number of parameters of the cross-attention, which XLM-R does not have.
        notes: lines for the user.
    """

    folder: Path
    dropped: int
    notes: list[str]


def export_hf(
    checkpoint: Path_, output: Path_, trust: bool = False, *, sentencepiece: Path_ | None = None, scores: str = ""
) -> Export:
    """Write the unplugged encoder and its head, with the tokenizer's files and a model card.

    Args:
        checkpoint: of ``--task camlm``, which becomes an XLMRobertaForMaskedLM, or, of XLM-E, an XLMRobertaModel; or of
            ``--task veco_nlu --plug out``, which becomes one of :data:`HEADS`.
        output: the folder to make.
        trust: see :func:`veco_fairseq.checkpoints.reading.read_checkpoint`.
        sentencepiece: the SentencePiece model; default: that beside the checkpoint.
        scores: of the model card, as :func:`veco_fairseq.checkpoints.card.scores_list` gives it.

    Raises:
        UserError: the checkpoint cannot be read or has another model, it has a part that XLM-RoBERTa has not or a head that
            needs the cross-attention, the SentencePiece model is of another vocabulary, or the folder exists and is not empty.
    """
    output = Path(output)
    with atomic_folder(output) as folder:
        pretrained = _with_xlmr_head(read_pretrained(checkpoint, trust, wanted=EXPORTED))
        require_registered(checkpoint, pretrained.model)  # the outputs are compared
        refuse_parts_without_place(pretrained, "Hugging Face's XLM-RoBERTa")
        if getattr(pretrained.task, "plug", "out") == "in":
            raise UserError(
                f"{checkpoint}: was fine-tuned with --plug in, but Hugging Face's XLM-RoBERTa has no cross-attention: "
                "fine-tune with --plug out"
            )
        if pretrained.has_own_projection:
            raise UserError(
                f"{checkpoint}: {TIED_HEAD} is not the token embeddings, as in Hugging Face's XLM-RoBERTa: it has no place"
            )
        known = {*_names(pretrained), TIED_HEAD}
        for name in pretrained.weights:
            if not (name in known or CROSS_ATTENTION.match(name) or name.endswith(".version")):
                raise UserError(f"{checkpoint}: has a tensor {name}, which Hugging Face's XLM-RoBERTa has no place for")
        tensors = _tensors(pretrained)
        write_safetensors(folder / "model.safetensors", tensors)
        write_config(folder / "config.json", _config(pretrained))
        notes = pretrained.notes + _write_tokenizer(pretrained, folder, sentencepiece)
        write_card(folder / "README.md", _facts(pretrained, tensors), scores or scores_list())
        if _head(pretrained) is NO_HEAD:
            notes.append("no LM head: an XLMRobertaModel, for its hidden states: transformers starts a pooler anew")
        if getattr(pretrained.task, "word_pooling", "first") == "mean":
            notes.append("--word-pooling mean: a word's tag is that of the mean of its tokens' logits")
    kept = sum(tensor.numel() for name, tensor in tensors.items() if not TOKEN_TYPES.endswith(name))
    total = sum(t.numel() for n, t in pretrained.weights.items() if not n.endswith(("lm_head.weight", ".version")))
    return Export(output, total - kept, notes)


def _with_xlmr_head(pretrained: Pretrained) -> Pretrained:
    """Return the model without an LM head that XLM-RoBERTa's is not: there, GELU stands in it whatever the layers have."""
    activation = pretrained.model.activation_fn
    if _head(pretrained) is not MASKED_LM or activation == "gelu":
        return pretrained
    weights = {name: tensor for name, tensor in pretrained.weights.items() if not name.startswith(LM_HEAD)}
    note = f"--activation-fn {activation}: the LM head is left out, since XLM-RoBERTa's always has gelu"
    return pretrained._replace(weights=weights, notes=[*pretrained.notes, note])


def _names(pretrained: Pretrained) -> dict[str, str]:
    """Return our names of the encoder and of the head that stands on it, and Hugging Face's."""
    table = {f"encoder.{ours}": theirs for ours, theirs in names(pretrained.model.encoder_layers).items()}
    head = _head(pretrained)
    if head is not MASKED_LM:
        table = {ours: theirs for ours, theirs in table.items() if not ours.startswith(LM_HEAD)}
        for ours, theirs in head.names.items():
            table.update({ours.replace("*", suffix): theirs.replace("*", suffix) for suffix in ("weight", "bias")})
    return table


def _tensors(pretrained: Pretrained) -> dict[str, Tensor]:
    """Return the tensors by Hugging Face's names, contiguous, in fp32."""
    tensors = {}
    for ours, theirs in _names(pretrained).items():
        if ours not in pretrained.weights:
            raise UserError(f"{pretrained.path}: {ours} is missing; expected a checkpoint of this project")
        tensors[theirs] = pretrained.weights[ours].float().contiguous()
    # Hugging Face adds one token type to every token: it is zero.
    tensors[TOKEN_TYPES] = torch.zeros(1, pretrained.model.encoder_embed_dim)
    return {name.removeprefix("roberta."): t for name, t in tensors.items()} if _head(pretrained) is NO_HEAD else tensors


def _head(pretrained: Pretrained) -> Head:
    default = MASKED_LM if pretrained.has_lm_head else NO_HEAD
    return HEADS.get(str(getattr(pretrained.task, "nlu_task", "")), default)


def _config(pretrained: Pretrained) -> dict[str, Any]:
    model = pretrained.model
    labels = dict(enumerate(pretrained.labels))
    of_head = {}
    if labels:
        of_head = {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}
    if hasattr(model, "head_dropout"):
        of_head["classifier_dropout"] = model.head_dropout
    return {
        **of_head,
        **xlmr_options(model, "encoder"),
        "architectures": [_head(pretrained).architecture],
        "vocab_size": len(pretrained.symbols),
        "hidden_act": ACTIVATIONS[model.activation_fn],
        "max_position_embeddings": len(pretrained.weights[f"encoder.{POSITIONS}"]),
        "bos_token_id": SPECIALS.index("<s>"),
        "eos_token_id": SPECIALS.index("</s>"),
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def xlmr_options(model: Namespace, side: str) -> dict[str, Any]:
    """Return XLM-RoBERTa's options for the "encoder" or "decoder" of a model, without its activation and the sizes of its tables.

    Args:
        model: the options of training.
        side: one of the two.
    """
    return {
        "model_type": "xlm-roberta",
        "hidden_size": model.encoder_embed_dim,
        "num_hidden_layers": getattr(model, f"{side}_layers"),
        "num_attention_heads": getattr(model, f"{side}_attention_heads"),
        "intermediate_size": getattr(model, f"{side}_ffn_embed_dim"),
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.attention_dropout,
        "pad_token_id": SPECIALS.index("<pad>"),
    }


def _facts(pretrained: Pretrained, tensors: dict[str, Tensor]) -> Facts:
    head = _head(pretrained)
    langs, pairs = (
        [name.strip() for name in str(getattr(pretrained.task, option, None) or "").split(",")]
        for option in ("mono_langs", "bitext_pairs")
    )
    return Facts(
        title="An encoder for several languages",
        languages=sorted({*langs, *chain.from_iterable(map(sides_of, pairs))} - {""}),
        pipeline=head.pipeline,
        architecture=head.architecture,
        usage=ENCODE.replace("CLASS", head.architecture),
        options=pretrained.model,
        updates=pretrained.updates,
        tokens=len(pretrained.symbols),
        parameters=sum(tensor.numel() for tensor in tensors.values()),
        extra=pretrained.extra,
    )


def _write_tokenizer(pretrained: Pretrained, folder: Path, given: Path_ | None) -> list[str]:
    """Write the tokenizer's files; return lines for the user if there are none, and refuse another vocabulary's model."""
    model = Path(given) if given is not None else vocabulary_folder(pretrained.path) / MODEL_NAME
    if given is None and not model.is_file():
        return [f"no tokenizer: {model} is not there: name it with --sentencepiece"]
    require_own_pieces(load_sentencepiece(model), model, pretrained.symbols)
    return write_xlmr_tokenizer(folder, model, pretrained.symbols, pretrained.model.max_positions)


def import_transformers() -> Any:
    """Import and return the transformers package, or None if it is not installed.

    transformers imports torchaudio if that is installed. ``scripts/setup.sh`` leaves torchaudio out, but pip installs a
    version with fairseq-fixed that not every build of torch can load. So torchaudio is hidden during the import.
    """
    hidden = "torchaudio" not in sys.modules
    if hidden:
        sys.modules["torchaudio"] = None  # type: ignore[assignment]  # None hides it
    try:
        import transformers

        transformers.XLMRobertaForMaskedLM  # noqa: B018  transformers imports its models when they are named
        transformers.utils.logging.disable_progress_bar()
        return transformers
    except ImportError:
        return None
    finally:
        if hidden:
            del sys.modules["torchaudio"]


@torch.no_grad()
def largest_difference(checkpoint: Path_, folder: Path_, trust: bool = False) -> float | None:
    """Compare the outputs of the plugged-out model, and of the folder loaded by transformers, on random tokens.

    The outputs are logits or, without a head, the last layer's states.

    Returns:
        The largest absolute difference; None if transformers is not installed.
    """
    transformers = import_transformers()
    if transformers is None:
        return None
    saved = read_pretrained(checkpoint, trust, plain=False)
    pretrained = _with_xlmr_head(discriminator(saved))
    dictionary = dictionary_of(pretrained.symbols)
    nlu_task = str(getattr(pretrained.task, "nlu_task", ""))
    task = SimpleNamespace(source_dictionary=dictionary, nlu_task=nlu_task, labels=pretrained.labels, plug_in=False)
    head = _head(pretrained)
    ours = ARCH_MODEL_REGISTRY[saved.model.arch].build_model(saved.model, task).eval()
    ours.load_state_dict(saved.weights)
    more = {"add_pooling_layer": False} if head is NO_HEAD else {}  # it would be told that the folder has none
    theirs = getattr(transformers, head.architecture).from_pretrained(folder, **more).eval()
    generator = torch.Generator().manual_seed(1)
    length = min(32, ours.max_positions())
    tokens = torch.randint(len(SPECIALS), len(dictionary), (4, length), generator=generator)
    tokens[:, 0], tokens[:, -1] = dictionary.bos(), dictionary.eos()
    tokens[1, length // 2 :] = dictionary.pad()
    real = tokens.ne(dictionary.pad())
    states = ours.unplugged(tokens)
    found = theirs(tokens, attention_mask=real.long())
    if head is NO_HEAD:
        return (states - found.last_hidden_state)[real].abs().max().item()
    mine = (ours.head if nlu_task else ours.encoder.lm_head)(states)
    other = torch.stack([found.start_logits, found.end_logits], -1) if nlu_task == "span" else found.logits
    difference = (mine - other).abs()
    return (difference if nlu_task == "classification" else difference[real]).max().item()
