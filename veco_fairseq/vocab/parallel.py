# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Works on several languages at a time, each in its own process."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from veco_fairseq.errors import UserError


def in_parallel(calls: dict[str, Callable[[], Any]], workers: int) -> Iterator[tuple[str, Any]]:
    """Run calls in ``workers`` processes, and yield (name, result) as each ends; one worker is this process.

    When a call fails, no other call begins, and the running ones end; then its error is raised.

    Raises:
        UserError: a process was killed. Errors of the calls are raised as they are.
    """
    if workers == 1:
        yield from ((name, call()) for name, call in calls.items())
        return
    context = multiprocessing.get_context("spawn")  # threads of SentencePiece and PyTorch do not survive a fork
    workers = max(1, min(workers, len(calls)))
    failure: BaseException | None = None
    with ProcessPoolExecutor(workers, context, initializer=_end_with_the_parent) as pool:
        futures = {pool.submit(call): name for name, call in calls.items()}
        try:
            for future in as_completed(futures):
                if future.cancelled():
                    continue
                if future.exception() is None:
                    yield futures[future], future.result()
                elif failure is None:
                    failure = future.exception()
                    for other in futures:
                        other.cancel()
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    if isinstance(failure, BrokenProcessPool):
        raise UserError("a process was killed, perhaps for memory: try fewer --workers or --lines") from failure
    if failure is not None:
        raise failure


def _end_with_the_parent() -> None:
    """Let a worker ignore Ctrl-C, which the parent handles, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
