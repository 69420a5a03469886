# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every kind of training, stopped in its second and again in its third epoch, goes on to the last digit."""

import json
import shutil
import socket
from pathlib import Path

import pytest
import torch
from conftest import save_with_vocabulary
from support.nlu import SENTENCES, write_pairs
from support.resuming import in_fork, slow, train_here

KEYS = ("loss", "gnorm", "lr", "num_updates", "epoch")
SAVED = {"translation": 4, "directions": 4, "shards": 4}  # every so many updates; the others' epochs are short


def train(*command, save_dir: Path, workers: int = 1, saved: int = 1, interval: int = 1) -> list:
    """Train in ``save_dir``; what it logged of each update, or after every ``interval`` of them."""
    log = save_dir.with_suffix(".json")
    common = ["--cpu", "--optimizer", "adam", "--save-dir", save_dir, "--log-format", "json",
              "--log-interval", interval, "--save-interval-updates", saved]  # fmt: skip
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"tcp://localhost:{free.getsockname()[1]}"
    together = ["--distributed-world-size", workers, "--distributed-no-spawn", "--distributed-init-method", address,
                "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"] if workers > 1 else []  # fmt: skip
    processes = []
    for rank in range(workers):
        rank_too = ["--distributed-rank", rank] if workers > 1 else []
        only_first = ["--log-file", log] if rank == 0 else []
        processes.append(in_fork(train_here, [*command, *common, *together, *rank_too, *only_first]))
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"epoch"')]
    return [tuple(line[key] for key in KEYS) for line in lines if "num_updates" in line]


@pytest.fixture(scope="module")
def make(translation, directions, tmp_path_factory):
    """The arguments of each kind of training."""
    folder = tmp_path_factory.mktemp("others")
    stock = "--arch transformer_tiny --encoder-layers 1 --decoder-layers 1 --lr 1e-3 --dropout 0.1 --max-tokens 200".split()

    def make(kind, make_root, make_model):
        if kind == "translation":
            return [translation / "one", *stock]
        if kind == "directions":
            return [directions, *stock, *"--task veco_multilingual_translation --alpha 0.3 --max-tokens 400".split()]
        if kind == "shards":
            return [f"{translation / 'one'}:{translation / 'two'}", *stock]
        if kind == "masked languages":  # fairseq draws from them in each epoch, and loads them once
            languages = make_root() / "mono"
            shutil.copy(languages.parent / "dict.txt", languages)
            return [languages, "--task", "multilingual_masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base",
                    *"--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2".split(),
                    *"--tokens-per-sample 16 --sample-break-mode complete_doc --max-tokens 100 --lr 1e-3".split()]  # fmt: skip
        if kind == "nlu":
            pretrained = folder / "pretrained/checkpoint_best.pt"
            if not pretrained.exists():
                save_with_vocabulary(pretrained.parent, make_model, SENTENCES * 3, 22, max_positions=128)
                write_pairs(folder / "pairs", rows=40)
            return [folder / "pairs", "--task", "veco_nlu", "--criterion", "veco_nlu", "--arch", "veco_nlu_tiny",
                    "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "32", "--max-positions", "128", "--plug", "in",
                    "--finetune-from-model", pretrained, "--lr", "0.003", "--lr-scheduler", "linear_by_epoch",
                    "--batch-size", "8"]  # fmt: skip
        model = {
            "camlm": ["--arch", "veco_tiny", "--criterion", "camlm"],
            "mlm": ["--arch", "veco_tiny", "--criterion", "camlm", "--objective", "mlm"],
            "xlme": ["--arch", "xlme_tiny", "--criterion", "replaced_token", "--generator-layers", "1"],
        }[kind]
        return [make_root(), "--task", "camlm", *model, "--encoder-layers", "2", "--encoder-embed-dim", "16", "--lr", "1e-3",
                "--encoder-attention-heads", "2", "--max-tokens", "400", "--mono-max-length", "16"]  # fmt: skip

    return make


@pytest.mark.parametrize("kind, loaders, workers, more", [
    ("translation", 0, 1, "--curriculum 1 --update-freq 1,2"),
    ("translation", 2, 2, "--skip-remainder-batch"),
    ("directions", 0, 2, ""),
    ("nlu", 2, 1, ""),
    ("camlm", 2, 1, "--update-freq 1,2"),
    ("xlme", 0, 2, ""),
    slow("translation", 0, 1, ""),
    slow("translation", 2, 1, ""),
    slow("translation", 0, 1, "--update-ordered-indices-seed --batch-size 7"),
    slow("translation", 0, 1, "--update-epoch-batch-itr True"),
    slow("translation", 0, 1, "--grouped-shuffling --upsample-primary 2"),
    slow("translation", 0, 2, "--grouped-shuffling"),
    slow("directions", 2, 1, ""),
    slow("shards", 0, 1, ""),
    slow("masked languages", 0, 1, ""),
    slow("nlu", 0, 2, ""),
    slow("camlm", 0, 2, ""),
    slow("mlm", 2, 1, ""),
    slow("xlme", 2, 1, ""),
])  # fmt: skip
def test_resumes_to_the_last_digit(make, make_root, make_model, tmp_path, kind, loaders, workers, more):
    """The second stop is of a run that was resumed itself."""
    command = [*make(kind, make_root, make_model), "--num-workers", loaders, "--max-epoch", "3", *more.split()]
    command += ["--no-epoch-checkpoints", "--disable-validation"]
    saved = SAVED.get(kind, 1)
    whole = train(*command, save_dir=tmp_path / "whole", workers=workers, saved=saved)
    before = tmp_path / "whole"
    for epoch in (2, 3):
        of_epoch = [int(line[-2]) for line in whole if line[-1] == epoch]
        stop = next(update for update in of_epoch if update % saved == 0)
        assert stop < of_epoch[-1], "there is something between the stop and the end of the epoch"
        resumed = tmp_path / f"resumed{epoch}"
        resumed.mkdir()
        shutil.copyfile(before / f"checkpoint_{epoch}_{stop}.pt", resumed / "checkpoint_last.pt")
        assert train(*command, save_dir=resumed, workers=workers, saved=saved) == whole[stop:]
        before = resumed
    final, undisturbed = (torch.load(folder / "checkpoint_last.pt")["model"] for folder in (before, tmp_path / "whole"))
    assert all(torch.equal(final[name], undisturbed[name]) for name in undisturbed)


@pytest.mark.parametrize("checkpoint, reports", [
    ("checkpoint1.pt", ["3", "6"]),  # at the end of an epoch, after two of the three updates of a report
    ("checkpoint_3_5.pt", ["6"]),  # in the middle of one
])  # fmt: skip
def test_a_report_is_of_all_its_updates(make, make_root, make_model, tmp_path, checkpoint, reports):
    """Those before the stop count, too; only with --reset-meters they do not."""
    command = [*make("mlm", make_root, make_model), *"--updates-per-epoch 2 --num-workers 0 --max-epoch 3".split()]
    whole = train(*command, "--disable-validation", save_dir=tmp_path / "whole", interval=3)
    assert [line[-2] for line in whole] == ["3", "6"]
    for name, options, same in (("resumed", [], True), ("reset", ["--reset-meters"], False)):
        (tmp_path / name).mkdir()
        shutil.copyfile(tmp_path / "whole" / checkpoint, tmp_path / name / "checkpoint_last.pt")
        found = train(*command, "--disable-validation", *options, save_dir=tmp_path / name, interval=3)
        assert [line[-2] for line in found] == reports
        assert (found[0] == whole[-len(reports)]) is same, name


def test_a_report_of_updates_that_are_counted_anew_is_of_them_alone(make, make_root, make_model, tmp_path):
    """At the end of an epoch, the report of its two updates is not yet due: with --reset-optimizer, none is of them."""
    command = [*make("mlm", make_root, make_model), *"--updates-per-epoch 2 --num-workers 0 --disable-validation".split()]
    train(*command, "--max-epoch", 1, save_dir=tmp_path / "begun", interval=3)
    anew = ["--max-epoch", 3, "--restore-file", tmp_path / "begun" / "checkpoint1.pt", "--reset-optimizer"]
    found = [train(*command, *anew, *options, save_dir=tmp_path / name, interval=3)
             for name, options in (("resumed", []), ("reset", ["--reset-meters"]))]  # fmt: skip
    assert found[0] == found[1] and [line[-2] for line in found[0]] == ["3"]


def test_an_epoch_goes_on_with_another_update_freq(make, make_root, make_model, tmp_path):
    """Of 2 epochs of 5 batches one batch is done; after it, 4 and 5 batches are 2 updates each, and the rate ends at 0."""
    command = [
        *make("nlu", make_root, make_model),
        *"--num-workers 0 --max-epoch 2 --warmup-ratio 0 --disable-validation".split(),
    ]
    assert len(train(*command, save_dir=tmp_path / "whole")) == 10
    (tmp_path / "resumed").mkdir()
    shutil.copyfile(tmp_path / "whole/checkpoint_1_1.pt", tmp_path / "resumed/checkpoint_last.pt")
    resumed = train(*command, "--update-freq", "3", save_dir=tmp_path / "resumed")
    assert [line[-2:] for line in resumed] == [("2", 1), ("3", 1), ("4", 2), ("5", 2)]
    assert [float(line[2]) for line in resumed] == pytest.approx([0.003 * left / 5 for left in (3, 2, 1, 0)], rel=1e-3)


def test_another_metric_begins_a_plateau_anew(make, make_root, make_model, tmp_path):
    """No loss is as low as an accuracy: the learning rate is halved after two losses in vain, and the first counts."""
    command = [*make("mlm", make_root, make_model), "--updates-per-epoch", "1", "--num-workers", "0", "--max-epoch", "3",
               *"--lr-scheduler reduce_lr_on_plateau --lr-threshold 0.99 --lr-patience 1 --lr-shrink 0.5".split()]  # fmt: skip
    folder = tmp_path / "run"
    by_accuracy = ["--best-checkpoint-metric", "mono_h_acc", "--maximize-best-checkpoint-metric"]
    assert [line[2] for line in train(*command, *by_accuracy, save_dir=folder)] == ["0.001"] * 3
    assert [line[2] for line in train(*command, "--max-epoch", "6", save_dir=folder)] == ["0.001"] * 6


def test_the_scheduler_of_a_plateau_knows_what_was_validated(make, make_root, make_model, tmp_path):
    """No validation is better by 99%: after two in vain, of epochs 2 and 3, the rate is halved."""
    command = [*make("mlm", make_root, make_model), "--updates-per-epoch", "2", "--max-epoch", "4", "--num-workers", "0",
               *"--lr-scheduler reduce_lr_on_plateau --lr-threshold 0.99 --lr-patience 1 --lr-shrink 0.5".split()]  # fmt: skip
    whole = train(*command, save_dir=tmp_path / "whole")
    assert [line[2] for line in whole] == ["0.001"] * 6 + ["0.0005"] * 2
    for epoch in (2, 3):
        resumed = tmp_path / f"resumed{epoch}"
        resumed.mkdir()
        shutil.copyfile(tmp_path / f"whole/checkpoint{epoch}.pt", resumed / "checkpoint_last.pt")
        assert train(*command, save_dir=resumed) == whole[2 * epoch :]
    another = [*command, "--max-epoch", "5", "--lr", "0.004"]  # the checkpoint's rate stays
    assert [line[2] for line in train(*another, save_dir=tmp_path / "whole")][-1] == "0.0005"
    overrides = ["--max-epoch", "6", "--optimizer-overrides", "{'lr': 0.004}"]
    assert [line[2] for line in train(*another, *overrides, save_dir=tmp_path / "whole")][-1] == "0.002"  # halved
