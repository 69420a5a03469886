# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A new objective is one file: MLM with whole words hidden, which is written, registered and trained here.

The package is not touched. docs/architecture.md shows the same file.
"""

import re

import pytest
from conftest import REPOSITORY

FILE = REPOSITORY / "tests" / "objectives" / "whole_words" / "__init__.py"
MOST = 80  # lines


def test_the_file_is_short():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= MOST


@pytest.mark.parametrize("objective", ["whole_words", "camlm"])
def test_it_trains_with_fairseq_train(objective, make_root, run, tmp_path):
    """Its own mask, its own two terms, and its own architecture; CA-MLM is refused with that one."""
    root = make_root()
    result = run(
        "fairseq-train", root, "--user-dir", FILE.parent, "--task", "camlm", "--criterion", objective, "--arch", "whole_words_tiny",
        "--optimizer", "adam", "--lr", "1e-3", "--max-tokens", "128", "--mono-max-length", "32", "--bitext-max-length", "16", "--max-update", "2",
        "--log-interval", "1", "--cpu", "--save-dir", tmp_path / "out",
    )  # fmt: skip
    if objective == "camlm":
        assert result.returncode == 1 and "--arch whole_words_tiny takes --criterion whole_words" in result.stderr
        return
    assert result.returncode == 0, result.stderr
    for term in ("mono_words", "bitext_words"):
        assert re.search(rf"\| {term}_loss \d", result.stdout + result.stderr), term
    assert (tmp_path / "out/checkpoint_last.pt").is_file()
