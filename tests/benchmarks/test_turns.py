# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Measurements in turn: what is left out, and what ends all."""

import pytest

from veco_fairseq.benchmarks.turns import in_turn
from veco_fairseq.errors import UserError

KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def job(seconds, instead=""):
    return ["-c", instead or f"print('said before'); print('{{\"seconds\": {seconds}}}')"]


def test_a_peer_that_is_killed_is_left_out_and_the_others_go_on(capsys):
    results = in_turn({"ours": job(2), "large": job(1, KILLED), "small": job(3)}, 2, ["large", "small"])
    assert results == {"ours": [{"seconds": 2}] * 2, "small": [{"seconds": 3}] * 2}
    assert capsys.readouterr().out.splitlines() == [
        "round 1 of 2, ours: 2.00 s",
        "large: was killed, since the machine has too little memory for it; it is left out",
        "round 1 of 2, small: 3.00 s",
        "round 2 of 2, ours: 2.00 s",
        "round 2 of 2, small: 3.00 s",
    ]


def test_a_job_of_ours_that_is_killed_ends_the_command():
    with pytest.raises(UserError, match="^ours: was killed, since the machine has too little memory for it: ask for less$"):
        in_turn({"ours": job(1, KILLED), "peer": job(1)}, 1, ["peer"])


def test_a_peer_that_fails_ends_the_command_with_its_own_words_alone(capfd):
    with pytest.raises(SystemExit, match="^3$"):
        in_turn({"ours": job(1), "peer": job(1, "import sys; sys.stderr.write('why\\n'); sys.exit(3)")}, 1, ["peer"])
    assert capfd.readouterr().err == "why\n"
