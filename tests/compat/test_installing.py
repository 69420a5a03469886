# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""How the changes to fairseq are made and undone, and what else the plug-in sets when it is imported."""

import ast
import atexit
import importlib.util
import logging
import os
import sys
import warnings
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import fairseq
import pytest
from fairseq.data import iterators

from veco_fairseq import compat
from veco_fairseq.cli import finish_output
from veco_fairseq.compat import guard, noise, patching
from veco_fairseq.errors import UserError


@pytest.fixture
def anew(monkeypatch):
    """To install once more, without any change of fairseq; what is to be done at the end of Python."""
    at_end = []
    monkeypatch.setattr(compat, "PATCHES", ())
    monkeypatch.setattr(atexit, "register", at_end.append)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    with warnings.catch_warnings():
        yield at_end


def test_another_version_of_fairseq_is_refused(anew, monkeypatch):
    monkeypatch.setattr(fairseq, "__version__", "0.12.2")
    with pytest.raises(UserError) as caught:
        compat.install()
    assert str(caught.value) == ("fairseq 0.12.2 is installed, and this plug-in changes parts of 0.12.3.1: pip install "
                                 "fairseq-fixed==0.12.3.1")  # fmt: skip
    assert not anew and logging.raiseExceptions


def test_installing_again_adds_nothing_and_leaves_onednn_its_kernels(anew, monkeypatch):
    """Fewer than its 1,024 would be made again and again: with AMX, for a third of the time of a small model's pre-training."""
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    compat.install()
    compat.install()
    assert "ONEDNN_PRIMITIVE_CACHE_CAPACITY" not in os.environ
    assert anew == [finish_output] * 2 and logging.raiseExceptions is False
    assert sum(isinstance(finder, guard._Finder) for finder in sys.meta_path) == 1


class Target:
    """What is changed below."""

    def method(self):
        return "method"

    @staticmethod
    def static():
        return "static"


@pytest.fixture
def module(monkeypatch):
    """A module of a command that also runs as ``python -m``."""
    twins = [ModuleType("fairseq_cli.of_a_test"), ModuleType("__main__")]
    for twin in twins:
        twin.Target = type("Target", (Target,), dict(vars(Target)))
        twin.main = lambda: "main"
        twin.eval = eval
    twins[1].__spec__ = ModuleSpec("fairseq_cli.of_a_test", None)
    monkeypatch.setitem(sys.modules, "fairseq_cli.of_a_test", twins[0])
    monkeypatch.setitem(sys.modules, "__main__", twins[1])
    monkeypatch.setattr(patching, "_originals", {})
    return twins


def test_a_change_is_made_wherever_the_command_was_imported_and_undone(module):
    first, main = module
    wrapped = patching.Patch("fairseq_cli.of_a_test:main", "", "", wraps=True)
    for word in ("one", "two"):
        patching.make(wrapped, lambda original, word=word: lambda: f"{word} {original()}")
    assert first.main() == main.main() == "two one main"
    patching.undo([wrapped])
    assert first.main() == "main"
    of_class = [patching.Patch(f"fairseq_cli.of_a_test:Target.{name}", "", "") for name in ("method", "static")]
    patching.make(of_class[0], lambda target: "new method")
    patching.make(of_class[1], lambda: "new static")
    assert first.Target().method() == main.Target().method() == "new method"
    assert first.Target().static() == main.Target().static() == "new static"
    patching.undo(of_class)
    assert first.Target().method() == "method" and first.Target().static() == "static"


def test_no_change_is_lost_to_a_later_one_of_the_same_name():
    """A replacement does not call what was there, so that only a change that wraps can come second."""
    seen = set()
    for change in compat.PATCHES:
        assert change.wraps or change.target not in seen, f"{change.target} is replaced after another change of it"
        seen.add(change.target)


def test_the_command_that_runs_is_found_under_its_two_names(module, monkeypatch):
    assert list(patching.running("fairseq_cli.of_a_test")) == module
    assert list(patching.running("fairseq_cli.other")) == []
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=None))  # a script
    assert list(patching.running("fairseq_cli.of_a_test")) == module[:1]


def test_a_command_of_fairseq_that_runs_evaluates_literals_alone(module):
    guard.install()
    assert [twin.eval for twin in module] == [guard.evaluate] * 2
    with pytest.raises(UserError, match="^an option: 'open' is no literal"):
        guard.evaluate("open")


def test_a_folder_of_proteins_is_named():
    with pytest.raises(UserError, match=r"^a/b\.fasta: FASTA is not read here"):
        guard.refuse_fasta(None, "a/b")


@pytest.mark.parametrize("kind", ["EpochBatchIterator", "GroupedEpochBatchIterator", "StreamingEpochBatchIterator"])
def test_each_kind_of_epoch_forks_its_loaders(kind):
    made = getattr(iterators, kind)._get_iterator_for_epoch
    assert made.__wrapped__.__name__ in ("_get_iterator_for_epoch", "iterator_for_epoch")


# As fairseq's libraries write them, with the module whose line it is.
@pytest.mark.parametrize("message, kind, module", [
    ("hydra.experimental.initialize() is no longer experimental. Use hydra.initialize()", UserWarning, "hydra.experimental"),
    ("hydra.experimental.compose() is no longer experimental. Use hydra.compose()", UserWarning, "fairseq.dataclass"),
    ("\nThe version_base parameter is not specified.\nPlease specify", UserWarning, "fairseq.dataclass.initialize"),
    ("In 'config': Usage of deprecated keyword in package header '# @package _group_'.", UserWarning, "hydra.core"),
    ("\n'config' is validated against ConfigStore schema with the same name.", UserWarning, "hydra.core"),
    ("\nThe strict flag in the compose API is deprecated.", UserWarning, "hydra.compose"),
    ("'pin_memory' argument is set as true but no accelerator is found, then", UserWarning, "torch.utils.data.dataloader"),
    ("`torch.cuda.amp.GradScaler(args...)` is deprecated. Please use", FutureWarning, "fairseq.optim.amp_optimizer"),
    ("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", UserWarning, "torch.amp.grad_scaler"),
    ("CUDA is not available or torch_xla is imported. Disabling autocast.", UserWarning, "torch.cuda.amp.autocast_mode"),
    ("User provided device_type of 'cuda', but CUDA is not available. Disabling", UserWarning, "torch.amp.autocast_mode"),
    ("`torch.jit.script` is deprecated. Please switch to", FutureWarning, "torch.jit._script"),
    ("Support for mismatched key_padding_mask and attn_mask is deprecated. Use", UserWarning, "torch.nn.functional"),
])  # fmt: skip
def test_what_no_user_can_do_anything_about_is_not_shown(message, kind, module):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        noise.quiet_known_warnings()
        for words, where in ((message, module), (f"Not {message}", module)):
            warnings.warn_explicit(words, kind, "file.py", 1, module=where)
    assert [str(warning.message) for warning in caught] == [f"Not {message}"]
    assert logging.getLogger("hydra.core.utils").level == logging.INFO


def definition(place: str) -> ast.FunctionDef | None:
    """A function of the code of "module:attribute", unchanged; None where it comes from another module, or is no function."""
    module, attributes = place.split(":")
    file = Path(importlib.util.find_spec(module).origin)
    node = ast.parse(file.read_text(encoding="utf-8") if file.is_file() else "")  # of Python's own modules there is no code
    for name in attributes.split("."):
        node = next((inner for inner in getattr(node, "body", ()) if getattr(inner, "name", None) == name), None)
    return node if isinstance(node, ast.FunctionDef) else None


OWN_DEFAULTS = {  # which mean something else than fairseq's: not given; not used
    "fairseq.data.iterators:EpochBatchIterator._get_iterator_for_epoch": ["fix_batches_to_gpus"],
    "fairseq.utils:multi_tensor_total_norm": ["chunk_size"],
}


def test_a_replacement_takes_what_it_replaces_takes_with_the_same_defaults():
    """Those that stand before *args; whoever leaves one out gets what fairseq would give."""
    compared = 0
    for change in compat.PATCHES:
        theirs = definition(change.target)
        ours = definition(f"veco_fairseq{change.replacement}" if change.replacement.startswith(".") else change.replacement)
        if change.wraps or theirs is None or ours is None:
            continue
        of_both = []
        for function in (theirs, ours):
            given = function.args.args
            defaults = [None] * (len(given) - len(function.args.defaults)) + [ast.unparse(it) for it in function.args.defaults]
            of_both.append([default for argument, default in zip(given, defaults, strict=True)
                            if argument.arg not in OWN_DEFAULTS.get(change.target, ())])  # fmt: skip
        expected, found = of_both
        assert found == (expected[: len(found)] if ours.args.vararg else expected), change.target
        compared += 1
    assert compared > 30
