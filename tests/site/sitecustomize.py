# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Python imports this file as it starts: fairseq's commands, too, leave out what is imported in vain, as ours do."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

# by its file: fairseq does not take a --user-dir whose name has been imported
spec = spec_from_file_location("imports", Path(__file__).parents[2] / "veco_fairseq/compat/imports.py")
module = module_from_spec(spec)
spec.loader.exec_module(module)
module.defer_packages()
