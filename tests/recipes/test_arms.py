# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The arms of the evidence: numbers and names that cannot be, and how small a try is."""

from support.shell import bash

from recipes import RECIPES


def arms(tmp_path, script):
    options = "parse_options out=x arm=veco seed=1 pretraining=1 set= try --"
    return bash(
        tmp_path, f"source '{RECIPES}/lib/arms.sh'\nread_options() {{ {options} $*; choose_out x; comparisons; }}\n{script}"
    )


def test_seeds_of_pretraining_are_numbers(tmp_path):
    calls = "".join(f"(read_options {given}; require_arm) || :\n" for given in ("--seed x", "--pretraining x", "--pretraining 3"))
    told = [line.split(": error: ", 1)[1] for line in arms(tmp_path, calls).stderr.splitlines()]
    assert told == [f"--{name} x: must be a whole number" for name in ("seed", "pretraining")]


def test_a_try_of_the_comparisons_is_small(tmp_path):
    """... and the beginning of a training is still less than the whole, of 10 updates."""
    script = 'read_options --try; echo "$VALID $WARMUP ${UPDATES[veco-begun]} ${VARIATION[veco-begun]} ${SEEDS[*]} ${RATES[*]}"'
    assert arms(tmp_path, script).stdout == "20 5 10 --max-update 5 1 2e-3\n"
