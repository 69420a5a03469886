# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A training does not import PyTorch's compiler, which takes longer than all else between the imports and the first update."""

import sys

import pytest
import torch
from conftest import REPOSITORY
from support.starting import all_tests
from support.training import OPTIONS

import veco_fairseq.plugin  # noqa: F401  it changes PyTorch's methods


@pytest.mark.parametrize("method", ["add_param_group", "load_state_dict", "state_dict", "zero_grad"])
def test_a_method_imports_no_compiler(monkeypatch, method):
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.25)
    weight.grad = torch.tensor([3.0, 5.0])
    state = optimizer.state_dict()
    as_it_is = vars(torch.optim.Optimizer)[method]
    monkeypatch.delattr(getattr(as_it_is, "__wrapped__", as_it_is), "__dynamo_disable", raising=False)  # of a call before
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # to import it would fail
    arguments = {"add_param_group": [{"params": [torch.ones(1, requires_grad=True)], "lr": 0.5}], "load_state_dict": [state]}
    result = getattr(optimizer, method)(*arguments.get(method, []))
    assert [group["lr"] for group in optimizer.param_groups] == ([0.25, 0.5] if method == "add_param_group" else [0.25])
    assert (weight.grad is None) == (method == "zero_grad") and (result == state) == (method == "state_dict")


TELL = """
import sys
import fairseq_cli.train

before = "torch._dynamo" in sys.modules
fairseq_cli.train.cli_main()
print("LOADED", before, "torch._dynamo" in sys.modules)
"""


def test_a_training_imports_no_compiler(make_root, tmp_path):
    """From its dropout, in operators of its own, or from anything else of two updates, a validation and a checkpoint."""
    (tmp_path / "tell.py").write_text(TELL)
    options = [*OPTIONS, "--attention-dropout", "0.2", "--save-dir", tmp_path / "checkpoints", "--max-update", "2"]
    result = all_tests()[0].bash("-c", '"$0" "$@"', "python", tmp_path / "tell.py", make_root(), *options, cwd=REPOSITORY,
                                 capture_output=True)  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.splitlines()[-1] == "LOADED False False"
