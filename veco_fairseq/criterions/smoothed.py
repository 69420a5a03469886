# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The loss of ``label_smoothed_cross_entropy`` without the logits of all tokens, for translation models on a CPU."""

import torch
from fairseq import distributed
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import BaseFairseqModel, FairseqDecoder, FairseqModel
from fairseq.models.roberta.model import RobertaLMHead
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase

from veco_fairseq.modules.masked_loss import smoothed_loss

_fairseq_forward = LabelSmoothedCrossEntropyCriterion.forward
_fairseq_compute_loss = LabelSmoothedCrossEntropyCriterion.compute_loss
# What lies between the last states and the loss, of the model and of its decoder: one with its own is left to fairseq.
OF_MODEL = {
    "forward": TransformerModelBase.forward,
    "get_normalized_probs": TransformerModelBase.get_normalized_probs,
    "get_normalized_probs_scriptable": BaseFairseqModel.get_normalized_probs_scriptable,
}
OF_DECODER = {
    "forward": TransformerDecoderBase.forward,
    "output_layer": TransformerDecoderBase.output_layer,
    "get_normalized_probs": FairseqDecoder.get_normalized_probs,
    "get_normalized_probs_scriptable": FairseqDecoder.get_normalized_probs_scriptable,
}


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
        and all(getattr(type(model), name) is method for name, method in OF_MODEL.items())
        and all(getattr(type(model.decoder), name) is method for name, method in OF_DECODER.items())
        and model.decoder.adaptive_softmax is None
        and is_known(model.decoder.output_projection)
    )


def is_known(output: torch.nn.Module) -> bool:
    """Return whether the logits are made as :func:`compute_loss` makes them: by a matrix alone, or by RoBERTa's LM head."""
    known = type(output) is RobertaLMHead or type(output) is torch.nn.Linear and output.bias is None
    return known and not (output._forward_hooks or output._forward_pre_hooks)


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
