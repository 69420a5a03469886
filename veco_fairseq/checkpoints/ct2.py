# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Writes a translation model for CTranslate2, by CTranslate2's own converter."""

import shutil
from argparse import Namespace
from pathlib import Path

from fairseq.models import ARCH_MODEL_NAME_REGISTRY

import veco_fairseq.models.translation  # noqa: F401  registers veco_mt_*
from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.data.sentencepiece import MODEL_NAME
from veco_fairseq.data.vocabulary import has_language_token, read_dictionary
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, atomic_folder


def export_ct2(
    checkpoint: Path_,
    output: Path_,
    *,
    data: Path_ | None = None,
    quantization: str = "float32",
    sentencepiece: Path_ | None = None,
) -> None:
    """Write a folder that ``ctranslate2.Translator`` loads; its sources and targets are SentencePiece's pieces.

    Args:
        checkpoint: of ``fairseq-train --task translation --arch veco_mt_*``, or an average of such checkpoints.
        output: the folder to make.
        data: the folder of the dictionaries; by default the training data's.
        quantization: one of :data:`QUANTIZATIONS`.
        sentencepiece: a model to put into the folder.

    Raises:
        UserError: the checkpoint cannot be read or is no ordinary translation model, the dictionaries do not exist or
            have language tokens (see :mod:`veco_fairseq.tasks.translation`), CTranslate2 is not installed, or the folder
            exists and is not empty.
    """
    try:
        from ctranslate2.converters import FairseqConverter
    except ImportError as error:
        raise UserError("ctranslate2 is not installed: pip install ctranslate2") from error
    config = read_checkpoint(checkpoint, mapped=True).get("cfg") or {}
    task = config.get("task")
    model, task = config.get("model"), task if isinstance(task, dict) else vars(task or Namespace())
    kind = ARCH_MODEL_NAME_REGISTRY.get(getattr(model, "arch", None), "unknown model")
    if kind != "transformer":
        why = "CTranslate2 has no LM head and ties nothing" if kind == "veco_transformer" else "convert it to one first"
        raise UserError(f"{checkpoint}: is a {kind}, and not a stock translation model (--arch veco_mt_*): {why}")
    data = Path(data if data is not None else task["data"])
    if not any(data.glob("dict.*.txt")):
        raise UserError(f"{data}: has no dict.LANG.txt: name the folder of fairseq-preprocess with --data")
    langs = {path: path.name.removeprefix("dict.").removesuffix(".txt") for path in sorted(data.glob("dict.*.txt"))}
    if all(has_language_token(read_dictionary(path), lang) for path, lang in langs.items()):
        tokens = ", ".join(f"[{lang}]" for lang in langs.values())
        raise UserError(
            f"{checkpoint}: the dictionaries have language tokens ({tokens}), which CTranslate2's converter cannot "
            "place: translate with translate.py or fairseq-generate"
        )
    with atomic_folder(output) as folder:
        converter = FairseqConverter(str(checkpoint), str(data), task.get("source_lang"), task.get("target_lang"))
        converter.convert(str(folder), quantization=quantization, force=True)
        if sentencepiece is not None:
            shutil.copyfile(sentencepiece, folder / MODEL_NAME)
