# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Cases of texts: raw ones, those of understanding tasks, of BUCC, gold alignments, what fairseq-generate printed."""

from __future__ import annotations

import gzip
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from malformed import Case, Result, commands, damage

SAVED = ("ckpt/*", "new/*", "new/**/*", "new/languages/*")  # what a training or a preparation begins with


def lines_of(path: str) -> Callable[[Result], int]:
    """How many lines a file of the result has, ended by line feeds as everywhere here."""

    def count(result: Result) -> int:
        content = (result.folder / path).read_bytes()
        return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))

    return count


def as_many(output: str, source: str) -> Callable[[Result], str | None]:
    """A line of output for each of the text."""

    def check(result: Result) -> str | None:
        content = (result.folder / source).read_bytes()
        content = gzip.decompress(content) if source.endswith(".gz") else content
        lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
        found = result.out.count("\n") if output == "-" else lines_of(output)(result)
        return None if found == lines else f"accepted, with {found} lines of {output} for {lines}"

    return check


def silent(result: Result) -> str | None:
    """Nothing is said against the result: the command itself counts."""
    return None


def odd(text: str, rng: random.Random) -> damage.Damaged:
    """A text with an odd line somewhere."""
    lines = text.rstrip("\n").split("\n")
    usual = [number for number, line in enumerate(lines) if line.strip()]
    for what, line in damage.odd_lines(lines[usual[0]]):
        place = rng.choice(usual)
        changed = "\n".join([*lines[:place], line, *lines[place + 1 :]]) + "\n"
        yield f"a line with: {what}", changed.encode("utf-8", "surrogatepass")


def raw(rng: random.Random, good: Path) -> Iterator[Case]:
    long_words = ("a line of 200,000 words", ("a bb ccc " * 66_667 + "\n").encode())
    long_letters = ("a line of 5,000,000 letters", b"ab" * 2_500_000 + b"\n")
    for path, uses in (
        ("raw/mono.bb", (("prepare", commands.prepare(), ("raw",), silent), ("vocap", commands.vocap(), ("raw",), silent))),
        ("raw/train.bb", (("prepare", commands.prepare(), ("raw",), silent), ("trim", commands.trim(), ("raw", "root"), silent))),
        ("raw/train.bb", (("clean", commands.clean(), ("raw", "root"), silent),)),
        ("raw/test.bb", (("clean", commands.clean(), ("raw", "root"), silent),)),
        ("raw/valid.bb", (("binarize", commands.binarize(), ("raw", "root"), silent),)),
        ("raw/test.bb", (
            ("encode", commands.encode(text="raw/test.bb"), ("raw", "root"), as_many("encoded", "raw/test.bb")),
            ("align", commands.align(), ("raw", "camlm"), as_many("found", "raw/test.bb")),
            ("tatoeba", commands.tatoeba(), ("raw", "camlm"), silent),
            ("score", commands.score(), ("raw",), silent),
            ("label", commands.label(text="raw/test.bb"), ("raw", "tagging-model"), silent),
            ("interactive", commands.interactive(text="raw/test.bb"), ("raw", "bin", "mt"), silent),
            ("score tokenised as zh", commands.score("--lang", "zh"), ("raw",), silent),
        )),
        ("raw/test.bb.gz", (
            ("encode", commands.encode(text="raw/test.bb.gz"), ("raw", "root"), as_many("encoded", "raw/test.bb.gz")),
            ("label", commands.label(text="raw/test.bb.gz"), ("raw", "tagging-model"), silent),
            ("score", commands.score(hypothesis="raw/test.bb.gz"), ("raw",), silent),
            ("align", commands.align(target="raw/test.bb.gz"), ("raw", "camlm"), as_many("found", "raw/test.bb.gz")),
        )),
        ("pieces/train.bb", (("preprocess", commands.preprocess(), ("pieces",), silent),
                             ("preprocess, 2 workers", commands.preprocess(workers=2), ("pieces",), silent))),
    ):  # fmt: skip
        content = (good / path).read_bytes()
        is_packed = path.endswith(".gz")
        text = (gzip.decompress(content) if is_packed else content).decode()
        pack = (lambda content: gzip.compress(content, mtime=0)) if is_packed else (lambda content: content)
        for name, command, needs, check in uses:
            use = [(name, command, needs)]
            how = {"leaves": SAVED, "check": check, "names": (Path(path).name,) if "score" not in name else ()}
            kind = "text" if not is_packed else "text.gz"
            bad = ((what, pack(change)) for what, change in damage.encodings(text))
            yield from damage.each(kind, path, bad, use, **{**how, "refused": True})
            fine = ((what, pack(change)) for what, change in damage.harmless(text))
            yield from damage.each(kind, path, fine, use, **how, accepted=True)
            strange = ((what, pack(change)) for what, change in odd(text, rng))
            yield from damage.each(kind, path, strange, use, **{**how, "names": (*how["names"], "raw/")})
            yield from damage.each(kind, path, damage.no_file(path), use, **how, refused=True)
            long_line = long_words if name in ("prepare", "vocap", "encode", "binarize", "clean") else long_letters
            if name not in ("align", "tatoeba", "interactive", "score tokenised as zh"):
                yield from damage.each(kind, path, iter([(long_line[0], pack(text.encode() + long_line[1]))]), use, **how)
            others = (*damage.cut(content, rng, 3), *damage.flip(content, rng, 4), *damage.other_kinds(rng))
            yield from damage.each(kind, path, iter(others), use, **{**how, "names": ()})


def standard_input(rng: random.Random, good: Path) -> Iterator[Case]:
    path = "raw/test.aa"
    content = (good / path).read_bytes()
    for name, command, needs in (
        ("translate", commands.translate(), ("raw", "bin", "mt")),
        ("interactive", commands.interactive(), ("raw", "bin", "mt")),
    ):
        use = [(name, command, needs)]
        how = {"stdin": path, "names": ("standard input",) if name == "translate" else ()}
        check = as_many("-", path) if name == "translate" else silent
        bad = ((what, change) for what, change in damage.encodings((good / "raw/test.bb").read_text(encoding="utf-8")))
        yield from damage.each("standard input", path, bad, use, **how, refused=True)
        yield from damage.each("standard input", path, damage.harmless(content.decode()), use, **how, check=check, accepted=True)
        yield from damage.each("standard input", path, odd(content.decode(), rng), use, **how, check=check)
        yield from damage.each("standard input", path, damage.other_kinds(rng), use, **{**how, "names": ()}, check=check)


def understanding(rng: random.Random, good: Path) -> Iterator[Case]:
    for kind, files in (
        ("classification", ("train-aa.tsv", "dev-bb.tsv")),
        ("tagging", ("train-aa.conllu", "dev-aa.conllu", "train-bb.tsv", "dev-bb.tsv")),
        ("span", ("train-aa.json", "dev-bb.json")),
    ):
        for file in files:
            path = f"{kind}/{file}"
            content = (good / path).read_bytes()
            text = content.decode()
            train = (f"nlu {kind}", commands.nlu(kind), (kind, "camlm"))
            evaluate = (f"evaluate {kind}", commands.evaluate(kind), (kind, f"{kind}-model"))
            uses = [train] if file.startswith("train") else [train, evaluate]
            how = {"leaves": SAVED, "names": (file,)}
            another = text.replace("NOUN", "N\u00d6UN").replace("yes", "y\u00e9s") if "bb" not in file else text
            if not another.isascii():
                yield from damage.each(path.rpartition(".")[2], path, damage.encodings(another), uses, **how, refused=True)
            yield from damage.each(path.rpartition(".")[2], path, damage.harmless(text), uses, **how, accepted=True)
            yield from damage.each(path.rpartition(".")[2], path, damage.no_file(path), uses, **{**how, "names": ()})
            others = [*damage.cut(content, rng, 5), *damage.flip(content, rng, 8), *damage.swap(content, rng, 4),
                      *damage.other_kinds(rng)]  # fmt: skip
            if kind == "span":
                others += damage.wrong_json(content, rng, 30)
            else:
                others += [*odd(text, rng), *cells(text, rng)]
            yield from damage.each(path.rpartition(".")[2], path, iter(others), uses, **{**how, "names": ()})


def cells(text: str, rng: random.Random) -> damage.Damaged:
    """A cell of a table that is missing, empty, twice, or something else."""
    lines = text.split("\n")
    rows = [number for number, line in enumerate(lines) if "\t" in line]
    for what, change in (
        ("left out", lambda cells, at: cells[:at] + cells[at + 1 :]),
        ("empty", lambda cells, at: [*cells[:at], "", *cells[at + 1 :]]),
        ("twice", lambda cells, at: [*cells[: at + 1], *cells[at:]]),
        ("a blank", lambda cells, at: [*cells[:at], " ", *cells[at + 1 :]]),
        ("a number", lambda cells, at: [*cells[:at], "-1", *cells[at + 1 :]]),
        ("quoted", lambda cells, at: [*cells[:at], f'"{cells[at]}', *cells[at + 1 :]]),
        ("very long", lambda cells, at: [*cells[:at], "a b" * 30_000, *cells[at + 1 :]]),
        ("of letters that SentencePiece drops", lambda cells, at: [*cells[:at], "\u200b\u00ad", *cells[at + 1 :]]),
    ):
        for _ in range(2):
            row = rng.choice(rows)
            held = lines[row].split("\t")
            at = rng.randrange(len(held))
            changed = [*lines[:row], "\t".join(change(held, at)), *lines[row + 1 :]]
            yield f"cell {at} of line {row + 1} {what}", "\n".join(changed).encode()


def tables(rng: random.Random, good: Path) -> Iterator[Case]:
    """BUCC's sides and pairs, gold alignments, and the log of fairseq-generate."""
    mine = ("bucc", commands.bucc(), ("bucc", "camlm"))
    align = ("align", commands.align("--gold", "links/gold"), ("raw", "camlm", "links"))
    score = ("score generated", commands.score_generated(), ("raw", "scores"))
    like = ("label", commands.label("--like", "tagging/test-aa.conllu"), ("raw", "tagging-model", "tagging"))
    for kind, path, use in (("BUCC", "bucc/aa.tsv", mine), ("BUCC", "bucc/gold.tsv", mine), ("gold links", "links/gold", align),
                            ("fairseq-generate's output", "scores/generated.out", score),
                            ("conllu", "tagging/test-aa.conllu", like)):  # fmt: skip
        content = (good / path).read_bytes()
        text = content.decode()
        how = {"names": ()}
        yield from damage.each(kind, path, damage.harmless(text), [use], **how, accepted=True)
        yield from damage.each(kind, path, damage.no_file(path), [use], refused=True)
        bad = damage.encodings(text.replace("0-0", "0-0\u00e9", 1).replace("aa-0", "aa-0\u00e9", 1).replace("NOUN", "N\u00d6UN"))
        yield from damage.each(kind, path, bad, [use], refused=True)
        others = [*damage.cut(content, rng, 6), *damage.flip(content, rng, 10), *damage.swap(content, rng, 6),
                  *damage.other_kinds(rng), *odd(text, rng)]  # fmt: skip
        if "\t" in text:
            others += cells(text, rng)
        if kind == "gold links":
            for link in ("0-", "-0", "0-0-0", "a-b", "0-9999", "99999999999999999999-0", "0x0", "0.5-1", "\u0663-1", "0-0,1-1"):
                others.append((f"a link {link}", text.replace("0-0", link, 1).encode()))
        yield from damage.each(kind, path, iter(others), [use], **how)


def cases(rng: random.Random, good: Path) -> Iterator[Case]:
    yield from itertools.chain(raw(rng, good), standard_input(rng, good), understanding(rng, good), tables(rng, good))
