# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Lets ``--log-file`` have each line once."""

import logging
import os
from collections.abc import Callable
from functools import wraps

from fairseq.logging import progress_bar


def written_once(make: Callable) -> Callable:
    """Make a ``progress_bar`` that opens the file for the first bar alone. fairseq opens it again for each epoch's."""

    @wraps(make)
    def make_and_open_once(*args, log_file: str | None = None, **kwargs) -> progress_bar.BaseProgressBar:
        files = [handler.baseFilename for handler in progress_bar.logger.handlers if isinstance(handler, logging.FileHandler)]
        is_open = log_file is not None and os.path.abspath(log_file) in files
        return make(*args, log_file=None if is_open else log_file, **kwargs)

    return make_and_open_once
