# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``fairseq-train --task camlm`` as a user runs it: trains, validates, resumes; bad input ends in one line."""

import re
import shutil

import pytest
import torch
from conftest import error_line, write_tokens
from fairseq.trainer import Trainer
from support.training import logged
from tensorboardX.proto.event_pb2 import Event


def tensorboard(folder):
    """{name: its last value} of the scalars in TensorBoard's event file: records of length, crc, event, crc."""
    (path,) = folder.glob("events*")
    scalars, content = {}, path.read_bytes()
    while content:
        end = 12 + int.from_bytes(content[:8], "little")
        scalars |= {v.tag: v.simple_value for v in Event.FromString(content[12:end]).summary.value}
        content = content[end + 4 :]
    return scalars


def test_trains_validates_saves_and_resumes(make_root, train, tmp_path):
    root = make_root()
    (root / "sentencepiece.bpe.model").write_bytes(b"model")
    board = ("--tensorboard-logdir", tmp_path / "board")
    whole = train(root, "--max-update", "6", "--save-interval-updates", "3", *board, save_dir="whole")
    assert whole.stderr == ""
    losses = logged(whole, "train_inner")
    assert {
        "mono_h_loss",
        "mono_s_loss",
        "bitext_h_loss",
        "bitext_s_loss",
        "bitext_tlm_loss",
        "bitext_s_ppl",
        "mono_h_acc",
        "hours_left",
    } <= set(losses[1])
    assert all(0 < float(line["mono_share"]) < 1 for line in losses)
    assert {"valid_loss", "valid_aa_mono_s_loss", "valid_aa-bb_bitext_tlm_ppl"} <= set(logged(whole, "valid")[0])
    for tag in ("train_inner", "valid"):
        scalars = tensorboard(tmp_path / "board" / tag)
        line = {key.removeprefix("valid_"): float(value) for key, value in logged(whole, tag)[-1].items()}
        shown = scalars.keys() & line.keys()
        assert shown >= {"loss", "bitext_s_loss", "mono_h_acc"}
        assert tag == "valid" or shown >= {"wps", "lr", "mono_share", "hours_left"}
        assert [scalars[key] for key in shown] == pytest.approx([line[key] for key in shown], rel=0.01, abs=0.01)
    saved = tmp_path / "whole"
    assert (saved / "dict.txt").read_text() == (root / "dict.txt").read_text()
    assert (saved / "sentencepiece.bpe.model").read_bytes() == b"model"
    state = torch.load(saved / "checkpoint_last.pt")
    assert state["task_state"]["symbols"][-1] == "<mask>" and len(state["task_state"]["symbols"]) == 45

    logged(train(root, "--max-update", "3", "--save-interval-updates", "3"), "train_inner")
    rest = logged(train(root, "--max-update", "6", "--save-interval-updates", "3"), "train_inner")
    keys = [key for key in losses[0] if key.endswith(("loss", "gnorm", "num_updates"))]
    assert len(rest) == 3
    assert [[line[key] for key in keys] for line in rest] == [[line[key] for key in keys] for line in losses[3:]]
    resumed = torch.load(tmp_path / "checkpoints" / "checkpoint_last.pt")["model"]
    assert all(torch.equal(resumed[key], value) for key, value in state["model"].items())


def test_objective_mlm_and_options(make_root, train):
    options = "--objective mlm --no-tlm --updates-per-epoch 2 --max-update 3 --num-workers 1".split()
    result = train(make_root(), *options)
    lines = logged(result, "train_inner")
    assert lines[-1]["epoch"] == 2
    assert not [key for key in lines[0] if "_s_" in key or "tlm" in key]
    terms = [float(lines[0][key]) for key in ("mono_h_loss", "bitext_h_loss")]
    assert min(terms) <= float(lines[0]["loss"]) <= max(terms)


def test_freezes_the_backbone_and_resumes_on_both_sides_of_the_border(make_root, train, tmp_path, monkeypatch):
    root = make_root()
    logged(train(root, "--objective", "mlm", "--max-update", "1", save_dir="mlm"), "train_inner")
    options = "--freeze-backbone-updates 3 --save-interval-updates 1 --updates-per-epoch 6 --num-workers 0".split()
    options += ["--disable-validation", "--init-from", tmp_path / "mlm/checkpoint_last.pt"]
    whole = train(root, *options, "--max-update", "5", save_dir="whole")
    lines = logged(whole, "train_inner")
    assert re.findall(r"(only cross-attention is|all parameters are) trained", whole.stdout) == [
        "only cross-attention is", "all parameters are"
    ]  # fmt: skip
    assert ["bitext_tlm_loss" in line for line in lines] == [False] * 3 + [True] * 2
    states = [torch.load(tmp_path / f"whole/checkpoint_1_{update}.pt") for update in range(1, 6)]
    for update, (state, after) in enumerate(zip(states, states[1:]), start=2):
        moved = {name for name, tensor in state["model"].items() if not torch.equal(tensor, after["model"][name])}
        theta_c = {name for name in state["model"] if ".encoder_attn" in name}
        trained = theta_c if update <= 3 else {name for name in state["model"] if "version" not in name}
        assert moved <= trained and len(moved) > 0.9 * len(trained)
        # Adam's state: two tensors of every parameter that has moved, and none for the others.
        moments = after["last_optimizer_state"]["state"]
        sizes = sum(moment["exp_avg"].numel() for moment in moments.values())
        tied = "encoder.lm_head.weight"
        assert sizes == sum(t.numel() for n, t in after["model"].items() if n in trained and n != tied)

    for restart in (2, 3, 4):
        folder = tmp_path / f"restart{restart}"
        folder.mkdir()
        shutil.copyfile(tmp_path / f"whole/checkpoint_1_{restart}.pt", folder / "checkpoint_last.pt")
        rest = logged(train(root, *options, "--max-update", "5", save_dir=folder.name), "train_inner")
        keys = [key for key in lines[-1] if key.endswith(("loss", "gnorm", "num_updates"))]
        assert [list(map(line.get, keys)) for line in rest] == [list(map(line.get, keys)) for line in lines[restart:]]
        resumed = torch.load(folder / "checkpoint_last.pt")["model"]
        assert all(torch.equal(resumed[name], tensor) for name, tensor in states[-1]["model"].items())

    # Nor does what is frozen move with fp32 copies of half-precision parameters, whose gradients fairseq makes zeros.
    monkeypatch.setattr(Trainer, "_build_optimizer", Trainer._build_optimizer.__wrapped__)  # which allows fp16 on a CPU
    for number, precision in enumerate(("--fp16-no-flatten-grads", "--memory-efficient-fp16")):
        half = train(root, *options, "--weight-decay", "0.1", "--max-update", "3", "--fp16", precision, save_dir=f"half{number}")
        assert len(logged(half, "train_inner")) == 3
        states = [torch.load(tmp_path / f"half{number}/checkpoint_1_{update}.pt") for update in (1, 3)]
        before, after = (state["model"] for state in states)
        moved = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
        assert moved and all(".encoder_attn" in name for name in moved)
        copies = [state["last_optimizer_state"].get("fp32_params", ()) for state in states]
        assert sum(not torch.equal(*pair) for pair in zip(*copies, strict=True)) == (len(moved) if copies[0] else 0)

    mlm = train(root, *options, "--objective", "mlm", save_dir="nothing")
    assert "--freeze-backbone-updates 3: leaves nothing to train with --objective mlm" in error_line(mlm)
    kept = train(root, *options, "--s-terms", "mono", save_dir="nothing")
    assert "--freeze-backbone-updates 3: leaves nothing to train on the batches without S terms" in error_line(kept)
    random = train(root, "--freeze-backbone-updates", "3", save_dir="nothing")
    assert "--freeze-backbone-updates 3: would freeze random weights: add --init-from" in error_line(random)


def test_amp_computes_as_autocast_does(make_root, train, tmp_path):
    root, weights = make_root(), {}
    for name, options in (("fp32", []), ("amp", ["--amp"]), ("autocast", ["--autocast", "bf16"])):
        logged(train(root, *options, "--max-update", "2", "--disable-validation", save_dir=name), "train_inner")
        weights[name] = torch.load(tmp_path / name / "checkpoint_last.pt")["model"]
    equal = {name: all(map(torch.equal, weights["amp"].values(), weights[name].values())) for name in weights}
    assert equal == {"fp32": False, "amp": True, "autocast": True}


def test_bf16_is_refused(make_root, train):
    assert "--bf16 is for TPUs in fairseq: give --autocast bf16" in error_line(train(make_root(), "--bf16"))


BAD = [
    ("dictionary", lambda root: (root / "dict.txt").unlink(), (), r"dict\.txt: no such file"),
    ("no data", lambda root: [shutil.rmtree(root / kind) for kind in ("mono", "bitext")], (), "no valid data"),
    (
        "unequal lines",
        lambda root: write_tokens(root / "bitext/aa-bb/train.aa-bb.aa", [[5, 6]] * 3),
        (),
        r"aa-bb: 3 lines on one side .* and 60 on the other",
    ),
    ("unknown language", lambda root: None, ("--mono-langs", "aa,zz"), r"--mono-langs zz: not in .*there is: aa, bb"),
    ("batch size", lambda root: None, ("--batch-size", "8"), "--mono-batch-size and --bitext-batch-size"),
    ("no root", lambda root: shutil.rmtree(root), (), "no such folder: the first argument is the data root"),
    ("one sentence", lambda root: write_tokens(root / "mono/aa/train", [[5]]), (), "aa: no document of at least two"),
    ("bad dictionary", lambda root: (root / "dict.txt").write_bytes(b"\xff\xfe\x00"), (), "dict.txt"),
    ("empty file", lambda root: (root / "mono/aa/train.bin").write_bytes(b""), (), r"train\.bin: holds no sentence"),
    ("long", lambda root: None, ("--mono-max-length", "600"), "600 tokens, and the model has 512 positions"),
]


@pytest.mark.parametrize("spoil, options, message", [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_ends_in_one_line(make_root, train, spoil, options, message):
    root = make_root()
    spoil(root)
    line = error_line(train(root, "--max-update", "1", *options))
    assert line.startswith("fairseq-train: error: ") and re.search(message, line)


def test_a_checkpoint_that_does_not_fit_ends_in_one_line(make_root, train, tmp_path):
    root = make_root()
    logged(train(root, "--max-update", "1"), "valid")
    checkpoint = tmp_path / "checkpoints" / "checkpoint_last.pt"
    line = error_line(train(root, "--max-update", "2", "--encoder-layers", "3"))
    assert str(checkpoint) in line and "missing" in line.lower()
    data = checkpoint.read_bytes()
    truncated = tmp_path / "truncated.pt"
    truncated.write_bytes(data[: len(data) // 2])
    line = error_line(train(root, "--max-update", "2", "--restore-file", truncated, save_dir="other"))
    assert str(truncated) in line


def test_a_dictionary_in_another_order_is_refused(make_root, train):
    root = make_root()
    logged(train(root, "--max-update", "1"), "valid")
    lines = (root / "dict.txt").read_text().splitlines()
    (root / "dict.txt").write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    line = error_line(train(root, "--max-update", "2"))
    assert "45 tokens" in line and "token 4 is 'w0' there and 'w1' here" in line
