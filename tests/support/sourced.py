# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The shell functions of the translation recipes, by themselves."""

import os
import shutil
import subprocess

import pytest
from conftest import REPOSITORY

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def sourced(tmp_path, script, stderr=subprocess.PIPE):
    """Lines of bash that have sourced translation.sh, with OUT and options set."""
    source = f"set -euo pipefail; source {REPOSITORY}/data-bin-recipes/lib/translation.sh"
    script = f"{source}; SRC=en TGT=de; parse_options local= out= -- --out {tmp_path}; begin; {script}"
    environment = {**os.environ, "VECO_SKIP_SETUP": "1"}
    return subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
