# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Cases of token files, dictionaries, SentencePiece models, checkpoints and Hugging Face folders."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from malformed import Case, Result, commands, damage

HEADER = 9 + 8 + 1 + 8  # of an index: magic, version, type of the ids, number of sentences
ROOT, TRANSLATION = ("root",), ("bin",)
MODELS = ("bin", "mt")
PRETRAIN, INSPECT = ("pretrain", commands.pretrain(), ROOT), ("inspect", commands.inspect(), ROOT)
TRAIN = ("translation", commands.translation(), TRANSLATION)
GENERATE, VALIDATE = ("generate", commands.generate(), MODELS), ("validate", commands.validate(), MODELS)
ALIGN = ("align", commands.align(), ("raw", "camlm"))
TATOEBA = ("tatoeba", commands.tatoeba(), ("raw", "camlm"))
ATTENTION = ("attention", commands.attention(), ("camlm",))
NLU = ("nlu", commands.nlu("classification"), ("classification", "camlm"))
LABEL = ("label", commands.label(), ("raw", "tagging-model"))
EVALUATE = ("evaluate", commands.evaluate("tagging"), ("tagging", "tagging-model"))
PREPARE = ("prepare", commands.prepare_with_vocabulary(), ("raw", "root"))
ENCODE, TRIM = ("encode", commands.encode(), ("raw", "root")), ("trim", commands.trim(), ("raw", "root"))
ALP = ("alp", commands.measure_alp(), ("raw", "root"))
SAVED = ("ckpt/*",)  # a training may have begun


def tokens(index: bytes, ids: bytes) -> list[list[int]] | None:
    """The sentences of a token file, or None if it has none."""
    try:
        kind = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f4", 7: "<f8", 8: "<u2"}[index[17]]
        (count,) = struct.unpack_from("<Q", index, 18)
        assert index[:17] == b"MMIDIDX\x00\x00" + struct.pack("<Q", 1) and len(index) == HEADER + 12 * count
        sizes = np.frombuffer(index, "<i4", count, HEADER)
        pointers = np.frombuffer(index, "<i8", count, HEADER + 4 * count)
        size = np.dtype(kind).itemsize
        assert count and (sizes > 0).all() and sizes.sum() * size == len(ids)
        assert (pointers == (np.cumsum(sizes) - sizes) * size).all()
        return [np.frombuffer(ids, kind, n, at).tolist() for at, n in zip(pointers, sizes)]
    except (AssertionError, KeyError, IndexError, ValueError, struct.error):
        return None


def same_sentences(path: str, good: Path) -> Callable[[Result], str | None]:
    """The index says the same in other words, as of int16 in place of uint16."""
    expected = tokens(*((good / f"{path}{suffix}").read_bytes() for suffix in (".idx", ".bin")))

    def check(result: Result) -> str | None:
        found = tokens(*((result.folder / f"{path}{suffix}").read_bytes() for suffix in (".idx", ".bin")))
        return None if found == expected else "accepted, with other sentences"

    return check


def known_ids(path: str, types: int) -> Callable[[Result], str | None]:
    """All ids are the dictionary's, and sentences end with </s>: that one was another cannot be noticed."""

    def check(result: Result) -> str | None:
        found = tokens(*((result.folder / f"{path}{suffix}").read_bytes() for suffix in (".idx", ".bin")))
        if found is None:
            return "accepted, though index and tokens do not fit"
        worst = max(map(max, found))
        return None if worst < types else f"accepted, with token {worst} of {types}"

    return check


def wrong_index(content: bytes, rng: random.Random) -> damage.Damaged:
    """Headers, sizes and places that no index has."""
    for place in range(HEADER):
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8)
        yield f"a bit of byte {place} flipped", bytes(changed)
    for code in (0, 1, 2, 4, 5, 6, 7, 9, 255):
        yield f"type {code}", content[:17] + bytes([code]) + content[18:]
    for count in (0, 1, 2**31, 2**40, 2**61, 2**63 - 1, 2**64 - 1):
        yield f"{count} sentences", content[:18] + struct.pack("<Q", count) + content[26:]
    (count,) = struct.unpack_from("<Q", content, 18)
    for size in (-1, 0, 2**31 - 1):
        at = HEADER + 4 * rng.randrange(count)
        yield f"a sentence of {size} tokens", content[:at] + struct.pack("<i", size) + content[at + 4 :]
    for pointer in (-2, 1, 2**31, 2**62):
        at = HEADER + 4 * count + 8 * rng.randrange(1, count)
        yield f"a sentence at {pointer}", content[:at] + struct.pack("<q", pointer) + content[at + 8 :]
    sizes = np.frombuffer(content, "<i4", count, HEADER).copy()
    longest, shortest = int(sizes.argmax()), int(sizes.argmin())
    sizes[[longest, shortest]] = sizes[[shortest, longest]]
    yield "two sizes exchanged", content[:HEADER] + sizes.tobytes() + content[HEADER + 4 * count :]
    yield "8 bytes more", content + bytes(8)


def wrong_ids(content: bytes, rng: random.Random, types: int) -> damage.Damaged:
    """Tokens that no dictionary has, in all, in one, in the last sentence."""
    for number in (types, types + 1, 2**15, 2**16 - 1):
        ids = np.frombuffer(content, "<u2").copy()
        ids[int(np.flatnonzero(ids > 3)[rng.randrange(20)])] = number
        yield f"token {number} of {types}", ids.tobytes()
    ids = np.frombuffer(content, "<u2").copy()
    ids[ids > 3] += types
    yield "all tokens beyond the dictionary", ids.tobytes()
    ids = np.frombuffer(content, "<u2").copy()
    ids[-2] = types
    yield "the last token beyond the dictionary", ids.tobytes()
    yield "one token more", content + b"\x05\x00"
    yield "one byte more", content + b"\x05"


def token_files(rng: random.Random, good: Path) -> Iterator[Case]:
    types = len((good / "root/dict.txt").read_text(encoding="utf-8").splitlines()) + 4
    of_split = {"train": (PRETRAIN, INSPECT), "valid": (PRETRAIN, INSPECT)}
    of_mt = {"train": (TRAIN,), "valid": (TRAIN, VALIDATE), "test": (GENERATE,)}
    for path, uses in (
        ("root/mono/aa/train", of_split["train"]), ("root/mono/bb/valid", of_split["valid"]),
        ("root/bitext/aa-bb/train.aa-bb.bb", of_split["train"]), ("bin/train.aa-bb.aa", of_mt["train"]),
        ("bin/valid.aa-bb.bb", of_mt["valid"]), ("bin/test.aa-bb.aa", of_mt["test"]),
    ):  # fmt: skip
        index, ids = ((good / f"{path}{suffix}").read_bytes() for suffix in (".idx", ".bin"))
        names, of_root = (Path(path).name, Path(path).parent.name), path.startswith("root")
        how = {"check": same_sentences(path, good), "leaves": SAVED, "names": names}
        damaged = (*wrong_index(index, rng), *damage.cut(index, rng, 8), *damage.flip(index, rng, 12, HEADER),
                   *damage.swap(index, rng, 8), *damage.other_kinds(rng))  # fmt: skip
        yield from damage.each(".idx", f"{path}.idx", iter(damaged), uses, **how)
        missing = {"refused": True, "leaves": SAVED, "names": names if of_root else ()}
        yield from damage.each(".idx", f"{path}.idx", damage.no_file(f"{path}.idx"), uses, **missing)
        yield from damage.each(".bin", f"{path}.bin", damage.no_file(f"{path}.bin"), uses, **missing)
        if path == "bin/valid.aa-bb.bb":

            def neither(folder: Path, path: str = path) -> None:
                for suffix in (".idx", ".bin"):
                    (folder / f"{path}{suffix}").unlink()

            yield Case(
                ".bin", f"translation: {path}: neither is there", TRAIN[1], TRAIN[2], neither, refused=True, names=("valid",)
            )
        how["check"] = known_ids(path, types + of_root)
        damaged = (*wrong_ids(ids, rng, types + of_root), *damage.cut(ids, rng, 5), *damage.flip(ids, rng, 12),
                   *damage.swap(ids, rng, 4), *damage.other_kinds(rng))  # fmt: skip
        yield from damage.each(".bin", f"{path}.bin", iter(damaged), uses, **how)


def wrong_lines(text: str, rng: random.Random) -> damage.Damaged:
    """Lines that a dictionary must not have."""
    lines = text.splitlines()
    place = rng.randrange(len(lines))

    def inserted(line: str) -> bytes:
        return ("\n".join([*lines[:place], line, *lines[place:]]) + "\n").encode("utf-8", "surrogatepass")

    for line in ("new", "new x", "new 1.5", "new -", " 1", "1", "", " ", "\t", "new\t1", "new 1 #fairseq:what",
                 "<unk> 1", "<s> 1", lines[0], "new " + "9" * 5000, "\0 1", "a\0b 1", "\ud800 1"):  # fmt: skip
        yield f"a line {line[:24]!r} of {len(line)} letters", inserted(line)
    for line in ("new 1", "new -5", "<unk> 1 #fairseq:overwrite", "#fairseq:overwrite 1", "\u0085 1", "a\u2028b 1",
                 "\ufeff 1", "n" * 100_000 + " 1", "new 99999999999999999999", "<mask> 1"):  # fmt: skip
        yield f"a line {line[:24]!r} of {len(line)} letters", inserted(line)
    yield "two lines exchanged", "\n".join([lines[1], lines[0], *lines[2:], ""]).encode()
    yield "a line left out", "\n".join([*lines[:place], *lines[place + 1 :], ""]).encode()


def one_more(path: str, good: Path) -> Callable[[Result], str | None]:
    """With a model, the dictionary must be the model's, whatever its counts."""
    expected = [line.split(" ")[0] for line in (good / path).read_text(encoding="utf-8").split("\n") if line]

    def check(result: Result) -> str | None:
        text = (result.folder / path).read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        found = [line.rsplit(" ", 1)[0] for line in text.split("\n") if line]
        return None if found == expected else "accepted, though it is not the model's dictionary"

    return check


def dictionaries(rng: random.Random, good: Path) -> Iterator[Case]:
    for path, uses, has_model in (
        ("root/dict.txt", (PRETRAIN, INSPECT, PREPARE), False),
        ("camlm/dict.txt", (ALIGN, TATOEBA, ATTENTION, NLU), True),
        ("tagging-model/dict.txt", (LABEL, EVALUATE), True),
        ("bin/dict.aa.txt", (TRAIN,), False),
        ("bin/dict.bb.txt", (GENERATE, VALIDATE, ("interactive", commands.interactive(text="raw/test.aa"), (*MODELS, "raw"))),
         True),
    ):  # fmt: skip
        content = (good / path).read_bytes()
        text = content.decode()
        how = {"names": ("dict",), "leaves": SAVED, **({"check": one_more(path, good)} if has_model else {})}
        damaged = (*wrong_lines(text, rng), *damage.cut(content, rng, 6), *damage.flip(content, rng, 10),
                   *damage.swap(content, rng, 6))  # fmt: skip
        yield from damage.each("dict.txt", path, iter(damaged), uses, **how)
        foreign = (*damage.other_kinds(rng), *damage.encodings(text), *damage.no_file(path))
        yield from damage.each("dict.txt", path, iter(foreign), uses, **{**how, "refused": True})
        for use in uses:
            yield from damage.each("dict.txt", path, damage.harmless(text), (use,), accepted=True)


def sentencepiece_models(rng: random.Random, good: Path) -> Iterator[Case]:
    other = (good / "vocap/languages/bb.model").read_bytes()
    translate = ("translate", commands.translate(), (*MODELS, "raw"))
    for path, uses in (
        ("root/sentencepiece.bpe.model", (PREPARE, ENCODE, TRIM, ALP)),
        ("camlm/sentencepiece.bpe.model", (ALIGN, TATOEBA, ATTENTION, NLU)),
        ("tagging-model/sentencepiece.bpe.model", (LABEL, EVALUATE)),
        ("mt/sentencepiece.bpe.model", (translate,)),
    ):
        content = (good / path).read_bytes()
        how = {"names": ("sentencepiece.bpe.model", "dict.txt"), "leaves": SAVED}
        stdin = {"stdin": "raw/test.aa"} if path.startswith("mt") else {}
        damaged = (*damage.flip(content, rng, 25), *damage.flip(content, rng, 10, len(content) - 400),
                   *damage.swap(content, rng, 8))  # fmt: skip
        yield from damage.each("SentencePiece model", path, iter(damaged), uses, **how, **stdin)
        foreign = (*damage.cut(content, rng, 12), *damage.other_kinds(rng), *damage.no_file(path))
        yield from damage.each("SentencePiece model", path, iter(foreign), uses, **how, **stdin, refused=True)
        if not path.startswith("root"):
            another = [("another language's", other)] * len(uses)
            yield from damage.each("SentencePiece model", path, iter(another), uses, **how, **stdin, refused=True)


def cases(rng: random.Random, good: Path) -> Iterator[Case]:
    yield from itertools.chain(token_files(rng, good), dictionaries(rng, good), sentencepiece_models(rng, good))
