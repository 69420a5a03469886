# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Work on all processors: several calls side by side, or one call for each piece of a stream."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, TypeVar

from veco_fairseq.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(calls: dict[str, Callable[[], Any]], workers: int) -> Iterator[tuple[str, Any]]:
    """(name, result) of every call, each in one of so many processes, as they end; one worker is this process.

    When a call fails no other is begun, and those that are running still end; then its error is raised.

    Raises:
        UserError: a process was killed; and what the calls raise.
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
    """``call(item)`` of every item, in their order, ``call`` being what ``make()`` returns in each process.

    So many processes work on a few items more than they are; the rest is not read yet. One worker is this process, and so
    it is where there is one item alone.

    Raises:
        UserError: a process was killed; and what the calls raise.
    """
    items = iter(items)
    first = list(islice(items, 2))
    if workers == 1 or len(first) < 2:
        yield from map(make(), chain(first, items))
        return
    with _processes(workers, "fewer --workers", _make_here, make) as pool:
        yield from _in_order(pool, _call_here, chain(first, items), 2 * workers)


def in_threads(call: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Generator[Result, None, None]:
    """As :func:`in_processes`, in threads: for calls that leave the interpreter to the others, as SentencePiece's do."""
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield from _in_order(pool, call, items, 2 * workers)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _in_order(pool: Executor, call: Callable[[Item], Result], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    """The calls' results in the order of the items, of which so many are under way."""
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(call, item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def _processes(workers: int, advice: str, begin: Callable | None = None, *arguments: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one, each begun by ``begin(*arguments)``; UserError if one was killed."""
    context = multiprocessing.get_context("spawn")  # SentencePiece's and PyTorch's threads do not survive a fork
    with ProcessPoolExecutor(workers, context, initializer=_end_with_the_parent, initargs=(begin, *arguments)) as pool:
        try:
            yield pool
        except BaseException as error:
            for process in multiprocessing.active_children():
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise UserError(f"a process was killed, perhaps for memory: try {advice}") from error
            raise


_here: Callable[[Any], Any]


def _make_here(make: Callable[[], Callable[[Any], Any]]) -> None:
    """Of a worker: what it does with each item."""
    global _here
    _here = make()


def _call_here(item: Any) -> Any:
    return _here(item)


def _end_with_the_parent(begin: Callable | None, *arguments: Any) -> None:
    """Of a worker: Ctrl-C is for the parent to answer, and nothing goes on when it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    if begin is not None:
        begin(*arguments)
