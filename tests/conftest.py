# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Generated data and small models, shared by the tests."""

import gc
import logging
import os
import runpy
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import sitecustomize  # noqa: F401  that of tests/site, before fairseq

# isort: split
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of threads, too, which set_num_threads below does not reach

import fairseq_cli.generate  # noqa: F401  before the plug-in, as where --user-dir brings it
import fairseq_cli.interactive  # noqa: F401
import fairseq_cli.preprocess  # noqa: F401
import fairseq_cli.train  # noqa: F401
import fairseq_cli.validate  # noqa: F401
import numpy as np
import pytest
import torch
import torch.fx.experimental.symbolic_shapes  # noqa: F401  its checks of masks import it, for a third of a second in each fork
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.utils import import_user_module
from support.here import run_here
from support.models import all_random
from support.warming import warm_up
from torch.utils.data._utils import signal_handling

import veco_fairseq.plugin  # noqa: F401
from veco_fairseq.data.sentencepiece import MASK, dictionary_text, train_sentencepiece, write_vocabulary
from veco_fairseq.data.vocabulary import dictionary_of, read_dictionary
from veco_fairseq.models.veco import VecoModel

pytest_plugins = ("support.training", "support.pretraining", "support.resuming", "support.directions")  # fixtures
torch.set_num_threads(1)  # as in scripts/test.sh: a fork of a process with threads (run_here) would wait for them
REPOSITORY = Path(__file__).resolve().parent.parent
import_user_module.memo = {str(REPOSITORY / "veco_fairseq")}  # --user-dir of a fork has been imported
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(REPOSITORY / "tests/site"), os.getenv("PYTHONPATH"))))
LAYERS = 12  # more than nine: layers.1 and layers.11 must not be taken for one another

# Real text, which is not part of the repository: tests that need it skip where it is missing.
SHARED_DATA = Path(os.environ.get("VECO_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))

# Ctrl-C reaches what tests start, even where a shell has started the tests in the background, which makes it ignored.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files whose tests take minutes are begun first, so that no process is left alone with one at the end.
LONGEST = ("docs", "recipe_commands", "malformed", "multilingual_translation", "end_to_end", "search", "stopping", "translation_recipes",
           "device", "bench", "resuming", "training_options", "checkpoint_files", "workers", "training", "interruption", "precision")  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors, since many tests wait for processes that they have started."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items) -> None:
    order = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_collection_finish() -> None:
    warm_up(
        *(f"--task camlm --criterion {criterion} --arch veco_tiny --optimizer adam" for criterion in ("camlm", "replaced_token")),
        "--task veco_nlu --criterion veco_nlu --arch veco_nlu_tiny --optimizer adam",
        *(f"--task {task} --criterion label_smoothed_cross_entropy --arch veco_mt_tiny --optimizer adam"
          for task in ("translation", "veco_multilingual_translation")),
    )  # fmt: skip
    gc.freeze()  # a collection in a fork (run_here) would copy all pages of what is imported


def make_dictionary(types: int = 40, mask: bool = True) -> Dictionary:
    """``types`` ordinary tokens w0, w1, ... after fairseq's four, and ``<mask>``."""
    dictionary = Dictionary()
    for number in range(types):
        dictionary.add_symbol(f"w{number}")
    if mask:
        dictionary.add_symbol(MASK)
    return dictionary


def write_tokens(prefix: Path, lines) -> None:
    """A token file as fairseq-preprocess writes it, from lists of ids without ``</s>``."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    for line in lines:
        builder.add_item(torch.tensor([*line, 2]))
    builder.finalize(f"{prefix}.idx")


def random_lines(rng, count: int, longest: int = 9, types: int = 40):
    return [rng.integers(4, 4 + types, rng.integers(1, longest)).tolist() for _ in range(count)]


@pytest.fixture(autouse=True)
def loaders_of_a_test_are_its_own():
    """PyTorch's handler of SIGCHLD would raise in a later test what became of this one's loader processes."""
    yield
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal_handling._SIGCHLD_handler_set = False


@pytest.fixture
def shared_data() -> Path:
    """The folder of real multilingual text."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"{SHARED_DATA}: no such folder: set VECO_SHARED_DATA to the folder of real text")
    return SHARED_DATA


@pytest.fixture
def make_root(tmp_path):
    """A data root of random tokens: two languages of short documents and one pair."""

    def make(mono=("aa", "bb"), bitext=("aa-bb",), lines: int = 60, valid_lines: int = 12, types: int = 40) -> Path:
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        make_dictionary(types, mask=False).save(str(root / "dict.txt"))
        rng = np.random.default_rng(7)
        for split, count in (("train", lines), ("valid", valid_lines)):
            for lang in mono:
                text = random_lines(rng, count, types=types)
                text[5::6] = [[]] * len(text[5::6])
                write_tokens(root / "mono" / lang / split, text)
            for pair in bitext:
                for lang in pair.split("-"):
                    write_tokens(root / "bitext" / pair / f"{split}.{pair}.{lang}", random_lines(rng, count, types=types))
        return root

    return make


@pytest.fixture
def make_model():
    """A small VecoModel with random weights (biases and LayerNorms too), not in training mode: its dropout shows a forgotten eval()."""

    def make(dictionary=None, layers: int = 3, dim: int = 16, seed: int = 1, dropout: float = 0.1, **options) -> VecoModel:
        torch.manual_seed(seed)
        args = Namespace(
            encoder_layers=layers, encoder_embed_dim=dim, encoder_ffn_embed_dim=2 * dim, encoder_attention_heads=4,
            max_positions=options.pop("max_positions", 64), dropout=dropout, attention_dropout=dropout, **options,
        )  # fmt: skip
        task = SimpleNamespace(source_dictionary=dictionary or make_dictionary())
        model = all_random(VecoModel.build_model(args, task))
        model.encoder.sentence_encoder.embed_tokens.weight.data[task.source_dictionary.pad()].zero_()
        return model

    return make


def save_pretrained(path, model, symbols, objective="camlm"):
    """A checkpoint as fairseq-train writes it."""
    task = {"_name": "camlm", "data": "", "mono_langs": None, "bitext_pairs": None, "mono_max_length": 32,
            "bitext_max_length": 32}  # fmt: skip
    config = {"model": model.args, "task": task, "criterion": {"_name": "camlm", "objective": objective}}
    history = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    state = {"args": None, "cfg": config, "model": model.state_dict(), "task_state": {"symbols": symbols},
             "optimizer_history": [history], "extra_state": {"train_iterator": {"epoch": 1}}}  # fmt: skip
    torch.save(state, path)
    return path


@contextmanager
def changed(path: Path) -> Iterator[dict]:
    """A checkpoint's content, to change: it is saved again."""
    state = torch.load(path, weights_only=False)
    yield state
    torch.save(state, path)


def save_with_vocabulary(folder, make_model, lines, pieces, **options):
    """A checkpoint with random weights, and a vocabulary of ``lines`` beside it, as training leaves them."""
    folder.mkdir(parents=True)
    model = train_sentencepiece(lines, pieces, character_coverage=1.0)
    write_vocabulary(folder, model, dictionary_text(model, folder))
    symbols = dictionary_of([*read_dictionary(folder / "dict.txt").symbols[4:], MASK])
    model = make_model(symbols, arch="veco_tiny", **options)
    return save_pretrained(folder / "checkpoint_best.pt", model, symbols.symbols)


@pytest.fixture
def pretrained(make_model):
    return make_model(layers=LAYERS, arch="veco_tiny")


@pytest.fixture
def checkpoint(pretrained, tmp_path):
    """Its file, as fairseq-train writes it."""
    return save_pretrained(tmp_path / "pretrained.pt", pretrained, make_dictionary().symbols)


@pytest.fixture
def run():
    """Run a command of fairseq or of this project as a user does; gives returncode, stdout and stderr."""

    def run(*command, cwd=REPOSITORY, timeout=300, stdin=None, **environment):
        command = [str(part) for part in command]
        if command[0].startswith("fairseq-"):
            command[0] = str(Path(sys.executable).parent / command[0])
        elif command[0].endswith(".py"):
            command[0] = str(REPOSITORY / command[0])
        if command[0].startswith("/") and not environment:
            return run_here(command, cwd, timeout, stdin)
        if command[0].endswith(".py"):
            command[:0] = [sys.executable]
        return subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=timeout, stdin=stdin,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )  # fmt: skip

    return run


@pytest.fixture
def drawn(monkeypatch):
    """Run a script that draws pictures in this process; gives the axes of each, with the data behind it."""
    import matplotlib.pyplot as plt

    close = plt.close
    close("all")  # of earlier tests
    monkeypatch.setattr(plt, "close", lambda figure: None)

    def drawn(script, *arguments):
        monkeypatch.setattr(sys, "argv", [str(REPOSITORY / script), *map(str, arguments)])
        monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
        level = logging.getLogger().level
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            assert not end.code, script
        finally:
            logging.getLogger().setLevel(level)
        figures = [plt.figure(number) for number in plt.get_fignums()]
        found = [figure.axes[0] for figure in figures]
        for figure in figures:
            close(figure)
        return found

    return drawn


def lines_of(axes) -> dict:
    """label -> points, of curves."""
    return {line.get_label(): [tuple(point) for point in line.get_xydata().tolist()] for line in axes.lines}


def error_line(result) -> str:
    """The one line of a command that refused its input."""
    assert result.returncode != 0, result.stdout[-2000:]
    assert "Traceback" not in result.stderr + result.stdout, result.stderr[-3000:]
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr[-3000:]
    return lines[0]
