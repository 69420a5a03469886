# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reads checkpoints without running the code that a pickle can hold."""

import argparse
import errno
import os
import pickle
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from veco_fairseq.checkpoints.integrity import Records, WrongBytes, WrongSize, check_finite
from veco_fairseq.checkpoints.own_options import own_options_in
from veco_fairseq.checkpoints.skeleton import check_skeleton
from veco_fairseq.errors import SYSTEM_ERRORS, UserError
from veco_fairseq.options import literals
from veco_fairseq.options.flags import flag

OF_HUGGING_FACE = "is of Hugging Face: give a checkpoint of fairseq; pre-training begins with it (--init-from)"


class DamagedCheckpoint(UserError):
    """The file exists but cannot be read: it is empty, cut off or overwritten. Another copy may be whole."""


def allowed_types() -> list[Callable | tuple[Callable, str]]:
    """Return what a checkpoint may hold beside tensors and plain values, for torch's add_safe_globals.

    - argparse.Namespace: fairseq-train keeps its command line in one.
    - numpy's arrays and numbers: the metrics of ``--eval-bleu``, which are kept for resuming.

    Making any of these runs no code of the file's choice.
    """
    kinds = (np.bool_, np.uint8, np.int32, np.int64, np.float16, np.float32, np.float64)
    values: tuple[Any, Any] = (np.empty(0), np.float64())
    makers = [value.__reduce__()[0] for value in values]  # of an array and of a number
    # numpy 1 and 2 write different names, and each must read the other's checkpoints.
    renamed = [(maker, f"numpy.{core}.multiarray.{maker.__name__}") for maker in makers for core in ("core", "_core")]
    return [argparse.Namespace, np.ndarray, np.dtype, *renamed, *(type(np.dtype(kind)) for kind in kinds)]


# For the whole process: fairseq's own reading, and its broadcasts between workers, need them, too.
torch.serialization.add_safe_globals(allowed_types())

# torch's messages for a pickle that needs more than is allowed, with the name of what it needs.
REFUSED = re.compile(
    r"GLOBAL (\S+) was not an allowed global|unsupported GLOBAL (\S+) whose module|"
    r"allowlisted via `add_safe_globals`,? but got (<class '\S+'>|\S+)|"
    r"Trying to call reduce for unrecognized function (.+)"
)
ZIP = b"PK\3\4"  # the first bytes of torch's format since 1.6
OPTIMIZER = "last_optimizer_state."


def read_checkpoint(path: str | Path, trust: bool = False, mapped: bool = False) -> dict[str, Any]:
    """Read a fairseq checkpoint, its tensors on the CPU, without the upgrades that fairseq makes to old ones.

    Args:
        path: the file.
        trust: unpickle whatever the file holds, although that can run any code; only when the user says so
            (``--trust-checkpoint``).
        mapped: map the file instead of reading it, if its format allows it. A tensor then takes memory only when it is
            used. Do not use the optimizer's state then, since it is not checked.

    Raises:
        DamagedCheckpoint: the file is empty, cut off or damaged, or a byte differs from what was written. (The format of
            torch before 1.6 has no checksums to find this by.)
        UserError: the file is missing; it is no fairseq checkpoint, since it has no "model"; a part of it has a wrong
            type (:func:`~veco_fairseq.checkpoints.skeleton.check_skeleton`); its model has a tensor with NaN or infinity;
            it needs more than :func:`allowed_types` and is not trusted; or an option holds what fairseq would run as code
            (:func:`veco_fairseq.options.literals.refuse_code`).
    """
    state = _load(Path(path), trust, mapped)
    if not _is_fairseqs(state):
        held = f"its keys: {', '.join(map(str, list(state)[:5]))}" if isinstance(state, dict) else type(state).__name__
        raise UserError(f'{path}: is not a fairseq checkpoint: it has no "model" ({held}); give one of fairseq-train')
    literals.refuse_code(path, state, own_options_in(state))
    check_skeleton(path, state)
    check_finite(path, state["model"])
    return state


def has_model(path: str | Path) -> bool:
    """Return whether a file holds a "model" as fairseq's checkpoints do, and not weights alone; errors as in :func:`read_checkpoint`."""
    return _is_fairseqs(_load(Path(path), trust=False, mapped=True))


def _is_fairseqs(state: Any) -> bool:
    return isinstance(state, dict) and isinstance(state.get("model"), dict)


def options_of(state: dict[str, Any], group: str) -> argparse.Namespace | None:
    """Return the options of a checkpoint's "model", "task" or "criterion" as attributes, however they were saved; None if none.

    An old checkpoint has all of them in one. One of ``fairseq-hydra-train`` has groups in a group (``encoder: {layers: 6}``),
    whose options get the names that they have in ``fairseq-train`` (``encoder_layers``).
    """
    options = (state.get("cfg") or {}).get(group) or state.get("args")
    return argparse.Namespace(**_flat(options)) if isinstance(options, dict) else options


def _flat(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without groups, and an ``arch`` if they are a model's."""
    flat = {"arch": options["_name"], **options} if "_name" in options else dict(options)
    for name, inner in options.items():
        if isinstance(inner, dict):
            flat.update((f"{name}_{key}", value) for key, value in inner.items())
            if name == "decoder" and "embed_dim" in inner:  # fairseq's own default
                flat.update((f"decoder_{key}", inner.get(key) or inner["embed_dim"]) for key in ("input_dim", "output_dim"))
    return flat


def read_tensors(path: str | Path) -> dict[str, torch.Tensor]:
    """Read a plain state dict of Hugging Face's, pytorch_model.bin or .safetensors; errors as in :func:`read_checkpoint`."""
    path = Path(path)
    state = _load_safetensors(path) if path.suffix == ".safetensors" else _load(path, trust=False)
    named = isinstance(state, dict) and all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in state.items()
    )
    if not named:
        raise UserError(f"{path}: holds more than tensors with names: expected the pytorch_model.bin of a Hugging Face folder")
    check_finite(path, state)  # safetensors has no checksum of its bytes
    return state


def _load_safetensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        # opened first, since safetensors calls a file that may not be read one that is not there
        with open(path, "rb"), safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError) as error:
        raise read_failure(path, error) from error


def _load(path: Path, trust: bool, mapped: bool = False) -> Any:
    try:
        if path.stat().st_size == 0:
            raise DamagedCheckpoint(f"{path}: is empty (0 bytes): its writing was cut off; use another checkpoint")
        with open(path, "rb") as file:
            records = Records(path) if file.read(4) == ZIP else None
        if records:
            records.check(records.others)  # before anything is made from them
        mapped = mapped and records is not None and records.are_plain
        with nullcontext(path) if mapped else open(path, "rb") as file, warnings.catch_warnings():
            # torch warns of other pickle protocols; a file for which this matters fails with a better message
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            # always explicit, since the default changed with torch 2.6, and an environment variable changes it, too
            state = torch.load(file, map_location="cpu", weights_only=not trust, mmap=mapped)
        if records:
            _check_tensors(path, records, state, mapped)
        return state
    except UserError:
        raise
    except Exception as error:  # a damaged file fails in any way: EOFError, KeyError, RuntimeError, OSError, ...
        if path.suffix == ".safetensors" and path.is_file():
            raise UserError(f"{path}: {OF_HUGGING_FACE}") from error
        raise read_failure(path, error) from error


def _check_tensors(path: Path, records: Records, state: Any, mapped: bool) -> None:
    """Compare the CRC-32 of all tensors; in a mapped checkpoint, without those of the optimizer.

    Raises:
        DamagedCheckpoint: bytes of a tensor are not those that were written; names the tensor.
    """
    try:
        of_state = records.of_state(state)
    except WrongSize as error:
        raise DamagedCheckpoint(f"{path}: is damaged: {error}; copy it again or use another checkpoint") from error
    used = [record for name, record in of_state.items() if not (mapped and name.startswith(OPTIMIZER))]
    try:
        records.check(used or records.tensors)
    except WrongBytes as error:
        names = [name for name, record in of_state.items() if record is error.record]
        where = f"{names[0]} ({error.record.filename})" if names else error.record.filename
        raise DamagedCheckpoint(
            f"{path}: is damaged: bytes of {where} are not those that were written (CRC-32); copy it again or use "
            "another checkpoint"
        ) from error


def require_checkpoint(path: Path | str) -> None:
    """Refuse a checkpoint that is not there.

    Raises:
        UserError: there is no such file, or it is a folder.
    """
    if not Path(path).is_file():
        missing = "is a folder: give a checkpoint in it" if Path(path).is_dir() else "no such checkpoint: check the path"
        missing = OF_HUGGING_FACE if (Path(path) / "config.json").is_file() else missing
        raise UserError(f"{path}: {missing}")


def require_other_file(output: Path | str, checkpoint: Path | str) -> None:
    """Refuse to write over the checkpoint that is read.

    Raises:
        UserError: the output is this file, under any name or link.
    """
    if Path(output).resolve() == Path(checkpoint).resolve():
        raise UserError(f"--output {output}: that is the checkpoint itself; choose another file")


def read_failure(path: Path, error: Exception) -> UserError:
    """Return an error that says why ``path`` could not be read, and what to do."""
    # A damaged file can fail with an OSError, too, without the name of a file (seen: EINVAL of a seek).
    if isinstance(error, OSError) and error.filename is not None:
        if error.errno == errno.ENOENT:
            return UserError(f"{path}: no such checkpoint: check the path")
        return UserError(f"{path}: {SYSTEM_ERRORS.get(error.errno or 0, f'cannot be read ({error.strerror})')}")
    refused = REFUSED.search(str(error)) if isinstance(error, pickle.UnpicklingError) else None
    if refused:
        return UserError(
            f"{path}: refused: it holds {next(filter(None, refused.groups()))}, and loading that could run code; if you trust "
            "whoever made it, veco average, convert, export-hf and import read it with --trust-checkpoint"
        )
    return DamagedCheckpoint(
        f"{path}: cannot be read ({os.path.getsize(path):,} bytes): it is cut off, damaged or no checkpoint "
        f"({_first_words(error)}); copy it again or use another checkpoint"
    )


def _first_words(error: Exception) -> str:
    """Return an error's type and the start of its message, without torch's advice to programmers."""
    text = re.split(r"[.\n]", str(error).strip(), maxsplit=1)[0].strip()
    return type(error).__name__ if text in ("", "Weights only load failed") else f"{type(error).__name__}: {text[:80]}"


# what no tensor's shape tells: with another value the same weights compute something else
WITHOUT_SHAPE = (
    "encoder_attention_heads", "decoder_attention_heads", "activation_fn", "tie_self_attention", "no_scale_embedding",
    "cross_self_attention", "decoder_normalize_before", "no_token_positional_embeddings", "generator_embeddings",
    "share_all_embeddings", "share_decoder_input_output_embed",
)  # fmt: skip
RENAMED: dict[object, str] = {"gelu_fast": "gelu_accurate"}


def option_differences(there: Any, here: Any, names: Sequence[str] = WITHOUT_SHAPE) -> list[tuple[str, Any, Any]]:
    """Return the options of a model that differ, as (flag, value there, value here); what one of the two does not say is equal.

    Args:
        there, here: the options of two models; None where they are not known.
        names: of the options to compare.
    """
    differences = []
    for name in names if there is not None else ():
        old, new = (getattr(options, name, None) for options in (there, here))
        known = None not in (old, new) or name == "tie_self_attention" and new is not None  # what is not tied does not say so
        if known and RENAMED.get(old, old) != RENAMED.get(new, new):
            differences.append((flag(name), old, new))
    return differences
