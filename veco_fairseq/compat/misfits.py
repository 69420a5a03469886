# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Says in one line how a checkpoint does not fit the model that a training builds."""

import logging
import re
from typing import Any

from veco_fairseq.checkpoints.kinds import arch_of, model_class
from veco_fairseq.checkpoints.own_options import is_own
from veco_fairseq.checkpoints.reading import WITHOUT_SHAPE, option_differences
from veco_fairseq.errors import UserError

logger = logging.getLogger(__name__)

model_of: dict[str, Any] = {}  # the options of the checkpoints that trainers read
OTHER_TOKENS = "rows of embed_tokens are tokens: give data that was made with the dict.txt that it was trained with"
OTHER_HEAD = (
    "head is of a task, its labels and --plug: give those that it was trained with, or begin with the pre-trained checkpoint"
)
OF_HEAD = re.compile(r"(missing|shapes:) head\.")
SIZES = ("encoder_layers", "decoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads", "table_dim",
         "max_positions", "relative_position_bias", "quant_noise_pq")  # fmt: skip
PARTED = (  # two copies of a shared table are the same at first
    ("--generator-embeddings", "shared", "own"), ("--share-all-embeddings", True, False),
    ("--share-decoder-input-output-embed", True, False),
)  # fmt: skip


def refuse_another_computation(path: str, here: Any, is_last: bool) -> None:
    """Refuse a checkpoint whose tensors fit the model, but whose options are of another one, and warn of one of somebody's own.

    Args:
        path: the file, whose options are in :data:`model_of`.
        here: the options of the model.
        is_last: whether it is the last checkpoint of the training's folder.

    Raises:
        UserError: one of :data:`veco_fairseq.checkpoints.reading.WITHOUT_SHAPE` differs, and both sides say what it is. Tables
            that are shared in the file alone may be read.
    """
    if any(change not in PARTED for change in option_differences(model_of.get(path), here)):
        raise UserError(misfit_message(path, here, "its tensors have the same shapes, but would compute something else", is_last))
    arch, there = arch_of(model_of.get(path)), model_class(model_of.get(path))
    unlike = there is None or is_own(there) and not issubclass(model_class(here) or object, there)
    if arch is not None and unlike:
        logger.warning(f"{path}: --arch {arch} is somebody's own: what its code computes in another way is not taken over")


def misfit_message(path: str, here: Any, message: str, is_last: bool) -> str:
    """Return the line for a checkpoint that does not fit the model of these options, with the options that differ.

    Args:
        message: of :func:`misfit`.
        is_last: whether it is the last checkpoint of the training's folder.
    """
    there = model_of.get(path)
    found = option_differences(there, here, tuple(dict.fromkeys((*SIZES, *WITHOUT_SHAPE))))
    use = getattr(model_class(there), "advice_for_others", None)
    takes_it = use and getattr(model_class(here), "begins_with_pretrained", False)  # of another --arch
    if there is not None and arch_of(there) != arch_of(here) and not takes_it:
        found = [("--arch", arch_of(there), arch_of(here)), *found]
    told = "; ".join(f"{flag} {old} in the file, {new} here" for flag, old, new in found)
    elsewhere = ", or another --save-dir" if is_last else ""
    advice = f"; give the options that it was trained with{elsewhere}"
    if use and model_class(there) is not model_class(here) and not takes_it:
        advice = f"; {use}"
    elif not found and message.endswith(OTHER_TOKENS):
        advice = elsewhere
    elif not found and getattr(model_class(here), "begins_with_pretrained", False) and OF_HEAD.search(message):
        advice = f"; {OTHER_HEAD}{elsewhere}"
    return f"{path}: does not fit the chosen model{told and f' ({told})'}: {message}{advice}"


def misfit(error: BaseException) -> str | None:
    """Return what does not fit when torch cannot load a state dict, a few of each kind; None for another error.

    fairseq's trainer raises a bare Exception from it, so torch's error is searched in the chain.
    """
    link: BaseException | None = error
    while link is not None and "Error(s) in loading state_dict for" not in str(link):
        link = link.__cause__ or link.__context__
    if link is None:
        return None
    text = str(link)
    parts = []
    for kind in ("Missing", "Unexpected"):
        if keys := re.search(rf"{kind} key\(s\) in state_dict: (.*?)\. ?$", text, re.MULTILINE):
            parts.append(f"{kind.lower()} " + _few(keys[1].replace('"', "").split(", ")))
    shapes = re.findall(r"size mismatch for (\S+): .*?torch\.Size\(\[(.*?)\]\) from.*?torch\.Size\(\[(.*?)\]\)", text, re.DOTALL)
    if shapes:
        differences = [f"{key} [{there}] in the file, [{here}] here" for key, there, here in shapes]
        parts.append("other shapes: " + _few(differences))
    if any("embed_tokens.weight" in key and there.split(",")[0] != here.split(",")[0] for key, there, here in shapes):
        parts.append(OTHER_TOKENS)
    return "; ".join(parts) or " ".join(text.split())


def _few(items: list[str]) -> str:
    return ", ".join(items[:2]) + (f" and {len(items) - 2} more" if len(items) > 2 else "")
