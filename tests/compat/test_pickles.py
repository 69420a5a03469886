# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Checkpoints whose pickle would run code, given to every command that reads one."""

import pytest
import torch
from support.commands import COMMANDS, Command
from support.malicious import Malicious


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_loads_a_pickle_that_runs_code(tmp_path, make_model, run, command):
    """... without being asked to."""
    command = Command(command, tmp_path, make_model)
    torch.save({**torch.load(command.checkpoint), "extra": Malicious(tmp_path / "it ran")}, command.checkpoint)
    assert f"{command.checkpoint}: refused: it holds posix.mkdir" in command.error_line(run)
    assert not (tmp_path / "it ran").exists()
