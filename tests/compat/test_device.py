# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Training elsewhere than on the CPU, as far as that can be seen without a GPU: see ``elsewhere.py``."""

import json

import pytest
import torch.utils.backend_registration
from conftest import REPOSITORY
from support.starting import all_tests
from support.training import OPTIONS, close, logged, weights

pytestmark = pytest.mark.skipif(
    not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this PyTorch has no devices made of Python",
)
UPDATES = 3
# Without dropout, whose random numbers are others there. A large epsilon: Adam moves a parameter whose gradient is
# nothing but rounding as far as any other.
EXACT = f"--dropout 0 --attention-dropout 0 --adam-eps 1e-3 --max-update {UPDATES} --num-workers 0".split()


def train_elsewhere(*command):
    """In a fork of a process that has computed no gradient, after which PyTorch knows no new device."""
    forks, repository = all_tests()
    return forks.bash(
        "-c", '"$@"', "-", "python", REPOSITORY / "tests/support/elsewhere.py", *command, cwd=repository, capture_output=True
    )


@pytest.mark.parametrize(("options", "waits"), [
    # Of an update: at each of two backward passes the loss's gradient is looked at; then the gradients' norm and the sums of
    # the log are read. XLM-E counts the tokens of both batches instead, as the gradient of its loss is one number.
    pytest.param("--disable-validation --no-stop-gradient --checkpoint-activations", 4, id="veco"),
    pytest.param("--knn-targets 3 --knn-rest 4 --embed-dim 8 --relative-position-bias", None, id="knn"),
    pytest.param("--disable-validation --criterion replaced_token --arch xlme_tiny --generator-layers 1", 4, id="xlme"),
])  # fmt: skip
def test_trains_elsewhere_as_on_the_cpu(make_root, run, tmp_path, options, waits):
    command = [make_root(), *OPTIONS, *EXACT, *options.split()]
    here = run("fairseq-train", *command, "--save-dir", tmp_path / "here")
    there = train_elsewhere(*command, "--save-dir", tmp_path / "there")
    for tag in ("train_inner",) if "--disable-validation" in options else ("train_inner", "valid"):
        ours, theirs = logged(there, tag), logged(here, tag)
        keys = [key for key in theirs[0] if key.endswith(("loss", "acc"))]
        assert len(ours) == len(theirs) == (UPDATES if tag == "train_inner" else 1) and len(keys) > 5
        for mine, other in zip(ours, theirs, strict=True):
            assert [float(mine[key]) for key in keys] == pytest.approx([float(other[key]) for key in keys], abs=2e-3)
    assert close(weights(tmp_path / "there"), weights(tmp_path / "here"))
    assert waits is None or json.loads(there.stdout.splitlines()[-1])["number"] == waits * UPDATES


def test_fp16_with_fairseqs_fp32_copies(make_root, run):
    """Losses near fp32's, but not equal to them, with a loss scale."""
    command = [make_root(), *OPTIONS, *EXACT, "--disable-validation", "--no-save", "--clip-norm", "1"]
    here = logged(run("fairseq-train", *command), "train_inner")
    there = logged(train_elsewhere(*command, "--fp16"), "train_inner")
    keys = [key for key in here[0] if key.endswith("loss")]
    theirs, ours = ([[float(line[key]) for key in keys] for line in lines] for lines in (here, there))
    assert len(ours) == UPDATES and ours != theirs and "loss_scale" in there[0]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=0.02)
