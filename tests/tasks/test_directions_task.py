# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The task of many directions without a training: its directions, targets and sets, and the figures of a direction."""

import math

import pytest
import torch
from fairseq.logging import metrics

from veco_fairseq.errors import UserError
from veco_fairseq.tasks.multilingual_translation import VecoMultilingualTranslationConfig as Config
from veco_fairseq.tasks.multilingual_translation import VecoMultilingualTranslationTask as Task
from veco_fairseq.tasks.multilingual_translation import _log_direction


@pytest.fixture
def make_task(directions):
    def make(**options):
        options = {"train_subset": "train", "seed": 1, "dataset_impl": None, "required_seq_len_multiple": 1, **options}
        return Task.setup_task(Config(data=str(directions), **options))

    return make


def test_a_set_of_no_direction_is_told(make_task):
    task = make_task(lang_pairs="bb-aa,cc-aa")
    task.load_dataset("valid")
    with pytest.raises(UserError, match="has no test2 data of bb-aa: check --lang-pairs, or make it with fairseq-preprocess"):
        task.load_dataset("test2")


def test_a_checkpoint_tells_the_targets(make_task):
    state = {"lang_pairs": ["cc-bb", "cc-aa", "bb-aa"]}
    task = make_task(lang_pairs="aa-cc,cc-aa")
    assert task.targets == ["aa", "cc"] and task.state_dict()["lang_pairs"] == ["aa-cc", "cc-aa"]
    symbols = {"symbols": task.tgt_dict.symbols}
    task.load_state_dict({**state, **symbols})
    assert task.targets == ["aa", "bb"]
    one = make_task(source_lang="aa", target_lang="cc")
    assert one.directions == ["aa-cc"] and one.targets == ["cc"]
    with pytest.raises(UserError, match="cc: the model does not translate into it, but into aa, bb: choose one"):
        one.load_state_dict({**state, **symbols})
    with pytest.raises(UserError, match="token 4 is "):
        task.load_state_dict({**state, "symbols": task.tgt_dict.symbols[:4] + task.tgt_dict.symbols[:3:-1]})


def test_a_target_must_be_chosen_to_translate(make_task):
    task = make_task(lang_pairs="aa-cc,cc-aa")
    with pytest.raises(UserError, match=r"the language to translate into is missing: choose one of aa, cc \(-t\)"):
        task.build_dataset_for_inference([torch.tensor([7, 2])], [2])
    task.choose_target("cc")
    made = task.build_dataset_for_inference([torch.tensor([7, 2])], [2])
    (item,) = made
    assert made.src_sizes.tolist() == [3] and item["source"].tolist() == [task.tgt_dict.index("<2cc>"), 7, 2]


@pytest.mark.parametrize("more, bits", [({}, 20 / 4), ({"nll_loss": 24 * math.log(2)}, 24 / 8)])
def test_perplexity_of_a_direction_is_of_its_loss_where_there_is_no_nll(more, bits):
    """20 bits of loss over a sample size of 4, and 24 bits of NLL over 8 tokens."""
    with metrics.aggregate(new_root=True) as found:
        _log_direction("aa-bb", {"loss": 20 * math.log(2), "sample_size": 4, "ntokens": 8, **more})
    values = found.get_smoothed_values()
    assert values == {"aa-bb_loss": 5, "aa-bb_ppl": 2**bits}
