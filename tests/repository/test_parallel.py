# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Calls in processes: their order, what is read ahead, errors, and a process that is killed."""

import errno
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from functools import partial
from operator import mul
from types import SimpleNamespace
from unittest import mock

import pytest
from support import doubling
from support.doubling import make_times, make_times_two

from veco_fairseq import parallel
from veco_fairseq.data.prepare.growing import to_be_repeated
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


def test_ctrl_c_does_not_reach_a_process_that_starts():
    """It would print a traceback from whatever Python was importing."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    process = parallel._Context().Process(target=doubling.press_ctrl_c)
    process.start()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    process.join(60)
    assert process.exitcode == 7


@pytest.mark.parametrize("where", ["concurrent.futures.process.ProcessPoolExecutor.__init__",
                                   "multiprocessing.popen_spawn_posix.Popen._launch"])  # fmt: skip
@pytest.mark.parametrize("number, reason", [(errno.EMFILE, "Too many open files"), (errno.EAGAIN, "Resource temporarily")])
def test_processes_that_cannot_be_started_are_told_and_no_output_is_blamed(monkeypatch, where, number, reason):
    """Such as with ulimit -n or -u, or a /dev/shm that is read-only."""
    monkeypatch.setattr(where, mock.Mock(side_effect=OSError(number, os.strerror(number))))
    for begin in (
        lambda: list(parallel.in_processes(make_times_two, range(5), 3)),
        lambda: [*parallel.in_parallel({"a": int}, 2)],
    ):
        with pytest.raises(UserError, match=rf"processes cannot be started \({reason}.*\): try --workers 1"):
            with to_be_repeated("ROOT"):
                begin()


def test_an_error_of_the_output_is_not_one_of_the_processes():
    with pytest.raises(UserError, match="ROOT: cannot be written"):
        with to_be_repeated("ROOT"), parallel.kept_processes(2) as run:
            for _ in run(make_times_two, range(5)):
                raise OSError(errno.EROFS, "Read-only")


def test_a_worker_leaves_ctrl_c_to_its_parent_and_ends_with_it(monkeypatch):
    """Otherwise each would print a traceback of its own, or go on alone."""
    gone, ended, called = threading.Event(), threading.Event(), []
    monkeypatch.setattr(parallel.multiprocessing, "parent_process", lambda: SimpleNamespace(join=gone.wait))
    monkeypatch.setattr(parallel.os, "_exit", lambda code: called.append(("exit", code)) or ended.set())
    monkeypatch.setattr(parallel.signal, "signal", lambda *what: called.append(what))
    parallel._end_with_the_parent()
    assert called == [(signal.SIGINT, signal.SIG_IGN)]
    gone.set()
    assert ended.wait(10) and called[1:] == [("exit", 1)]


@pytest.mark.parametrize("error, raised", [
    (None, None), (KeyboardInterrupt(), KeyboardInterrupt), (UserError("no"), UserError), (BrokenProcessPool(), UserError),
])  # fmt: skip
def test_an_error_ends_the_processes_and_does_not_wait_for_their_work(monkeypatch, error, raised):
    """Of vocap --workers it can take minutes; and forks, instead of new processes, could wait for ever."""
    made, ended = [], []
    monkeypatch.setattr(parallel, "ProcessPoolExecutor", lambda *given, **named: made.append((given, named)) or nullcontext())
    monkeypatch.setattr(
        parallel.multiprocessing, "active_children", lambda: [SimpleNamespace(terminate=lambda: ended.append(1))] * 3
    )
    with pytest.raises(raised) if raised else nullcontext():
        with parallel._processes(3, "less"):
            if error:
                raise error
    assert len(ended) == (3 if error else 0)
    (((workers, context), named),) = made
    assert (workers, context.get_start_method(), named) == (3, "spawn", {"initializer": parallel._end_with_the_parent})


@pytest.fixture
def threads(monkeypatch):
    """Threads instead of processes, which begin at once; gives the numbers of workers that were asked for."""
    asked = []

    @contextmanager
    def processes(workers, advice):
        asked.append((workers, advice))
        with ThreadPoolExecutor(workers) as pool:
            yield pool

    monkeypatch.setattr(parallel, "_processes", processes)
    return asked


def test_one_worker_is_this_process_and_others_are_no_more_than_there_are_calls(threads):
    calls = {"b": lambda: 2, "a": lambda: 1}
    assert list(parallel.in_parallel(calls, 1)) == [("b", 2), ("a", 1)] and threads == []
    assert sorted(parallel.in_parallel(calls, 8)) == [("a", 1), ("b", 2)]
    assert list(parallel.in_parallel({}, 8)) == [] and sorted(parallel.in_parallel({**calls, "c": int}, 2))[-1] == ("c", 0)
    assert threads == [(count, "fewer --workers or --lines") for count in (2, 1, 2)]


def test_items_are_worked_on_by_as_many_as_are_asked_for_and_a_single_one_by_this_process(threads):
    assert list(parallel.in_processes(make_times_two, range(5), 3)) == [0, 2, 4, 6, 8] and threads == [(3, "fewer --workers")]
    assert list(parallel.in_processes(make_times_two, [7], 3)) == [14] and list(
        parallel.in_processes(make_times_two, [7, 8], 1)
    ) == [14, 16]
    assert len(threads) == 1


def test_processes_are_started_for_the_first_stream_of_several_items_and_kept_for_the_others(threads):
    with parallel.kept_processes(3) as run:
        assert list(run(make_times_two, [7])) == [14] and threads == []
        assert list(run(make_times_two, range(5))) == [0, 2, 4, 6, 8] and threads == [(3, "fewer --workers")]
        assert list(run(make_times_two, [])) == [] and list(run(make_times_two, [7])) == [14]
        assert list(run(partial(make_times, 5), [5, 6])) == [25, 30] and list(run(make_times_two, [5, 6])) == [10, 12]
    assert len(threads) == 1


def test_a_process_makes_what_it_calls_once_for_a_stream(monkeypatch):
    """To read a SentencePiece model for every block of lines would take longer than to encode it."""
    made = []
    monkeypatch.setattr(doubling, "times", lambda factor: made.append(factor) or partial(mul, factor))
    two, three = (pickle.dumps(partial(make_times, factor)) for factor in (2, 3))
    assert [parallel._call(make, number) for make in (two, three) for number in (4, 5, 6)] == [8, 10, 12, 12, 15, 18]
    assert made == [2, 3]
    one_here, another = partial(make_times, 7), partial(make_times, 9)
    with parallel.kept_processes(1) as run:
        assert [list(run(make, [4, 5])) for make in (one_here, one_here, another)] == [[28, 35], [28, 35], [36, 45]]
    with parallel.kept_processes(2) as run:
        assert [list(run(one_here, [4])) for _ in range(2)] == [[28]] * 2  # and a file may have changed since
    assert made == [2, 3, 7, 9, 7]


def test_a_kept_process_that_is_killed_is_told():
    with pytest.raises(UserError, match="a process was killed, perhaps for memory: try fewer --workers"):
        with parallel.kept_processes(2) as run:
            assert list(run(make_times_two, [1, 2])) == [2, 4]
            list(run(make_times_two, [3, -1, 4]))


def test_after_an_error_no_call_begins_and_it_is_the_first_that_is_raised(threads):
    began, two_run = [], threading.Event()

    def call(name, seconds=0.0, error=None):
        began.append(name)
        if name == "running":
            two_run.set()
        assert name != "bad" or two_run.wait(10)  # so that it fails beside another one
        time.sleep(seconds)
        if error:
            raise error
        return name

    calls = {"good": partial(call, "good"), "bad": partial(call, "bad", error=UserError("the first")),
             "running": partial(call, "running", 0.3, UserError("the second")),
             **{str(number): partial(call, str(number), 0.3) for number in range(8)}}  # fmt: skip
    with pytest.raises(UserError, match="the first"):
        list(parallel.in_parallel(calls, 2))
    assert {"good", "bad", "running"} <= set(began) and len(began) < 6


def test_as_many_workers_as_there_are_processors_for_this_process(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5} if pid == 0 else {1}, raising=False)
    assert parallel.default_workers() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    for found, workers in ((7, 7), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda found=found: found)
        assert parallel.default_workers() == workers
