# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The names of options on the command line."""


def flag(name: str) -> str:
    """Return what an option, such as ``max_tokens``, is called on the command line: ``--max-tokens``."""
    return "--embed-dim" if name == "table_dim" else f"--{name.replace('_', '-')}"
