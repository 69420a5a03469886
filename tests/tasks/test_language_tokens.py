# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--task veco_translation``: its sets have the language tokens, and know how long that makes them."""

from types import SimpleNamespace

import pytest
from conftest import make_dictionary, write_tokens
from fairseq.tasks.translation import TranslationConfig

from veco_fairseq.errors import UserError
from veco_fairseq.tasks.translation import VecoTranslationTask


def task_of(folder, langs=("aa", "bb")) -> VecoTranslationTask:
    words = make_dictionary(mask=False)
    for lang in langs:
        words.add_symbol(f"[{lang}]")
    cfg = TranslationConfig(data=str(folder), source_lang="aa", target_lang="bb", train_subset="train")
    changed = {"dataset_impl": None, "required_seq_len_multiple": 1, "num_batch_buckets": 0}
    return VecoTranslationTask(SimpleNamespace(**{**vars(cfg), **changed}), words, words)


@pytest.mark.parametrize("split", ["train", "test"])
def test_sets_end_in_the_tokens_and_are_as_long_as_they_say(tmp_path, split):
    for lang, lines in (("aa", [[5, 6, 7], [8]]), ("bb", [[9], [10, 11]])):
        write_tokens(tmp_path / f"{split}.aa-bb.{lang}", lines)
    task = task_of(tmp_path)
    task.load_dataset(split)
    pairs = task.dataset(split)
    aa, bb = (task.src_dict.index(token) for token in ("[aa]", "[bb]"))
    assert [pairs[row]["source"].tolist() for row in (0, 1)] == [[5, 6, 7, 2, aa], [8, 2, aa]]
    assert [pairs[row]["target"].tolist() for row in (0, 1)] == [[9, 2, bb], [10, 11, 2, bb]]
    assert (pairs.src_sizes.tolist(), pairs.tgt_sizes.tolist()) == ([5, 3], [3, 4])
    assert pairs.sizes.tolist() == [[5, 3], [3, 4]]
    batch = pairs.collater([pairs[0], pairs[1]])
    assert sorted(batch["net_input"]["prev_output_tokens"][:, 0].tolist()) == [bb, bb]


def test_a_text_without_its_translation_is_to_be_translated(tmp_path):
    write_tokens(tmp_path / "test.aa-bb.aa", [[5, 6, 7]])
    task = task_of(tmp_path)
    task.load_dataset("test")
    assert task.dataset("test").src_sizes.tolist() == [5] and task.dataset("test").tgt is None


@pytest.mark.parametrize("missing, there", [("aa", "bb"), ("bb", "aa")])
def test_a_language_without_its_token_is_named(tmp_path, missing, there):
    with pytest.raises(UserError, match=rf"\[{missing}\]: is not in the dictionary: --task veco_translation needs it"):
        task_of(tmp_path, langs=(there,))
