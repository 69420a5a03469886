#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Sets up what is missing, then checks format and code with ruff, and types with mypy; pyproject.toml has their settings.
#
# usage: lint.sh [--fix]
#
#   --fix  format, and mend what ruff can mend, before checking
set -euo pipefail

if [[ $# -gt 1 || ($# -eq 1 && $1 != --fix) ]]; then
    echo "lint.sh: error: $*: the only option is --fix" >&2
    exit 2
fi
unset CDPATH  # with it, cd also prints where it goes
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
bash "$repository/scripts/setup.sh"
cd "$repository"
code=(veco_fairseq scripts tests data-bin-recipes setup.py)
if [[ $# -eq 1 ]]; then
    .venv/bin/ruff format "${code[@]}"
    .venv/bin/ruff check --fix "${code[@]}"
fi
.venv/bin/ruff format --check "${code[@]}"
.venv/bin/ruff check "${code[@]}"
exec .venv/bin/mypy
