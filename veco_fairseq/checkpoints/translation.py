# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A fine-tuned translation model's checkpoint, read for what exports it."""

import copy
import re
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from fairseq.data.data_utils import infer_language_pair
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, FairseqEncoderDecoderModel, build_model
from torch import Tensor, nn

import veco_fairseq.models.translation  # noqa: F401  registers veco_mt_* and veco_transformer_*
from veco_fairseq.checkpoints.kinds import model_class, require_registered
from veco_fairseq.checkpoints.mapping import check_weights
from veco_fairseq.checkpoints.outlines import shapes_of
from veco_fairseq.checkpoints.reading import options_of, read_checkpoint
from veco_fairseq.checkpoints.task_state import NOT_FINE_TUNED, has_directions, is_only_converted
from veco_fairseq.data.languages import sides_of
from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.data.symbols import own_model, require_own_pieces, target_token, vocabulary_folder
from veco_fairseq.data.vocabulary import dictionary_of, read_dictionary, require_same_symbols
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_

LANGUAGE_TOKEN = re.compile(r"\[[A-Za-z_]+\]")
VERSION = re.compile(r"(encoder|decoder)\.version$")  # marks of fairseq's, not weights
# Parts that no export has a place for: what their tensors are called, and the options of training that make them.
PARTS = {"quant_noise": "--quant-noise-pq", "adaptive_softmax": "--adaptive-softmax-cutoff",
         "project_in_dim": "--decoder-input-dim", "project_out_dim": "--decoder-output-dim"}  # fmt: skip
PART = re.compile(rf"(?:encoder|decoder)\.({'|'.join(PARTS)})\.")


class Translation(NamedTuple):
    """What a translation model's checkpoint holds.

    Attributes:
        path: the file.
        weights: in fp32, a tied tensor under each of its names.
        model: its model options.
        source, target: the symbols of the two dictionaries, by id.
        langs: the codes of the two languages; None where the file does not say.
        folder: of its data, as it was where the model was trained.
        state: all that the file holds.
    """

    path: Path
    weights: dict[str, Tensor]
    model: Namespace
    source: list[str]
    target: list[str]
    langs: tuple[str | None, str | None]
    folder: Path
    state: dict[str, Any]

    @property
    def source_end(self) -> list[str]:
        """What follows the pieces of a source: ``</s>``, and the source's language token where there is one."""
        return ["</s>", f"[{self.langs[0]}]"] if self.has_language_tokens else ["</s>"]

    @property
    def target_end(self) -> str:
        """What a translation begins with and ends in."""
        return f"[{self.langs[1]}]" if self.has_language_tokens else "</s>"

    @property
    def has_language_tokens(self) -> bool:
        """Whether the task is the one of :mod:`veco_fairseq.tasks.translation` with language tokens."""
        there = (lang and f"[{lang}]" in symbols for symbols, lang in zip((self.source, self.target), self.langs))
        return not self.directions and all(there)  # one of many directions never uses them

    @property
    def directions(self) -> list[str]:
        """The directions that a model of many was trained for, such as ``en-de``; of another model none."""
        return list((self.state.get("task_state") or {}).get("lang_pairs") or [])

    @property
    def notes(self) -> list[str]:
        """Lines for whoever translates with the exported model: that it cannot yet, or, of many directions, what a source begins with."""
        if is_only_converted(self.state.get("task_state") or {}):
            return [f"the checkpoint {NOT_FINE_TUNED}"]
        tokens = sorted({target_token(sides_of(direction)[1]) for direction in self.directions})
        return [f"begin every source with the token of the language to translate into: {', '.join(tokens)}"] if tokens else []

    @property
    def parts_without_place(self) -> list[str]:
        """The options that have made :data:`PARTS`."""
        return sorted({PARTS[part[1]] for part in map(PART.match, self.weights) if part})

    @property
    def keeps_lm_head(self) -> bool:
        return bool(getattr(self.model, "keep_lm_head", False))


def read_translation(path: Path_, *, data: Path_ | None = None, trust: bool = False) -> Translation | None:
    """Read a checkpoint of ``fairseq-train --task translation``; None if it is another kind of model's.

    Args:
        path: the file, of ``--arch veco_mt_*`` or ``veco_transformer_*``, or an average of such.
        data: the folder with its dictionaries; by default they are the checkpoint's own, and, where it has none, those of
            the folder that it was trained on.
        trust: see :func:`veco_fairseq.checkpoints.reading.read_checkpoint`.

    Raises:
        UserError: it cannot be read, its architecture is not registered here, its tensors do not fit its options, its
            dictionaries are not there or of another model, or it has language tokens and does not say which languages are its own.
    """
    state = read_checkpoint(path, trust, mapped=True)
    model, task = options_of(state, "model"), options_of(state, "task")
    require_registered(path, model)
    if model is None or ARCH_MODEL_NAME_REGISTRY.get(getattr(model, "arch", "")) not in ("transformer", "veco_transformer"):
        return None
    known = state.get("task_state") or {}
    symbols: list[Any] = [known.get("source_symbols", known.get("symbols")), known.get("symbols")]
    langs = known.get("languages") or [getattr(task, "source_lang", None), getattr(task, "target_lang", None)]
    folder = Path(data or getattr(task, "data", None) or ".")
    if data is not None or not all(symbols):
        if not any(folder.glob("dict.*.txt")):
            raise UserError(f"{folder}: has no dict.LANG.txt: name the folder of fairseq-preprocess with --data")
        if not all(langs):  # those of a model of many directions have one dictionary
            several = list(map(sides_of, known.get("lang_pairs") or ()))
            there = (pair for pair in several if all((folder / f"dict.{lang}.txt").is_file() for lang in pair))
            langs = next(there, several[0]) if several else infer_language_pair(str(folder))
        if not all(langs):
            raise UserError(f"{path}: does not say its languages, and neither does {folder}: give the folder with --data")
        files = [folder / f"dict.{lang}.txt" for lang in langs]
        dictionaries = [read_dictionary(file) for file in files]
        for theirs, words, file in zip(symbols, dictionaries, files):
            require_same_symbols(theirs, words, str(path), file)
        symbols = [words.symbols for words in dictionaries]
    tokens = [symbol for symbol in symbols[1] if LANGUAGE_TOKEN.fullmatch(symbol)]
    if len(tokens) > 1 and not all(langs) and not known.get("lang_pairs"):
        raise UserError(f"{path}: has language tokens ({', '.join(tokens[:5])}), and does not say its languages: give --data")
    weights = {name: tensor.float() for name, tensor in state["model"].items() if not VERSION.match(name)}
    source, target = map(list, symbols)
    translation = Translation(Path(path), weights, model, source, target, tuple(langs), folder, state)
    shapes = shapes_of(lambda: _fairseq_model(translation))
    check_weights(path, weights, {}, {name: shape for name, shape in shapes.items() if not VERSION.match(name)})
    return translation


def require_translation(path: Path_) -> None:
    """Refuse a checkpoint of another kind of model, or one that was converted and not trained to translate.

    Raises:
        UserError: says which; or the file cannot be read.
    """
    state = read_checkpoint(path, mapped=True)
    model, task, known = options_of(state, "model"), options_of(state, "task"), state.get("task_state") or {}
    kind = model_class(model)
    if kind is not None and not issubclass(kind, FairseqEncoderDecoderModel):
        raise UserError(f"{path}: is a {kind.__name__}, not a translation model: make one with veco convert, and fine-tune it")
    if not (has_directions(known) or getattr(task, "lang_pairs", None) or getattr(task, "source_lang", None)):
        raise UserError(
            f"{path}: was not trained to translate yet: fine-tune it first (fairseq-train --finetune-from-model {path})"
        )


def build_translation(translation: Translation) -> nn.Module:
    """Build the model with the checkpoint's weights, on the CPU in fp32, not in training mode."""
    model = _fairseq_model(translation)
    # With its marks, without which fairseq takes it for one of before 2018 and drops the last LayerNorm of pre-norm.
    marks = {name: mark for name, mark in translation.state["model"].items() if VERSION.match(name)}
    model.load_state_dict({**marks, **translation.weights}, strict=False)  # reading has checked the names
    return model.eval()


def find_sentencepiece(translation: Translation, given: Path_ | None) -> Path | None:
    """The SentencePiece model of a translation model: the given one, or that beside the checkpoint or its data.

    Raises:
        UserError: it is damaged, or not the one that the dictionary was made with.
    """
    dictionaries = translation.source, translation.target
    folders = [vocabulary_folder(translation.path), translation.folder]
    found = Path(given) if given is not None else own_model(folders, dictionaries)
    if found is not None:
        for symbols in dictionaries:
            require_own_pieces(load_sentencepiece(found), found, symbols)
    return found


def _fairseq_model(translation: Translation) -> nn.Module:
    dictionaries = dictionary_of(translation.source), dictionary_of(translation.target)
    task = SimpleNamespace(source_dictionary=dictionaries[0], target_dictionary=dictionaries[1])
    return build_model(copy.copy(translation.model), task)
