# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Data loaders' processes are forked where Python would take them from a fork server, as it does from 3.14 on.

A fork server's processes get dataset and collater pickled, which fairseq's functions in them refuse; and they inherit
neither what ``--user-dir`` registered nor how SIGTERM is handled. This holds for fairseq's loaders alone: the
start method of the process is left to its owner.
"""

import multiprocessing
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch.utils.data
from torch.utils.data import DataLoader


def forked(get_iterator: Callable) -> Callable:
    """A ``_get_iterator_for_epoch`` of fairseq's whose DataLoader forks its processes.

    Args:
        get_iterator: the method, which makes a ``torch.utils.data.DataLoader`` and names no start method.
    """

    def loader(*args: Any, num_workers: int = 0, **options: Any) -> DataLoader:
        return DataLoader(
            *args, num_workers=num_workers, multiprocessing_context="fork" if num_workers else None, **options
        )

    @wraps(get_iterator)
    def get_forked_iterator(*args: Any, **kwargs: Any) -> Any:
        if multiprocessing.get_start_method() != "forkserver":
            return get_iterator(*args, **kwargs)
        torch.utils.data.DataLoader = loader
        try:
            return get_iterator(*args, **kwargs)
        finally:
            torch.utils.data.DataLoader = DataLoader

    return get_forked_iterator
