# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Searches with one model: translate.py's and fairseq-interactive's."""

import math
import re

import sentencepiece
from conftest import REPOSITORY
from fairseq.dataclass.configs import GenerationConfig
from support.here import run_here

from veco_fairseq.inference.translator import Translator

LIMITS = {"max_len_a": 0, "max_len_b": 9}


def interactive(folder, lines, *options):
    """What fairseq-interactive finds: of each line hypotheses of text and score, in base 2."""
    words = sentencepiece.SentencePieceProcessor(str(folder / "sentencepiece.bpe.model"))
    encoded = ["\t".join(" ".join(words.encode(part, out_type=str)) for part in line.split("\t")) for line in lines]
    command = ["fairseq-interactive", folder, "--beam", 3, "--path", folder / "model.pt", "-s", "de", "-t", "en", "--task", "translation",
               "--remove-bpe", "sentencepiece", "--cpu", "--user-dir", REPOSITORY / "veco_fairseq", "--max-len-a", 0, "--max-len-b", 9, *options]  # fmt: skip
    (folder / "lines").write_text("".join(f"{line}\n" for line in encoded))
    with open(folder / "lines", "rb") as source:
        result = run_here([str(word) for word in command], folder, stdin=source)
    assert result.returncode == 0, result.stderr
    found = [[] for _ in lines]
    for number, score, text in re.findall(r"^D-(\d+)\t(\S+)\t(.*)$", result.stdout, re.MULTILINE):
        found[int(number)].append((text, float(score)))
    return found


def searching(folder, **search):
    """A function of requests: what a translator finds of each, as :func:`interactive`."""
    options = GenerationConfig(**{"beam": 3, **LIMITS, **search})
    translator = Translator([folder / "model.pt"], data=folder, search=options, cpu=True)

    def found(requests):
        return [[(one.text, one.score / math.log(2)) for one in line] for line in translator.hypotheses(requests)]

    return found


def ours(folder, requests, **search):
    return searching(folder, **search)(requests)
