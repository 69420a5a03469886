# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The mean of checkpoints."""

import re
from argparse import Namespace
from fractions import Fraction

import pytest
import torch
from conftest import error_line

from veco_fairseq.checkpoints.averaging import EPOCH, UPDATE, average, average_checkpoints, last_checkpoints
from veco_fairseq.errors import UserError


def save(path, seed, dtype=torch.float32, **others):
    generator = torch.Generator().manual_seed(seed)
    shared, other = torch.randn(5, 3, generator=generator).to(dtype), torch.randn(2, generator=generator)
    model = {"a.weight": shared, "b.weight": shared, "c": other, "version": torch.ones(1).long()}
    state = {"cfg": {"model": {"_name": str(seed)}}, "model": {**model, **others}, "last_optimizer_state": {"m": shared.clone()}}
    torch.save(state, path)
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_mean(tmp_path, dtype):
    paths = [save(tmp_path / f"{seed}.pt", seed, dtype) for seed in (1, 2, 3)]
    output = tmp_path / "new" / "average.pt"
    average_checkpoints(paths, output)
    found = torch.load(output)
    models = [torch.load(path)["model"] for path in paths]
    for name in ("a.weight", "b.weight", "c"):
        mean = torch.stack([model[name].double() for model in models]).mean(0)
        wide = torch.float64 if name != "c" and dtype == torch.float64 else torch.float32
        assert torch.equal(found["model"][name], mean.to(wide)) and found["model"][name].dtype == wide
    assert found["model"]["a.weight"].data_ptr() == found["model"]["b.weight"].data_ptr()
    assert found["model"]["version"].dtype == torch.int64
    assert found["cfg"] == {"model": {"_name": "1"}} and "last_optimizer_state" not in found
    with pytest.raises(UserError, match=f"--output {paths[1]}: that is the checkpoint itself; choose another file"):
        average_checkpoints(paths, paths[1])
    assert torch.equal(torch.load(paths[1])["model"]["c"], models[1]["c"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_mean_of_two_neighbours_in_16_bits_is_between_them(tmp_path, dtype):
    """1 and the next larger number; rounded to 16 bits, the mean would be one of the two."""
    after = 1 + torch.finfo(dtype).eps
    paths = [save(tmp_path / f"{weight}.pt", 1, w=torch.tensor([weight]).to(dtype)) for weight in (1.0, after)]
    assert average(paths)["model"]["w"].tolist() == [(1 + after) / 2]


def test_a_number_that_is_no_weight_is_the_firsts(tmp_path):
    paths = [save(tmp_path / f"{count}.pt", 1, count=torch.tensor(count)) for count in (3, 8)]
    assert [average(order)["model"]["count"] for order in (paths, paths[::-1])] == [3, 8]


def test_weights_that_count_twice_are_told(tmp_path, caplog):
    """... such as a training's last ones, which have two names; the mean is what was asked for."""
    one, two, last = (save(tmp_path / name, seed) for name, seed in (("1.pt", 1), ("2.pt", 2), ("last.pt", 2)))
    average([one, two])
    assert not caplog.messages
    found = average([one, two, last])["model"]
    told = f"{two} and {last} have the same weights, which count twice in the mean: leave out one of them"
    assert caplog.messages == [told]
    models = [torch.load(path)["model"]["c"].double() for path in (one, two)]
    assert torch.equal(found["c"], ((models[0] + 2 * models[1]) / 3).float())


def test_the_last_ones(tmp_path):
    for name in ("1", "2", "10", "_1_90", "_1_200", "_2_1000", "_last", "_best"):
        (tmp_path / f"checkpoint{name}.pt").touch()
    for name in ("checkpoint_3_2000.pt.tmp", "checkpoint11.pt.old"):  # of a copy that was cut off
        (tmp_path / name).touch()

    def names(*arguments):
        return [path.stem for path in last_checkpoints(tmp_path, *arguments)]

    assert names(2, UPDATE) == ["checkpoint_2_1000", "checkpoint_1_200"]
    assert names(2, EPOCH) == ["checkpoint10", "checkpoint2"]
    assert names(2, UPDATE, 999) == ["checkpoint_1_200", "checkpoint_1_90"]
    assert names(2, UPDATE, 200) == ["checkpoint_1_200", "checkpoint_1_90"]
    with pytest.raises(UserError, match="has 3 checkpoints of updates, not 4: ask for fewer, or train with .* at an epoch.s end"):
        names(4, UPDATE)
    below = "of updates up to --checkpoint-upper-bound 200, not 3: ask for fewer, or raise that bound, of 3 in all$"
    with pytest.raises(UserError, match=f"has 2 checkpoints {below}"):
        names(3, UPDATE, 200)
    with pytest.raises(UserError, match="has 2 .* up to --checkpoint-upper-bound 200, not 4: ask for fewer, or train with"):
        names(4, UPDATE, 200)
    with pytest.raises(UserError, match="has 3 .* not 4: ask for fewer, or train for 4 epochs, without .* smaller --keep-last"):
        names(4, EPOCH)
    with pytest.raises(UserError, match="has 0 checkpoints of updates .* 0, not 2: raise that bound, of 3 in all$"):
        names(2, UPDATE, 0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match="has 0 checkpoints of updates, not 2: train with --save-interval-updates and --keep-interval"
    ):
        last_checkpoints(tmp_path / "empty", 2, UPDATE)
    (tmp_path / "empty/checkpoint_1_7.pt").touch()  # within the first epoch
    line = "epochs, not 2: ask for those of updates, of which it has 1 (--num-update-checkpoints), or train for 2 epochs, without"
    with pytest.raises(UserError, match=re.escape(line)):
        last_checkpoints(tmp_path / "empty", 2, EPOCH)
    (tmp_path / "empty/checkpoint_1_7.pt").rename(tmp_path / "empty/checkpoint1.pt")
    with pytest.raises(
        UserError, match=r"of updates, not 2: ask for those of epochs, of which it has 1 \(--num-epoch-checkpoints\), or"
    ):
        last_checkpoints(tmp_path / "empty", 2, UPDATE)
    with pytest.raises(UserError, match="none: no such folder"):
        last_checkpoints("none", 1, EPOCH)
    (tmp_path / "checkpoint_2_200.pt").touch()
    with pytest.raises(
        UserError, match=f"^{tmp_path}: checkpoint_1_200.pt and checkpoint_2_200.pt are of two trainings: remove one"
    ):
        names(2, UPDATE)
    assert names(1, EPOCH) == ["checkpoint10"]


def test_parts_of_one_storage_are_no_tied_weights(tmp_path):
    """Halves of one table, and a part that begins where it does, are tensors of their own."""
    for seed, path in enumerate((tmp_path / "1.pt", tmp_path / "2.pt")):
        table = torch.arange(4.0) * (1 + 2 * seed)  # 0 1 2 3 and 0 3 6 9
        square = table.view(2, 2)
        parts = {"low": table[:2], "high": table[2:], "all": table, "square": square, "turned": square.t()}
        torch.save({"model": parts}, path)
    found = average([tmp_path / "1.pt", tmp_path / "2.pt"])["model"]
    assert [found[name].tolist() for name in ("low", "high", "all")] == [[0, 2], [4, 6], [0, 2, 4, 6]]
    assert [found[name].tolist() for name in ("square", "turned")] == [[[0, 2], [4, 6]], [[0, 4], [2, 6]]]


@pytest.mark.parametrize("tied_first", [True, False])
def test_weights_that_are_tied_in_some_files_alone(tmp_path, tied_first):
    """... are two, each with the mean of its own values."""
    save(tmp_path / "tied.pt", 1)
    save(tmp_path / "own.pt", 2, **{"b.weight": torch.arange(15.0).view(5, 3)})
    paths = [tmp_path / "tied.pt", tmp_path / "own.pt"]
    models = [torch.load(path)["model"] for path in paths]
    result = average(paths if tied_first else paths[::-1])["model"]
    for name in ("a.weight", "b.weight"):
        assert torch.allclose(result[name], (models[0][name] + models[1][name]) / 2), name


def test_the_neighbours_of_sampling_are_each_checkpoints_own(tmp_path):
    paths = [tmp_path / "1.pt", tmp_path / "2.pt"]
    for number, path in enumerate(paths):
        task = {"symbols": ["<s>"], "neighbours": {"of": torch.tensor([number])}}
        torch.save({"model": {"a": torch.tensor([1.0 + number])}, "task_state": task}, path)
    found = average(paths)
    assert found["task_state"] == {"symbols": ["<s>"]} and found["model"]["a"].tolist() == [1.5]


def test_what_is_true_of_one_checkpoint_is_not_kept(tmp_path):
    """Another training with --store-ema would begin its mean with that of one checkpoint, and a model card tell its loss."""
    for number in (1, 2):
        extra = {
            "ema": {"a": torch.ones(1)},
            "ema_fp32_params": {"a": torch.ones(1)},
            "best": 3.5,
            "val_loss": 4,
            "number": number,
        }
        torch.save({"model": {"a": torch.tensor([1.0 + number])}, "extra_state": extra}, tmp_path / f"{number}.pt")
    found = average([tmp_path / "2.pt", tmp_path / "1.pt"])
    assert found["extra_state"] == {"number": 2} and found["model"]["a"].tolist() == [2.5]
    torch.save({"model": {"a": torch.zeros(1)}, "extra_state": None}, tmp_path / "none.pt")
    assert average([tmp_path / "none.pt"])["extra_state"] is None


def test_what_could_run_code_is_averaged_if_it_is_trusted(tmp_path):
    path = tmp_path / "1.pt"
    torch.save({"model": {"a": torch.tensor([3.0])}, "extra_state": {"share": Fraction(1, 3)}}, path)
    with pytest.raises(UserError, match="1.pt: refused"):
        average_checkpoints([path], tmp_path / "mean.pt")
    average_checkpoints([path], tmp_path / "mean.pt", trust=True)
    assert torch.load(tmp_path / "mean.pt", weights_only=False)["extra_state"] == {"share": Fraction(1, 3)}


def test_what_a_criterion_of_ones_own_keeps_may_differ(tmp_path):
    """It comes from the first, but for the neighbours of k-NN target sampling."""
    paths = [save(tmp_path / f"{number}.pt", number) for number in (1, 2)]
    for number, path in enumerate(paths):
        state = {"symbols": ["a"], "neighbours": {"update": torch.tensor(number)}, "centres": torch.full((2,), float(number))}
        torch.save({**torch.load(path), "task_state": state}, path)
    found = average(paths)["task_state"]
    assert found.pop("centres").tolist() == [0, 0] and found == {"symbols": ["a"]}


def test_other_models_are_refused(tmp_path):
    first, more = save(tmp_path / "1.pt", 1), save(tmp_path / "2.pt", 2, d=torch.ones(1))
    with pytest.raises(UserError, match=r"2.pt: has another model than .*1.pt: 1 tensors differ .* \(d\)"):
        average([first, more])
    with pytest.raises(UserError, match=r"3.pt: has another model .* 2 tensors differ .* \(a.weight\)"):
        average([first, save(tmp_path / "3.pt", 3, torch.float16)])
    for path, languages in ((first, ["en", "de"]), (more, ["de", "en"])):
        state = torch.load(path)
        state["model"].pop("d", None)
        torch.save({**state, "task_state": {"languages": languages}}, path)
    with pytest.raises(UserError, match=r"2.pt: has another dictionary, or other languages or labels, than .*1.pt"):
        average([first, more])


@pytest.mark.parametrize("option, told", [
    ("encoder_attention_heads", "--encoder-attention-heads"), ("activation_fn", "--activation-fn"),
    ("generator_embeddings", "--generator-embeddings"),
])  # fmt: skip
def test_another_computation_of_the_same_tensors_is_refused(tmp_path, option, told):
    paths = [save(tmp_path / f"{number}.pt", number) for number in (1, 2)]
    for path, value in zip(paths, (4, 8)):
        state = torch.load(path)
        torch.save({**state, "cfg": {"model": {option: value}}}, path)
    with pytest.raises(UserError, match=f"2.pt: has {told} 8, and .*1.pt 4: average checkpoints of one training"):
        average(paths)
    average([paths[0], paths[0]])


@pytest.mark.parametrize("grouped", [True, False])
def test_taggers_that_pool_words_otherwise_are_refused(tmp_path, grouped):
    """Both have the same tensors, and only one of them could be asked as it was trained."""
    paths = [save(tmp_path / f"{number}.pt", number) for number in (1, 2)]
    for path, pooling in zip(paths, ("mean", "first")):
        state = torch.load(path)
        options = Namespace(word_pooling=pooling)
        torch.save({**state, "cfg": {"task": options} if grouped else None, "args": None if grouped else options}, path)
    with pytest.raises(UserError, match="2.pt: has --word-pooling first, and .*1.pt mean: average checkpoints of one training"):
        average(paths)
    assert average([paths[0], paths[0]])["model"]["c"].shape == (2,)


def test_one_of_half_precision_among_others(tmp_path):
    paths = [save(tmp_path / "1.pt", 1), save(tmp_path / "2.pt", 2, torch.float16)]
    with pytest.raises(UserError, match="2 tensors differ in name, shape or type"):
        average(paths)


def test_command(run, tmp_path):
    for seed in (1, 2):
        save(tmp_path / f"checkpoint_1_{seed}.pt", seed)
    output = tmp_path / "average.pt"
    command = "scripts/average_checkpoints.py", "--output", output, "--inputs", tmp_path
    done = run(*command, "--num-update-checkpoints", "2")
    assert done.stdout == f"wrote {output}, the mean of 2: checkpoint_1_2.pt, checkpoint_1_1.pt\n", done.stderr
    assert "is a folder: say which" in error_line(run(*command))
    assert "goes with --num-update-checkpoints" in error_line(run(*command, "--checkpoint-upper-bound", "3"))
    (tmp_path / "checkpoint_1_3.pt").write_bytes((tmp_path / "checkpoint_1_2.pt").read_bytes()[:700])
    before = output.read_bytes()
    line = error_line(run(*command, "--num-update-checkpoints", "2"))
    assert "checkpoint_1_3.pt: cannot be read (700 bytes)" in line
    assert output.read_bytes() == before
