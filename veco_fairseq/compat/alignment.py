# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Lets ``--print-alignment`` align the words of sentences that have fewer translations than the beam."""

from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment


@torch.no_grad()
def generate(generator: SequenceGeneratorWithAlignment, models, sample: dict[str, Any], **kwargs) -> list[list[dict[str, Any]]]:
    """Translate a batch, and put the "alignment" of each translation beside it.

    fairseq counts on as many translations of each sentence as the beam has. There are fewer with constraints, and where an
    empty translation is a sentence's prefix.
    """
    found = SequenceGenerator._generate(generator, sample, **kwargs)
    translations = [translation for of_sentence in found for translation in of_sentence]
    if not translations:
        return found
    counts = torch.tensor(list(map(len, found)), device=sample["net_input"]["src_tokens"].device)
    sources, lengths = (sample["net_input"][name].repeat_interleave(counts, dim=0) for name in ("src_tokens", "src_lengths"))
    tokens = [translation["tokens"] for translation in translations]
    shifted, targets = (
        data_utils.collate_tokens(
            tokens, generator.pad, generator.eos, generator.left_pad_target, move_eos_to_beginning=to_the_beginning
        )
        for to_the_beginning in (True, False)
    )
    if any(getattr(model, "full_context_alignment", False) for model in generator.model.models):
        attention = generator.model.forward_align(sources, lengths, shifted)
    else:
        attention = [translation["attention"].transpose(1, 0) for translation in translations]
    for translation, weights, source, target in zip(translations, attention, sources.cpu(), targets.cpu(), strict=True):
        translation["alignment"] = generator.extract_alignment(weights.cpu(), source, target, generator.pad, generator.eos)
    return found
