# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tasks and criterions of pre-training, made from generated data."""

import pytest

from veco_fairseq.criterions.knn import KnnCamlmCriterion, KnnCamlmCriterionConfig
from veco_fairseq.tasks.camlm import CamlmTask
from veco_fairseq.tasks.camlm_options import CamlmTaskConfig


def task_maker(make_root, criterion=None):
    """Tasks whose data is hidden as ``criterion`` does it."""

    def make(root=None, **options) -> CamlmTask:
        options = {"seed": 3, "update_freq": [1], "save_dir": "unused", "mono_max_length": 16, **options}
        cfg = CamlmTaskConfig(data=str(root or make_root()), **options)
        task = CamlmTask.setup_task(cfg)
        task.criterion = criterion
        task.load_dataset("train")
        task.load_dataset("valid")
        task.criterion = None
        return task

    return make


@pytest.fixture
def make_task(make_root):
    return task_maker(make_root)


def iterator(task, split="train", **options):
    return task.get_batch_iterator(task.dataset(split), **{"max_tokens": 200, **options})


def criterion_for(task, **options) -> KnnCamlmCriterion:
    return KnnCamlmCriterion(KnnCamlmCriterionConfig(**options), task)
