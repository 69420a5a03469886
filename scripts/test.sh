#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
#
# Sets up what is missing, then runs the tests: bash scripts/test.sh [pytest arguments]
# With a file (tests/data/test_plan.py), only that file runs.
# Tests marked slow are left out unless -m says otherwise (-m slow: only these; -m "": all).
# VECO_PYTHON and VECO_VERSIONS (lowest, newest) choose the Python and the versions that it tests with: see setup.sh.
set -euo pipefail

unset CDPATH  # with it, cd also prints where it goes
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
bash "$repository/scripts/setup.sh"
cd "$repository"

# A test file goes to one process: its tests share what takes long to make. conftest.py has the longest ones first.
# On a small busy machine several threads wait for each other: one run took 25 times as long with two.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

# The tests make and remove many files, which takes a tenth of the time in memory: where that has room, and runs programs.
room="$(df --output=avail -m /dev/shm 2>/dev/null | tail -n 1)" || room=0
if [[ -z "${TMPDIR:-}" && -w /dev/shm ]] && ((room > 4000)) && ! grep -q '^[^ ]* /dev/shm .*noexec' /proc/mounts; then
    export TMPDIR=/dev/shm
fi

marks=(-m "not slow")
tests=(tests)
before=""
for argument in "$@"; do
    if [[ "$argument" == -m* ]]; then marks=(); fi
    # "docs" is no file in -k docs, nor are those that are left out or written
    if [[ -e "${argument%%::*}" && ! "$before" =~ ^(-[ckmopW]|--(ignore|deselect|junit-?xml|rootdir|basetemp|confcutdir))$ ]]; then
        tests=()
    fi
    before="$argument"
done
exec .venv/bin/python -m pytest -c tests/pytest.ini -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder \
    ${marks[@]+"${marks[@]}"} ${tests[@]+"${tests[@]}"} "$@"
