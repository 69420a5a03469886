# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Several workers, started by scripts/launch.sh: the same training as one worker's."""

import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from subprocess import PIPE, STDOUT
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from conftest import REPOSITORY, error_line
from support.starting import all_tests
from support.training import EXACT, OPTIONS, close, logged, resume_exactly, weights

from veco_fairseq.compat import workers


def test_two_workers_equal_one_that_accumulates(make_root, launch, run, tmp_path):
    root = make_root()
    one = run("fairseq-train", root, *OPTIONS, *EXACT, "--update-freq", "2", "--save-dir", tmp_path / "one")
    options = [*EXACT, "--save-interval-updates", "3", "--num-workers", "1"]
    two = launch(root, *OPTIONS, *options, "--save-dir", tmp_path / "two")
    for tag in ("train_inner", "valid"):
        ours, theirs = logged(two, tag), logged(one, tag)
        ours = [line for line in ours if tag == "train_inner" or line["valid_num_updates"] in ("4", "6")]
        keys = [key for key in theirs[0] if key.endswith(("loss", "acc", "num_updates"))]
        assert len(ours) == len(theirs) >= 2
        for mine, other in zip(ours, theirs, strict=True):
            assert [float(mine[key]) for key in keys] == pytest.approx([float(other[key]) for key in keys], abs=2e-3)
    assert close(weights(tmp_path / "two"), weights(tmp_path / "one"))

    resume_exactly(launch, root, options, tmp_path)

    # With another number of workers the rest of an epoch would be other batches.
    for change, message in (
        (["--update-freq", "2"], "number of workers was 2 and is 1; --update-freq was 1 and is 2"),
        (["--max-tokens", "500"], "number of workers was 2 and is 1; --max-tokens was 400 and is 500"),
    ):
        shutil.copyfile(tmp_path / "two/checkpoint_1_3.pt", tmp_path / "resumed/checkpoint_last.pt")
        refused = run("fairseq-train", root, *OPTIONS, *EXACT, *change, "--save-dir", tmp_path / "resumed")
        assert f"in the middle of epoch 1, whose other batches cannot be the same any more: {message}" in error_line(refused)


def test_what_learns_from_no_batch_stays_as_it_is(make_root, launch, run, tmp_path):
    """... on several workers, too: the cross-attention with --objective mlm, which --weight-decay must not shrink."""
    root = make_root()
    options = [*OPTIONS, *EXACT, "--objective", "mlm", "--weight-decay", "0.5", "--num-workers", "0"]
    logged(run("fairseq-train", root, *options, "--update-freq", "2", "--save-dir", tmp_path / "one"), "train_inner")
    logged(launch(root, *options, "--save-dir", tmp_path / "two"), "train_inner")
    assert close(weights(tmp_path / "two"), weights(tmp_path / "one"))
    begun = {name: float(tensor[0]) for name, tensor in weights(tmp_path / "two").items() if "encoder_attn_layer_norm.w" in name}
    assert len(begun) == 2 and set(begun.values()) == {1.0}


def test_frozen_and_one_sided_batches_do_not_hang(make_root, launch, tmp_path):
    """A phase without most gradients, a root with bitext alone, and fewer validation batches than workers."""
    root = make_root()
    options = [*OPTIONS, *EXACT, "--num-workers", "0"]
    logged(launch(root, *options, "--objective", "mlm", "--save-dir", tmp_path / "mlm"), "train_inner")
    shutil.rmtree(root / "mono")
    start = ["--init-from", tmp_path / "mlm/checkpoint_last.pt", "--freeze-backbone-updates", "3"]
    lines = logged(launch(root, *options, *start, "--save-dir", tmp_path / "frozen", workers=3), "train_inner")
    assert len(lines) == 6 and ["bitext_tlm_loss" in line for line in lines] == [False] * 3 + [True] * 3


TELL_THREADS = """
import signal, sys
from pathlib import Path
from fairseq_cli.train import cli_main
from veco_fairseq import plugin
from veco_fairseq.compat import stopping

stopping._told["number"] = signal.SIGTERM
try:
    cli_main()
finally:
    names = {file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")}
    Path(sys.argv[sys.argv.index("--save-dir") + 1], f"threads{sys.argv[-1]}").write_text(" ".join(names))
"""


def test_a_worker_leaves_no_thread_of_its_groups(make_root, tmp_path):
    """Such a thread may still let go of tensors when Python ends, which would abort the process with exit code 134.

    Then the workers have checkpoints of their own, the second one that of an earlier update.
    """
    (tmp_path / "tell.py").write_text(TELL_THREADS)
    distributed = "--distributed-world-size 2 --distributed-no-spawn --distributed-init-method env:// --distributed-backend gloo"
    command = ["python", "tell.py", make_root(), *OPTIONS, *EXACT, *distributed.split()]
    command[command.index("veco_fairseq")] = REPOSITORY / "veco_fairseq"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        together = f"MASTER_ADDR=localhost MASTER_PORT={free.getsockname()[1]} WORLD_SIZE=2"
    forks = all_tests()[0]

    def start(*folders):
        def worker(rank):
            given = *command, "--save-dir", folders[rank], "--device-id", rank, "--distributed-rank", rank
            return forks.bash("-c", f'{together} RANK={rank} exec "$@"', "-", *given, cwd=tmp_path, stdout=PIPE, stderr=STDOUT)

        with ThreadPoolExecutor() as pool:
            workers = list(pool.map(worker, range(len(folders))))
        return [worker.stdout for worker in workers], [worker.returncode for worker in workers]

    told, codes = start(tmp_path, tmp_path)
    assert codes == [143, 143], "".join(told)[-3000:]
    assert ["SIGTERM: saved after update" in lines for lines in told] == [True, False]  # all would warn of the same
    found = [(tmp_path / f"threads{rank}").read_text() for rank in (0, 1)]
    assert [name for names in found for name in names.split() if "gloo" in name] == []

    (tmp_path / "other").mkdir()
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    state["optimizer_history"][-1]["num_updates"] = 0
    torch.save(state, tmp_path / "other/checkpoint_last.pt")
    told, codes = start(tmp_path, tmp_path / "other")
    assert codes == [1, 1] and "error:" not in told[1], "".join(told)[-3000:]
    assert f"{tmp_path}: the first worker goes on from update 1, and others do not: every machine reads its own files" in told[0]


@pytest.mark.parametrize("asked, cpu, cuda, taken", [
    ("pytorch_ddp", True, True, "legacy_ddp"), ("c10d", False, False, "legacy_ddp"), ("pytorch_ddp", False, True, "pytorch_ddp"),
    ("no_c10d", True, False, "no_c10d"), ("slowmo", True, False, "slowmo"),
])  # fmt: skip
def test_workers_on_a_cpu_have_a_backend_that_is_made_for_it(monkeypatch, asked, cpu, cuda, taken):
    """... in every task; the error of fairseq's default had been told as one of a checkpoint_last.pt that was not there."""
    made = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(workers, "_fairseq_trainer_init", lambda trainer, cfg, task: made.append(cfg))
    cfg = SimpleNamespace(common=SimpleNamespace(cpu=cpu), distributed_training=SimpleNamespace(ddp_backend=asked))
    workers.trainer_init(None, cfg, SimpleNamespace())
    assert made == [cfg] and cfg.distributed_training.ddp_backend == taken


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(run):
    assert "no GPU here: add --cpu" in error_line(run("bash", "scripts/launch.sh", "data"))


def test_an_update_counts_a_workers_batches_before_its_empty_one():
    """With --update-freq, at the end of an epoch: of 3 and 4 tokens, and none of the empty one, 7; of nothing else, none."""
    trainer, ignored = MagicMock(tpu=False, cuda=False, data_parallel_world_size=2), []
    trainer.cfg.ema.store_ema = trainer.cfg.common.amp = trainer.cfg.common.fp16 = trainer.cfg.optimization.use_bmuf = False
    trainer._prepare_sample = lambda sample: (sample or {"tokens": 5}, not sample)
    trainer.task.train_step = lambda sample, ignore_grad, **_: ignored.append(ignore_grad) or (0.0, sample["tokens"], {})
    trainer.criterion.parameters.return_value = iter(())
    trainer.clip_grad_norm.return_value = torch.tensor(1.0)
    counted = []

    def add_up(logs, size, ooms, seconds, ignore):
        counted.append((len(logs), size, ignore))
        return logs, (size, ooms, seconds)

    trainer._local_cumulative_training_time.return_value = 0.0
    trainer._aggregate_logging_outputs = add_up
    for samples in ([{"tokens": 3}, {"tokens": 4}, {}], [{"tokens": 3}, {"tokens": 4}], [{}], [{}, {}]):
        workers.trainer_train_step(trainer, samples)
    assert counted == [(2, 7.0, False), (2, 7.0, False), (1, 0.0, True), (1, 0.0, True)]
    assert ignored == [False, False, False, False, True, True]
    assert trainer.optimizer.multiply_grads.call_args_list[0].args == (2 / 7,)
