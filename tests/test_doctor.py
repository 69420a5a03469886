# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What doctor.py says."""

import platform

import torch

from veco_fairseq.doctor import conflicts


def test_the_report_of_this_machine(run):
    result = run("scripts/doctor.py")
    assert result.returncode == 0 and result.stderr == "", result.stdout + result.stderr
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert lines["python"].startswith(platform.python_version()) and lines["torch"].split("+")[0] in torch.__version__
    assert lines["fairseq-fixed"] == "0.12.3.1" and "processor" in lines and "bf16" in lines


def test_conflicts_and_what_to_do():
    good = {"fairseq-fixed": "0.12.3.1", "omegaconf": "2.3.0", "fairseq": None}
    assert conflicts(good) == []
    (both,) = conflicts({**good, "fairseq": "0.12.2"})
    assert "pip uninstall fairseq" in both
    (none,) = conflicts({**good, "fairseq-fixed": None})
    assert "setup.sh" in none
    (old,) = conflicts({**good, "omegaconf": "2.0.6"})
    assert "needs 2.3" in old
