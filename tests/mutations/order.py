# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The tests that a file names, in its order: a plug-in of pytest (``-p mutations.order``)."""

import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items) -> None:
    names = Path(os.environ["TESTS_TO_RUN"]).read_text(encoding="utf-8").splitlines()
    places = {name: place for place, name in enumerate(names)}
    items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])
