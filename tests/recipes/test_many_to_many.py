# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The recipe of many directions, from three texts to a table of BLEU."""

import subprocess
import sys

import pytest
from conftest import REPOSITORY
from fairseq.data.indexed_dataset import MMapIndexedDataset
from support.shell import ENVIRONMENT
from support.starting import recipe

from recipes import RECIPES
from veco_fairseq.data.vocabulary import read_dictionary


@pytest.mark.slow
def test_from_three_texts_to_a_table(tmp_path):
    text, out = tmp_path / "text", tmp_path / "out"
    generate = [sys.executable, RECIPES / "toy/generate.py", "--output", text, "--words", "20", "--pairs", "150", "--valid", "20",
                "--test", "13", "--finetune-pairs", "1"]  # fmt: skip
    subprocess.run(generate, check=True, env=ENVIRONMENT | {"PYTHONPATH": str(REPOSITORY)}, stdout=subprocess.DEVNULL)
    common = ("--out", out, "--langs", "aa bb cc", "--zero-shot", "bb-cc")
    recipe("many-to-many/prepare", *common, "--local", text, "--vocab-size", 150)
    dictionaries = [read_dictionary(out / f"mt/dict.{lang}.txt") for lang in ("aa", "bb", "cc")]
    assert all(dictionary.symbols[-3:] == ["<2aa>", "<2bb>", "<2cc>"] for dictionary in dictionaries)
    for pair in ("aa-bb", "aa-cc", "bb-cc"):  # bb-cc, too: cc-bb is trained
        for split, count in (("train", 150), ("valid", 20), ("test", 13)):
            assert len(MMapIndexedDataset(str(out / f"mt/{split}.{pair}.{pair[:2]}"))) == count
    recipe("many-to-many/train", "--out", out, "--updates", 2, "--", "--cpu")
    recipe("many-to-many/finetune", *common, "--updates", 2, "--", "--cpu")
    told = recipe("many-to-many/evaluate", *common, "--", "--cpu")
    rows = [line.split("|")[1].strip() for line in told.splitlines() if line.startswith("| ")]
    assert rows == ["direction", "---", "aa-bb", "aa-cc", "bb-aa", "cc-aa", "cc-bb", "bb-cc, zero-shot"]
    recipe("many-to-many/finetune", *common, "--updates", 1, "--directions", "aa-bb", "--name", "one", "--", "--cpu")
    assert "| direction | one | veco |" in recipe(
        "many-to-many/evaluate", *common, "--directions", "aa-bb", "--name", "one", "--", "--cpu"
    )


@pytest.mark.parametrize("arguments, message", [
    (["--langs", "en"], "--langs en: give two languages or more"),
    (["--langs", "en de en"], "--langs en de en: en is there twice"),
    (["--langs", "en pt-BR"], "--langs en pt-BR: a code has no hyphen here: take such as pt_BR"),
    (["--zero-shot", "en-nl"], "--zero-shot en-nl: must be one of: en-de de-en "),
    (["--langs", "en nl", "--local", "LOCAL"], "LOCAL/train.en[.gz]: is not there: --local needs {train,val,test_2016_flickr}.{en,nl}"),
])  # fmt: skip
def test_bad_input(tmp_path, arguments, message):
    arguments = [argument.replace("LOCAL", str(tmp_path)) for argument in arguments]
    command = ["bash", RECIPES / "many-to-many/prepare.sh", "--out", tmp_path / "out", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert result.returncode == 1 and result.stderr.startswith("many-to-many/prepare.sh: error: ")
    assert message.replace("LOCAL", str(tmp_path)) in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("text, message", [
    ("one\ntwo\nthree", "valid: 2 lines of aa and 3 of bb: line N must be the same sentence in all"),  # the last without its end
    ("", "{0}/valid.bb: is empty"),
])  # fmt: skip
def test_texts_of_unequal_length_are_refused(tmp_path, text, message):
    for split in ("train", "valid", "test"):
        for lang in ("aa", "bb"):
            (tmp_path / f"{split}.{lang}").write_text("one\ntwo\n")
    (tmp_path / "valid.bb").write_text(text)
    error = recipe("many-to-many/prepare", "--out", tmp_path / "out", "--langs", "aa bb", "--local", tmp_path, code=1)
    assert error == f"many-to-many/prepare.sh: error: {message.format(tmp_path)}\n"
