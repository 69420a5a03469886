# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""SIGTERM while something is written."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block by an exception, as Ctrl-C does, so that it can remove what it has begun.

    Nothing changes where SIGTERM has a meaning already, as in a training, or in another thread than the first.
    """
    is_new = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if is_new:
        signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        if is_new:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
