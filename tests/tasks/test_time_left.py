# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""How many hours pre-training tells that it still needs."""

import torch
from fairseq.logging import metrics
from support.pretraining import criterion_for

LOG = {"loss": torch.tensor(1.0), "sample_size": 1, "ntokens": 1, "nsentences": 1,
       **{f"{kind}_{what}": 0 for kind in ("mono", "bitext") for what in ("pairs", "tokens")}}  # fmt: skip


def test_time_left_is_told_at_the_rate_of_the_last_updates(make_task):
    task = make_task(max_update=310)
    criterion = criterion_for(task)
    task.begun.append((9, -9000.0))  # too long ago to count
    task.begun.extend((update, 1000.0 + update) for update in range(10, 110))
    task.begun.append((110, 2834.0))  # 18.24 seconds an update, and 200 updates to go
    for training, expected in ((True, 1.01), (False, None)):
        with metrics.aggregate(new_root=True) as agg:
            task.reduce_metrics([LOG], criterion.train(training))
        assert agg.get_smoothed_values().get("hours_left") == expected
    task.cfg.max_update = 0  # the end is that of an epoch, or never
    with metrics.aggregate(new_root=True) as agg:
        task.reduce_metrics([LOG], criterion.train())
    assert "hours_left" not in agg.get_smoothed_values()


def test_time_left_is_told_as_of_the_last_update(make_task):
    """It is no figure to average over the updates of --log-interval, of which the first had twice as much before it."""
    task = make_task(max_update=310)
    criterion = criterion_for(task).train()
    with metrics.aggregate(new_root=True) as agg:
        for task.begun in ([(10, 0.0), (110, 3600.0)], [(110, 3600.0), (210, 7200.0)]):  # 36 seconds an update
            task.reduce_metrics([LOG], criterion)
    assert agg.get_smoothed_values()["hours_left"] == 1.0  # of the 100 updates that are left, not of 150
