# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The commands that each recipe runs, with each of its options, in a table (commands.txt).

A paragraph is a call ($), what it runs, the checksums that it asks for (#), its error (!), and the texts that it makes (>).

``cd tests && python -m recipes`` writes the table anew; what changed in it is for a reader's eyes.
"""

import gzip
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

from recipes.cases import TRANSLATION, cases

RECIPES = Path(__file__).resolve().parents[2] / "data-bin-recipes"
SCRIPTS = sorted(path for path in RECIPES.glob("**/*.sh") if path.parent.name != "lib")
TABLE = Path(__file__).with_name("commands.txt")
PROGRAMS = ("python", "bash", "fairseq-train", "fairseq-generate", "sacrebleu", "curl", "nproc",
            "sha256sum", "tar")  # fmt: skip
# What the scripts name, but for what a user and the system may set: programs before them may have exported it.
NAMED = set(
    re.findall(r"[$\s({!#]([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)\b", "".join(path.read_text() for path in RECIPES.glob("**/*.sh")))
)
FOREIGN = sorted(
    NAMED - {"BASH_SOURCE", "LC_ALL", "PATH", "PYTHONPATH", "SLURM_NODEID", "VECO_MASTER", "VECO_NODE_RANK", "VECO_SKIP_SETUP"}
)
PREPARED = ("raw/*.*", "data/*.*", "vocabulary/*", "pretrain.mono/*.*", "denoising/mono/*.*", "bible/raw/*.*", "bible/vocabulary/*",
            "understanding/flores/data/*.*")  # fmt: skip


class Place:
    """Folders for the calls: the recipes in a repository without .venv, stand-ins, a model and texts; all paths have a space and are
    patterns that do not match themselves."""

    def __init__(self, folder: Path):
        self.folder = folder = folder / "my [folder]"
        self.recipes = folder / "REPO/data-bin-recipes"
        shutil.copytree(RECIPES, self.recipes)
        # A download's checksum is written down, and every one is right.
        with open(self.recipes / "lib/downloads.sh", "a") as published:
            published.write('\nis_file() { [[ -s $1 ]] && echo "# checksum $2" >>"$CALLS"; }\n')
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name in PROGRAMS:
            shutil.copy(Path(__file__).with_name("stand-in"), self.programs / name)
        for name in ("dict.txt", "sentencepiece.bpe.model", "model.pt"):
            self.write(f"PRETRAINED/{name}")
        checksums = re.findall(r"^([0-9a-f]{64}) (\S+)$", (RECIPES / "lib/multi30k.sh").read_text(), re.MULTILINE)
        for checksum, name in checksums:
            count = 2005 if name.startswith("train") else 25  # more lines than are taken of them with --try
            self.write(f"LOCAL/{name}.gz", "\n".join((checksum, *map(str, range(2, count + 1)))))
        for lang in ("de", "fr", "en", "cs"):
            for split in ("valid", "test"):
                self.write_lines(f"{split}.{lang}", f"{split}.{lang}", 25, suffix="")
        for lang in ("de", "fr"):
            self.write(f"LOCAL/more.{lang}")
        self.write("LOCAL/mono", "\n".join(f"mono {number}" for number in range(1, 26)))
        self.write("LOCAL/blank", " \n")
        for name in ("news.de-en.de", "news.de-en.en.gz"):
            self.write(f"LOCAL/{name}")
        for lang in ("en", "de"):
            for suffix in ("tsv", "conllu", "json"):
                for name in ("train-", "dev-", "test-", "t.", "e."):
                    self.write(f"LOCAL/{name}{lang}.{suffix}")
        self.write("LOCAL/squad.translate.train.en-de.json")
        for side in ("de", "en", "gold"):
            self.write(f"LOCAL/bucc.de.{side}")
        for side in ("deu", "eng"):
            self.write(f"LOCAL/tatoeba.deu-eng.{side}")
        # likewise; and more than the comparisons take of the validation news (500) and of the captions
        for lang in ("en", "de", "fr", "cs", "es"):
            for name, lines in (("bible/train", 2005), ("bible/valid", 25), ("newstest/train_2008-2012", 2005),
                                ("newstest/valid_2013", 505), ("multi30k/train", 2005), ("multi30k/val", 25),
                                ("multi30k/test_2016_flickr", 25)):  # fmt: skip
                self.write_lines(f"{name}.{lang}", f"{name}.{lang}", lines)
        for lang in ("en", "de", "fr", "cs"):
            self.write(f"LOCAL/ud/{lang}_pud-ud-test.conllu.gz")
        for lang in ("eng", "deu", "fra", "ces", "spa"):
            self.write_lines(f"flores101/{lang}.devtest", f"flores101/{lang}", 25)
        for split, lines in (("train", 2005), ("valid", 25), ("test", 25)):
            for lang in ("en", "de", "fr", "cs", "es", "mi", "tl", "ru", "zh"):
                self.write_lines(f"bible/{split}.{lang}", f"bible/{split}.{lang}", lines)
            for lang in ("en", "sw", "eu"):
                self.write_lines(f"bible_nt_lowres/{split}.{lang}", f"new testament {split}.{lang}", lines)
        for name in ("en-de.en", "en-de.de", "en-fr.en", "en-fr.fr"):
            self.write(f"LOCAL/manythings/train.{name}")

    def write(self, name: str, text: str = "") -> None:
        """A file with this text, or its own name."""
        path = self.folder / name
        text = text or name
        path.parent.mkdir(parents=True, exist_ok=True)
        # of the compressed ones the last line has no end
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else f"{text}\n".encode())

    def write_lines(self, name: str, beginning: str, count: int, *, suffix: str = ".gz", folder: str = "LOCAL") -> None:
        """A text with so many lines, of which the second is blank."""
        self.write(f"{folder}/{name}{suffix}", "\n".join((f"{beginning} one", "", "two", *map(str, range(4, count + 1)))))

    def fill(self, script: str) -> None:
        """What earlier scripts leave in OUT."""
        for name in ("OUT", "OTHER"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        if script in ("many-to-many/prepare", "evidence/prepare", "evidence/prepare_bible"):
            for folder in ("OUT", "OUT/bible"):
                self.write(f"{folder}/pretrain/sentencepiece.bpe.model")
                self.write(f"{folder}/pretrain/dict.txt")
                self.write(f"{folder}/pretrain/mono/en/train.bin")
        if "/prepare" in script:
            return
        self.write("OUT/pretrain/dict.txt")
        for pair in ("aa-bb", "en-de", "de-fr", "en-fr", "de-en"):
            self.write(f"OUT/mt.{pair}/dict.{pair[3:]}.txt")
        for lang in ("en", "de"):
            self.write(f"OUT/mt/dict.{lang}.txt")
        for objective in ("camlm", "mlm", "camlm.other", "mlm.other"):
            self.write(f"OUT/checkpoints/{objective}/checkpoint_last.pt")
        if script.startswith("evidence/"):
            self.evidence()
        if script.endswith("/train"):
            shutil.rmtree(self.folder / "OUT/checkpoints")
        if script == "evidence/train":
            self.write("OUT/checkpoints/camlm.veco-8.s3/checkpoint_last.pt")  # veco-nmt begins with it
            self.write("OUT/checkpoints/mlm.xlm-8.s3/checkpoint_last.pt")  # from-xlm begins with it
        lang = "de" if script == "xtreme/bucc/evaluate" else "deu"  # Tatoeba's codes have three letters
        for name in ("train-en.tsv", "train-de.tsv", f"test-{lang}.source", f"test-{lang}.eng"):
            self.write(f"OUT/data/{name}")
        self.write("OUT/raw/test.bb")
        if script.endswith(("/backtranslate", "/distill")):
            for lang in ("en", "de", "fr"):
                for split in ("train", "valid", "test"):
                    folder = "clean" if script.startswith("wmt14") and split != "test" else "raw"
                    self.write_lines(f"{split}.{lang}", f"{folder} {split}.{lang}", 25, suffix="", folder=f"OUT/{folder}")
        if script.endswith(("/evaluate", "/compare", "/distill")):
            for name in ("veco", "mine", "random", "xlm", "long"):
                for seed in (1, 2, 3, 5):
                    for checkpoint in ("last", "1_100"):
                        self.write(f"OUT/checkpoints/finetune.{name}.s{seed}/checkpoint_{checkpoint}.pt")
            if script.split("/")[0] in TRANSLATION.split():  # which take the mean of several
                for number in range(2, 12):
                    self.write(f"OUT/checkpoints/finetune.veco.s1/checkpoint_1_{number}00.pt")
                    self.write(f"OUT/checkpoints/finetune.mine.s2/checkpoint_1_{number}00.pt")
                self.write("OUT/checkpoints/finetune.short.s1/checkpoint_last.pt")
            for place, name, seed in (("OUT", "transfer.out", 1), ("OTHER", "mine", 2), ("OTHER", "mine", 3)):
                self.write(f"{place}/checkpoints/{name}.s{seed}/checkpoint_best.pt")
            for name in ("test.de", "test.en", "test.fr", "test.cs", "test_2016_flickr.de", "test_2016_flickr.fr"):
                self.write(f"OUT/raw/{name}")

    def evidence(self) -> None:
        """What its comparisons need, in OUT."""
        for name in (
            "vocabulary/dict.txt",
            "pretrain.mono/dict.txt",
            "pretrain.few/dict.txt",
            "mt.few/dict.en.txt",
            "denoising/mono/dict.txt",
            "raw/captions.test_2016_flickr.de",
            "results.jsonl",
        ):
            self.write(f"OUT/{name}")
        for data in ("en-de.500", "en-de.1000", "en-de.2000", "en-de.8000", "en-de.29000", "en-fr.29000"):
            self.write(f"OUT/captions.{data}/dict.en.txt")
        for run in ("xlm.p3.en-de.29000.lr3e-3.dropout0.25.s2", "veco.p1.en-de.2000.lr1e-3.dropout0.1.s1",
                    "veco.p1.en-de.1000.lr3e-3.dropout0.25.s1"):  # fmt: skip
            self.write(f"OUT/finetuned/{run}/checkpoint_best.pt")
        for name in ("pretrain/dict.txt", "vocabulary/dict.txt", "verses.en-mi.22317/dict.en.txt", "verses.en-sw.6379/dict.en.txt",
                     "raw/test.en-mi.mi", "checkpoints/mlm.xlm.s3/checkpoint_last.pt", "checkpoints/camlm.veco.s1/checkpoint_last.pt",
                     "finetuned/xlm.p3.en-mi.22317.lr3e-3.dropout0.25.s2/checkpoint_best.pt", "mt/dict.en.txt"):  # fmt: skip
            self.write(f"OUT/bible/{name}")
        for task in ("xnli", "udpos", "pud", "tatoeba", "flores"):
            for lang in ("en", "de"):
                self.write(f"OUT/understanding/{task}/data/train-{lang}")
        for model in (
            "camlm.veco",
            "camlm.no-stop",
            "camlm.veco-mono",
            "mlm.xlm",
            "mlm.xlm-updates",
            "mlm.xlm-mono",
            "nmt",
            "nmt-more",
            "mbart",
            "xlme",
            "camlm.no-tlm",
            "camlm.veco-8",
            "veco-nmt",
            "camlm.deep",
        ):
            for seed in (1, 3):
                self.write(f"OUT/checkpoints/{model}.s{seed}/checkpoint_last.pt")

    def call(self, case: str) -> str:
        """The case's part of the table: the call, and the commands that it ran; the error if it ended in one."""
        words = shlex.split(case)
        foreign = self.folder / "foreign"
        foreign.touch()
        environment = {
            **dict.fromkeys(FOREIGN, str(foreign)),
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "VECO_SKIP_SETUP": "1",
            "CALLS": str(self.folder / "calls"),
        }
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        script, *arguments = words
        self.fill(script)
        (self.folder / "calls").write_text("")
        # the prefixes of --more have a space between them, and so none in them
        paths = [of != "--more" and bool(re.match(r"(OUT|OTHER|LOCAL)\b", word)) for of, word in zip(["", *arguments], arguments)]
        arguments = [f"{self.folder}/{word}" if path else word for path, word in zip(paths, arguments)]
        arguments = [str(self.folder / "PRETRAINED/model.pt") if word == "MODEL" else word for word in arguments]
        command = ["/bin/bash", str(self.recipes / f"{script}.sh"), *arguments]
        result = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL
        )
        assert foreign.exists(), case
        quoted = re.sub(r"[] []", r"\\\g<0>", str(self.folder))  # as %q does; a path that is not is two words
        lines = [line.rstrip() for line in (self.folder / "calls").read_text().replace(f"{quoted}/", "").splitlines()]
        lines += [f"! {line}" for line in result.stderr.replace(f"{self.folder}/", "").splitlines()]
        places = PREPARED if "/prepare" in script else ("backtranslated*/train.??", "distilled*/train.??")
        for made in (path for place in places for path in sorted(self.folder.glob(f"OUT/{place}"))):
            if made.suffix != ".done":
                name = made.relative_to(self.folder)
                lines.append(f"> {name}: {' | '.join(shortened(made.read_text().splitlines()))}".rstrip())
        told = "".join(f"{line}\n" for line in lines)
        told = told.replace("PRETRAINED/model.pt", "MODEL")
        return f"$ {case}\n{told}"


def shortened(lines: list[str]) -> list[str]:
    """Of many lines the first and the last ones, and their number."""
    return lines if len(lines) < 9 else [*lines[:2], f"... {len(lines)} lines ...", *lines[-2:]]


@cache
def help_of(script: Path) -> str:
    """What ``--help`` prints."""
    environment = {"PATH": "/usr/bin:/bin", "VECO_SKIP_SETUP": "1"}
    return subprocess.run(["bash", script, "--help"], capture_output=True, text=True, env=environment, check=True).stdout


def table(folder: Path) -> str:
    """The whole table, a paragraph for each case."""
    place = Place(folder)
    return "\n".join(place.call(case) for case in cases())
