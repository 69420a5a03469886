# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The task of XLM-E's pre-training, on generated data."""

import pytest
from support.pretraining import task_maker

from veco_fairseq.criterions.replaced_token import ReplacedTokenCriterion


@pytest.fixture
def make_task(make_root):
    return task_maker(make_root, ReplacedTokenCriterion)
