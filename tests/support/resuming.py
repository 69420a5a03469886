# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""fairseq-train in processes that have imported all of it, and data to translate."""

import logging
import multiprocessing
import random
import sys

import fairseq_cli.preprocess
import fairseq_cli.train
import pytest
from fairseq import options


def in_fork(function, *arguments) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    return process


def train_here(command) -> None:
    """fairseq-train in a process that has imported all of it already."""
    logging.getLogger().setLevel(logging.INFO)
    sys.argv = ["fairseq-train", *map(str, command)]
    fairseq_cli.train.cli_main()


@pytest.fixture(scope="module")
def translation(tmp_path_factory):
    """Two folders of pairs of some twenty lengths."""
    folder, rng = tmp_path_factory.mktemp("pairs"), random.Random(1)
    for part in ("one", "two"):
        for lang in ("de", "en"):
            lines = [" ".join(f"w{rng.randrange(30)}" for _ in range(rng.randint(3, 12))) for _ in range(90)]
            (folder / f"{part}.{lang}").write_text("\n".join(lines) + "\n")
        arguments = ["-s", "de", "-t", "en", "--trainpref", f"{folder}/{part}", "--destdir", f"{folder}/{part}"]
        same = ["--srcdict", f"{folder}/one/dict.de.txt", "--tgtdict", f"{folder}/one/dict.de.txt"]
        arguments += ["--joined-dictionary"] if part == "one" else same
        process = in_fork(fairseq_cli.preprocess.main, options.get_preprocessing_parser().parse_args(arguments))
        process.join()
    return folder


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)
