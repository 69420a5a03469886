# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""docs/api.md names functions that there are, and calls them with arguments that they take."""

import ast
import inspect
import re
from importlib import import_module

from conftest import REPOSITORY


def test_api():
    text = (REPOSITORY / "docs/api.md").read_text(encoding="utf-8")
    code = "\n".join(line[4:] for line in text.splitlines() if re.match(r" {4}\S| {5,}", line))
    functions, called = {}, set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = import_module(node.module)
            functions.update({alias.name: getattr(module, alias.name) for alias in node.names})
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            keywords = {keyword.arg: None for keyword in node.keywords}
            inspect.signature(functions[node.func.id]).bind(*node.args, **keywords)
            called.add(node.func.id)
    assert {"convert_to_seq2seq", "Translator", "score", "trim", "export_ct2"} <= called
