# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the tests of training share: the command line, its log, and a run of fairseq-train."""

import argparse
import json
import re
import shutil

import pytest
import torch
from support.starting import all_tests

OPTIONS = (
    "--user-dir veco_fairseq --task camlm --criterion camlm --arch veco_tiny --encoder-layers 2 --encoder-embed-dim 16 "
    "--encoder-attention-heads 2 --max-tokens 400 --mono-max-length 16 --optimizer adam --lr 1e-3 --cpu "
    "--log-format json --log-interval 1 --no-epoch-checkpoints"
).split()


@pytest.fixture
def train(run, tmp_path):
    def train(root, *options, save_dir="checkpoints", **keywords):
        return run("fairseq-train", root, *OPTIONS, "--save-dir", tmp_path / save_dir, *options, **keywords)

    return train


def logged(result, tag: str):
    """The JSON lines of a log: tag is train_inner or valid."""
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    found = [json.loads(line) for line in re.findall(rf"\| {tag} \| (\{{.*\}})", result.stdout)]
    assert found, f"no line of {tag}"
    return found


EXACT = "--dropout 0 --attention-dropout 0 --updates-per-epoch 4 --max-update 6 --clip-norm 1".split()


@pytest.fixture
def launch():
    """Run scripts/launch.sh; its launcher and workers are forks, which need no seconds to import."""

    def launch(*arguments, workers=2):
        forks, repository = all_tests()
        words = ("scripts/launch.sh", "--workers", workers, "--", *arguments)
        return forks.bash(*words, cwd=repository, capture_output=True)

    return launch


def options_of(model) -> set:
    parser = argparse.ArgumentParser()
    model.add_args(parser)
    return {option for action in parser._actions for option in action.option_strings}


def weights(folder):
    return torch.load(folder / "checkpoint_last.pt")["model"]


def close(ours, theirs) -> bool:
    """Two models are the same but for rounding.

    The biases of keys may differ more: they change no softmax, so their gradient is nothing but rounding, of which Adam makes steps.
    """
    allowed = {name: 1e-4 if name.endswith("k_proj.bias") else 1e-5 for name in theirs}
    return all(torch.allclose(ours[name], tensor, atol=allowed[name]) for name, tensor in theirs.items())


def resume_exactly(launch, root, options, folder) -> None:
    """From the middle of the epoch that ``folder / "two"`` was trained for, in ``folder / "resumed"``."""
    (folder / "resumed").mkdir()
    shutil.copyfile(folder / "two/checkpoint_1_3.pt", folder / "resumed/checkpoint_last.pt")
    rest = launch(root, *OPTIONS, *options, "--save-dir", folder / "resumed")
    assert [line["num_updates"] for line in logged(rest, "train_inner")] == ["4", "5", "6"]
    resumed, whole = weights(folder / "resumed"), weights(folder / "two")
    assert all(torch.equal(resumed[name], tensor) for name, tensor in whole.items())
