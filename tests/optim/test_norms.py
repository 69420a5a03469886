# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The norm that clips gradients: against PyTorch's, through fairseq's own function."""

import pytest
import torch
from fairseq import utils

import veco_fairseq.plugin  # noqa: F401  it changes fairseq's function


@pytest.mark.parametrize("shapes", [[(3, 4), (5,), (2, 2, 2)], [(7,)]], ids=["several", "one"])
def test_clips_as_pytorch_does(shapes):
    torch.manual_seed(1)
    parameters = [torch.randn(shape, requires_grad=True) for shape in shapes]
    copies = []
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter) * 3
        copies.append(parameter.detach().clone().requires_grad_())
        copies[-1].grad = parameter.grad.clone()
    norm, expected = utils.clip_grad_norm_(parameters, 1.5), torch.nn.utils.clip_grad_norm_(copies, 1.5)
    torch.testing.assert_close(norm, expected)
    for parameter, copy in zip(parameters, copies):
        torch.testing.assert_close(parameter.grad, copy.grad)
    assert norm > 1.5 and norm.dtype == torch.float32


def test_sums_in_fp32():
    """The squares of these gradients are too large for fp16."""
    parameters = [torch.zeros(4, dtype=torch.float16, requires_grad=True) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.full((4,), 1000.0, dtype=torch.float16)
    assert utils.clip_grad_norm_(parameters, 0).item() == pytest.approx(1000 * 8**0.5)


def test_infinity_is_seen():
    parameters = [torch.zeros(4, requires_grad=True) for _ in range(2)]
    for parameter, value in zip(parameters, (1.0, float("inf"))):
        parameter.grad = torch.full((4,), value)
    assert utils.clip_grad_norm_(parameters, 0).isinf()
