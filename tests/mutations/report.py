# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The table by area."""

from collections import Counter, defaultdict

from mutations import AREAS


def table(results: list[dict], known: dict[str, str]) -> str:
    """A row for each area: its changes, and of those that make a difference how many were noticed."""
    rows = [("area", "changes", "no difference", "noticed", "unnoticed", "score")]
    counts: dict[str, Counter] = defaultdict(Counter)
    for result in results:
        how = result["how"]
        if how != "noticed":
            how = "no difference" if result["key"] in known else "unnoticed"
        for area in (result["area"], "all"):
            counts[area][how] += 1
    for area in (*AREAS, "all"):
        of_area = counts[area]
        different = of_area["noticed"] + of_area["unnoticed"]
        score = f"{100 * of_area['noticed'] / different:.0f}%" if different else "-"
        rows.append(
            (
                area,
                *(str(n) for n in (of_area.total(), of_area["no difference"], of_area["noticed"], of_area["unnoticed"])),
                score,
            )
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], ["---"] * 6, *rows[1:]))
