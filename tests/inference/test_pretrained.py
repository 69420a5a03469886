# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Loading a pre-trained model for the commands."""

import pytest
import torch
from conftest import save_with_vocabulary

from veco_fairseq.inference.pretrained import load_pretrained


@pytest.mark.parametrize("gpu, there, device", [(True, True, "cuda"), (True, False, "cpu"), (False, True, "cpu")])
def test_the_device_is_the_one_asked_for_if_it_is_there(gpu, there, device, tmp_path, make_model, monkeypatch):
    checkpoint = save_with_vocabulary(tmp_path / "pretrained", make_model, ["a b c", "b d", "c d a"] * 9, 9)
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.nn.Module, "to", lambda model, where: chosen.append(where) or model)
    load_pretrained(str(checkpoint), gpu=gpu)
    assert chosen[-1] == device
