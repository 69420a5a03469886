# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What Moses knows of a language: sacremoses takes any code, and does not say so where Moses' own script warns."""

from sacremoses import MosesTokenizer


def has_abbreviations(code: str) -> bool:
    """Return whether Moses has abbreviations of a language, such as ``z. B.``; where it has none, it takes those of English."""
    return code == "en" or MosesTokenizer(code).NONBREAKING_PREFIXES != MosesTokenizer("en").NONBREAKING_PREFIXES
