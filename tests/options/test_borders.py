# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Options at and beyond their borders, outputs that are inputs, and checkpoints made by hand."""

import argparse
import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from conftest import REPOSITORY
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY

from veco_fairseq.arguments import INPUT, OUTPUT, REPORTED, Input, Output, Parser, require_apart
from veco_fairseq.compat import command_line
from veco_fairseq.errors import UserError
from veco_fairseq.files import atomic_output
from veco_fairseq.options import borders

NAN, HUGE = float("nan"), 10**20


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("update_freq", [0], "--update-freq 0: must be at least 1"),
        ("update_freq", [2, -1], "--update-freq -1: must be at least 1"),
        ("update_freq", [], "--update-freq: is empty"),
        ("log_interval", 0, "--log-interval 0: must be at least 1"),
        ("encoder_layers", -1, "--encoder-layers -1: must be at least 1"),
        ("encoder_attention_heads", 0, "--encoder-attention-heads 0: must be at least 1"),
        ("dropout", 1.5, "--dropout 1.5: must be below 1"),
        ("dropout", 1.0, "--dropout 1.0: must be below 1"),
        ("seed", -1, "--seed -1: must be at least 0"),
        ("num_workers", -1, "--num-workers -1: must be at least 0"),
        ("mono_alpha", NAN, "--mono-alpha nan: must be a finite number"),
        ("max_tokens", HUGE, f"--max-tokens {HUGE}: must be at most 2147483647"),
        ("an_option_of_tomorrow", HUGE, f"--an-option-of-tomorrow {HUGE}: must be at most 2147483647"),
        ("another_of_tomorrow", NAN, "--another-of-tomorrow nan: must be a finite number"),
        ("lr", [1e-3, float("inf")], "--lr inf: must be a finite number"),
        ("max_tokens", 2.5, "--max-tokens 2.5: must be a whole number"),
        ("beam", True, "--beam True: must be a whole number"),
        ("dropout", "a", "--dropout a: is not a number"),
        ("table_dim", 0, "--embed-dim 0: must be at least 1"),
        ("adam_betas", "(0.9, 1.0)", "--adam-betas (0.9, 1.0): must be two numbers from 0 to below 1"),
        ("adam_betas", "(0.9,", "--adam-betas (0.9,: must be two numbers"),
        ("adam_betas", [0.9], "--adam-betas [0.9]: must be two numbers"),
        ("adaptive_softmax_cutoff", [], "--adaptive-softmax-cutoff []: must be growing numbers"),
        ("adaptive_softmax_cutoff", "5,-1", "--adaptive-softmax-cutoff 5,-1: must be growing numbers"),
        ("adaptive_softmax_cutoff", [7, 7], "--adaptive-softmax-cutoff [7, 7]: must be growing numbers"),
        ("lr_period_updates", 1e-320, "--lr-period-updates 1e-320: must be at least 1, or -1 for one period"),
        ("model_overrides", "{'a'", "--model-overrides {'a': must be like"),
        ("eval_bleu_args", "[]", "--eval-bleu-args []: must be like"),
        ("encoder_layers_to_keep", [0, 2], "--encoder-layers-to-keep: does not work in this version of fairseq: leave it out"),
        ("distributed_port", 65_536, "--distributed-port 65536: must be at most 65535"),
    ],
)
def test_an_option_beyond_its_border(name, value, words):
    with pytest.raises(UserError) as caught:
        borders.check_options({name: value})
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    "chosen, words",
    [
        (
            {"encoder_embed_dim": 192, "encoder_attention_heads": 5},
            "--encoder-attention-heads 5: must divide --encoder-embed-dim 192",
        ),
        ({"max_len_a": 0.0, "max_len_b": 0, "min_len": 1}, "--max-len-a 0 and --max-len-b 0: must allow at least 1 tokens"),
        ({"max_len_a": 0.5, "max_len_b": 0, "min_len": 1}, "--max-len-a 0.5 and --max-len-b 0: must allow at least 1 tokens"),
        ({"max_len_a": 1.0, "max_len_b": 2, "min_len": 4}, "--max-len-a 1 and --max-len-b 2: must allow at least 4 tokens"),
        ({"shard_id": 2, "num_shards": 2}, "--shard-id 2: must be below --num-shards, 2"),
        ({"beam": 2, "nbest": 3}, "--nbest 3: must be at most --beam 2"),
        ({"beam": 4, "diverse_beam_groups": 2}, "--diverse-beam-groups 2: must be left out: fairseq's search for it adds more"),
    ],
)
def test_options_that_do_not_go_together(chosen, words):
    with pytest.raises(UserError) as caught:
        borders.check_options(chosen)
    assert str(caught.value).startswith(words)


def test_options_behind_the_layers_of_another_model_are_checked():
    with pytest.raises(UserError, match="--beam 0: must be at least 1"):
        borders.check_options({"encoder_layers": "[(512, 3)] * 20", "distributed_port": 65_535, "beam": 0})


def test_only_the_error_without_words_is_a_missing_architecture(monkeypatch):
    """fairseq raises it so."""
    for words, kind, message in (("", UserError, "^--arch: is missing"), ("a user's", RuntimeError, "^a user's$")):
        monkeypatch.setattr(command_line, "_fairseq_parse_args_and_arch", Mock(side_effect=RuntimeError(words)))
        with pytest.raises(kind, match=message):
            command_line.parse_args_and_arch(options.get_training_parser())


@pytest.mark.filterwarnings("ignore")
def test_what_fairseq_does_not_find_or_read_is_put_in_place():
    """The decay's default is the length of the training, as its help says, and false is False."""

    def length(*words):
        words = [*CAMLM, "--lr-scheduler", "polynomial_decay", "--update-epoch-batch-itr", "false", *words]
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
        assert cfg.dataset.update_epoch_batch_itr is False
        return cfg.lr_scheduler.total_num_update

    assert length("--max-update", "30") == 30 and length("--max-update", "30", "--total-num-update", "50") == 50
    with pytest.raises(UserError, match="^--lr-scheduler polynomial_decay: needs the length of the training: give --max-update"):
        length()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["--write-checkpoints-asynchronously", "--use-plasma-view"])
def test_an_option_whose_package_is_missing_is_refused(monkeypatch, name):
    """fairseq ends with exit code 0 and nothing trained, or in a traceback."""
    monkeypatch.setitem(sys.modules, "iopath", None)
    monkeypatch.setitem(sys.modules, "pyarrow.plasma", None)
    with pytest.raises(UserError, match=f"^{name}: needs the package (iopath|pyarrow.plasma), which is not installed"):
        options.parse_args_and_arch(options.get_training_parser(), [*CAMLM, name])


@pytest.mark.filterwarnings("ignore")
def test_a_missing_task_is_told():
    """fairseq-validate has no default task."""
    with pytest.raises(UserError, match="^--task: is missing: give the task that the model was trained for"):
        options.parse_args_and_arch(options.get_validation_parser(), ["data"])


def test_options_within_their_borders():
    borders.check_options({
        "update_freq": [1, 4], "dropout": 0.0, "seed": 2**31 - 1, "warmup_updates": 4000.0, "num_workers": 0, "mono_alpha": 0.0, "patience": -1,
        "warmup_init_lr": -1.0, "lr_period_updates": -1.0, "adaptive_softmax_cutoff": [10, 20], "max_len_a": 1.0, "max_len_b": 0, "min_len": 1, "beam": 4, "nbest": 4, "diverse_beam_groups": -1,
        "adam_betas": "(0.9, 0.98)", "model_overrides": "{}", "total_num_update": "${optimization.max_update}",
        "max_tokens": None, "softmax_batch": sys.maxsize, "encoder_embed_dim": 192, "encoder_attention_heads": 4,
    })  # fmt: skip


CAMLM = ["root", "--task", "camlm", "--arch", "veco_tiny", "--criterion", "camlm", "--optimizer", "adam", "--cpu"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--dropout", "1.5"], "--dropout 1.5: must be below 1"),
        (["--encoder-attention-heads", "5"], "--encoder-attention-heads 5: must divide --encoder-embed-dim 192"),
        (["--save-dir", ""], "--save-dir: is empty: give a value, or leave it out"),
    ],
)
def test_fairseq_commands_refuse_it(arguments, words):
    with pytest.raises(UserError) as caught:
        options.parse_args_and_arch(options.get_training_parser(), [*CAMLM, *arguments])
    assert str(caught.value) == words


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--max-tokens", "x"], "argument --max-tokens: invalid int value: 'x'"),
        (["--lr", "("], "argument --lr: (: must be numbers, joined with commas"),
        (["--update-freq", "1.5"], "argument --update-freq: 1.5: must be whole numbers, joined with commas"),
        (["--max-tok", "8"], "unrecognized arguments: --max-tok 8: did you mean --max-tokens?"),
        (["--bitext-mask-probe", "0.3"], "unrecognized arguments: --bitext-mask-probe 0.3: did you mean --bitext-mask-prob?"),
        (
            ["--arch", "veco_tniy"],
            "argument --arch/-a: invalid choice: 'veco_tniy': did you mean veco_tiny or veco_mt_tiny or veco_nlu_tiny?",
        ),
        (["--no\nsuch"], "unrecognized arguments: --no such"),
    ],
)
def test_fairseq_commands_say_so_in_one_line(capsys, monkeypatch, arguments, words):
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    with pytest.raises(SystemExit) as end:
        options.parse_args_and_arch(options.get_training_parser(), [*CAMLM, *arguments])
    assert (end.value.code, capsys.readouterr().err) in [
        (2, f"fairseq-train: error: {line}\n") for line in (words, words.replace("argument --", "--", 1).replace(": ", " ", 1))
    ]


def test_default_values_are_within_their_borders():
    for parser in (options.get_training_parser(), options.get_interactive_generation_parser(), options.get_validation_parser()):
        borders.check_options(vars(parser.parse_args([])))
    for arch, set_options in ARCH_CONFIG_REGISTRY.items():  # fairseq's, too: its language models say False for the number 0
        chosen = argparse.Namespace(arch=arch, attention_dropout=0.1)
        set_options(chosen)
        borders.check_options(vars(chosen), f"{arch}: ")


def test_outputs_are_apart_from_inputs(tmp_path):
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("a")
    os.link(text, tmp_path / "hard")
    (tmp_path / "soft").symlink_to("text")
    (tmp_path / "softer").symlink_to(tmp_path / "soft")
    for name in ("text", "hard", "soft", "softer", f"../{tmp_path.name}/text"):
        with pytest.raises(UserError, match="--output .*: would overwrite --input .*/text: choose another path"):
            require_apart([Input("--source", other), Input("--input", text)], [Output("--output", tmp_path / name)])
    with pytest.raises(UserError, match="--json .*: is --output, too"):
        require_apart([], [Output("--output", other), Output("--json", tmp_path / "x/../other")])
    with pytest.raises(UserError, match="/text is a file, where a folder is needed"):
        require_apart([], [Output("--output", text / "below")])
    with open(text) as opened:  # as /dev/stdout is
        for special in ("/dev/null", f"/dev/fd/{opened.fileno()}"):
            with pytest.raises(
                UserError, match=f"--output {special}: is a device, a pipe or an open file: name an ordinary file"
            ):
                require_apart([], [Output("--output", Path(special))])
    with pytest.raises(UserError, match="is a folder, where a file is needed"):
        require_apart([], [Output("--output", tmp_path)])
    require_apart([Input("--input", text)], [Output("--output", other), Output("--json", tmp_path / "new/x")])


def test_a_report_beside_the_output_is_an_output(tmp_path, monkeypatch):
    """What is written beside a file under a longer name must not be read either."""
    monkeypatch.chdir(tmp_path)
    Path("out.pt.json").write_text("{}")
    parser = Parser()
    parser.add_argument("--input", type=INPUT)
    parser.add_argument("--output", type=REPORTED)
    with pytest.raises(UserError, match="--output out.pt.json: would overwrite --input out.pt.json"):
        parser.parse_args(["--input", "out.pt.json", "--output", "out.pt"])
    assert parser.parse_args(["--input", "out.pt.json", "--output", "other.pt"]).output == Path("other.pt")


def test_folders_are_apart_from_inputs(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    for name in ("dict.txt", "train.en"):
        (root / name).write_text("a")
    names = ("dict.txt", "mono/*")
    with pytest.raises(UserError, match="would overwrite --dict"):
        require_apart([Input("--dict", root / "dict.txt")], [Output("--output", root, names)])
    with pytest.raises(UserError, match="would overwrite --mono"):
        require_apart([Input("--mono", root / "mono/en/x")], [Output("--output", root, names)])
    with pytest.raises(UserError, match="would overwrite --data"):
        require_apart([Input("--data", root)], [Output("--output", root, ("*",))])
    with pytest.raises(UserError, match="lies in --data"):
        require_apart([Input("--data", root, whole=True)], [Output("--output", root / "new", ("*",))])
    require_apart([Input("--mono", root / "train.en")], [Output("--output", root, names)])  # written under no such name


def test_paths_are_not_empty(capsys):
    parser = Parser()
    parser.add_argument("--input", type=INPUT)
    parser.add_argument("--output", type=OUTPUT)
    for option in ("--input", "--output"):
        with pytest.raises(SystemExit):
            parser.parse_args([option, ""])
        assert f"argument {option}: is an empty path: name a file or folder\n" in capsys.readouterr().err


def test_a_full_disk_while_torch_writes(tmp_path):
    path = tmp_path / "a.pt"
    path.write_text("the one before")
    with pytest.raises(UserError, match=r"a\.pt: cannot be written \(No space left on device\)"):
        with atomic_output(path) as temporary:
            temporary.symlink_to("/dev/full")
            with open(temporary, "wb") as stream:
                torch.save({"model": torch.ones(10_000)}, stream)
    assert path.read_text() == "the one before" and os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize(
    "error, words",
    [
        (OSError(errno.EROFS, "Read-only file system"), "(Read-only file system): choose another folder"),
        (OSError(errno.EACCES, "Permission denied"), "(Permission denied): change its rights or choose another path"),
        (
            Exception("No space left on device (os error 28)"),
            "(No space left on device): free some space or choose another folder",
        ),
    ],
)
def test_the_advice_fits_the_reason(tmp_path, monkeypatch, error, words):
    """Tokenizers raise a bare Exception; and on a read-only file system nothing can be removed either."""

    def refuse(path, missing_ok=False):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with pytest.raises(UserError, match=re.escape(f"a.pt: cannot be written {words}")):
        with atomic_output(tmp_path / "a.pt"):
            raise error


def test_full_standard_output():
    code = "from veco_fairseq.cli import run; run(lambda: print('a line'))"
    with open("/dev/full", "w") as full:
        found = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert found.returncode == 1
    assert found.stderr == "-c: error: the output cannot be written: the disk is full: free some space or choose another folder\n"
