# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A translator in a program of several threads, such as a server: another thread comes in the middle of its search."""

from threading import Thread

import pytest
from fairseq.dataclass.configs import GenerationConfig
from support.converted import translating

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
