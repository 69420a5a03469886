# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Changes that cosmic-ray makes, drawn by a seed: of an area's files a place in the code, and of the place a change."""

import ast
import random
from collections.abc import Iterator
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from mutations import AREAS, REPOSITORY, Change

# `is` for `==` and the like seldom differ, or are no code that anybody writes; **, << and | of numbers neither.
UNLIKELY = ("_Is", "_IsNot", "_Pow", "_RShift", "_LShift", "_BitOr", "_BitAnd", "_BitXor", "_Invert", "_Not", "_UAdd",
            "VariableReplacer", "VariableInserter", "RemoveDecorator", "ExceptionReplacer")  # fmt: skip
BENCHMARKS = ("benchmarks", "kills")  # of speeds and kills themselves


def operators() -> list[str]:
    return sorted(name for name in operator_names() if not name.endswith(UNLIKELY))


def of_no_interest(code: str) -> set[tuple[int, int]]:
    """(line, column) of all in annotations, docstrings and __all__, whose change is none."""
    places: set[tuple[int, int]] = set()

    def leave_out(node: ast.AST) -> None:
        for part in ast.walk(node):
            if hasattr(part, "lineno"):
                places.update((line, -1) for line in range(part.lineno + 1, part.end_lineno))
                if part.lineno == part.end_lineno:
                    places.update((part.lineno, column) for column in range(part.col_offset, part.end_col_offset))

    for node in ast.walk(ast.parse(code)):
        for name in ("annotation", "returns"):
            if isinstance(getattr(node, name, None), ast.AST):
                leave_out(getattr(node, name))
    return places


def places(file: Path) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """(line, column) -> the operators that change something there, each with the number of its occurrence."""
    code = file.read_text(encoding="utf-8")
    left_out, tree = of_no_interest(code), get_ast(code)
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in operators():
        operator, occurrence = get_operator(name)(), 0
        for node in ast_nodes(tree):
            for start, _ in operator.mutation_positions(node):
                if start not in left_out and (start[0], -1) not in left_out:
                    found.setdefault(start, []).append((name, occurrence))
                occurrence += 1
    return found


def draw(area: str, count: int, seed: int) -> Iterator[Change]:
    """``count`` changes of an area, at different places."""
    rng = random.Random(f"{area} {seed}")
    files = sorted({file for pattern in AREAS[area] for file in REPOSITORY.glob(pattern) if file.suffix == ".py"})
    everywhere = [(file, place, changes) for file in files for place, changes in sorted(places(file).items())]
    rng.shuffle(everywhere)
    for file, (line, _), changes in everywhere:
        if count == 0:
            return
        name, occurrence = rng.choice(changes)
        code = file.read_text(encoding="utf-8")
        changed = mutate_code(code, get_operator(name)(), occurrence)
        try:
            if changed is None or ast.dump(ast.parse(changed)) == ast.dump(ast.parse(code)):
                continue
        except SyntaxError:
            continue
        count -= 1
        yield Change(area, str(file.relative_to(REPOSITORY)), changed, (line,), name.removeprefix("core/"), "tool")
