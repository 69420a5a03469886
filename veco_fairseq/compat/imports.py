# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Leaves out what fairseq imports for criterions and tasks that are not ours, until it is called: a third of the import's time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

# Modules of fairseq, which are imported with all others, and the packages that each imports.
DEFERRED = {
    "fairseq.criterions.sentence_prediction": ("sklearn", "sklearn.metrics", "scipy.stats"),
    "fairseq.tasks.audio_classification": ("sklearn", "sklearn.metrics"),
}


def _stand_in(name: str) -> ModuleType:
    """Return a module with every function that it is asked for; a function imports the real module when it is called."""

    def later(function: str):
        if function.startswith("__"):
            raise AttributeError(function)
        return lambda *arguments, **options: getattr(import_module(name), function)(*arguments, **options)

    module = ModuleType(name)
    vars(module)["__getattr__"] = later
    return module


@contextmanager
def stand_ins(names: tuple[str, ...]) -> Iterator[None]:
    """Put stand-ins for modules that have not been imported, and take them away at the end; a package comes before its modules."""
    made = {name: _stand_in(name) for name in names if name not in sys.modules}
    for name, module in made.items():
        package, _, of_package = name.rpartition(".")
        if package in made:
            setattr(made[package], of_package, module)
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]


class _Deferring(MetaPathFinder):
    """Finds the modules of :data:`DEFERRED`, as Python does, and imports them beside stand-ins."""

    def find_spec(self, fullname, path=None, target=None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in DEFERRED else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def beside_stand_ins(module: ModuleType) -> None:
                with stand_ins(DEFERRED[fullname]):
                    execute(module)

            vars(spec.loader)["exec_module"] = beside_stand_ins
        return spec


def defer_packages() -> None:
    """Import scikit-learn and SciPy's statistics only where they are called, if fairseq is imported after this."""
    if not any(isinstance(finder, _Deferring) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Deferring())
