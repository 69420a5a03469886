# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Parts of the recipes, run by bash as a recipe runs them."""

import subprocess

from recipes import RECIPES

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "VECO_SKIP_SETUP": "1"}


def bash(folder, script, *arguments):
    """Run lines of bash that have sourced steps.sh, in a recipe folder of their own with a space in its name."""
    recipe = folder / "my recipe"
    recipe.mkdir(exist_ok=True)
    path = recipe / "run.sh"
    path.write_text(f"set -euo pipefail\nsource '{RECIPES}/lib/steps.sh'\n{script}\n", encoding="utf-8")
    return subprocess.run(["bash", path, *arguments], capture_output=True, text=True, env=ENVIRONMENT, cwd=recipe)
