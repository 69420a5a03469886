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


@pytest.mark.parametrize(
    ("ours", "peer", "message"),
    [
        (KILLED, "", r"ours: ended with exit code -9 \(-9: too little memory\)"),
        ("", "raise SystemExit(3)", "peer: ended with exit code 3 "),
    ],
)
def test_ours_and_a_peer_that_fails_end_the_command(ours, peer, message):
    with pytest.raises(UserError, match=message):
        in_turn({"ours": job(1, ours), "peer": job(1, peer)}, 1, ["peer"])
