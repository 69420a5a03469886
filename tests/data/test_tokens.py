# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Damaged token files: what is told, and when. And how a text is cut into sentences."""

import errno
import gc
import os
import pickle
import re
import resource
import struct
import sys

import numpy as np
import pytest
import torch
from conftest import error_line, make_dictionary, write_tokens
from fairseq.data import TokenBlockDataset, data_utils, indexed_dataset
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from veco_fairseq.data import tokens
from veco_fairseq.data.roots import find_languages, find_pairs, load_dictionary
from veco_fairseq.data.sources import load_streams
from veco_fairseq.data.tokens import HEADER, load_tokens
from veco_fairseq.errors import UserError
from veco_fairseq.tasks.camlm_options import CamlmTaskConfig

LINES = [[5, 6, 7], [8], [], [9, 10]]
DICTIONARY = make_dictionary(8)  # ids 0 to 12


@pytest.fixture
def prefix(tmp_path):
    write_tokens(tmp_path / "train", LINES)
    return tmp_path / "train"


def changed(path, place, format, number):
    content = bytearray(path.read_bytes())
    struct.pack_into(format, content, place, number)
    path.write_bytes(content)


def test_whole_file_is_read_here_and_in_a_loader_process(prefix):
    for dataset in (load_tokens(prefix, DICTIONARY), pickle.loads(pickle.dumps(load_tokens(prefix, DICTIONARY)))):
        assert [dataset[i].tolist() for i in range(4)] == [[*line, 2] for line in LINES]
        assert dataset.types == 13


def test_tokens_that_may_not_be_read_leave_one_error(prefix, monkeypatch):
    """fairseq's class closes what it has not opened, for which Python printed a traceback behind the line of the error."""
    printed, memmap = [], np.memmap

    def refuse(path, *more, **options):
        if str(path).endswith(".bin"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return memmap(path, *more, **options)

    monkeypatch.setattr(np, "memmap", refuse)
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    with pytest.raises(PermissionError, match=r"train\.bin"):
        load_tokens(prefix, DICTIONARY)
    gc.collect()
    assert not printed


@pytest.fixture
def few_open_files():
    """Let this process open 20 files more, unless it raises its own limit."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    there = len(os.listdir("/proc/self/fd")) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (there, most))
    yield there
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def test_more_files_than_a_process_may_usually_open(prefix, few_open_files):
    """... as 900 pairs have, of which each has four to train on and four to validate: the limit of 1,024 is for old programs."""
    datasets = [load_tokens(prefix, DICTIONARY) for _ in range(40)]
    assert [dataset[1].tolist() for dataset in datasets] == [[8, 2]] * 40
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65536)


@pytest.mark.parametrize("beside", [0, 1])
def test_more_files_than_the_system_allows_are_told(prefix, few_open_files, monkeypatch, beside):
    monkeypatch.setattr(tokens, "OPEN_FILES", few_open_files)
    others = [open(prefix.with_suffix(".idx")) for _ in range(beside)]  # the index is the first one too many, or the tokens
    with pytest.raises(UserError, match=rf"{prefix}\.bin: cannot be opened beside so many others.*ulimit -Hn"):
        others += [load_tokens(prefix, DICTIONARY) for _ in range(40)]


@pytest.mark.parametrize("lines, tokens", [([], b"\5\0"), (LINES, b"")], ids=["an index of none", "an empty file"])
def test_a_file_without_a_sentence_is_told(tmp_path, lines, tokens):
    write_tokens(tmp_path / "train", lines)
    (tmp_path / "train.bin").write_bytes(tokens)
    with pytest.raises(UserError, match=r"train\.bin: holds no sentence"):
        load_tokens(tmp_path / "train", DICTIONARY)


@pytest.mark.parametrize("suffix, place, format, number, message", [
    (".idx", 0, "B", 0, r"train\.idx: not an index of fairseq-preprocess"),
    (".idx", 9, "<Q", 2, r"train\.idx: is damaged \(version 2, ids of type 8\)"),
    (".idx", 17, "B", 99, r"train\.idx: is damaged \(version 1, ids of type 99\)"),
    (".idx", 17, "B", 7, r"ids of type 7"),  # numbers with a fraction
    (".idx", 17, "B", 4, r"train\.idx: is damaged \(the place of sentence 2\)"),  # of four bytes
    (".idx", 18, "<Q", 5, r"train\.idx: has 74 bytes, and 86 for its 5 sentences"),
    (".idx", 18, "<Q", 2**63, r"train\.idx: has 74 bytes, and"),
    (".idx", 26, "<i", 5, r"train\.idx: is damaged \(the place of sentence 2\)"),
    (".idx", 26 + 8, "<i", 0, r"train\.idx: is damaged \(sentence 3 of 0 tokens\)"),
    (".idx", 26 + 12, "<i", 2, r"train\.bin: has 20 bytes where its index says 18"),
    (".idx", 26 + 16 + 16, "<q", 14, r"train\.idx: is damaged \(the place of sentence 3\)"),
    (".bin", 8, "<H", 13, r"train\.bin, sentence 2: has token 13, but the dictionary has 13 tokens"),
    (".bin", 16, "<H", 65535, r"train\.bin, sentence 4: has token 65,535"),
])  # fmt: skip
def test_damage_is_told(prefix, suffix, place, format, number, message):
    changed(prefix.with_suffix(suffix), place, format, number)
    with pytest.raises(UserError, match=message):
        load_tokens(prefix, DICTIONARY)


def test_negative_ids_are_told(tmp_path):
    builder = MMapIndexedDatasetBuilder(f"{tmp_path}/train.bin", dtype=np.int32)
    builder.add_item(torch.tensor([5, -7, 2]))
    builder.finalize(f"{tmp_path}/train.idx")
    with pytest.raises(UserError, match=r"sentence 1: has token -7"):
        load_tokens(tmp_path / "train", DICTIONARY)


def test_what_is_too_much_to_look_at_is_told_as_it_is_read(prefix, monkeypatch):
    changed(prefix.with_suffix(".bin"), 16, "<H", 13)
    monkeypatch.setattr(tokens, "LOOKED_AT", 16)
    dataset = load_tokens(prefix, DICTIONARY)
    assert dataset[2].tolist() == [2]
    with pytest.raises(UserError, match=r"train\.bin, sentence 4: has token 13"):
        dataset[3]
    monkeypatch.setattr(tokens, "CHUNK", 3)
    with pytest.raises(UserError, match=r"train\.bin, sentence 4: has token 13"):
        dataset.check()


def test_index_is_looked_through_in_pieces(prefix, monkeypatch):
    monkeypatch.setattr(tokens, "CHUNK", 3)
    assert load_tokens(prefix, DICTIONARY)[3].tolist() == [9, 10, 2]
    changed(prefix.with_suffix(".idx"), HEADER.size + 16 + 24, "<q", 16)
    with pytest.raises(UserError, match=r"the place of sentence 4"):
        load_tokens(prefix, DICTIONARY)


def test_a_file_without_the_other_is_a_language_that_is_told(make_root):
    root = make_root()
    (root / "mono/aa/train.idx").unlink()
    (root / "bitext/aa-bb/train.aa-bb.aa.idx").unlink()
    (root / "bitext/aa-bb/train.aa-bb.bb.idx").unlink()
    assert set(find_languages(root, "train")) == {"aa", "bb"} and set(find_pairs(root, "train")) == {"aa-bb"}
    with pytest.raises(UserError, match=r"mono/aa/train\.idx: no such file"):
        load_tokens(find_languages(root, "train")["aa"])


@pytest.mark.parametrize("damage, message", [
    (lambda prefix: prefix.with_suffix(".bin").unlink(), r"train\.bin: no such file"),
    (lambda prefix: prefix.with_suffix(".idx").unlink(), r"train\.idx: no such file"),
    (lambda prefix: prefix.with_suffix(".bin").unlink() or prefix.with_suffix(".bin").mkdir(), r"train\.bin: is a folder"),
    (lambda prefix: prefix.with_suffix(".idx").write_bytes(prefix.with_suffix(".idx").read_bytes()[:20]), r"damaged .version 0, ids of type 0"),
    (lambda prefix: prefix.with_suffix(".idx").write_bytes(bytes(100)), r"train\.idx: not an index of fairseq-preprocess"),
    (lambda prefix: changed(prefix.with_suffix(".bin"), 8, "<H", 13), r"sentence 2: has token 13"),
])  # fmt: skip
def test_all_of_fairseqs_tasks_open_files_by_it(prefix, damage, message):
    """Their helpers, as --task translation and language_modeling call them."""
    assert isinstance(data_utils.load_indexed_dataset(str(prefix), DICTIONARY), tokens.TokenFile)
    assert indexed_dataset.dataset_exists(str(prefix), None)
    assert not indexed_dataset.dataset_exists(str(prefix.with_name("other")), None)
    damage(prefix)
    with pytest.raises(UserError, match=message):
        data_utils.load_indexed_dataset(str(prefix), DICTIONARY)


def test_numbers_without_a_dictionary_can_be_any(tmp_path):
    """As of alignments, of which a sentence may have none."""
    builder = MMapIndexedDatasetBuilder(f"{tmp_path}/train.align.bin", dtype=np.int32)
    for item in ([70000, 3], [], [5, 5]):
        builder.add_item(torch.tensor(item, dtype=torch.int32))
    builder.finalize(f"{tmp_path}/train.align.idx")
    dataset = data_utils.load_indexed_dataset(f"{tmp_path}/train.align", None)
    assert [dataset[i].tolist() for i in range(3)] == [[70000, 3], [], [5, 5]]


@pytest.mark.parametrize("name", ["mono/bb/train", "bitext/aa-bb/train.aa-bb.aa", "bitext/aa-bb/train.aa-bb.bb"])
def test_every_file_of_a_root_is_checked_against_its_dictionary(make_root, name):
    root, options = make_root(), CamlmTaskConfig(mono_max_length=32, bitext_max_length=32)
    assert load_streams(root, "train", options, load_dictionary(root)).keys() == {"mono", "bitext"}
    changed(root / f"{name}.bin", 0, "<H", 45)
    with pytest.raises(UserError, match=rf"{name}\.bin, sentence 1: has token 45, but the dictionary has 45 tokens"):
        load_streams(root, "train", options, load_dictionary(root))


def test_training_and_inspection_end_in_one_line(make_root, run):
    root = make_root()
    changed(root / "mono/bb/train.bin", 0, "<H", 45)
    options = ("--mono-max-length", "32", "--bitext-max-length", "32", "--max-tokens", "512", "--arch", "veco_tiny")
    expected = r"mono/bb/train\.bin, sentence 1: has token 45, but the dictionary has 45 tokens"
    assert re.search(expected, error_line(run("scripts/inspect_data.py", root, *options)))
    trained = run("fairseq-train", root, "--user-dir", "veco_fairseq", "--task", "camlm", "--criterion", "camlm", *options,
                  "--optimizer", "adam", "--lr", "0.001", "--max-update", "2", "--cpu", "--no-save")  # fmt: skip
    assert re.search(expected, error_line(trained))


@pytest.mark.parametrize("sizes", [[3, 2, 4], torch.tensor([3, 2, 4])], ids=["list", "tensor"])
def test_a_text_is_cut_into_its_sentences(sizes):
    """--sample-break-mode eos, by which fairseq-eval-lm ended in a traceback of NumPy 2; other modes are fairseq's own."""
    rows = [torch.tensor(row) for row in ([5, 6, 2], [7, 2], [8, 9, 10, 2])]
    sentences = TokenBlockDataset(rows, sizes, None, pad=1, eos=2, break_mode="eos")
    assert [sentence.tolist() for sentence in sentences] == [[5, 6, 2], [7, 2], [8, 9, 10, 2]]
    assert sentences.sizes.tolist() == [3, 2, 4]
    blocks = TokenBlockDataset(rows, sizes, 4, pad=1, eos=2, break_mode="none")
    assert [block.tolist() for block in blocks] == [[5, 6, 2, 7], [2, 8, 9, 10], [2]]
