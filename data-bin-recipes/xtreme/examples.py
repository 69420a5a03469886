#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Print some of the examples of a .tsv, .conllu or .json file (of SQuAD's format), in its own format."""

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Callable, List

from veco_fairseq.cli import run
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines
from veco_fairseq.understanding.examples import read_examples, read_questions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("file", type=Path, help=".gz or not")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", type=int, metavar="N", help="the last N examples")
    which.add_argument("--but-last", type=int, metavar="N", help="all others")
    which.add_argument("--ids", metavar="PREFIX", help="questions whose ids begin so")
    args = parser.parse_args()
    if args.ids is not None:
        keep: Callable[[List[str]], List[str]] = lambda ids: [name for name in ids if name.startswith(args.ids)]  # noqa: E731
    else:
        count = args.last or args.but_last
        keep = lambda found: found[-count:] if args.last else found[:-count]  # noqa: E731
    suffix = args.file.name.removesuffix(".gz").rpartition(".")[2]
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    print({"json": questions, "conllu": sentences, "tsv": rows}[suffix](args.file, keep), end="")


def some(found: List, keep: Callable, path: Path) -> List:
    """What is kept, if that is neither nothing nor everything."""
    kept = keep(found)
    if not 0 < len(kept) < len(found):
        raise UserError(f"{path}: {len(kept):,} of its {len(found):,} examples would be kept: choose another number")
    return kept


def questions(path: Path, keep: Callable) -> str:
    kept = set(some([question.id for question in read_questions(path, "")], keep, path))
    data = json.loads("\n".join(read_lines(path)))
    for article in data["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [entry for entry in paragraph["qas"] if str(entry["id"]) in kept]
        article["paragraphs"] = [paragraph for paragraph in article["paragraphs"] if paragraph["qas"]]
    data["data"] = [article for article in data["data"] if article["paragraphs"]]
    return json.dumps(data, ensure_ascii=False) + "\n"


def sentences(path: Path, keep: Callable) -> str:
    groups = itertools.groupby(read_lines(path), key=bool)
    return "\n".join("".join(f"{line}\n" for line in kept) for kept in
                     some([list(lines) for filled, lines in groups if filled], keep, path)) + "\n"  # fmt: skip


def rows(path: Path, keep: Callable) -> str:
    lines = list(read_lines(path))
    header = lines[: len(lines) - len(read_examples(path, "", "classification"))]
    return "".join(f"{line}\n" for line in [*header, *some(lines[len(header) :], keep, path)])


if __name__ == "__main__":
    run(main)
