# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tables of text, as the commands print them."""

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """Return a line for each row, with two spaces between its columns.

    Args:
        rows: of equal length.
        left: the columns whose texts begin together; those of all other columns end together.
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width) for place, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
