# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Tests in the order in which a file names them: a plug-in of pytest (``-p mutations.order``)."""

import os
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items) -> None:
    names = Path(os.environ["TESTS_TO_RUN"]).read_text(encoding="utf-8").splitlines()
    places = {name: place for place, name in enumerate(names)}
    items.sort(key=lambda item: places.get(item.nodeid, len(places)))
