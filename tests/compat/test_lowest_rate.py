# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""When --stop-min-lr ends a training."""

from support.training import logged


def test_ends_after_the_epoch_in_which_the_rate_has_fallen(make_root, train, tmp_path):
    """... neither in the warm-up, nor in the middle of an epoch where a training goes on."""
    root, options = make_root(), "--updates-per-epoch 2 --max-update 12 --warmup-updates 6 --lr-scheduler polynomial_decay"
    options = [*options.split(), *"--stop-min-lr 5.1e-4 --disable-validation --save-interval-updates 9".split()]
    whole = train(root, *options)
    rates = [float(line["lr"]) for line in logged(whole, "train_inner")]
    assert rates[1] < 5.1e-4 < rates[5] == 1e-3 and len(rates) == 10
    assert "stopping training because current learning rate" in whole.stdout
    (tmp_path / "resumed").mkdir()
    (tmp_path / "checkpoints/checkpoint_5_9.pt").rename(tmp_path / "resumed/checkpoint_last.pt")
    rest = train(root, *options, save_dir="resumed")
    assert [line["num_updates"] for line in logged(rest, "train_inner")] == ["10"]
    again = train(root, *options, save_dir="resumed")
    assert again.returncode == 0 and "train_inner" not in again.stdout
