# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Works on all processors: on several calls at a time, or on the pieces of a stream."""

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from itertools import chain, islice
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, TypeVar

from veco_fairseq.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

# What gives the results of a stream of items, see kept_processes.
Run = Callable[[Callable[[], Callable[[Any], Any]], Iterable[Any]], Iterator[Any]]


def default_workers() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(calls: Mapping[str, Callable[[], Any]], workers: int) -> Iterator[tuple[str, Any]]:
    """Run calls in ``workers`` processes, and yield (name, result) as each ends; one worker is this process.

    When a call fails, no other call begins, and the running ones end; then its error is raised.

    Raises:
        UserError: a process was killed. Errors of the calls are raised as they are.
    """
    if workers == 1:
        yield from ((name, call()) for name, call in calls.items())
        return
    failure: BaseException | None = None
    with _processes(max(1, min(workers, len(calls))), "fewer --workers or --lines") as pool:
        futures = {pool.submit(call): name for name, call in calls.items()}
        for future in as_completed(futures):
            if future.cancelled():
                continue
            if future.exception() is None:
                yield futures[future], future.result()
            elif failure is None:
                failure = future.exception()
                for other in futures:
                    other.cancel()
        if failure is not None:
            raise failure


def in_processes(
    make: Callable[[], Callable[[Item], Result]], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """Yield ``call(item)`` of every item, in their order; ``make()`` makes ``call`` in each process.

    Only a few items more than there are processes are read ahead. One worker is this process, and so it is for one item.

    Args:
        make: it is sent to the processes with every item, so what is large in it should be a path to a file.
        items: one after the other.
        workers: processes.

    Raises:
        UserError: a process was killed. Errors of the calls are raised as they are.
    """
    with kept_processes(workers) as run:
        yield from run(make, items)


@contextmanager
def kept_processes(workers: int) -> Iterator[Run]:
    """Give a function that does with one stream of items after the other what :func:`in_processes` does with one.

    The processes are started for the first stream of several items, and kept for the others: to start them takes half a
    second. What one and the same ``make`` makes is kept for the next stream, too.

    Raises:
        UserError: a process was killed.
    """
    pool: Executor | None = None
    here: tuple[Any, Any] = None, None  # make, and what it has made
    with ExitStack() as stack:

        def run(make: Callable[[], Callable[[Item], Result]], items: Iterable[Item]) -> Iterator[Result]:
            nonlocal pool, here
            items = iter(items)
            first = list(islice(items, 2))
            if workers == 1 or len(first) < 2:
                if here[0] is not make:
                    here = make, make()
                yield from map(here[1], chain(first, items))
                return
            if pool is None:
                pool = stack.enter_context(_processes(workers, "fewer --workers"))
            yield from _in_order(pool, partial(_call, pickle.dumps(make)), chain(first, items), 2 * workers)

        yield run


def _in_order(pool: Executor, call: Callable[[Item], Result], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    """Yield the calls' results in the order of the items, of which so many are under way."""
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(call, item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def _starting() -> Iterator[None]:
    """Raise UserError if the system starts no process, which would otherwise be blamed on the file that is written meanwhile."""
    try:
        yield
    except OSError as error:
        raise UserError(f"processes cannot be started ({error.strerror}): try --workers 1") from error


class _Process(SpawnProcess):
    """A process that Ctrl-C does not reach while it starts; later it ignores it (:func:`_end_with_the_parent`)."""

    def start(self) -> None:
        """Start with the signal blocked, which a new process takes over; in this one it waits so long."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with _starting():
                super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(SpawnContext):
    Process = _Process


@contextmanager
def _processes(workers: int, advice: str) -> Iterator[ProcessPoolExecutor]:
    """Start processes that end with this one; UserError if none can be started, or one was killed."""
    # spawned, since threads of SentencePiece and PyTorch do not survive a fork
    with _starting():
        made = ProcessPoolExecutor(workers, _Context(), initializer=_end_with_the_parent)
    with made as pool:
        try:
            yield pool
        except BaseException as error:
            for process in multiprocessing.active_children():
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise UserError(f"a process was killed, perhaps for memory: try {advice}") from error
            raise


@lru_cache(maxsize=1)
def _made(make: bytes) -> Callable[[Any], Any]:
    """Let a worker make what it calls with each item, once for all items of a stream."""
    return pickle.loads(make)()


def _call(make: bytes, item: Any) -> Any:
    return _made(make)(item)


def _end_with_the_parent() -> None:
    """Let a worker ignore Ctrl-C, which the parent handles, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
