# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Training with k-NN target sampling: it resumes with its table, and workers share one."""

from types import SimpleNamespace

import pytest
import torch
from conftest import error_line
from support.training import EXACT, OPTIONS, close, logged, resume_exactly, weights

from veco_fairseq.criterions.knn import KnnCamlmCriterion, KnnCamlmCriterionConfig, KnnTargetSampler
from veco_fairseq.modules.embedding import TokenEmbedding

KNN = "--knn-targets 4 --knn-refresh 3 --knn-rest 5".split()


def test_resumes_with_the_same_table(make_root, train, run, tmp_path):  # noqa: F811
    root = make_root()
    whole = train(root, *KNN, "--max-update", "7", "--save-interval-updates", "4", save_dir="whole")
    losses = logged(whole, "train_inner")
    assert all(0 < float(line["knn_vocabulary"]) <= 45 for line in losses)
    assert float(losses[0]["knn_age"]) == 0 and float(losses[0]["knn_looked_up"]) > float(losses[1]["knn_looked_up"])
    assert {"knn_ms", "knn_age"} <= set(losses[0])
    (tmp_path / "part").mkdir()
    (tmp_path / "whole/checkpoint_2_4.pt").rename(tmp_path / "part/checkpoint_last.pt")
    part = train(root, *KNN, "--max-update", "7", save_dir="part")
    keys = [key for key in losses[0] if key.endswith("loss") or key in ("knn_vocabulary", "knn_age", "knn_looked_up")]
    rest = [[line[key] for key in keys] for line in logged(part, "train_inner")]
    assert rest == [[line[key] for key in keys] for line in losses[4:]]
    ours, theirs = weights(tmp_path / "part"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    average = run("scripts/average_checkpoints.py", "--inputs", tmp_path / "whole/checkpoint_last.pt",
                  tmp_path / "part/checkpoint_last.pt", "--output", tmp_path / "average.pt")  # fmt: skip
    assert average.returncode == 0, average.stderr
    assert set(torch.load(tmp_path / "average.pt")["task_state"]) == {"symbols", "task"}
    # Another k begins with an empty table, and says so; none at all is as good.
    other = train(root, "--knn-targets", "6", "--max-update", "9", save_dir="part")
    assert "all neighbours are looked up again" in other.stdout
    logged(train(root, "--max-update", "11", save_dir="part"), "train_inner")


def test_workers_share_one_table(make_root, launch, run, tmp_path):  # noqa: F811
    root = make_root()
    options = [*EXACT, *KNN, "--knn-rest", "0"]  # of tokens drawn at random workers have each its own
    one = run("fairseq-train", root, *OPTIONS, *options, "--update-freq", "2", "--save-dir", tmp_path / "one")
    options += ["--save-interval-updates", "3"]
    two = launch(root, *OPTIONS, *options, "--save-dir", tmp_path / "two")
    ours, theirs = logged(two, "train_inner"), logged(one, "train_inner")
    for mine, other in zip(ours, theirs, strict=True):
        assert float(mine["loss"]) == pytest.approx(float(other["loss"]), abs=2e-3)
    assert close(weights(tmp_path / "two"), weights(tmp_path / "one"))
    states = [torch.load(tmp_path / name / "checkpoint_last.pt")["task_state"]["neighbours"] for name in ("one", "two")]
    for key, tensor in states[0].items():
        assert torch.equal(tensor.sort()[0], states[1][key].sort()[0]), key

    resume_exactly(launch, root, options, tmp_path)


@pytest.mark.parametrize("option", ["--knn-targets", "--knn-refresh"])
def test_numbers_below_one_are_refused(make_root, train, option):  # noqa: F811
    refused = train(make_root(), "--knn-targets", "3", option, "0", "--max-update", "1")
    assert f"{option} 0: must be at least 1" in error_line(refused)


def test_the_neighbours_of_a_checkpoint_are_taken_over_unless_there_are_others(caplog):
    torch.manual_seed(1)
    table = TokenEmbedding(20, 4, 0)

    def criterion(k):
        found = KnnCamlmCriterion(KnnCamlmCriterionConfig(knn_targets=k), SimpleNamespace(target_dictionary=None))
        found.sampler = None if k is None else KnnTargetSampler(k, 100)
        return found

    first = criterion(2)
    first.sampler.update = 7
    first.sampler.look_up(torch.tensor([3, 5]), table)
    state = first.task_state()
    assert criterion(None).task_state() == {} and set(state) == {"neighbours"}
    with caplog.at_level("INFO"):
        same, other, none = criterion(2), criterion(3), criterion(None)
        same.load_task_state(state)
        assert caplog.text == "" and same.sampler.resumed == 7
        assert torch.equal(same.sampler.neighbours[[3, 5]], first.sampler.neighbours[[3, 5]])
        none.load_task_state(state)
        same.load_task_state({})
        criterion(3).load_task_state(criterion(2).task_state())  # of a run that has looked up nothing yet
        assert caplog.text == "" and none.sampler is None and same.sampler.resumed == 7
        other.load_task_state(state)
    assert caplog.text.count("--knn-targets differs from the checkpoint's: all neighbours are looked up again") == 1
    assert other.sampler.resumed is None and len(other.sampler.made_at) == 0
    for same.sampler.update in (8, 9):
        same.sampler.look_up(torch.tensor([3, 5]), table)
    assert same.sampler.looked_up == 0


def test_for_the_full_softmax_nothing_is_looked_up():
    """As many neighbours as there are tokens, or more."""
    for k in (20, 21):
        vocabulary, *figures = KnnTargetSampler(k, 100)(torch.tensor([[3, 5], [5, 3]]), TokenEmbedding(20, 4, 0))
        assert vocabulary.tokens.tolist() == list(range(20)) and not vocabulary.offsets.any()
        assert figures == [2, 0, 0, 0.0]  # targets, looked up, age, seconds
