# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A server's threads load models at the same time: another thread comes between this project's reading and fairseq's."""

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
