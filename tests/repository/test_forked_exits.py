# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A script in a fork of the tests ends as in a process of its own."""

import subprocess
import sys

import pytest
from support.here import run_here


@pytest.mark.parametrize(
    "ending", ["sys.exit('no such file')", "sys.exit(['a', 2])", "sys.exit(3)", "sys.exit(None)", "sys.exit(True)", "pass"]
)
def test_a_fork_has_the_exit_code_and_the_message_of_a_process(tmp_path, ending):
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nprint('begun')\n{ending}\n")
    alone = subprocess.run([sys.executable, script], capture_output=True, text=True)
    forked = run_here([str(script)], tmp_path)
    assert (forked.returncode, forked.stdout, forked.stderr) == (alone.returncode, alone.stdout, alone.stderr)
