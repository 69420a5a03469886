# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the plug-in changes in fairseq: run as commands, on a small stock translation model."""

import argparse
import io
import math
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import fairseq_cli.generate
import fairseq_cli.train
import numpy as np
import pytest
import torch
from conftest import REPOSITORY, run_here
from fairseq import checkpoint_utils, options, utils
from fairseq.data import Dictionary, LanguagePairDataset, ListDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.file_io import PathManager
from fairseq.optim import AMPOptimizer
from fairseq.tasks.translation import TranslationTask
from support.malicious import Malicious

from veco_fairseq.cli import user_message
from veco_fairseq.compat import checkpoints, command_line, mistakes, noise, precision, workers
from veco_fairseq.errors import UserError
from veco_fairseq.tasks.camlm import CamlmTask

COMMANDS = Path(sys.executable).parent


def run(command: str, *arguments, **how) -> subprocess.CompletedProcess:
    """Run a fairseq command with the plug-in, in a folder of the test's own choice (``cwd``).

    In a fork of this process, unless it is to have an environment of its own (``env``) or another thing of a process.
    """
    words = [str(word) for word in (COMMANDS / command, *arguments, "--user-dir", REPOSITORY / "veco_fairseq", "--cpu")]
    if set(how) == {"cwd"}:
        return run_here(words, **how)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **how.pop("env", {})}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, **how)


def train(folder: Path, *arguments, arch="transformer_tiny", save_dir="ckpt", **how) -> subprocess.CompletedProcess:
    return run(
        "fairseq-train",
        folder / "data",
        "--arch",
        arch,
        "--optimizer",
        "adam",
        "--lr",
        "1e-3",
        "--max-tokens",
        "300",
        "--save-dir",
        save_dir,
        "--num-workers",
        "0",
        "--no-epoch-checkpoints",
        *arguments,
        cwd=folder,
        **how,
    )


def error_line(result: subprocess.CompletedProcess, program: str = "fairseq-train") -> str:
    """The one line on standard error of a run that ended with exit code 1; generate logs there, too."""
    assert result.returncode == 1, result.stdout + result.stderr
    lines = [line for line in result.stderr.splitlines() if not line.startswith("INFO:")]
    assert len(lines) == 1, result.stderr
    start = f"{program}: error: "
    assert lines[0].startswith(start)
    return lines[0].removeprefix(start)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with data of 40 random pairs and ckpt/, three updates of transformer_tiny, validated by BLEU."""
    folder = tmp_path_factory.mktemp("trained")
    rng = random.Random(1)
    for split, count in (("train", 40), ("valid", 8), ("test", 8)):
        for lang in ("de", "en"):
            lines = [" ".join(f"w{rng.randrange(30)}" for _ in range(rng.randint(3, 8))) for _ in range(count)]
            (folder / f"{split}.{lang}").write_text("\n".join(lines) + "\n")
    subprocess.run(
        [
            COMMANDS / "fairseq-preprocess",
            "-s",
            "de",
            "-t",
            "en",
            "--joined-dictionary",
            "--destdir",
            "data",
            *(word for split in ("train", "valid", "test") for word in (f"--{split}pref", split)),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    result = train(folder, "--max-update", "3", *EVAL_BLEU, env={})  # all that a process of its own prints
    assert result.returncode == 0, result.stderr
    (folder / "stderr").write_text(result.stderr)
    return folder


EVAL_BLEU = ("--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 10}')


@pytest.fixture
def copy_of(trained, tmp_path):
    """``trained``, to be changed by one test."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def test_training_is_quiet(trained):
    assert (trained / "stderr").read_text() == ""


def test_warnings_of_the_users_own_code_are_left_alone():
    kept = ("pin_memory is slow", "version_base", "torch.cuda.amp.autocast(args...) is deprecated")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        noise.quiet_known_warnings()
        for message in kept:
            warnings.warn(message)
        # fairseq's very own, but laid at this file
        warnings.warn("`torch.cuda.amp.autocast(args...)` is deprecated.", FutureWarning)
        warnings.warn("hydra.experimental.compose() is no longer experimental. Use hydra.compose()")
    assert [str(warning.message) for warning in caught] == [*kept, "`torch.cuda.amp.autocast(args...)` is deprecated."]


def test_resuming_reads_the_numpy_arrays_of_eval_bleu(copy_of):
    needed = torch.serialization.get_unsafe_globals_in_checkpoint(copy_of / "ckpt" / "checkpoint_last.pt")
    assert needed == []  # all allowed by now
    state = torch.load(copy_of / "ckpt" / "checkpoint_last.pt", weights_only=False)
    assert any(isinstance(value, (np.ndarray, np.generic)) for value in leaves(state["extra_state"]))
    result = train(copy_of, "--max-update", "4", *EVAL_BLEU)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Loaded checkpoint ckpt/checkpoint_last.pt (epoch 2 @ 3 updates)" in result.stdout


def leaves(value):
    """All that a nest of dicts, lists and tuples holds."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def flipped(content: bytes) -> bytes:
    """With one bit turned in the first tensor of a checkpoint."""
    state = torch.load(io.BytesIO(content))
    name, tensor = next((name, tensor) for name, tensor in state["model"].items() if tensor.numel() > 1000)
    whole = tensor.numpy().tobytes()
    assert content.count(whole) == 1 and name.startswith("encoder.")
    return content.replace(whole, bytes([whole[0] ^ 4]) + whole[1:])


@pytest.mark.parametrize("damage, words", [
    (lambda content: content[:100_000], "cannot be read (100,000 bytes)"),
    (flipped, "is damaged: bytes of model.encoder."),
])  # fmt: skip
def test_damaged_last_checkpoint_falls_back_loudly(copy_of, damage, words):
    last = copy_of / "ckpt" / "checkpoint_last.pt"
    last.write_bytes(damage(last.read_bytes()))
    result = train(copy_of, "--max-update", "4")
    assert (result.returncode, result.stderr) == (0, "")
    assert f"WARNING | fairseq.trainer | DAMAGED CHECKPOINT: ckpt/checkpoint_last.pt: {words}" in result.stdout
    assert "Loaded checkpoint ckpt/checkpoint_best.pt (epoch 2 @ 3 updates)" in result.stdout


@pytest.mark.parametrize(
    "words, line",
    [
        (
            "--sampling-topk requires --sampling",
            "--sampling-topk requires --sampling: take one of them away, or give what is missing",
        ),
        ("Unknown post_process option: -1", "--remove-bpe -1: is no kind of pieces"),
        ("Unknown post_process option: ", "--remove-bpe : is no kind of pieces"),
        ("\n\n  Please install xFormers.", "--encoder-xformers-att-config and --decoder-xformers-att-config need"),
        ("cannot specify cutoff larger than vocab size", "--adaptive-softmax-cutoff: is larger than the vocabulary"),
    ],
)
def test_fairseqs_words_for_options(words, line):
    assert mistakes.mistake(AssertionError(words)).startswith(line)


def test_older_checkpoints_are_of_the_same_worker_and_newest_first(tmp_path):
    names = ["checkpoint_best.pt", "checkpoint1.pt", "checkpoint_1_20.pt", "checkpoint12.pt"]
    for age, name in enumerate(names):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    for other in ("checkpoint_last.pt", "checkpoint1-shard0.pt", "checkpoint_best.pt.tmp", "checkpoint_last-shard0.pt"):
        (tmp_path / other).touch()
    found = checkpoints.older_checkpoints(str(tmp_path), str(tmp_path / "checkpoint_last.pt"))
    assert found == [str(tmp_path / name) for name in names]
    found = checkpoints.older_checkpoints(str(tmp_path), str(tmp_path / "checkpoint_last-shard0.pt"))
    assert found == [str(tmp_path / "checkpoint1-shard0.pt")]


def test_checkpoint_of_another_model(copy_of):
    line = error_line(train(copy_of, arch="transformer_iwslt_de_en"))
    assert "ckpt/checkpoint_last.pt: does not fit" in line
    assert "(--arch transformer_tiny in the file, transformer_iwslt_de_en here)" in line
    # 4 of the 6 encoder layers with 16 tensors each, and 4 of 6 decoder layers with 26
    first = "encoder.layers.2.self_attn.k_proj"
    assert f"missing {first}.weight, {first}.bias and 166 more" in line
    assert "encoder.embed_tokens.weight [40, 64] in the file, [40, 512] here" in line
    assert "or another --save-dir" in line and "dict.txt" not in line


def test_checkpoint_of_another_dictionary(copy_of):
    for lang in ("de", "en"):
        path = copy_of / "data" / f"dict.{lang}.txt"
        path.write_text("".join(path.read_text().splitlines(True)[:-8]))
    generate = ("fairseq-generate", "data", "--path", "ckpt/checkpoint_best.pt")
    line = error_line(run(*generate, cwd=copy_of), "fairseq-generate")
    assert "was trained with another dictionary, of 40 tokens where data/dict.de.txt has 32; " in line
    assert line.endswith("first difference: token 32 is 'w22' there and missing here")
    checkpoint = copy_of / "ckpt/checkpoint_best.pt"
    state = torch.load(checkpoint, weights_only=False)
    del state["task_state"]  # as stock fairseq leaves it
    torch.save(state, checkpoint)
    line = error_line(run(*generate, cwd=copy_of), "fairseq-generate")
    assert line.startswith("ckpt/checkpoint_best.pt: other shapes: ")
    assert "encoder.embed_tokens.weight [40, 64] in the file, [32, 64] here" in line
    assert "is this the dict.txt that it was trained with?" in line


def test_malicious_checkpoint_does_not_run(copy_of):
    trace = copy_of / "it ran"
    path = copy_of / "ckpt" / "checkpoint_last.pt"
    torch.save({"model": {}, "extra_state": Malicious(trace)}, path)
    weaken = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    result = run("fairseq-generate", "data", "--path", path, cwd=copy_of, env=weaken)
    assert "refused: it holds posix.mkdir" in error_line(result, "fairseq-generate")
    # refused, not damaged: training does not pass it over
    assert "refused: it holds posix.mkdir" in error_line(train(copy_of, env=weaken))
    assert not trace.exists()


def test_missing_restore_file_is_an_error(trained):
    line = error_line(train(trained, "--restore-file", "none.pt", save_dir="unused"))
    assert line == "none.pt: no such checkpoint to start from: check --restore-file"


def test_full_disk_keeps_the_checkpoints_before(copy_of):
    last = copy_of / "ckpt" / "checkpoint_last.pt"
    before = last.read_bytes()
    limit = len(before) // 2
    # a limit on the size of a file stands in for a disk with so much room
    result = train(
        copy_of,
        "--max-update",
        "4",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    line = error_line(result)
    assert "cannot be written (File too large; " in line and "free some space" in line
    assert "Traceback" not in result.stdout
    assert last.read_bytes() == before
    assert sorted(os.listdir(copy_of / "ckpt")) == ["checkpoint_best.pt", "checkpoint_last.pt"]


def test_copy_of_last_checkpoint_is_whole_or_the_old_one(tmp_path, monkeypatch):
    source, last = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"new")
    last.write_bytes(b"old")

    def cut_off(source, target):
        assert Path(target) != last  # a kill, unlike an exception, leaves what is there at this moment
        Path(target).write_bytes(b"n")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", cut_off)
        with pytest.raises(UserError, match=r"checkpoint_last\.pt: cannot be written \(No space left on device"):
            PathManager.copy(str(source), str(last), overwrite=True)
    assert last.read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2
    identity = last.stat().st_ino
    assert PathManager.copy(str(source), str(last), overwrite=True)
    assert last.read_bytes() == b"new"
    assert last.stat().st_ino != identity  # another file took its name; the old one was never written into
    assert len(os.listdir(tmp_path)) == 2


def test_save_that_fails_for_another_reason_is_not_called_a_full_disk(tmp_path):
    with pytest.raises(Exception) as caught:
        checkpoint_utils.torch_persistent_save({"model": lambda: None}, str(tmp_path / "a.pt"))
    assert not isinstance(caught.value, UserError)
    assert os.listdir(tmp_path) == []


def test_save_takes_one_try(tmp_path, monkeypatch):
    tries = []

    def full(*arguments, **options):
        tries.append(arguments)
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 768 vs 662")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match=r"a\.pt: cannot be written \(the write failed; [\d,]+ MiB free there\)"):
        checkpoint_utils.torch_persistent_save({}, str(tmp_path / "a.pt"))
    assert len(tries) == 1


def test_not_whole_fairseq_checkpoint(tmp_path):
    torch.save({"model": {}}, tmp_path / "a.pt")
    with pytest.raises(UserError, match=r"a\.pt: is not a whole fairseq checkpoint: it has no 'best_loss'"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "a.pt"))
    assert torch.load.__module__ == "torch.serialization"  # the stand-in for the time of the call is gone


# Mistakes that fairseq itself notices, made for real, but without a process of their own, which takes seconds.

BATCH = ("--max-tokens", "300")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["none", *BATCH], "none: no such file or folder: check the path"),
        (["none", "-s", "de", "-t", "en", *BATCH], "none/dict.de.txt: no such file or folder: check the path"),
        (["data", "-s", "de", "-t", "fr", *BATCH], "data/dict.fr.txt: no such file or folder: check the path"),
        ([".", *BATCH], "the data folder names no pair of languages: check it, or give -s LANG -t LANG"),
        (
            ["data", "--valid-subset", "dev", *BATCH],
            "data: has no dev data of these languages: check the folder, -s and -t, or make it with fairseq-preprocess",
        ),
        (["data", "--finetune-from-model", "none.pt", *BATCH], "none.pt: no such checkpoint: check --finetune-from-model"),
        (["data"], "no batch size: give --max-tokens N"),
    ],
)
def test_mistakes_of_training(trained, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(trained)
    options_too = ["--cpu", "--arch", "transformer_tiny", "--optimizer", "adam", "--save-dir", str(tmp_path / "ckpt")]
    args = options.parse_args_and_arch(options.get_training_parser(), [*arguments, *options_too])
    with pytest.raises(Exception) as caught:
        fairseq_cli.train.main(convert_namespace_to_omegaconf(args))
    assert mistakes.mistake(caught.value) == words


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["data", "--path", "none.pt"], "none.pt: no such checkpoint: check --path"),
        (["data"], "no model: give --path CHECKPOINT"),
    ],
)
def test_mistakes_of_generating(trained, monkeypatch, arguments, words):
    monkeypatch.chdir(trained)
    args = options.parse_args_and_arch(options.get_generation_parser(), [*arguments, "--cpu"])
    with pytest.raises(Exception) as caught:
        fairseq_cli.generate.main(convert_namespace_to_omegaconf(args))
    assert mistakes.mistake(caught.value) == words


@pytest.mark.filterwarnings("ignore:data_utils.filter_by_size is deprecated")
def test_a_line_that_is_too_long_for_the_model(trained, tmp_path):
    (tmp_path / "a.txt").write_text("w1 w2\n" + "w3 w4 " * 600 + "\n")
    options = (
        "data",
        "--path",
        "ckpt/checkpoint_last.pt",
        "-s",
        "de",
        "-t",
        "en",
        "--buffer-size",
        "9",
        "--input",
        tmp_path / "a.txt",
    )
    words = error_line(run("fairseq-interactive", *options, cwd=trained), "fairseq-interactive")
    assert words.startswith(
        f"{tmp_path}/a.txt: the line that begins with 'w3 w4 w3 w4 w3 w4 w3 w4 w3 w4 ' has more than 1024 tokens"
    )
    with pytest.raises(Exception) as caught:
        data_utils.filter_by_size(np.array([0, 1]), ListDataset([torch.ones(2), torch.ones(9)], np.array([2, 9])), 8, True)
    assert mistakes.mistake(caught.value).startswith(
        "sentence 1 of the data, counted from 0, has 9 tokens, and the model takes 8: "
    )


def test_mistakes_in_a_dictionary(tmp_path):
    path = tmp_path / "dict.txt"
    for content, words in (
        (b"a 1\na 1\n", f"{path}, line 2: 'a' is there twice; remove one"),
        (b"a 1\nb\n", f"{path}, line 2: expected '<token> <count>', found 'b'"),
        (b"\xfc 1\n", f"{path}, line 1: not UTF-8 (byte 0xfc at 1): convert the file, for example with iconv -t UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(Exception) as caught:
            Dictionary.load(str(path))
        assert mistakes.mistake(caught.value) == words


def test_mistakes_in_the_number_of_sentences():
    words = Dictionary()
    with pytest.raises(AssertionError) as caught:
        LanguagePairDataset([torch.ones(1)] * 2, [1, 1], words, [torch.ones(1)], [1], words)
    assert "not as many sentences of one language as of the other" in mistakes.mistake(caught.value)


def test_bugs_keep_their_traceback(capsys):
    seen = []
    hook = mistakes.one_line_errors(lambda *arguments: seen.append(arguments))
    for bug in (KeyError("key"), AssertionError(), RuntimeError("Error in the model"), OSError("no file named")):
        hook(type(bug), bug, None)
    assert [type(error) for _, error, _ in seen] == [KeyError, AssertionError, RuntimeError, OSError]
    assert capsys.readouterr().err == ""


def test_hook_prints_the_program_and_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/some/where/fairseq-train", "--all"])
    hook = mistakes.one_line_errors(pytest.fail)
    try:
        try:
            raise UserError("data/x:\n is bad")
        except UserError:
            raise Exception("Cannot load model parameters from checkpoint a.pt; please ensure ...")
    except Exception as error:
        hook(type(error), error, None)
    assert capsys.readouterr().err == "fairseq-train: error: data/x: is bad\n"


class BadDataset(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        raise UserError("data/x, item 0: bad")


def test_error_in_a_loader_process():
    with pytest.raises(UserError) as caught:
        list(torch.utils.data.DataLoader(BadDataset(), num_workers=1))
    assert "Traceback" in str(caught.value)  # as torch hands it over
    assert user_message(caught.value) == "data/x, item 0: bad"


def fail_with_user_error(rank):
    raise UserError("data/x: bad")


def fail_with_fairseq_error(rank):
    raise FileNotFoundError("Dataset not found: train (data)")


@pytest.mark.parametrize(
    "worker, words",
    [
        (fail_with_user_error, "data/x: bad"),
        (fail_with_fairseq_error, "data: has no train data of these languages"),
    ],
)
def test_error_in_a_spawned_worker(worker, words):
    # fairseq trains on several GPUs in spawned processes; forked here, to be quick: the error comes back alike
    with pytest.raises(torch.multiprocessing.ProcessRaisedException) as caught:
        torch.multiprocessing.start_processes(worker, nprocs=1, start_method="fork")
    assert mistakes.mistake(caught.value).startswith(words)


@pytest.mark.parametrize(("message", "words"), [
    ("out of memory in a mono batch of 2 x 8 x 512 tokens",
     "out of memory in a mono batch of 2 x 8 x 512 tokens: lower --max-tokens, or add --checkpoint-activations"),
    ("CUDA out of memory. Tried to allocate 2.00 GiB", "out of memory: lower --max-tokens, and raise --update-freq as much"),
])  # fmt: skip
def test_out_of_memory(message, words):
    assert mistakes.mistake(torch.OutOfMemoryError(message)) == words


@pytest.mark.parametrize("number", [1, 2])
def test_a_worker_out_of_memory_ends_all(monkeypatch, number):
    """One worker alone leaves the batch out, as fairseq does."""
    monkeypatch.setattr(workers, "_fairseq_trainer_train_step", lambda trainer, samples, raise_oom: raise_oom)
    trainer = SimpleNamespace(data_parallel_world_size=number)
    assert workers.trainer_train_step(trainer, []) == (number > 1)


@pytest.mark.parametrize(("task", "asked", "given"), [
    (CamlmTask, "pytorch_ddp", "legacy_ddp"),
    (CamlmTask, "no_c10d", "no_c10d"),
    (TranslationTask, "pytorch_ddp", "pytorch_ddp"),
], ids=["ours", "ours, chosen", "fairseq's"])  # fmt: skip
def test_ddp_backend(monkeypatch, task, asked, given):
    monkeypatch.setattr(workers, "_fairseq_trainer_init", lambda *arguments: None)
    cfg = SimpleNamespace(distributed_training=SimpleNamespace(ddp_backend=asked))
    workers.trainer_init(None, cfg, task.__new__(task))
    assert cfg.distributed_training.ddp_backend == given


def test_another_number_of_workers_is_refused_in_the_middle_of_an_epoch():
    """fairseq would leave out, or repeat, what lies between the two."""

    def iterator(workers: int, size: int = 1) -> EpochBatchIterator:
        numbers = torch.utils.data.TensorDataset(torch.arange(8))
        batches = torch.arange(8).split(size)
        return EpochBatchIterator(numbers, lambda items: int(items[0][0]), batches, num_shards=workers)

    begun = iterator(2)
    batches = begun.next_epoch_itr(shuffle=False)
    next(batches)
    same = iterator(2)
    same.load_state_dict(begun.state_dict())
    assert list(same.next_epoch_itr(shuffle=False)) == [2, 4, 6]
    with pytest.raises(UserError, match="the middle of epoch 1, .* number of workers was 2 and is 1: change it back"):
        iterator(1).load_state_dict(begun.state_dict())
    with pytest.raises(UserError, match="epoch 1, .* number of batches was 8 and is 4"):
        iterator(2, size=2).load_state_dict(begun.state_dict())
    assert len(list(batches)) == 3
    other = iterator(1)
    other.load_state_dict(begun.state_dict())
    assert other.next_epoch_idx == 2


@pytest.mark.parametrize("change, words", [
    ({"seed": 2}, "--seed was 1 and is 2"), ({"num_shards": 2}, "number of workers was 1 and is 2"),
    ({"sizes": [3, 4, 5, 7]}, "checksum"), ({"batches": [[0, 2], [1, 3]]}, "checksum"), ({"batches": [[1, 0], [2, 3]]}, "checksum"),
    ({"batches": [[0], [1], [2, 3]]}, "number of batches was 2 and is 3"),
])  # fmt: skip
def test_other_batches_of_translation_are_refused_in_the_middle_of_an_epoch(change, words):
    """Of data that grew, another seed, and what --max-tokens or another order make of them."""

    class Sentences(torch.utils.data.Dataset):
        sizes = np.array([3, 4, 5, 6])

        def __len__(self):
            return 4

        def __getitem__(self, index):
            return index

    def epochs(seed=1, num_shards=1, sizes=None, batches=((0, 1), (2, 3))):
        data = Sentences()
        data.sizes = np.array(sizes or data.sizes)
        return EpochBatchIterator(data, list, [list(batch) for batch in batches], seed=seed, num_shards=num_shards)

    begun = epochs()
    next(begun.next_epoch_itr(shuffle=False))
    epochs().load_state_dict(begun.state_dict())
    with pytest.raises(UserError, match=words):
        epochs(**change).load_state_dict(begun.state_dict())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_gradients_that_are_no_numbers_are_an_error_under_amp_without_a_scale(value):
    """On a CPU there is no scale to lower. Clipping would turn an infinite gradient into zeros and a NaN."""
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), [
        "data", "--task", "translation", "--arch", "transformer_tiny", "--optimizer", "adam", "--lr", "1", "--amp",
    ]))  # fmt: skip
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = AMPOptimizer.build_optimizer(cfg, [parameter])
    optimizer._grad_scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer.backward((parameter * torch.tensor([1.0, value, 3.0])).sum())
    with pytest.raises(FloatingPointError, match="Nan/Inf"):
        optimizer.clip_grad_norm(1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_tied_tensors_are_saved_as_one(dtype):
    table = torch.ones(4, 3, dtype=dtype)
    moved = utils.move_to_cpu({"a": table, "b": table.detach(), "part": table[1:], "count": torch.tensor(3)})
    assert moved["a"].data_ptr() == moved["b"].data_ptr() and moved["a"].dtype == torch.float32
    assert moved["part"].shape == (3, 3) and moved["count"] == 3


@pytest.mark.parametrize("count", [0, 3, 8, 13])
def test_the_last_batch_is_not_left_out(count):
    sizes = np.full(count, 5)
    for limits in ({"required_batch_size_multiple": 8}, {"max_sentences": 4}, {"max_tokens": 20}):
        batches = data_utils.batch_by_size(range(count), lambda i: 5, num_tokens_vec=sizes, **limits)
        assert [i for batch in batches for i in batch] == list(range(count))
        assert all(len(batch) * 5 <= limits.get("max_tokens", 1000) for batch in batches)


def test_amp_on_a_cpu_computes_in_bf16_and_resumes(trained, tmp_path):
    """Near fp32's loss, but not equal to it; parameters in fp32; nothing said of CUDA."""
    losses = {}
    for amp in ((), ("--amp",)):
        folder = tmp_path / f"ckpt{len(amp)}"
        for updates in ("3", "6"):
            options = ("--max-update", updates, "--log-format", "json", "--log-interval", "1", "--save-dir", folder)
            result = train(trained, *amp, *options)
            assert result.returncode == 0 and result.stderr == ""
        losses[amp] = [float(loss) for loss in re.findall(r'train_inner \| .*?"loss": "([\d.]+)"', result.stdout)]
        weights = torch.load(folder / "checkpoint_last.pt")["model"]
        assert all(tensor.dtype == torch.float32 for tensor in weights.values())
    assert len(losses[()]) == len(losses["--amp",]) == 3 and losses[()] != losses["--amp",]
    assert losses[()] == pytest.approx(losses["--amp",], rel=0.02)


@pytest.mark.filterwarnings("ignore")
def test_amp_unscales_gradients_once():
    """Adam with a large epsilon, whose steps tell the size of gradients, takes the same one with a loss scale."""
    steps = []
    for scaled in (False, True):
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), [
            "data", "--task", "translation", "--arch", "transformer_tiny", "--optimizer", "adam", "--adam-eps", "1",
            "--lr", "1", "--amp",
        ]))  # fmt: skip
        parameter = torch.nn.Parameter(torch.zeros(2))
        optimizer = AMPOptimizer.build_optimizer(cfg, [parameter])
        optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=128.0, enabled=scaled)
        optimizer.backward((parameter * torch.tensor([1.0, 3.0])).sum())
        optimizer.clip_grad_norm(0)
        optimizer.step()
        steps.append(parameter.detach().clone())
    assert steps[0].abs().min() > 0 and torch.equal(*steps)


@pytest.mark.parametrize("command", ["fairseq-generate", "fairseq-interactive"])
def test_amp_translates_in_bf16(trained, command):
    """Near fp32's log-probabilities, but not equal to them."""
    data = ["--input", "test.de"] if command == "fairseq-interactive" else ["--max-tokens", "100"]
    scores = {}
    for amp in ((), ("--amp",)):
        options = ("--path", "ckpt/checkpoint_last.pt", "-s", "de", "-t", "en", "--beam", "1", "--max-len-b", "3")
        result = run(command, "data", *data, *options, *amp, cwd=trained)
        assert result.returncode == 0, result.stderr
        # the first token's, before which the two can have chosen nothing else
        scores[amp] = [float(score) for score in re.findall(r"^P-\d+\t(\S+)", result.stdout, re.MULTILINE)]
    assert len(scores[()]) == len(scores["--amp",]) == 8 and scores[()] != scores["--amp",]
    assert scores[()] == pytest.approx(scores["--amp",], rel=0.02)


@pytest.mark.parametrize("amp", [(), ("--amp",)], ids=["fp32", "amp"])
def test_nan_is_an_error_and_the_checkpoint_before_is_whole(copy_of, amp):
    """With an absurd learning rate the second update's loss is no number; nothing of it is saved."""
    folder = copy_of
    before = (folder / "ckpt/checkpoint_last.pt").read_bytes()
    options = ("--max-update", "9", "--reset-optimizer", "--lr", "1e30", "--disable-validation", "--no-save")
    result = train(folder, *amp, *options)
    assert "the gradients became NaN or infinite: lower --lr or raise --warmup-updates" in error_line(result)
    assert (folder / "ckpt/checkpoint_last.pt").read_bytes() == before


@pytest.mark.parametrize("asked", [True, False])
def test_translation_with_amp_is_in_bf16_on_a_cpu(asked):
    def main(cfg):
        return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    cfg = SimpleNamespace(common=SimpleNamespace(cpu=False, amp=asked))
    assert precision.translating(main)(cfg) == (asked, torch.bfloat16)


def test_known_arguments_are_checked_where_others_are_left(monkeypatch):
    """fairseq-train parses twice; the first time it gives what it does not know, too."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--beam", type=int, default=5)
    for value in (5, 0):
        found = argparse.Namespace(beam=value), ["--other"]
        monkeypatch.setattr(command_line, "_fairseq_parse_args_and_arch", lambda *_, **__: found)
        if value:
            assert command_line.parse_args_and_arch(parser) is found
        else:
            with pytest.raises(UserError, match="--beam 0: must be at least 1"):
                command_line.parse_args_and_arch(parser)
