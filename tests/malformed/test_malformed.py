# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Whatever is damaged, a command ends well or in one line, and destroys nothing (see :mod:`malformed`)."""

from pathlib import Path

import pytest
from support.here import run_here

from malformed import Case, Result
from malformed.running import digests, error_lines, judge

TESTS = Path(__file__).resolve().parents[1]


def run_cases(*arguments: str) -> str:
    """Run cases in forks of a fork of this process; what it printed, if none failed."""
    done = run_here([str(TESTS / "malformed/__main__.py"), *arguments], TESTS, timeout=7200)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-3000:]
    print(done.stdout)
    return done.stdout


def cases_in(table: str) -> int:
    (row,) = (line.split() for line in table.splitlines() if line.startswith("all "))
    assert int(row[2]) > 0 and int(row[3]) > 0 and row[4] == "0"  # some ended well, some in one line, none failed
    return int(row[1])


def test_a_few_of_each_kind():
    assert cases_in(run_cases("--each", "2")) > 60


@pytest.mark.slow
def test_many_of_each_kind():
    assert cases_in(run_cases("--each", "100")) > 1400


# What the judge is to notice


@pytest.mark.parametrize("change, code, err, how, failure", [
    ("", 0, "", {}, None),
    ("", 0, "", {"refused": True}, "accepted"),
    ("", 0, "", {"check": lambda result: "another result"}, "another result"),
    ("", 1, "x.py: error: data.txt: is bad\n", {"names": ("data.txt",)}, None),
    ("", 1, "x.py: error: data.txt: is bad\n", {"accepted": True}, "refused"),
    ("", 1, "x.py: error: something is bad\n", {"names": ("data.txt",)}, "does not say where"),
    ("", 2, "usage: x.py [-h] FILE\n            [--more]\nx.py: error: data.txt: is bad\n", {}, None),
    ("", 1, "a\nb\n", {}, "with 2 lines"),
    ("", 1, "", {}, "with 0 lines"),
    ("", 1, "Traceback (most recent call last):\n  File\nKeyError: 1\n", {}, "a traceback: KeyError: 1"),
    ("", -11, "", {}, "killed by SIGSEGV"),
    ("data.txt", 0, "", {}, "changed or removed data.txt"),
    ("data.txt", 1, "x.py: error: data.txt: is bad\n", {}, "changed or removed data.txt"),
    ("data.txt", 0, "", {"changes": ("data.*",)}, None),
    ("new.txt", 0, "", {}, None),
    ("new.txt", 1, "x.py: error: data.txt: is bad\n", {}, "refused, but wrote new.txt"),
    ("new.txt", 1, "x.py: error: data.txt: is bad\n", {"leaves": ("new.*",)}, None),
    (".new.txt.7.tmp", 0, "", {}, "left .new.txt.7.tmp"),
])  # fmt: skip
def test_what_the_judge_notices(tmp_path, change, code, err, how, failure):
    (tmp_path / "data.txt").write_text("before")
    before = digests(tmp_path)
    if change:
        (tmp_path / change).write_text("after")
    case = Case("kind", "name", ("x.py",), **how)
    found = judge(case, Result(code, "", err, tmp_path), before, digests(tmp_path), timed_out=False)
    assert found is None if failure is None else failure in found


def test_logs_and_warnings_are_no_error_lines():
    err = ("2024-01-01 00:00:00 | INFO | fairseq_cli.train | hello\nINFO:fairseq:hello\n/a/b.py:7: UserWarning: old\n"
           "  warnings.warn(old)\nx.py: error: bad\n")  # fmt: skip
    assert error_lines(err) == ["x.py: error: bad"]
