# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""fairseq-train on a device that there is not: tensors that claim to be on it and are computed on the CPU.

An operation that mixes them with the CPU's is an error, as on a GPU. Products in fp16 are added up in fp32 and rounded,
as a GPU's are, and there is one fp32 copy of all parameters (``--fp16``). At the end it prints how often the program
waited for the device: where Python needs a number, or how many elements a mask chooses, and where something is copied to or
from memory that is not pinned. The loader pins its batches.
"""

# ruff: noqa: I001
import json
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils.data
from fairseq_cli import train  # before all of fairseq: it sets up the log
from fairseq import utils
from forks import LOG
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

aten = torch.ops.aten
COPIES = (aten._to_copy.default, aten.copy_.default)
WAITS = (aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default, aten.masked_select.default)
PRODUCTS = (aten.mm.default, aten.mm.out, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)
ELSEWHERE = "elsewhere"
waits = {"number": 0}
batches = {"arrive": False}  # while a batch is copied to the device


class Elsewhere(torch.Tensor):
    """Claims to be on the device; ``on_cpu`` is what it holds."""

    @staticmethod
    def __new__(cls, on_cpu: torch.Tensor):
        like = {"strides": on_cpu.stride(), "storage_offset": on_cpu.storage_offset(), "dtype": on_cpu.dtype}
        tensor = torch.Tensor._make_wrapper_subclass(cls, on_cpu.size(), device=torch.device(ELSEWHERE, 0), **like)
        tensor.on_cpu = on_cpu
        return tensor

    def __tensor_flatten__(self):
        return ["on_cpu"], None

    @staticmethod
    def __tensor_unflatten__(parts, meta, size, stride):
        return Elsewhere(parts["on_cpu"])

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        return dispatch(function, arguments, options or {})

    def new_tensor(self, data, **options):
        return Elsewhere(self.on_cpu.new_tensor(data, **options))

    def tolist(self):
        waits["number"] += 1
        return self.on_cpu.tolist()


def dispatch(function: Callable, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    """Compute on the CPU; the result is on the device if the inputs are, or if it is asked for there."""
    tensors = [leaf for leaf in tree_leaves((arguments, options)) if isinstance(leaf, torch.Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, Elsewhere)]
    here = [tensor for tensor in tensors if not isinstance(tensor, Elsewhere) and tensor.dim() > 0]
    assert function in COPIES or not (there and here), f"{function}: mixes devices: {[t.shape for t in tensors]}"
    by_mask = function is aten.index.Tensor and any(i is not None and i.dtype == torch.bool for i in arguments[1])
    waits["number"] += bool(there) and (function in WAITS or by_mask)

    asked = options.get("device")
    on_device = bool(there) if asked is None else torch.device(asked).type == ELSEWHERE
    if function is aten.copy_.default:
        on_device = isinstance(arguments[0], Elsewhere)
    # A tensor without dimensions is handed over as a number.
    crosses = (here and on_device and not batches["arrive"]) or (there and not on_device)
    waits["number"] += bool(function in COPIES and crosses)
    on_cpu, named = tree_map(lambda leaf: leaf.on_cpu if isinstance(leaf, Elsewhere) else leaf, (arguments, options))
    if asked is not None:
        named["device"] = torch.device("cpu")
    if function in PRODUCTS and on_cpu[-1].dtype == torch.float16:
        result = in_fp32(function, on_cpu, named)
    else:
        result = function(*on_cpu, **named)
    if function is aten.copy_.default:
        return arguments[0]
    if not on_device:
        return result
    result = tree_map(lambda leaf: Elsewhere(leaf) if isinstance(leaf, torch.Tensor) else leaf, result)
    return return_and_correct_aliasing(function, arguments, options, result) if there else result


def in_fp32(function: Callable, arguments: Sequence[Any], options: dict[str, Any]) -> torch.Tensor:
    """A product of fp16 tensors, computed in fp32 and rounded."""
    out = options.pop("out", None)
    wide = [leaf.float() if isinstance(leaf, torch.Tensor) else leaf for leaf in arguments]
    if out is None:
        return function(*wide, **options).half()
    return out.copy_(wide[0] @ wide[1])


class Mode(TorchDispatchMode):
    """For what is made on the device from no tensor."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # nothing here compiles, and PyTorch's compiler takes seconds to import

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        return dispatch(function, arguments, options or {})


class Backend(_DummyBackendModule):
    def get_amp_supported_dtype(self):
        return [torch.bfloat16]


class TorchOfTrainer:
    """PyTorch, but that fairseq's trainer finds no other device."""

    def __getattr__(self, name: str):
        return getattr(torch, name)

    def device(self, *names):
        return torch.device(ELSEWHERE, 0)


def uncounted(function: Callable) -> Callable:
    """What moves the parameters to the device, or saves them, has to wait."""

    def call(*arguments, **options):
        before = waits["number"]
        result = function(*arguments, **options)
        waits["number"] = before
        return result

    return call


def main() -> None:
    logging.basicConfig(level=logging.INFO, force=True, **LOG)
    _setup_privateuseone_for_python_backend(ELSEWHERE, backend_module=Backend())
    fairseq_trainer = sys.modules[train.Trainer.__module__]
    fairseq_trainer.torch = TorchOfTrainer()
    prepare_sample = fairseq_trainer.Trainer._prepare_sample

    def prepare_there(trainer, sample, is_dummy=False):
        sample, is_dummy = prepare_sample(trainer, sample, is_dummy)
        batches["arrive"] = True
        try:
            return utils.move_to_cuda(sample, device=trainer.device), is_dummy
        finally:
            batches["arrive"] = False

    fairseq_trainer.Trainer._prepare_sample = prepare_there
    for owner, name in ((fairseq_trainer.Trainer, "__init__"), (train.checkpoint_utils, "save_checkpoint")):
        setattr(owner, name, uncounted(getattr(owner, name)))
    loader_init = torch.utils.data.DataLoader.__init__
    torch.utils.data.DataLoader.__init__ = lambda *args, **options: loader_init(*args, **{**options, "pin_memory": False})
    torch.cuda.current_device = lambda: 0  # which fairseq's fp32 copy is asked for
    with Mode():
        train.cli_main()
    print(json.dumps(waits))


if __name__ == "__main__":
    main()
