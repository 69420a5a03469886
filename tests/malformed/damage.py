# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Ways to damage a file: each yields (what was done, the new content)."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from malformed import Case

Damaged = Iterator[tuple[str, bytes]]


def cut(content: bytes, rng: random.Random, count: int) -> Damaged:
    """Cut off at the beginning, near the end, and at random places."""
    size = len(content)
    places = [0, 1, size - 1] + [rng.randrange(size) for _ in range(count)]
    for place in dict.fromkeys(places[:count]):
        yield f"cut off after {place} of {size} bytes", content[:place]


def flip(content: bytes, rng: random.Random, count: int, start: int = 0, stop: int | None = None) -> Damaged:
    """One bit flipped somewhere in [start, stop)."""
    for _ in range(count):
        bit = rng.randrange(8)
        place = rng.randrange(start, min(stop or len(content), len(content)))
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} flipped", bytes(changed)


def swap(content: bytes, rng: random.Random, count: int) -> Damaged:
    """Two blocks of bytes exchanged, repeated, left out or zeroed."""
    size = len(content)
    for number in range(count):
        length = rng.randrange(1, max(2, size // 4))
        a = rng.randrange(0, max(1, size - length))
        b = rng.randrange(0, max(1, size - length))
        a, b = sorted((a, b))
        how = number % 4
        if how == 0 and b >= a + length:
            yield f"bytes {a} and {b}, {length} of each, exchanged", (
                content[:a] + content[b : b + length] + content[a + length : b] + content[a : a + length]
                + content[b + length :]
            )  # fmt: skip
        elif how == 1:
            yield f"{length} bytes at {a} repeated", content[: a + length] + content[a:]
        elif how == 2:
            yield f"{length} bytes at {a} left out", content[:a] + content[a + length :]
        else:
            yield f"{length} bytes at {a} zeroed", content[:a] + bytes(length) + content[a + length :]


def other_kinds(rng: random.Random) -> Damaged:
    """Files of quite another kind."""
    yield "empty", b""
    yield "a line end", b"\n"
    yield "zeros", bytes(4096)
    yield "random bytes", rng.randbytes(1000)
    yield "a gzip file", gzip.compress(b"text\n", mtime=0)
    yield "a zip file's start", b"PK\x03\x04" + bytes(26)
    yield "a PNG's start", b"\x89PNG\r\n\x1a\n" + bytes(100)
    yield "JSON", b'{"a": [1, 2, {"b": null}]}\n'
    yield "HTML", b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n"
    yield "a git-lfs pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"


def encodings(text: str) -> Damaged:
    """The same text in other encodings and with other line ends. The text must not be plain ASCII."""
    yield "UTF-16", text.encode("utf-16")
    yield "UTF-16 without a mark", text.encode("utf-16-le")
    yield "UTF-32", text.encode("utf-32")
    yield "Latin-1", text.encode("latin-1", "replace")
    yield "a lone surrogate", text.encode() + b"\xed\xa0\x80\n"
    yield "an overlong byte pair", text.encode() + b"\xc0\xaf\n"
    yield "a cut character", text.encode() + "\u00e9".encode()[:1]


def harmless(text: str) -> Damaged:
    """The same text with what editors leave, and must not matter."""
    yield "a byte order mark", b"\xef\xbb\xbf" + text.encode()
    yield "carriage returns", text.replace("\n", "\r\n").encode()
    yield "no line end at the end", text.rstrip("\n").encode()


def odd_lines(line: str) -> Iterator[tuple[str, str]]:
    """Lines that are unusual and valid UTF-8, made of a usual one."""
    yield "empty", ""
    yield "blank", " \t "
    yield "NUL", line + "\0"
    yield "NUL within", line[: len(line) // 2] + "\0" + line[len(line) // 2 :]
    yield "carriage return within", line[: len(line) // 2] + "\r" + line[len(line) // 2 :]
    yield "U+0085", line.replace(" ", "\u0085", 1)
    yield "U+2028", line.replace(" ", "\u2028", 1)
    yield "U+00A0", line.replace(" ", "\u00a0")
    yield "U+200B", line.replace(" ", "\u200b")
    yield "U+FEFF within", line[:3] + "\ufeff" + line[3:]
    yield "vertical tab and form feed", line.replace(" ", "\v", 1).replace(" ", "\f", 1)
    yield "separators U+001C to U+001F", line + " \x1c\x1d\x1e\x1f"
    yield "escape", "\x1b[31m" + line
    yield "U+FFFD", line + " \ufffd"
    yield "U+10FFFF", line + " \U0010ffff"
    yield "right to left", "\u202e" + line
    yield "many accents", "e" + "\u0301" * 500
    yield "emoji", line + " \U0001f469\u200d\U0001f469\u200d\U0001f467"
    yield "special tokens", "<s> <pad> </s> <unk> <mask> \u2581 " + line
    yield "2,000 words", " ".join([line] * (2000 // max(1, len(line.split()))))
    yield "a word of 20,000 letters", "a" * 20_000


def into(path: str, content: bytes) -> Callable[[Path], None]:
    """A :class:`malformed.Case`'s ``damage``: a file gets this content."""
    return lambda folder: (folder / path).write_bytes(content) and None


def remove(path: str) -> Callable[[Path], None]:
    """The file or folder is missing."""

    def damage(folder: Path) -> None:
        where = folder / path
        shutil.rmtree(where) if where.is_dir() else where.unlink()

    return damage


def folder_instead(path: str) -> Callable[[Path], None]:
    """There is a folder of this name."""

    def damage(folder: Path) -> None:
        remove(path)(folder)
        (folder / path).mkdir()

    return damage


def link_to_itself(path: str) -> Callable[[Path], None]:
    """The name is a link that leads nowhere."""

    def damage(folder: Path) -> None:
        remove(path)(folder)
        (folder / path).symlink_to(Path(path).name)

    return damage


def no_file(path: str) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """What is no file at all."""
    yield "missing", remove(path)
    yield "a folder", folder_instead(path)
    yield "a link to itself", link_to_itself(path)


def wrong_json(content: bytes, rng: random.Random, count: int) -> Damaged:
    """JSON with a value somewhere of another type, a key removed or renamed, nested far too deep, and so on."""
    values = [None, True, -1, 0, 1e308, 10**30, "", "x", [], {}, [[]], {"x": 1}, "\u0000", "\ud800", float("nan")]

    def places(value, path=()):
        if path:
            yield path
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            yield from places(inner, (*path, key))

    everywhere = list(places(json.loads(content)))
    for number in range(count):
        data = json.loads(content)
        path = rng.choice(everywhere)
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        where = "/".join(map(str, path))
        if number % 4 == 3:
            del holder[path[-1]]
            yield f"{number}: {where} left out", json.dumps(data).encode()
        else:
            value = rng.choice(values)
            holder[path[-1]] = value
            yield f"{number}: {where} = {value!r}"[:80], json.dumps(data).encode("utf-8", "surrogatepass")
    for value in values:
        yield f"all is {value!r}"[:80], json.dumps(value).encode()
    yield "nested too deep", b"[" * 100_000 + b"]" * 100_000
    yield "a number of 5,000 digits", b"1" * 5000
    yield "a trailing comma", content.rstrip()[:-1] + b",}"
    yield "two documents", content + content


Use = tuple[str, tuple[str, ...], tuple[str, ...]]  # a name, a command, and the good files that it needs


def each(
    kind: str, path: str, damaged: Iterator[tuple[str, bytes | Callable[[Path], None]]], uses: Sequence[Use], **how
) -> Iterator[Case]:
    """A case for each way to damage a file, with one use of it after the other.

    Args:
        damaged: what was done, and the new content, or what to do in the folder.
        how: what else a :class:`malformed.Case` takes.
    """
    how = {"names": (Path(path).name,), **how}
    for number, (what, change) in enumerate(damaged):
        name, command, needs = uses[number % len(uses)]
        change = into(path, change) if isinstance(change, bytes) else change
        yield Case(kind, f"{name}: {path}: {what}", command, needs, change, **how)
