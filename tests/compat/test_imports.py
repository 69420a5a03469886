# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What fairseq imports for tasks that are not ours is imported where it is called, and computes what it computes."""

import re
import sys
from importlib import import_module, invalidate_caches
from pathlib import Path

import fairseq
import pytest

from veco_fairseq.compat import imports

NAMES = ("heavy", "heavy.figures")


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A module that takes something from a package; both are gone after the test."""
    (tmp_path / "heavy").mkdir()
    (tmp_path / "heavy/__init__.py").touch()
    (tmp_path / "heavy/figures.py").write_text("def mean(*values, plus=0):\n    return sum(values) / len(values) + plus\n")
    (tmp_path / "user.py").write_text("from heavy.figures import mean\nfrom heavy import figures\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [of for of in sys.meta_path if not isinstance(of, imports._Deferring)])
    monkeypatch.setattr(imports, "DEFERRED", {"user": NAMES})
    invalidate_caches()
    yield tmp_path / "user.py"
    for name in ("user", *NAMES):
        sys.modules.pop(name, None)


def test_a_package_is_imported_when_it_is_called(user):
    imports.defer_packages()
    imports.defer_packages()
    assert sum(isinstance(finder, imports._Deferring) for finder in sys.meta_path) == 1
    module = import_module("user")
    assert module.__file__ == str(user) and not {*NAMES} & {*sys.modules}
    assert module.mean(1, 2, 6, plus=4) == 7 == module.figures.mean(1, 2, 6, plus=4)
    assert sys.modules["heavy.figures"].mean(5) == 5 and sys.modules["heavy.figures"] is not module.figures
    with pytest.raises(AttributeError, match="__path__"):
        _ = module.figures.__path__
    with pytest.raises(AttributeError, match="median"):
        module.figures.median(1)


def test_what_was_imported_before_stays(user):
    figures = import_module("heavy.figures")
    imports.defer_packages()
    assert import_module("user").mean is figures.mean and sys.modules["heavy.figures"] is figures


def test_a_module_that_cannot_be_imported_leaves_no_stand_in(user):
    user.write_text("import heavy.figures\nraise ValueError(heavy.figures.mean)\n")
    imports.defer_packages()
    with pytest.raises(ValueError):
        import_module("user")
    assert not {"user", *NAMES} & {*sys.modules}
    import heavy.figures

    assert heavy.figures.mean(4) == 4


def test_they_are_what_fairseq_imports_in_vain():
    """With all of its criterions and tasks."""
    found = {}
    for folder in ("criterions", "tasks", "models", "modules"):
        for file in (Path(fairseq.__path__[0]) / folder).rglob("*.py"):
            lines = re.findall(
                r"^(?:from|import) ((?:sklearn|scipy)[\w.]*)(?: import (.*))?", file.read_text(encoding="utf-8"), re.M
            )
            if lines:
                found[".".join(file.relative_to(Path(fairseq.__path__[0]).parent).with_suffix("").parts)] = lines
    assert found == {
        "fairseq.criterions.sentence_prediction": [
            ("sklearn.metrics", "f1_score"), ("sklearn.metrics", "matthews_corrcoef as _matthews_corrcoef"),
            ("scipy.stats", "pearsonr, spearmanr"),
        ],
        "fairseq.tasks.audio_classification": [("sklearn", "metrics as sklearn_metrics")],
    }  # fmt: skip
    assert set(found) == set(imports.DEFERRED)
