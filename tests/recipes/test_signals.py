# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""SIGTERM and Ctrl-C during a recipe reach the program that it runs, which saves what it has."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from conftest import REPOSITORY

PROGRAM = """
import pathlib, signal, sys, time

folder = pathlib.Path(sys.argv[1])

def save(number, frame):
    time.sleep(0.3)
    print("saves", flush=True)
    (folder / "saved").write_text(signal.Signals(number).name)
    sys.exit(128 + number)

signal.signal(signal.SIGTERM, save)
if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    signal.signal(signal.SIGINT, save)
(folder / "begun").touch()
time.sleep(60)
"""

# On a busy machine a process that is to ignore signals can be late.
SLOWLY = 'trap() {{ [[ -n $1 ]] || sleep 1; builtin trap "$@"; }}; '


# A terminal sends Ctrl-C to all processes of the recipe; SIGTERM goes to the recipe alone.
@pytest.mark.parametrize("number, send", [(signal.SIGTERM, os.kill), (signal.SIGINT, os.killpg)], ids=["SIGTERM", "Ctrl-C"])
@pytest.mark.parametrize("begun", ["run python", "step part {0}/part to_file '{{}}' translate_part {0}/text 0",
                                   "logged {0}/log python", SLOWLY + "logged {0}/log python"])  # fmt: skip
def test_the_program_saves_before_the_recipe_ends(tmp_path, number, send, begun):
    """... also one that a step of functions runs, or whose output is kept, by a process that begins late."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "text").write_text("a line\n")
    (tmp_path / "python").write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path}/program.py {tmp_path}\n")
    (tmp_path / "python").chmod(0o755)
    script = f"set -euo pipefail; source {REPOSITORY}/data-bin-recipes/lib/synthetic.sh; PATH={tmp_path}:$PATH; {begun.format(tmp_path)}"
    recipe = subprocess.Popen(["bash", "-c", f"{script}; touch {tmp_path}/went-on", "recipe"], start_new_session=True)
    try:
        deadline = time.time() + 30
        while not (tmp_path / "begun").exists():
            assert recipe.poll() is None and time.time() < deadline
            time.sleep(0.02)
        send(recipe.pid, number)
        code = recipe.wait(timeout=30)
        while number == signal.SIGINT and not (tmp_path / "saved").exists():
            assert time.time() < deadline, "the program goes on"
            time.sleep(0.02)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(recipe.pid, signal.SIGKILL)
    assert (tmp_path / "saved").read_text() == number.name
    assert code in (143, -signal.SIGINT, 130) and not (tmp_path / "went-on").exists()
