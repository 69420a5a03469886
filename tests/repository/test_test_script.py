# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""scripts/test.sh, offline, on a copy of it and with the stand-in for Python of setup.sh's tests."""

import pytest
from support.sandbox import sandbox  # noqa: F401  a fixture


@pytest.mark.parametrize(
    "arguments, called",
    [
        ([], "-m not slow tests"),
        (["-k", "a b"], "-m not slow tests -k a b"),
        (["-m", "slow"], "tests -m slow"),
        (["-mslow", "--maxfail=1"], "tests -mslow --maxfail=1"),
        (["--maxfail=1"], "-m not slow tests --maxfail=1"),
        (["scripts/setup.sh::test_one", "-x"], "-m not slow scripts/setup.sh::test_one -x"),  # a path that is there
        (["scripts", "-x"], "-m not slow scripts -x"),
        (["-k", "scripts"], "-m not slow tests -k scripts"),  # a word, of which there is a folder, too
        (["-x", "scripts", "-k", "scripts"], "-m not slow -x scripts -k scripts"),
        (["--ignore", "scripts", "--junitxml", "setup.py"], "-m not slow tests --ignore scripts --junitxml setup.py"),
        (["--deselect", "scripts/setup.sh::test_one"], "-m not slow tests --deselect scripts/setup.sh::test_one"),
    ],
)
def test_test_sh_sets_up_and_hands_its_arguments_to_pytest(sandbox, arguments, called):
    sandbox.compiler()
    result = sandbox.run(*arguments, script="test.sh")
    assert result.returncode == 0, result.stderr
    assert "setup: done" in result.stdout
    assert result.stdout.splitlines()[-1] == (
        "pytest called with: -m pytest -c tests/pytest.ini -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder "
        f"{called}; OMP_NUM_THREADS=1"
    )


def test_a_set_up_that_fails_runs_no_tests(sandbox):
    sandbox.compiler()
    result = sandbox.run(script="test.sh", FAKE_INSTALL_FAILS="anything")
    assert result.returncode == 1 and "pip could not install a package" in result.stderr and "pytest called" not in result.stdout
