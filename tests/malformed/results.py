# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Cases of what commands wrote and others read back: checkpoints, exported models, JSON, logs, stages."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import torch

from malformed import Case, Result, commands, damage
from malformed.commands import LAST
from malformed.texts import odd

MODELS = ("bin", "mt")


MODEL_ALONE = ("average", "convert", "export_ct2", "export_hf", "init")  # commands that leave the optimizer's part unread


def same_checkpoint(path: str, good: Path, command: str) -> Callable[[Result], str | None]:
    """The damaged file holds what was in it, as far as the command reads it."""

    def check(result: Result) -> str | None:
        alone = command in MODEL_ALONE
        try:
            states = [torch.load(folder / path, weights_only=True, mmap=alone) for folder in (good, result.folder)]
        except Exception as error:
            return f"accepted, though it cannot be read: {error}"[:200]
        parts = [[state[key] for key in ("model", "cfg", "task_state")] if alone else state for state in states]
        return None if equal(*parts) else "accepted, with other contents"

    return check


def equal(a, b) -> bool:
    """Whether two nested structures hold the same."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return equal(vars(a), vars(b)) if hasattr(a, "__dict__") else a == b or a != a


def records(content: bytes, rng: random.Random) -> damage.Damaged:
    """A checkpoint whose zip file is whole, and lacks a record, or has one that is cut."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        held = [(info, archive.read(info)) for info in archive.infolist()]
    for number in (*range(3), rng.randrange(3, len(held)), len(held) - 1):
        for what, change in (("left out", lambda data: None), ("empty", lambda data: b""), ("cut", lambda data: data[:-1])):
            output = BytesIO()
            with zipfile.ZipFile(output, "w") as archive:
                for place, (info, data) in enumerate(held):
                    data = change(data) if place == number else data
                    if data is not None:
                        archive.writestr(info.filename, data)
            yield f"record {held[number][0].filename.partition('/')[2]} {what}", output.getvalue()


def checkpoints(rng: random.Random, good: Path) -> Iterator[Case]:
    """Files that are damaged; those that are made by hand are elsewhere."""
    for path, uses in (
        (f"mt/{LAST}", (
            ("generate", commands.generate(), MODELS), ("validate", commands.validate(), MODELS),
            ("translate", commands.translate(), ("bin", "mt", "raw")),
            ("average", commands.average(), ("mt",)), ("count", commands.count(), MODELS),
            ("finetune", commands.finetune_converted(), MODELS),
            ("resume", commands.translation("--restore-file", f"mt/{LAST}"), MODELS),
            ("export_ct2", ("scripts/export_ct2.py", "--checkpoint", f"mt/{LAST}", "--output", "ct2", "--data", "bin"), MODELS),
            ("export_hf", commands.export_translation(), (*MODELS, "root")),
        )),
        (f"camlm/{LAST}", (
            ("align", commands.align(), ("raw", "camlm")), ("tatoeba", commands.tatoeba(), ("raw", "camlm")),
            ("attention", commands.attention(), ("camlm",)), ("convert", commands.convert(), ("camlm",)),
            ("export_hf", commands.export_hf(), ("camlm",)),
            ("resume", commands.pretrain(save_dir="camlm", updates=3), ("camlm", "root")),
            ("nlu", commands.nlu("classification"), ("classification", "camlm")),
            ("init", commands.pretrain("--init-from", f"camlm/{LAST}"), ("root", "camlm")),
        )),
        (f"tagging-model/{LAST}", (
            ("label", commands.label(), ("raw", "tagging-model")),
            ("evaluate", commands.evaluate("tagging"), ("tagging", "tagging-model")),
        )),
    ):  # fmt: skip
        content = (good / path).read_bytes()
        how = {
            "names": (LAST,),
            "leaves": ("ckpt/*", "camlm/dict.txt"),
            "changes": (f"camlm/{LAST}", "camlm/dict.txt", "camlm/*.model"),
        }
        whole = [*damage.flip(content, rng, 30), *damage.swap(content, rng, 12), *records(content, rng)]
        for what, change in whole:
            for name, command, needs in [uses[rng.randrange(len(uses))]]:
                check = {} if name == "resume" else {"check": same_checkpoint(path, good, name)}
                yield from damage.each("checkpoint", path, iter([(what, change)]), [(name, command, needs)], **how, **check)
        bad = [*damage.cut(content, rng, 20), *damage.other_kinds(rng), *damage.no_file(path)]
        rng.shuffle(bad)
        readers = [use for use in uses if not (use[0] == "resume" and "camlm" in path)]
        yield from damage.each("checkpoint", path, iter(bad), readers, **how, refused=True)


def fallback(rng: random.Random, good: Path) -> Iterator[Case]:
    """A damaged checkpoint_last.pt beside a whole one: the training goes on from that."""
    content = (good / f"camlm/{LAST}").read_bytes()
    for what, change in damage.cut(content, rng, 4):

        def both(folder: Path, change=change) -> None:
            shutil.copy(folder / f"camlm/{LAST}", folder / "camlm/checkpoint_1_1.pt")
            (folder / f"camlm/{LAST}").write_bytes(change)

        command = commands.pretrain(save_dir="camlm", updates=3)
        yield Case("checkpoint", f"resume beside a whole one: {what}", command, ("camlm", "root"), both, accepted=True,
                   changes=("camlm/*",))  # fmt: skip


def hugging_face(rng: random.Random, good: Path) -> Iterator[Case]:
    use = [("init", commands.pretrain("--init-from", "hf"), ("root", "hf"))]
    path = "hf/model.safetensors"
    content = (good / path).read_bytes()
    how = {"names": ("model.safetensors",), "leaves": ("ckpt/*",)}
    (length,) = struct.unpack_from("<Q", content)
    for number in (0, 1, length - 1, length + 1, 2**40, 2**63, 2**64 - 1):
        damaged = iter([(f"a header of {number} bytes", struct.pack("<Q", number) + content[8:])])
        yield from damage.each("safetensors", path, damaged, use, **how, refused=True)
    header = json.loads(content[8 : 8 + length])
    for what, changed in damage.wrong_json(json.dumps(header).encode(), rng, 25):
        yield from damage.each(
            "safetensors", path, iter([(what, struct.pack("<Q", len(changed)) + changed + content[8 + length :])]), use, **how
        )
    damaged = [*damage.cut(content, rng, 8), *damage.other_kinds(rng), *damage.no_file(path)]
    yield from damage.each("safetensors", path, iter(damaged), use, **{**how, "names": ("hf",)}, refused=True)
    yield from damage.each("safetensors", path, damage.flip(content, rng, 10, 0, 8 + length), use, **how)
    path = "hf/config.json"
    content = (good / path).read_bytes()
    damaged = [*damage.wrong_json(content, rng, 25), *damage.cut(content, rng, 6), *damage.flip(content, rng, 8)]
    yield from damage.each("config.json", path, iter(damaged), use, names=(), leaves=("ckpt/*",))
    bad = [*damage.other_kinds(rng), *damage.no_file(path)]
    yield from damage.each("config.json", path, iter(bad), use, names=("config.json",), leaves=("ckpt/*",), refused=True)
    path = "hf/tokenizer.json"
    symbols = [line.split(" ")[0] for line in (good / "root/dict.txt").read_text(encoding="utf-8").splitlines()]
    vocabulary = [[symbol, -1.5] for symbol in ("<s>", "<pad>", "</s>", "<unk>", *symbols, "<mask>")]
    content = json.dumps({"model": {"type": "Unigram", "vocab": vocabulary}}).encode()

    def without_model(change: bytes) -> Callable[[Path], None]:
        def damaged(folder: Path) -> None:
            (folder / "hf/sentencepiece.bpe.model").unlink()
            (folder / path).write_bytes(change)

        return damaged

    damaged = [*damage.wrong_json(content, rng, 25), *damage.cut(content, rng, 6), *damage.flip(content, rng, 8)]
    each = [(what, without_model(change)) for what, change in damaged]
    yield from damage.each("tokenizer.json", path, iter(each), use, names=("hf",), leaves=("ckpt/*",))
    each = [(what, without_model(change)) for what, change in damage.other_kinds(rng)]
    yield from damage.each("tokenizer.json", path, iter(each), use, names=(path,), leaves=("ckpt/*",), refused=True)
    yield from damage.each("tokenizer.json", path, iter([("good", without_model(content))]), use, accepted=True)


def json_files(rng: random.Random, good: Path) -> Iterator[Case]:
    table = ("table", commands.table(), ("results",))
    card = commands.export_translation("--scores", "test=scores/score.json")
    for path, uses, leaves in (
        ("results/tatoeba.json", (table, ("layers", commands.layers(), ("results",))), ()),
        ("results/xnli.json", (table,), ()),
        ("results/bucc.json", (table,), ()),
        ("scores/score.json", (("bars", commands.bars(), ("scores",)), ("card", card, ("scores", "mt", "root"))), ()),
    ):
        content = (good / path).read_bytes()
        how = {"names": (Path(path).name,), "leaves": leaves}
        damaged = [*damage.wrong_json(content, rng, 30), *damage.cut(content, rng, 5), *damage.flip(content, rng, 6)]
        yield from damage.each("JSON", path, iter(damaged), uses, **how)
        bad = [*damage.other_kinds(rng), *damage.no_file(path), ("UTF-16", content.decode().encode("utf-16"))]
        yield from damage.each("JSON", path, iter(bad), uses, **how, refused=True)
        yield from damage.each("JSON", path, damage.harmless(content.decode()), uses, **how, accepted=True)


def stages(rng: random.Random, good: Path) -> Iterator[Case]:
    """What prepare_root.py and vocap.py go on from; a step that is not whole is done again."""
    prepare = ("prepare", commands.prepare(output="root"), ("raw", "root"))
    vocap = ("vocap", commands.vocap(output="vocap"), ("raw", "vocap"))
    for path, use, ours in (("root/preparation.json", prepare, "root"), ("vocap/vocap.json", vocap, "vocap")):
        content = (good / path).read_bytes()
        how = {"names": (Path(path).name, ours), "changes": (f"{ours}/*", f"{ours}/**/*", f"{ours}/*/*/*"),
               "leaves": (f"{ours}/*", f"{ours}/**/*", f"{ours}/*/*/*")}  # fmt: skip
        damaged = [*damage.wrong_json(content, rng, 30), *damage.cut(content, rng, 6), *damage.flip(content, rng, 8)]
        yield from damage.each("stages", path, iter(damaged), [use], **how)
        yield from damage.each("stages", path, damage.other_kinds(rng), [use], **how, refused=True)
        yield from damage.each("stages", path, damage.no_file(path), [use], **how)
    for path in ("vocap/languages/aa.npz", "vocap/languages/aa.model"):
        content = (good / path).read_bytes()
        how = {
            "names": ("aa.npz", "aa.model", "vocap"),
            "changes": ("vocap/*", "vocap/**/*"),
            "leaves": ("vocap/*", "vocap/**/*"),
        }

        def again(folder: Path, path=path, change=b"") -> None:
            (folder / path).write_bytes(change)
            (folder / "vocap/sentencepiece.bpe.model").unlink()  # so that the languages' stages are read

        damaged = [*damage.cut(content, rng, 8), *damage.flip(content, rng, 14), *damage.swap(content, rng, 6),
                   *damage.other_kinds(rng)]  # fmt: skip
        for what, change in damaged:
            yield Case("stages", f"vocap: {path}: {what}", vocap[1], vocap[2],
                       lambda folder, again=again, change=change: again(folder, change=change), **how)  # fmt: skip


def logs(rng: random.Random, good: Path) -> Iterator[Case]:
    for path in ("logs/simple.log", "logs/json.log"):
        content = (good / path).read_bytes()
        text = content.decode()
        place = text.index("| valid on") if "| valid on" in text else text.index('"valid_loss"')
        uses = [
            ("curves", commands.curves(path), ("logs",)),
            ("curves of training", (*commands.curves(path), "--train"), ("logs",)),
        ]
        damaged = [*damage.flip(content, rng, 20, place, place + 400), *damage.cut(content, rng, 8), *odd(text, rng),
                   ("cut within the validation", content[: place + 60]), ("loss nan", text.replace('"valid_loss": "', '"valid_loss": "nan').encode()),
                   ("a number of 500 digits", text.replace("loss ", "loss " + "9" * 500).encode()),
                   ("two points", text.replace("loss ", "loss 1.2.").encode())]  # fmt: skip
        yield from damage.each("log", path, iter(damaged), uses, names=())
        bad = [*damage.other_kinds(rng), *damage.no_file(path)]
        yield from damage.each("log", path, iter(bad), uses, refused=True)
        yield from damage.each("log", path, damage.harmless(text), uses, accepted=True)


def cases(rng: random.Random, good: Path) -> Iterator[Case]:
    parts = (checkpoints, fallback, hugging_face, json_files, stages, logs)
    yield from itertools.chain.from_iterable(part(rng, good) for part in parts)
