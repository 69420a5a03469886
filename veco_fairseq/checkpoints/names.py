# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The names of a pre-trained model's tensors, in one place."""

import re

LAYER = r"^encoder\.sentence_encoder\.layers\.(\d+)\."
CROSS_ATTENTION = re.compile(LAYER + r"(?=(?:encoder_attn|encoder_attn_layer_norm)\.)")
EMBEDDINGS = "encoder.sentence_encoder.embed_tokens.weight"
PROJECTION = "encoder.sentence_encoder.embed_tokens.project.weight"
LM_HEAD = "encoder.lm_head."
TIED_HEAD = "encoder.lm_head.weight"  # the embeddings again
PRETRAINING_ALONE = re.compile(r"^(?:generator|detection_head)\.")  # of XLM-E, beside the discriminator
