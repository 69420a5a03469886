# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A translator in a program of several threads, such as a server: another thread comes in the middle of its search."""

from threading import Event, Thread

import pytest
import torch
from fairseq.dataclass.configs import GenerationConfig
from support.converted import translating

from veco_fairseq.inference.search import Draws
from veco_fairseq.inference.translator import Translator

LINES = ["gul", "dol bem bal dil gan dol bem bal dil gan"]
SEARCH = {"beam": 2, "max_len_a": 2, "max_len_b": 1}


@pytest.fixture
def model(tmp_path, make_model):
    return translating(tmp_path / "model", make_model)


def made(model, **search):
    return Translator([model / "model.pt"], data=model, cpu=True, search=GenerationConfig(**SEARCH, **search))


def in_the_middle(monkeypatch, translator, work):
    """Begin ``work`` in another thread at the first step of the translator's search, and give it a second; return the thread."""
    step, thread = translator.generator.search.step, Thread(target=work)

    def after_work(*args):
        if thread.ident is None:
            thread.start()
            thread.join(1)
        return step(*args)

    monkeypatch.setattr(translator.generator.search, "step", after_work)
    return thread


def test_threads_translate_in_turn(monkeypatch, model):
    """The other's lengths were taken: a long line's translation was cut at that of a short one, or there was an IndexError."""
    translator, found = made(model), []
    short, long = (translator.translate([line]) for line in LINES)
    assert len(long[0]) > 2 * len(short[0])
    thread = in_the_middle(monkeypatch, translator, lambda: found.append(translator.translate(LINES[:1])))
    assert translator.translate(LINES[1:]) == long
    thread.join()
    assert found == [short]


def test_a_search_for_the_best_leaves_the_programs_random_numbers_alone(monkeypatch, model):
    """Another thread, with random numbers of its own seed, drew those of the translator's meanwhile."""
    translator, drawn = made(model), []
    in_the_middle(monkeypatch, translator, lambda: drawn.append(torch.rand(3)))
    torch.manual_seed(5)
    translator.translate(LINES)
    assert torch.equal(torch.cat([*drawn, torch.rand(3)]), torch.rand(6, generator=torch.Generator().manual_seed(5)))


def test_translators_draw_in_turn():
    """PyTorch's generators are those of all threads: each drew the numbers of the other's seed, too."""
    first, second, drawn, done = *(Draws(seed, torch.device("cpu")) for seed in (3, 4)), [], Event()

    def draw():
        with second.own():
            drawn.append(torch.rand(4))
        done.set()

    with first.own():
        numbers = [torch.rand(2)]
        Thread(target=draw).start()
        assert not done.wait(0.5)
        numbers.append(torch.rand(2))
    assert done.wait(60)
    for seed, found in ((3, torch.cat(numbers)), (4, drawn[0])):
        assert torch.equal(found, torch.rand(4, generator=torch.Generator().manual_seed(seed)))
