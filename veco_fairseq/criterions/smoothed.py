# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The loss of ``label_smoothed_cross_entropy`` without the logits of all tokens, for translation models on a CPU."""

from inspect import signature

import torch
from fairseq import distributed
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import FairseqModel
from fairseq.models.roberta.model import RobertaLMHead
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase

from veco_fairseq.modules.masked_loss import smoothed_loss

_fairseq_forward = LabelSmoothedCrossEntropyCriterion.forward
_fairseq_compute_loss = LabelSmoothedCrossEntropyCriterion.compute_loss


def forward(criterion: LabelSmoothedCrossEntropyCriterion, model: FairseqModel, sample: dict, reduce: bool = True):
    """Compute fairseq's loss; a Transformer on a CPU is asked for its last states, and :func:`compute_loss` does the rest."""
    if reduce and serves(criterion, unwrapped(model)) and sample["target"].device.type == "cpu":
        sample = {**sample, "net_input": {**sample["net_input"], "features_only": True}}
    return _fairseq_forward(criterion, model, sample, reduce)


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model itself, which several workers wrap."""
    while isinstance(model, (distributed.ModuleProxyWrapper, distributed.LegacyDistributedDataParallel)):
        model = model.module
    return model


def serves(criterion: LabelSmoothedCrossEntropyCriterion, model: FairseqModel) -> bool:
    """Return whether these are fairseq's own, with one softmax over all tokens and nothing but the loss to report."""
    return (
        type(criterion) is LabelSmoothedCrossEntropyCriterion
        and not (criterion.report_accuracy or criterion.ignore_prefix_size)
        and isinstance(model, TransformerModelBase)
        and "features_only" in signature(type(model).forward).parameters  # not of transformer_align
        and type(model.decoder).output_layer is TransformerDecoderBase.output_layer
        and model.decoder.adaptive_softmax is None
    )


def compute_loss(criterion, model: TransformerModelBase, net_output, sample: dict, reduce: bool = True):
    """Return the sums of the label-smoothed loss and of the NLL, in nats.

    fairseq shares ``--label-smoothing`` between the wrong tokens, and PyTorch between all: this share is larger by
    vocabulary / (vocabulary - 1).

    Args:
        net_output: the decoder's last states, (batch, length, dim), if ``forward`` asked for them.
    """
    if not sample["net_input"].get("features_only"):
        return _fairseq_compute_loss(criterion, model, net_output, sample, reduce)
    target = model.get_targets(sample, net_output)
    real = target.ne(criterion.padding_idx)
    rows, output = net_output[0][real], model.decoder.output_projection
    if isinstance(output, RobertaLMHead):
        rows, bias = output.layer_norm(output.activation_fn(output.dense(rows))), output.bias
    else:
        bias = rows.new_zeros(len(output.weight), dtype=torch.float32)
    tokens = len(output.weight)
    loss, nll = smoothed_loss(rows, output.weight, bias, target[real], smoothing=criterion.eps * tokens / (tokens - 1))
    return loss.sum(), nll.sum()
