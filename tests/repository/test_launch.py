# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""scripts/launch.sh with a stand-in for torchrun: what each worker is started with, and what is refused."""

import subprocess

import pytest
from conftest import REPOSITORY, error_line

# Does as torchrun for one worker, the second of three machines' fifth: says how it was called, and calls that.
TORCHRUN = """#!/bin/bash
echo "threads $OMP_NUM_THREADS, patience $TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
while [[ $1 != --no-python ]]; do printf '%s ' "$1"; shift; done
echo
RANK=5 LOCAL_RANK=1 exec "${@:2}"
"""
PROGRAMS = {
    "torchrun": TORCHRUN,
    "fairseq-train": '#!/bin/bash\necho "$@"\nexit ${EXIT:-0}\n',
    "python": "#!/bin/bash\necho ${GPUS:-0}\nexit ${PYTHON:-0}\n",
}
OURS = "--ddp-backend legacy_ddp --distributed-world-size {} --distributed-no-spawn --distributed-init-method env://"


@pytest.fixture
def launch(tmp_path):
    """The script in a repository without .venv, whose own programs would come first."""
    script, programs = tmp_path / "scripts/launch.sh", tmp_path / "bin"
    script.parent.mkdir()
    programs.mkdir()
    script.write_bytes((REPOSITORY / "scripts/launch.sh").read_bytes())
    for name, text in PROGRAMS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def launch(words):
        words = words.split()
        environment = {"PATH": f"{programs}:/usr/bin:/bin"}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        return subprocess.run(["bash", script, *words], capture_output=True, text=True, env=environment, cwd=tmp_path)

    return launch


@pytest.mark.parametrize("words, workers, machines, of_worker", [
    ("data --cpu", "--standalone --nproc_per_node 2", 2, "data --cpu {} --distributed-backend gloo"),
    ("--workers 3 -- data --cpu --lr 1", "--standalone --nproc_per_node 3", 3, "data --cpu --lr 1 {} --distributed-backend gloo"),
    ("GPUS=4 data", "--standalone --nproc_per_node 4", 4, "data {}"),
    ("--workers 1 data --cpu --user-dir . --ddp-backend=legacy_ddp", "--standalone --nproc_per_node 1", 1,
     "data --cpu --user-dir . --ddp-backend=legacy_ddp {} --distributed-backend gloo"),
    ("--nodes 1 --workers 2 data --cpu --user-dir=scripts", "--standalone --nproc_per_node 2", 2,
     "data --cpu --user-dir=scripts {} --distributed-backend gloo"),
    ("GPUS=4 --workers 2 data --ddp-backend legacy_ddp", "--standalone --nproc_per_node 2", 2, "data --ddp-backend legacy_ddp {}"),
    ("GPUS=8 VECO_NODE_RANK=1 VECO_MASTER=there:9 --nodes 3 --node-rank 2 --master here:12 data",
     "--nnodes 3 --node_rank 2 --master_addr here --master_port 12 --nproc_per_node 8", 24, "data {}"),
    ("GPUS=8 VECO_NODE_RANK=1 VECO_MASTER=there:9 SLURM_NODEID=0 --nodes 2 data",
     "--nnodes 2 --node_rank 1 --master_addr there --master_port 9 --nproc_per_node 8", 16, "data {}"),
    ("SLURM_NODEID=3 VECO_NODE_RANK=2 data --cpu", "--standalone --nproc_per_node 2", 2, "data --cpu {} --distributed-backend gloo"),
    ("GPUS=8 SLURM_NODEID=1 VECO_MASTER=there:9 --nodes 2 data",
     "--nnodes 2 --node_rank 1 --master_addr there --master_port 9 --nproc_per_node 8", 16, "data {}"),
])  # fmt: skip
def test_each_worker_is_started_with_this(launch, words, workers, machines, of_worker):
    result = launch(words)
    expected = of_worker.format(OURS.format(machines)) + " --distributed-rank 5 --device-id 1"
    assert result.stdout.splitlines() == ["threads 1, patience 280", f"{workers} ", expected] and result.stderr == ""


def test_threads_patience_and_exit_code_are_the_users(launch):
    result = launch("OMP_NUM_THREADS=7 TORCH_ELASTIC_SHUTDOWN_TIMEOUT=90 EXIT=143 data --cpu")
    assert result.stdout.startswith("threads 7, patience 90\n") and result.returncode == 143


@pytest.mark.parametrize("words, message", [
    ("GPUS=2 --workers 3 data", "--workers 3: there are 2 GPUs here"),
    ("data", "no GPU here: add --cpu to train on the processor"),
    ("data --cpu --ddp-backend=pytorch_ddp", "--ddp-backend pytorch_ddp: only fairseq's legacy_ddp"),
    ("data --cpu --user-dir=nowhere", "--user-dir nowhere: no such folder"),
    ("data --cpu --user-dir=scripts/launch.sh", "--user-dir scripts/launch.sh: no such folder"),
    ("data --cpu --distributed-port 9", "--distributed-port: this command sets fairseq's distributed options"),
    ("--nodes 0 data --cpu", "--node-rank 0: must be from 0 to -1 (--nodes 0)"),
    ("--nodes 2 --master here data --cpu", "--master HOST:PORT is needed with --nodes 2"),
    ("--nodes 2 --master here:12x data --cpu", "--master HOST:PORT is needed with --nodes 2"),
    ("--nodes 2 --master here:x data --cpu", "--master HOST:PORT is needed with --nodes 2"),
    ("--nodes 2 --master :12 data --cpu", "--master HOST:PORT is needed with --nodes 2"),
    ("--node-rank -1 data --cpu", "-1: --workers, --nodes and --node-rank are whole numbers"),
    ("--node-rank 1 data --cpu", "--node-rank 1: must be from 0 to 0 (--nodes 1)"),
    ("--workers 08 data --cpu", "08: --workers, --nodes and --node-rank are whole numbers"),  # in bash octal
    ("--nodes 1x data --cpu", "1x: --workers, --nodes and --node-rank are whole numbers"),
    ("torchrun data --cpu", "torchrun: give only the arguments of fairseq-train"),
    ("data --cpu --device-id 1", "--device-id: this command sets fairseq's distributed options"),
    ("data --cpu --nprocs-per-node=2", "--nprocs-per-node=2: this command sets fairseq's distributed options"),
    *((f"data --cpu {own}", f"{name}: is launch.sh's: give it before all options of fairseq-train, with a space before its value")
      for own, name in (("--workers 2", "--workers"), ("--master=here:12", "--master"), ("--nodes 2", "--nodes"))),
    ("--nodes 1 --workers=2 data --cpu", "--workers: is launch.sh's: give it before"),
    ("PYTHON=1 data", "PyTorch cannot be imported: run scripts/setup.sh first"),
])  # fmt: skip
def test_more_refusals(launch, words, message):
    result = launch(words)
    assert result.returncode == 1 and result.stderr.startswith(f"launch.sh: error: {message}") and result.stdout == ""


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_the_head_of_the_script(launch, option):
    result = launch(option)
    assert result.returncode == 0 and result.stdout.startswith("fairseq-train on several workers: one for each GPU")
    assert result.stdout.endswith("exit code of the worker that failed first.\n") and "#" not in result.stdout


def test_programs_of_the_environment_beside_it_come_first(launch, tmp_path):
    torchrun = tmp_path / ".venv/bin/torchrun"
    torchrun.parent.mkdir(parents=True)
    torchrun.write_text("#!/bin/bash\necho that of .venv\n")
    torchrun.chmod(0o755)
    assert launch("data --cpu").stdout == "that of .venv\n"


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "no arguments for fairseq-train"),
    (["--workers", "two", "data", "--cpu"], "two: --workers, --nodes and --node-rank are whole numbers"),
    (["--workers", "0", "data", "--cpu"], "--workers 0: must be 1 or more"),
    (["--workers"], "--workers: needs a value"),
    (["fairseq-train", "data", "--cpu"], "give only the arguments of fairseq-train"),
    (["data", "--cpu", "--distributed-world-size", "2"], "--distributed-world-size: this command sets"),
    (["data", "--cpu", "--ddp-backend", "pytorch_ddp"], "--ddp-backend pytorch_ddp: only fairseq's legacy_ddp"),
    (["data", "--cpu", "--user-dir", "/nonexistent"], "--user-dir /nonexistent: no such folder"),
    (["--nodes", "2", "--node-rank", "2", "data", "--cpu"], "--node-rank 2: must be from 0 to 1"),
    (["--nodes", "2", "data", "--cpu"], "--master HOST:PORT is needed with --nodes 2"),
])  # fmt: skip
def test_refusals(run, arguments, message):
    result = run("bash", "scripts/launch.sh", *arguments)
    assert message in error_line(result) and result.returncode == 1
