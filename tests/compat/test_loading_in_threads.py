# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A server loads models: in several threads, where another comes between this project's reading and fairseq's, and many in all."""

from threading import Event, Thread

import torch

from veco_fairseq.compat import checkpoints


def test_each_thread_gets_the_file_that_it_has_asked_for(monkeypatch, tmp_path):
    """One got the other's model, ``torch.load`` failed in a third, and gave the first model for all files for ever."""
    torch.save({"of": "c.pt"}, tmp_path / "c.pt")
    found, load, ended = {}, torch.load, Event()

    def through_fairseq(path, *_):
        if path == "a.pt":
            thread.start()
            other.start()
            other.join()
            thread.join(0.5)
        else:
            ended.wait(60)
        return torch.load(path, map_location="cpu")

    monkeypatch.setattr(checkpoints, "read_checkpoint", lambda path: {"of": path})
    monkeypatch.setattr(checkpoints, "_fairseq_load_checkpoint_to_cpu", through_fairseq)
    thread = Thread(target=lambda: found.update(b=checkpoints.load_checkpoint_to_cpu("b.pt")))
    other = Thread(target=lambda: found.update(c=torch.load(tmp_path / "c.pt", weights_only=True)))
    found["a"] = checkpoints.load_checkpoint_to_cpu("a.pt")
    ended.set()
    thread.join()
    assert found == {name: {"of": f"{name}.pt"} for name in "abc"}
    assert torch.load is load


def test_what_was_read_is_kept_for_trainers_alone(monkeypatch):
    """A server that loads one model after another had kept all their vocabularies."""
    monkeypatch.setattr(checkpoints, "_task_state_of", {})
    monkeypatch.setattr(checkpoints, "model_of", {})
    monkeypatch.setattr(checkpoints, "read_checkpoint", lambda path: {"task_state": {"symbols": [path]}, "cfg": {"model": path}})
    monkeypatch.setattr(checkpoints, "_fairseq_load_checkpoint_to_cpu", lambda path, *_: torch.load(path))
    for path in ("served.pt", "also.pt"):
        assert checkpoints.load_checkpoint_to_cpu(path)["task_state"] == {"symbols": [path]}
    checkpoints.load_checkpoint_to_cpu("trained.pt", load_on_all_ranks=True)
    assert checkpoints._task_state_of == {"trained.pt": {"symbols": ["trained.pt"]}}
    assert checkpoints.model_of == {"trained.pt": "trained.pt"}
