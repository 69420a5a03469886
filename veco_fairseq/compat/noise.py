# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Silences warnings that every fairseq command prints, and that no user can do anything about.

All of them come after ``--user-dir`` was imported. Each pattern matches one message, so warnings of the user's own code
stay.
"""

import logging
import warnings

NOISE = (
    # message (from its start), category, module that it names
    (r"hydra\.experimental\.(initialize|compose)\(\) is no longer experimental", UserWarning, ""),
    (r"\s*The version_base parameter is not specified", UserWarning, ""),
    (r"In 'config': Usage of deprecated keyword in package header '# @package _group_'", UserWarning, ""),
    (r"\s*'config' is validated against ConfigStore schema with the same name", UserWarning, ""),
    (r"\s*The strict flag in the compose API is deprecated", UserWarning, ""),
    # fairseq asks for pinned memory whether there is a GPU or not
    (r"'pin_memory' argument is set as true but no accelerator is found", UserWarning, r"torch\.utils\.data"),
    # fairseq 0.12 has torch's old names of automatic mixed precision
    (r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated", FutureWarning, r"fairseq\."),
    # --amp on a CPU, where there is nothing to scale
    (r"torch\.cuda\.amp\.GradScaler is enabled, but CUDA is not available", UserWarning, ""),
    (r"CUDA is not available or torch_xla is imported\. Disabling autocast", UserWarning, r"torch\.cuda\.amp"),
    # ... in the words of torch 2.6
    (r"User provided device_type of 'cuda', but CUDA is not available\. Disabling", UserWarning, r"torch\.amp"),
    # fairseq scripts some functions, which torch 2.14 no longer recommends
    (r"`torch\.jit\.script` is deprecated", FutureWarning, r"torch\.jit"),
    # fairseq hands a float attn_mask and a boolean key_padding_mask to torch
    (r"Support for mismatched key_padding_mask and attn_mask is deprecated", UserWarning, r"torch\.nn\.functional"),
)


def quiet_known_warnings() -> None:
    """Drop the warnings of :data:`NOISE`, and what hydra logs for its own debugging."""
    for message, category, module in NOISE:
        warnings.filterwarnings("ignore", message=message, category=category, module=module)
    # generate and interactive log at DEBUG, because a module of fairseq calls logging.basicConfig(level=DEBUG)
    logging.getLogger("hydra.core.utils").setLevel(logging.INFO)
