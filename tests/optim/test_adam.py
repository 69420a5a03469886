# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The optimizer in one pass against fairseq's own."""

import pytest
import torch
from fairseq.optim.adam import Adam

from veco_fairseq.optim import fused_adam

OPTIONS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-3, "weight_decay": 0.1}


def parameters():
    torch.manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape)) for shape in ((5, 3), (4,), (7, 2, 2))]


def give_gradients(of, update: int) -> None:
    """The last parameter is frozen for two updates."""
    torch.manual_seed(update)
    for number, parameter in enumerate(of):
        parameter.grad = None if number == 2 and update < 2 else torch.randn_like(parameter)


def test_steps_are_fairseqs_and_go_on_from_its_state():
    ours, theirs, mixed = parameters(), parameters(), parameters()
    own = {"lr": 0.03, "betas": (0.7, 0.8), "eps": 1e-2, "weight_decay": 0.0}  # of the first two
    optimizers = [Adam([{"params": of[:2], **own}, {"params": of[2:]}], **OPTIONS) for of in (ours, theirs, mixed)]
    for update in range(6):
        for of in (ours, theirs, mixed):
            give_gradients(of, update)
        fused_adam.step(optimizers[0])
        fused_adam._fairseq_step(optimizers[1])
        (fused_adam.step if update % 2 else fused_adam._fairseq_step)(optimizers[2])
    for mine, other, both in zip(ours, theirs, mixed, strict=True):
        assert torch.allclose(mine, other, rtol=1e-6) and torch.allclose(both, other, rtol=1e-6)
    states = [optimizer.state_dict()["state"] for optimizer in optimizers[:2]]
    assert [state["step"] for state in states[0].values()] == [6, 6, 4]
    for number, state in states[1].items():
        assert set(states[0][number]) == set(state)
        assert all(torch.allclose(states[0][number][key], state[key], rtol=1e-6, atol=1e-7) for key in ("exp_avg", "exp_avg_sq"))


@pytest.mark.parametrize("what", ["amsgrad", "fp16", "sparse"])
def test_others_are_left_to_fairseq(monkeypatch, what):
    """... all, if one of them is no fp32 parameter with an ordinary gradient."""
    asked, of = [], parameters()
    monkeypatch.setattr(fused_adam, "_fairseq_step", lambda optimizer, closure: asked.append(optimizer) or closure())
    if what == "fp16":
        of[1] = torch.nn.Parameter(of[1].half())
    give_gradients(of, 1)
    if what == "sparse":
        of[0].grad = of[0].grad.to_sparse()
    optimizer = Adam(of, **OPTIONS, amsgrad=what == "amsgrad")
    assert fused_adam.step(optimizer, lambda: 2.5) == 2.5
    assert asked == [optimizer]


def test_the_closure_makes_the_gradients_of_the_step():
    (parameter,) = of = parameters()[:1]
    before = parameter.detach().clone()
    parameter.grad = torch.ones_like(parameter)

    def closure():
        parameter.grad.neg_()
        return 2.5

    assert fused_adam.step(Adam(of, **OPTIONS), closure) == 2.5
    assert (parameter > before * (1 - 0.01 * 0.1)).all()  # weight decay aside, against the gradient


def test_fairseq_train_uses_it():
    assert Adam.step.__wrapped__ is fused_adam.step if hasattr(Adam.step, "__wrapped__") else Adam.step is fused_adam.step
