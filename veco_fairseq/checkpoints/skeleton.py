# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Checks the parts of a checkpoint when it is read, since a file that torch can read may hold anything anywhere."""

import logging
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from fairseq.optim.adam import Adam

from veco_fairseq.checkpoints.integrity import check_kinds
from veco_fairseq.checkpoints.own_options import own_options_in
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_
from veco_fairseq.options.borders import check_options

logger = logging.getLogger(__name__)

GROUP = (Mapping, Namespace, type(None))
NUMBER = (int, float, torch.Tensor)  # a sum over several workers is a tensor
# The types of a checkpoint's parts, if they are there. fairseq-train writes all of them; other programs write fewer.
PARTS: dict[str, dict[str, tuple[type, ...]]] = {
    "": {
        "args": GROUP, "cfg": GROUP, "model": (dict,), "criterion": (dict, type(None)), "optimizer_history": (list,),
        "task_state": (dict, type(None)), "extra_state": (dict, type(None)), "last_optimizer_state": GROUP,
    },
    "cfg": dict.fromkeys(
        ("common", "common_eval", "distributed_training", "dataset", "optimization", "checkpoint", "generation", "model",
         "task", "criterion", "optimizer", "lr_scheduler", "bpe", "tokenizer", "ema"), GROUP
    ),
    "task_state": {"symbols": (list,), "source_symbols": (list,), "labels": (list,), "languages": (list,),
                   "lang_pairs": (list,), "word_pooling": (str,), "neighbours": (dict,)},
    "extra_state": {"train_iterator": (dict,), "metrics": (list, dict), "previous_training_time": NUMBER, "ema": (dict,),
                    "val_loss": (*NUMBER, type(None)), "best": (*NUMBER, type(None))},
    "extra_state, train_iterator": {"epoch": (int,), "iterations_in_epoch": (int,), "shuffle": (bool,), "version": (int,),
                                    "made_from": (dict,), "passes": (dict,), "roots": (str,)},
    "last_optimizer_state": {"state": (dict,), "param_groups": (list,), "loss_scale": NUMBER},
}  # fmt: skip
OF_AN_UPDATE = {"criterion_name": (str,), "optimizer_name": (str,), "lr_scheduler_state": (dict,), "num_updates": (int,)}
STRINGS = ("symbols", "source_symbols", "labels", "lang_pairs")
# The shapes of what Adafactor keeps of a matrix: a mean of each row, and of each column.
ADAFACTOR = {"exp_avg_sq_row": lambda shape: shape[:-1], "exp_avg_sq_col": lambda shape: shape[:-2] + shape[-1:]}
# The packages whose optimizers keep moments of the parameters' shapes, or Adafactor's.
KNOWN = ("torch", "fairseq", "veco_fairseq")
ADVICE = "give one as fairseq-train writes it"


def check_skeleton(path: Path_, state: Mapping[str, Any]) -> None:
    """Refuse a checkpoint with a part of a wrong type; parts may be missing.

    Args:
        path: its file.
        state: its content.

    Raises:
        UserError: names the part, and what it is.
    """
    for where, parts in PARTS.items():
        part: Any = state
        for key in where.split(", ") if where else ():
            part = _of(part, key)
        for name, kinds in parts.items():
            _check_kind(path, part, name, kinds=kinds, where=where)
    for number, update in enumerate(state.get("optimizer_history", ())):
        where = f"optimizer_history, {number}"
        if not isinstance(update, dict):
            raise _problem(path, where, "a dict", update)
        for name, kinds in OF_AN_UPDATE.items():
            _check_kind(path, update, name, kinds=kinds, where=where)
        if not 0 <= update.get("num_updates", 0) < 2**31:
            raise _problem(path, f"{where}, num_updates", "a number of updates", update["num_updates"])
    _check_tensors(path, state["model"])
    _check_task_state(path, state.get("task_state") or {})
    _check_iterator(path, _of(_of(state, "extra_state"), "train_iterator") or {})
    _check_optimizer(path, state.get("last_optimizer_state"))
    config = _of(state, "cfg")
    own = own_options_in(state)
    for group in (_of(config, "model"), _of(config, "task"), _of(config, "criterion"), _of(state, "args")):
        if group is not None:
            options = vars(group) if isinstance(group, Namespace) else group
            odd = [name for name in options if not isinstance(name, str)]
            if odd:
                raise _problem(path, "the name of an option", "a string", odd[0])
            check_options({name: value for name, value in options.items() if name not in own}, f"{path}: its options: ")
    groups = {f"cfg, {name}": _of(config, name) for name in PARTS["cfg"]} | {"args": _of(state, "args")}
    for where, group in groups.items():
        for what in ("_name", "arch", "task", "criterion"):
            value = _of(group, what)
            if not isinstance(value, (str, type(None))):
                raise _problem(path, f"{where}, {what}", "a name", value)


def _of(part: Any, key: str) -> Any:
    return part.get(key) if isinstance(part, Mapping) else getattr(part, key, None)


def _check_kind(path: Path_, part: Any, name: str, *, kinds: tuple[type, ...], where: str) -> None:
    """Refuse a part of another type, if the part is there; a bool does not count as a number."""
    is_there = name in part if isinstance(part, Mapping) else hasattr(part, name)
    value = _of(part, name)
    if is_there and (not isinstance(value, kinds) or isinstance(value, bool) and bool not in kinds):
        raise _problem(path, f"{where}, {name}" if where else name, _names(kinds), value)


def _names(kinds: tuple[type, ...]) -> str:
    names = {Mapping: "a dict", dict: "a dict", Namespace: "a Namespace", list: "a list", str: "a string", int: "a whole number",
             float: "a number", torch.Tensor: "a tensor", bool: "true or false", type(None): "nothing"}  # fmt: skip
    return " or ".join(names[kind] for kind in kinds)


def _problem(path: Path_, where: str, wanted: str, found: Any) -> UserError:
    words = repr(found) if isinstance(found, (int, float, str)) else f"a {type(found).__name__}"
    return UserError(f"{path}: its {where} is {words[:60]}, and must be {wanted}: {ADVICE}")


def _check_tensors(path: Path_, tensors: Mapping[Any, Any]) -> None:
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise _problem(path, "model, the name of a tensor", "a string", name)
        if not isinstance(tensor, torch.Tensor):
            raise _problem(path, f"model, {name}", "a tensor", tensor)
    check_kinds(path, tensors, ADVICE)


def _check_task_state(path: Path_, task_state: Mapping[str, Any]) -> None:
    for name in STRINGS:
        for number, item in enumerate(task_state.get(name, ())):
            if not isinstance(item, str):
                raise _problem(path, f"task_state, {name}, {number}", "a string", item)
    languages = task_state.get("languages", [])
    if len(languages) not in (0, 2) or not all(isinstance(one, (str, type(None))) for one in languages):
        raise _problem(path, "task_state, languages", "two strings", languages)


def _check_iterator(path: Path_, iterator: Mapping[str, Any]) -> None:
    for name, least in (("epoch", 1), ("iterations_in_epoch", 0)):
        if not least <= iterator.get(name, least) < 2**31:
            what = f"a whole number of at least {least}"
            raise _problem(path, f"extra_state, train_iterator, {name}", what, iterator[name])
    for epoch, passes in iterator.get("passes", {}).items():
        ratios = list(passes.values()) if isinstance(epoch, int) and isinstance(passes, dict) else [None]
        if not all(isinstance(ratio, list) and len(ratio) == 2 and all(map(_is_counted, ratio)) for ratio in ratios):
            raise _problem(path, f"extra_state, train_iterator, passes, {epoch}", "two whole numbers for each kind", passes)


def _is_counted(number: Any) -> bool:
    return isinstance(number, int) and number > 0


def _check_optimizer(path: Path_, optimizer: Any) -> None:
    for number, group in enumerate(_of(optimizer, "param_groups") or ()):
        where = f"last_optimizer_state, param_groups, {number}"
        if not isinstance(group, dict) or not isinstance(group.get("params"), list):
            raise _problem(path, where, "a dict with params, a list", group)
        for name, value in group.items():
            if isinstance(value, (int, float)) and not abs(value) <= sys.float_info.max:  # a whole number may be larger
                raise _problem(path, f"{where}, {name}", "a finite number", value)
    for key, of_one in (_of(optimizer, "state") or {}).items():
        if not isinstance(of_one, dict):
            raise _problem(path, f"last_optimizer_state, state, {key}", "a dict", of_one)


def check_moments(path: Path_, optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer's state whose tensors do not have the parameters' shapes; PyTorch does not check this.

    An optimizer of somebody else's may keep tensors of other shapes, as those of low rank do, and other steps: it is not checked.

    Args:
        path: the checkpoint that the state was loaded from.
        optimizer: PyTorch's, or a subclass of it.

    Raises:
        UserError: names the tensors and shapes.
    """
    if type(optimizer).__module__.partition(".")[0] not in KNOWN:
        return
    for parameter, state in getattr(optimizer, "state", {}).items():
        lacking = {"step", "exp_avg", "exp_avg_sq"} - state.keys() if state and isinstance(optimizer, Adam) else ()
        if lacking:
            raise UserError(f"{path}: its last_optimizer_state has no {min(lacking)} for a parameter: {ADVICE}")
        for name, value in state.items():
            shape = ADAFACTOR[name](parameter.shape) if name in ADAFACTOR else parameter.shape
            if name.startswith("exp_avg") and (not torch.is_tensor(value) or value.shape != shape):
                found = list(value.shape) if torch.is_tensor(value) else type(value).__name__
                raise UserError(
                    f"{path}: its last_optimizer_state has {name} of {found} for a parameter of {list(parameter.shape)}: "
                    "it belongs to another model; --reset-optimizer goes on without it"
                )
        step = state.get("step", 0)
        if not torch.is_tensor(step) and (isinstance(step, bool) or not isinstance(step, int) or step < 0):
            raise _problem(path, "last_optimizer_state, step", "a whole number of at least 0", step)


@contextmanager
def making_sense_of(paths: Path_, advice: str = ADVICE, but: type[Exception] = UserError) -> Iterator[None]:
    """Turn any error in the block into a UserError about a file whose content is inconsistent.

    The block must do nothing but use that content. With LOGLEVEL=DEBUG the traceback is logged.

    Args:
        paths: the file's name.
        advice: what to do about it.
        but: errors that are passed on as they are.
    """
    try:
        yield
    except (but, UserError, OSError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        logger.debug("the error of a checkpoint:", exc_info=True)
        words = str(error).strip().partition("\n")[0][:120]
        raise UserError(f"{paths}: cannot be used ({type(error).__name__}: {words}): {advice}") from error
