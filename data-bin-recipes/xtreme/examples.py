#!/usr/bin/env python3
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Print some examples of a .tsv, .conllu or .json file (in SQuAD's format), in the file's format; or print its text."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from veco_fairseq.errors import UserError
from veco_fairseq.files import count_lines
from veco_fairseq.understanding.pairs import COLUMNS
from veco_fairseq.understanding.tagged import blocks

COMMENTS = {".conllu": re.compile("#"), ".tsv": re.compile(r"#\s+sent_id\s*=")}  # in a .tsv, # may also be a word
BLANK = re.compile(r"\n *\n")  # lines between sentences of a word a line; tabs alone are a row of empty cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("file", type=Path)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", type=int, metavar="N", help="the last N examples")
    which.add_argument("--but-last", type=int, metavar="N", help="all others")
    which.add_argument("--first", type=int, metavar="N", help="the first N examples, or all if there are fewer")
    which.add_argument("--text", action="store_true", help="the text of all examples, one example or paragraph a line")
    which.add_argument("--ids", metavar="PREFIX", help="questions whose ids begin with PREFIX")
    args = parser.parse_args()

    def keep(examples: list) -> list:
        if args.ids is not None:
            kept = [example for example in examples if str(example["id"]).startswith(args.ids)]
        elif args.first is not None:
            return examples[: args.first]
        else:
            kept = examples[-args.last :] if args.last else examples[: -args.but_last]
        if not 0 < len(kept) < len(examples):
            sys.exit(
                f"examples.py: error: {args.file}: {len(kept):,} of its {len(examples):,} examples would be kept: give another number"
            )
        return kept

    formats: dict[str, Callable] = {".json": questions, ".conllu": sentences, ".tsv": rows}
    try:
        if not count_lines(args.file):  # which says what is wrong with a line
            raise UserError(f"{args.file}: has no text")
        text = args.file.read_bytes().decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")  # and at \n alone
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        if args.text:
            print("".join(f"{line}\n" for line in texts(text, args.file.suffix)), end="")
        else:
            print(formats[args.file.suffix](text, keep), end="")
    except UserError as error:
        sys.exit(f"examples.py: error: {error}")
    except (OSError, UnicodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        sys.exit(f"examples.py: error: {args.file}: cannot be read ({type(error).__name__}: {error})")


def texts(text: str, suffix: str) -> Iterator[str]:
    """Yield the text in a file: sentences, or the passages of questions."""
    if suffix == ".json":
        passages = [paragraph["context"] for article in json.loads(text)["data"] for paragraph in article["paragraphs"]]
        yield from (" ".join(passage.split()) for passage in passages)
    elif suffix == ".conllu" or (suffix == ".tsv" and BLANK.search(text)):  # a word a line
        for block in tagged(text, suffix):
            words = [line.split("\t") for line in block if "\t" in line]
            yield " ".join(cells[1 if suffix == ".conllu" else 0] for cells in words)
    else:
        yield from (line.replace("\t", " ") for line in text.strip("\n").split("\n"))


def questions(text: str, keep: Callable[[list], list]) -> str:
    data = json.loads(text)
    paragraphs = [paragraph for article in data["data"] for paragraph in article["paragraphs"]]
    kept = set(map(id, keep([entry for paragraph in paragraphs for entry in paragraph["qas"]])))
    for paragraph in paragraphs:
        paragraph["qas"] = [entry for entry in paragraph["qas"] if id(entry) in kept]
    for article in data["data"]:
        article["paragraphs"] = [paragraph for paragraph in article["paragraphs"] if paragraph["qas"]]
    data["data"] = [article for article in data["data"] if article["paragraphs"]]
    return json.dumps(data, ensure_ascii=False) + "\n"


def sentences(text: str, keep: Callable[[list], list], suffix: str = ".conllu") -> str:
    return "".join("\n".join([*block, "\n"]) for block in keep(tagged(text, suffix)))


def tagged(text: str, suffix: str) -> list[list[str]]:
    """Return the sentences of a text of a word a line, each with its comments; comments alone, such as of a file, are none."""
    return [block for _, block in blocks(text.split("\n")) if not all(map(COMMENTS[suffix].match, block))]


def rows(text: str, keep: Callable[[list], list]) -> str:
    if BLANK.search(text):  # a word a line
        return sentences(text, keep, ".tsv")
    first, *lines = text.rstrip("\n").split("\n")
    # Columns have names if one of them is the label's.
    named = any(cell.strip().lower() in COLUMNS["label"] for cell in first.split("\t"))
    return "".join(f"{line}\n" for line in ([first, *keep(lines)] if named else keep([first, *lines])))


if __name__ == "__main__":
    main()
