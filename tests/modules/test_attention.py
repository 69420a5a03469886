# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Which attention a module computes: PyTorch's fused kernel, or fairseq's own with the same numbers."""

import pytest
import torch
from fairseq.modules import MultiheadAttention
from fairseq.modules.sparse_multihead_attention import SparseMultiheadAttention

from veco_fairseq.modules import attention
from veco_fairseq.modules.attention import UNFUSED_LENGTH


@pytest.fixture
def computed():
    """Attention of a query of one length to keys of another: its kernel's name or "plain", output and gradients, also of the keys."""
    torch.manual_seed(4)
    module = MultiheadAttention(24, 3, encoder_decoder_attention=True).train()

    def compute(length, key_length, bf16=True, training=True):
        generator = torch.Generator().manual_seed(length)
        query, key = (torch.randn(n, 2, 24, generator=generator) for n in (length, key_length))
        padding = torch.arange(key_length).ge(torch.tensor([[key_length], [key_length - 2]]))
        query.requires_grad_(), key.requires_grad_()
        module.zero_grad()
        module.train(training)
        with torch.profiler.profile() as profile, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            y, _ = module(query, key, key, key_padding_mask=padding, need_weights=False)
        y.float().pow(2).sum().backward()
        fused = any("flash_attention" in event.key for event in profile.key_averages())
        return "fused" if fused else "plain", y.detach(), query.grad, key.grad, module.k_proj.weight.grad

    return compute


def test_only_a_training_in_bf16_with_short_sequences_does_without_the_kernel(computed):
    longest = UNFUSED_LENGTH
    assert computed(longest, longest)[0] == "plain"
    assert computed(longest + 1, 7)[0] == computed(7, longest + 1)[0] == "fused"
    assert computed(9, 7, bf16=False)[0] == computed(9, 7, training=False)[0] == "fused"


def test_both_give_the_same_but_for_rounding(computed, monkeypatch):
    _, *plain = computed(9, 7)
    _, *exact = computed(9, 7, bf16=False)
    monkeypatch.setattr("veco_fairseq.modules.attention.UNFUSED_LENGTH", 8)
    name, *fused = computed(9, 7)
    assert name == "fused"
    for values in (plain, fused):
        for actual, expected in zip(values, exact, strict=True):  # the output and the gradients
            assert (actual - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_padding_on_the_left_before_a_causal_mask_is_no_nan(dropout):
    """As with --left-pad-target: the first query may look at no key."""
    torch.manual_seed(4)
    module = MultiheadAttention(24, 3, dropout=dropout, self_attention=True).train()
    x = torch.randn(5, 3, 24, requires_grad=True)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, :2] = True
    mask = torch.full((5, 5), -torch.inf).triu(1)
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = module(x, x, x, key_padding_mask=padding, attn_mask=mask, need_weights=False)
    y[2:].float().sum().backward()
    assert y.isfinite().all() and x.grad.isfinite().all() and x.grad[:, 0].abs().sum() > 0
    assert not x.grad[:2, 1].any() and mask.isinf().sum() == 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_masks_are_added_in_every_precision(dtype):
    """A causal mask and padding on the left, against the formula in fp64; in training with --fp16, too."""
    torch.manual_seed(4)
    module = MultiheadAttention(24, 3, dropout=1e-9, self_attention=True).train()
    x, padding = torch.randn(5, 2, 24), torch.tensor([[True, False, False, False, False], [False] * 5])
    mask = torch.full((5, 5), -torch.inf).triu(1)
    inputs = {"key_padding_mask": padding, "attn_mask": mask.to(dtype)}
    actual, mean = module.to(dtype)(*[x.to(dtype)] * 3, **inputs, need_weights=True)  # as a decoder's last layer asks
    assert torch.equal(module(*[x.to(dtype)] * 3, **inputs, need_weights=False)[0], actual)
    module, x = module.double(), x.to(dtype).double()
    q, k, v = (f(x).view(5, 2, 3, 8).permute(1, 2, 0, 3) for f in (module.q_proj, module.k_proj, module.v_proj))
    weights = (q @ k.mT / 8**0.5 + mask).masked_fill(padding[:, None, None], -torch.inf).softmax(-1)
    expected = module.out_proj((weights @ v).permute(2, 0, 1, 3).flatten(2))
    assert actual[0, 0].isfinite().all()  # it looks at no key
    actual[0, 0] = expected[0, 0] = mean[0, 0] = weights[0, :, 0] = 0
    allowed = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    for values, right in ((actual, expected), (mean, weights.mean(1))):
        assert (values - right).norm() < allowed * right.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("own", [False, True], ids=["a memory", "the query itself"])
def test_autocast_rounds_once_and_not_before_each_projection(dtype, own):
    """... to its own precision; without it nothing is rounded."""
    query, given = torch.randn(3, 1, 4), []
    memory = query if own else torch.randn(5, 1, 4)
    for autocast, expected in ((True, dtype), (False, torch.float32)):
        with torch.autocast("cpu", dtype, enabled=autocast):
            attention.attend(lambda *sides, **_: given.append(sides), query, memory, None)
        assert [side.dtype for side in given[-1]] == [expected] * 3 and (given[-1][0] is given[-1][1]) == own


class LowRank(torch.nn.Linear):
    """A projection as LoRA has it: the matrix stays, and something is added to its products."""

    def forward(self, x):
        return super().forward(x) + x.roll(1, -1)


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj", "out_proj"])
@pytest.mark.parametrize("training", [False, True])
def test_a_projection_of_ones_own_counts(name, training):
    """In training and outside it, against a matrix that has what the projection adds."""
    torch.manual_seed(4)
    module, x = MultiheadAttention(24, 3, self_attention=True).train(training), torch.randn(5, 2, 24)
    projection = getattr(module, name)
    own = LowRank(24, 24)
    own.load_state_dict(projection.state_dict())
    with torch.no_grad():
        projection.weight += torch.eye(24).roll(-1, 1)
    expected = module(x, x, x)
    setattr(module, name, own)
    for found, right in zip(module(x, x, x), expected, strict=True):
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize("name", ["q_proj", "out_proj"])
def test_a_hook_of_a_projection_counts(name):
    """Outside training, too, against a projection that is twice as large."""
    torch.manual_seed(4)
    module, x = MultiheadAttention(24, 3, self_attention=True).eval(), torch.randn(5, 2, 24)
    projection = getattr(module, name)
    handle = projection.register_forward_hook(lambda module, given, output: 2 * output)
    found, _ = module(x, x, x)
    handle.remove()
    with torch.no_grad():
        projection.weight *= 2
        projection.bias *= 2
    torch.testing.assert_close(found, module(x, x, x)[0])


UNUSUAL = [({"add_zero_attn": True}, {}), ({"add_bias_kv": True}, {}), ({}, {"need_head_weights": True}), ({}, {"before_softmax": True}),
           ({}, {"attn_mask": torch.linspace(-1, 1, 25).view(5, 5)}),
           ({}, {"attn_mask": torch.ones(5, 5).triu(1).bool()})]  # fmt: skip


@pytest.mark.parametrize("built, asked", UNUSUAL, ids=str)
def test_what_else_fairseq_can_compute_is_as_before(built, asked):
    """With so little dropout that it is none, where the plain way would be taken."""
    torch.manual_seed(4)
    module = MultiheadAttention(24, 3, dropout=1e-9, self_attention=True, **built).train()
    module.skip_embed_dim_check = "attn_mask" not in asked and not built  # fairseq's own way, not PyTorch's, which ignores these
    x = torch.randn(5, 2, 24)
    found, expected = attention.forward(module, x, x, x, **asked), attention._fairseq_forward(module, x, x, x, **asked)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("key_batch, sparse, expected", [(2, False, True), (1, False, False), (2, True, False)])
def test_a_key_for_several_queries_and_a_sparse_mask_are_not_usual(key_batch, sparse, expected):
    module = SparseMultiheadAttention(24, 3, stride=4, expressivity=2) if sparse else MultiheadAttention(24, 3)
    assert attention.is_usual(module, torch.zeros(5, 2, 24), torch.zeros(5, key_batch, 24)) == expected
    module.use_xformers = True
    assert not attention.is_usual(module, torch.zeros(5, 2, 24), torch.zeros(5, 2, 24))
