# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What processes are given to do in tests: a module of its own, since each of them imports it."""

import os
import signal
from functools import partial
from operator import mul

from veco_fairseq.errors import UserError


def times_two(number):
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 50:
        raise UserError("no fifty")
    return 2 * number


def make_times_two():
    return times_two


def times(factor):
    return partial(mul, factor)


def make_times(factor):
    return times(factor)


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(7)
