# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The good files that cases damage: small, and made by the project's own commands from the toy corpus."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from malformed import REPOSITORY, commands
from malformed.commands import LAST
from malformed.running import must


def raw(good: Path) -> None:
    """Texts of aa and of bb, the latter with letters beyond ASCII: mono, train, valid, test; test.aa.gz."""
    folder = good / "raw"
    must((str(REPOSITORY / "data-bin-recipes/toy/generate.py"), "--output", str(folder), "--words", "30", "--pairs",
          "120", "--mono", "120", "--finetune-pairs", "50", "--valid", "20", "--test", "20"), good)  # fmt: skip
    for path in {*folder.glob("*.cc"), *folder.glob("finetune.*")}:
        path.unlink()
    for path in folder.glob("*.bb"):
        path.write_text(path.read_text().replace("u", "\u00fc"), encoding="utf-8")
    for lang in ("aa", "bb"):
        packed = gzip.compress((folder / f"test.{lang}").read_bytes(), mtime=0)
        (folder / f"test.{lang}.gz").write_bytes(packed)


def root(good: Path) -> None:
    """A data root of aa, bb and aa-bb, with its vocabulary."""
    must(commands.prepare(output="root"), good)


def camlm(good: Path) -> None:
    """A pre-trained model with its vocabulary."""
    must(commands.pretrain(save_dir="camlm"), good)
    keep(good / "camlm")


def pieces(good: Path) -> None:
    """The texts as pieces."""
    (good / "pieces").mkdir()
    names = [f"{split}.{lang}" for split in ("train", "valid", "test") for lang in ("aa", "bb")]
    must(("scripts/encode.py", "--sentencepiece", "root/sentencepiece.bpe.model", "--workers", "1", "--inputs",
          *(f"raw/{name}" for name in names), "--outputs", *(f"pieces/{name}" for name in names)), good)  # fmt: skip


def bin_(good: Path) -> None:
    """Translation data of aa and bb with one dictionary."""
    must(commands.preprocess("--srcdict", "root/dict.txt", "--joined-dictionary", destination="bin"), good)
    (good / "bin/preprocess.log").unlink()


def mt(good: Path) -> None:
    """A translation model from aa to bb, with the SentencePiece model."""
    must(commands.translation(save_dir="mt"), good)
    keep(good / "mt")
    shutil.copy(good / "root/sentencepiece.bpe.model", good / "mt")


def classification(good: Path) -> None:
    """Pairs of sentences with labels, of aa and bb."""
    for lang in ("aa", "bb"):
        for split, text in (("train", "train"), ("dev", "valid"), ("test", "test")):
            lines = (good / f"raw/{text}.{lang}").read_text(encoding="utf-8").splitlines()[:24]
            rows = [f"{line}\t{other}\t{('yes', 'no', 'maybe')[number % 3]}\n"
                    for number, (line, other) in enumerate(zip(lines, lines[1:] + lines[:1]))]  # fmt: skip
            write(good / f"classification/{split}-{lang}.tsv", "".join(rows))


def tagging(good: Path) -> None:
    """CoNLL-U of aa, and lines of words and tags of bb."""
    for split, text in (("train", "train"), ("dev", "valid"), ("test", "test")):
        sentences = [line.split() for line in (good / f"raw/{text}.aa").read_text().splitlines()[:24]]
        blocks = []
        for number, words in enumerate(sentences):
            rows = [f"{place}\t{word}\t_\t{('NOUN', 'VERB', 'X')[len(word) % 3]}" + 6 * "\t_" + "\n"
                    for place, word in enumerate(words, start=1)]  # fmt: skip
            blocks.append(f"# sent_id = s{number}\n" + "".join(rows))
        write(good / f"tagging/{split}-aa.conllu", "\n".join(blocks) + "\n")
        sentences = [line.split() for line in (good / f"raw/{text}.bb").read_text(encoding="utf-8").splitlines()[:24]]
        blocks = ["".join(f"bb:{word}\t{('NOUN', 'VERB', 'X')[len(word) % 3]}\n" for word in words) for words in sentences]
        write(good / f"tagging/{split}-bb.tsv", "\n".join(blocks))


def span(good: Path) -> None:
    """Questions in SQuAD's format."""
    for lang in ("aa", "bb"):
        for split, text in (("train", "train"), ("dev", "valid")):
            paragraphs = []
            for number, context in enumerate((good / f"raw/{text}.{lang}").read_text(encoding="utf-8").splitlines()[:12]):
                answer = context.split()[-2]
                asked = {"id": f"q{number}", "question": " ".join(context.split()[:2]) + " ?",
                         "answers": [{"answer_start": context.rindex(answer), "text": answer}]}  # fmt: skip
                paragraphs.append({"context": context, "qas": [asked]})
            data = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
            write(good / f"span/{split}-{lang}.json", json.dumps(data, ensure_ascii=False, indent=1))


def nlu_model(kind: str):
    def recipe(good: Path) -> None:
        must(commands.nlu(kind, save_dir=f"{kind}-model"), good)
        keep(good / f"{kind}-model")

    return recipe


def bucc(good: Path) -> None:
    """Two sides of sentences with ids, and which belong together."""
    for lang in ("aa", "bb"):
        lines = (good / f"raw/test.{lang}").read_text(encoding="utf-8").splitlines()
        write(good / f"bucc/{lang}.tsv", "".join(f"{lang}-{n}\t{line}\n" for n, line in enumerate(lines)))
    write(good / "bucc/gold.tsv", "".join(f"aa-{n}\tbb-{n}\n" for n in range(0, 20, 2)))


def links(good: Path) -> None:
    """Gold alignments of test."""
    write(good / "links/gold", "".join("0-0 1p1\n" for _ in range(20)))


def results(good: Path) -> None:
    """JSON that commands read back."""
    folder = good / "results"
    folder.mkdir()
    must(commands.tatoeba(), good)
    (good / "tatoeba.json").rename(folder / "tatoeba.json")
    must(commands.evaluate("classification"), good)
    shutil.rmtree(good / "predicted")
    (good / "figures.json").rename(folder / "xnli.json")
    must(commands.bucc(), good)
    (good / "pairs.tsv").unlink()
    (good / "bucc.json").rename(folder / "bucc.json")


def scores(good: Path) -> None:
    """What fairseq-generate printed, and score.py's JSON of it."""
    folder = good / "scores"
    folder.mkdir()
    (folder / "generated.out").write_text(must(commands.generate(), good), encoding="utf-8")
    must(commands.score_generated(), good)
    (good / "new.json").rename(folder / "score.json")


def logs(good: Path) -> None:
    """Logs of a training, in both formats."""
    for name, form in (("simple", "simple"), ("json", "json")):
        more = ("--log-format", form, "--log-interval", "1", "--no-save")
        write(good / f"logs/{name}.log", must(commands.translation(*more), good))


def vocap(good: Path) -> None:
    """A VoCap vocabulary with all stages."""
    must(commands.vocap(output="vocap"), good)


def hf(good: Path) -> None:
    """The pre-trained encoder as a Hugging Face folder, to start from."""
    must(("scripts/export_hf.py", "--checkpoint", f"camlm/{LAST}", "--output", "hf"), good)


RECIPES = {
    "raw": raw, "root": root, "camlm": camlm, "pieces": pieces, "bin": bin_, "mt": mt, "classification": classification,
    "tagging": tagging, "span": span, "classification-model": nlu_model("classification"),
    "tagging-model": nlu_model("tagging"), "span-model": nlu_model("span"), "bucc": bucc, "links": links,
    "scores": scores, "logs": logs, "vocap": vocap, "hf": hf, "results": results,
}  # fmt: skip
MADE_OF = {
    "root": ("raw",), "camlm": ("root",), "pieces": ("root",), "bin": ("pieces",), "mt": ("bin",),
    "classification": ("raw",), "tagging": ("raw",), "span": ("raw",), "bucc": ("raw",), "links": ("raw",),
    "classification-model": ("classification", "camlm"), "tagging-model": ("tagging", "camlm"),
    "span-model": ("span", "camlm"), "scores": ("mt",), "logs": ("bin",), "vocap": ("raw",), "hf": ("camlm",),
    "results": ("classification-model", "bucc"),
}  # fmt: skip


def make(names: Iterable[str], good: Path) -> None:
    """Make the folders of these names, and what they are made of, where they are not there yet."""
    for name in names:
        make(MADE_OF.get(name, ()), good)
        if not (good / name).exists():
            RECIPES[name](good)


def keep(folder: Path) -> None:
    """Of checkpoints the last alone."""
    (folder / "checkpoint_best.pt").unlink()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
