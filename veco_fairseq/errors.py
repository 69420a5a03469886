# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The one exception that a user is meant to see."""


class UserError(Exception):
    """Bad input, told in one line: what is wrong, where (file, line, key), and what to do.

    Every command of this project, and ``fairseq-*`` with this plug-in, ends on it with exit code 1
    and the message alone on standard error: no traceback (see :mod:`veco_fairseq.compat`).
    """

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))
