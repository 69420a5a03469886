# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Calls in processes: their order, what is read ahead, errors, and a process that is killed."""

import pytest
from support.doubling import make_times_two

from veco_fairseq import parallel
from veco_fairseq.errors import UserError


def test_processes_give_their_results_in_order():
    assert list(parallel.in_processes(make_times_two, range(40), 2)) == list(range(0, 80, 2))
    read = []
    results = parallel.in_processes(make_times_two, (read.append(n) or n for n in range(40)), 3)
    assert next(results) == 0 and len(read) <= 8  # six are under way; the rest is not read
    results.close()
    assert list(parallel.in_processes(make_times_two, [7], 3)) == [14] and not list(parallel.in_processes(make_times_two, [], 3))
    with pytest.raises(UserError, match="no fifty"):
        list(parallel.in_processes(make_times_two, range(45, 60), 2))
    with pytest.raises(UserError, match="a process was killed, perhaps for memory: try fewer --workers"):
        list(parallel.in_processes(make_times_two, [1, 2, -1, 3], 2))
