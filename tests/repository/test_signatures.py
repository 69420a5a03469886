# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Whoever calls a function with many parameters names them: two swapped ones would be noticed by nobody."""

import ast

import pytest
from conftest import REPOSITORY

MOST = 4
# fairseq or PyTorch calls these, by position.
THEIRS = {"forward", "train_step", "get_batch_iterator", "build_generator", "iterator_for_epoch", "compute_loss", "step"}
FILES = sorted(path for folder in ("veco_fairseq", "scripts", "data-bin-recipes") for path in (REPOSITORY / folder).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_many_parameters_are_taken_by_name(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name not in THEIRS:
            names = [argument.arg for argument in node.args.posonlyargs + node.args.args]
            given = [name for name in names if name not in ("self", "cls", "ctx")]
            assert len(given) <= MOST, f"{path.name}, line {node.lineno}: {node.name}({', '.join(given)}): put * before the rest"
