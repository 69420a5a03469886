# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""No file runs code: neither the options of a checkpoint, nor a data folder, nor a dictionary."""

import ast
import importlib
import importlib.util
import re
import sys
from argparse import Namespace
from pathlib import Path

import fairseq
import pytest
import torch
from fairseq.data import FastaDataset
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import MultiheadAttention
from support.commands import COMMANDS, Command

from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.compat import guard
from veco_fairseq.errors import UserError
from veco_fairseq.options import literals

INSTALLED = Path(fairseq.__file__).parent.parent


@pytest.fixture(scope="module")
def modules():
    """Name -> syntax tree of every module of fairseq that calls, or names, what :data:`WORD` matches.

    Its examples are left out, as nothing of it imports them.
    """
    trees = {}
    for package in guard.PACKAGES:
        for path in sorted((INSTALLED / package).rglob("*.py")):
            name = ".".join(path.relative_to(INSTALLED).with_suffix("").parts).removesuffix(".__init__")
            source = path.read_text(encoding="utf-8")
            if not name.startswith("fairseq.examples") and WORD.search(source):
                trees[name] = ast.parse(source)
    assert len(trees) > 50
    return trees


@pytest.fixture(scope="module")
def calls(modules):
    """(module, what is called as in the source, the call) of these calls."""
    return [
        (name, ast.unparse(node.func), node) for name, tree in modules.items() for node in ast.walk(tree)
        if isinstance(node, ast.Call) and (getattr(node.func, "attr", None) or getattr(node.func, "id", None)) in LAST
    ]  # fmt: skip


# What runs code, or may, by the end of its name; "import_module" and such with a name made at run time.
DANGEROUS = ("exec", "compile", "__import__", "import_module", "pickle.load", "pickle.loads", "Unpickler", "yaml.load",
             "np.load", "torch.load", "hub.load", "jit.load", "instantiate", "locate", "os.system", "os.popen",
             "subprocess.call", "subprocess.run", "subprocess.Popen", "subprocess.check_output",
             "subprocess.check_call", "extractall", "unpack_archive", "import_user_module")  # fmt: skip
HELPERS = ("eval_str_list", "eval_str_dict", "eval_bool")
LAST = {end.rpartition(".")[2] for end in DANGEROUS} | {"eval", *HELPERS}
WORD = re.compile(rf"\b(builtins|__builtins__|{'|'.join(LAST)})\b")
# Each of them in fairseq, and why no checkpoint, data folder or dictionary runs code there.
PLUGIN, OWN_FOLDER = "a folder of the command line's --user-dir", "the modules in fairseq's own folder"
ARRAY = "numpy refuses pickles unless told otherwise, which the test below looks for"
TENSORS = "torch 2.6 and newer read tensors and plain values alone, unless told otherwise, which the test below looks for"
HARMLESS = {
    ("fairseq.utils", "importlib.import_module"): PLUGIN,
    ("fairseq.options", "utils.import_user_module"): PLUGIN,
    ("fairseq.hub_utils", "utils.import_user_module"): "an argument of from_pretrained, which is the user's code",
    ("fairseq_cli.eval_lm", "utils.import_user_module"): PLUGIN,
    ("fairseq_cli.generate", "utils.import_user_module"): PLUGIN,
    ("fairseq_cli.hydra_validate", "utils.import_user_module"): PLUGIN,
    ("fairseq_cli.interactive", "utils.import_user_module"): PLUGIN,
    ("fairseq_cli.preprocess", "utils.import_user_module"): PLUGIN,
    ("fairseq_cli.train", "utils.import_user_module"): PLUGIN,
    ("fairseq_cli.validate", "utils.import_user_module"): PLUGIN,
    ("fairseq.criterions", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.data.encoders", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.data.audio", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.model_parallel.criterions", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.model_parallel.models", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.models", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.models.ema", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.models.huggingface", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.optim", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.optim.lr_scheduler", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.scoring", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.tasks", "importlib.import_module"): OWN_FOLDER,
    ("fairseq.optim.fused_adam", "importlib.import_module"): "a constant name",
    ("fairseq.distributed.utils", "pickle.loads"): "what another worker of the same training sends",
    ("fairseq.distributed.utils", "torch.load"): TENSORS,
    ("fairseq.distributed.utils", "subprocess.check_output"): "SLURM's scontrol, with SLURM's variables",
    ("fairseq.checkpoint_utils", "torch.load"): TENSORS,
    ("fairseq.data.codedataset", "torch.load"): TENSORS,
    ("fairseq.models.speech_to_text.xm_transformer", "torch.load"): TENSORS,
    ("fairseq.models.text_to_speech.vocoder", "torch.load"): TENSORS,
    ("fairseq.modules.quantization.pq.em", "torch.load"): TENSORS,
    ("fairseq.data.audio.audio_utils", "np.load"): ARRAY,
    ("fairseq.data.audio.feature_transforms.global_cmvn", "np.load"): ARRAY,
    ("fairseq.data.codedataset", "np.load"): ARRAY,
    ("fairseq.data.fasta_dataset", "np.load"): ARRAY,
    ("fairseq.speech_generator", "np.load"): ARRAY,
    ("fairseq.tasks.text_to_speech", "np.load"): ARRAY,
    ("fairseq.data.audio.data_cfg", "yaml.load"): "PyYAML's FullLoader, which makes no objects by name",
    ("fairseq.data.fasta_dataset", "subprocess.check_output"): "replaced by guard.refuse_fasta",
    ("fairseq.data.plasma_utils", "subprocess.Popen"): "plasma_store, from the PATH, without a shell",
    ("fairseq.tasks.audio_pretraining", "subprocess.call"): "the training's own --post-save-script",
    ("fairseq.models.speech_to_text.hub_interface", "torch.hub.load"): "of generate_audio, which is the user's code",
    ("fairseq.file_utils", "archive.extractall"): "of from_pretrained, which is the user's code",
}


def test_the_ways_of_fairseq_to_run_code_are_known(calls):
    found = {(name, called) for name, called, _ in calls
             if any(called == end or called.endswith("." + end) for end in DANGEROUS) and not called.endswith(("re.compile", "torch.compile"))}  # fmt: skip
    assert found == set(HARMLESS)
    for name, called, node in calls:
        keywords = {word.arg for word in node.keywords}
        if called.endswith(("torch.load", "np.load")):
            assert not keywords & {"weights_only", "pickle_module", "allow_pickle"}, (name, ast.unparse(node))
        if called == "yaml.load":
            assert ast.unparse(node.keywords[-1]) == "Loader=yaml.FullLoader"
        if "shell" in keywords:
            assert name == "fairseq.data.fasta_dataset", ast.unparse(node)


def test_eval_means_literals_in_all_of_fairseq(modules, calls):
    evaluating = {name for name, called, _ in calls if called in ("eval", "builtins.eval")}
    assert len(evaluating) > 15 and "fairseq.utils" in evaluating
    for name, tree in modules.items():
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {alias.name for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
                  for alias in node.names}  # fmt: skip
        assert not names & {"builtins", "__builtins__"}, name  # no other way to the real one
        assert "eval" not in names or name in evaluating, f"{name} hands eval on without calling it"
    for name in evaluating:
        if name not in sys.modules:  # fairseq_cli's
            assert isinstance(importlib.util.find_spec(name).loader, guard._Guarded)
        assert importlib.import_module(name).eval is guard.evaluate, name


def test_a_module_imported_later_is_guarded_from_its_first_line(tmp_path, monkeypatch):
    package = tmp_path / "fairseq_cli"
    package.mkdir()
    (package / "later.py").write_text("class Options:\n    text = '1 + open(3)'\nNUMBER = eval('[2] * 3')\n"
                                      "def use():\n    return eval(Options.text)\n")  # fmt: skip
    monkeypatch.setattr(sys.modules["fairseq_cli"], "__path__", [str(package)])
    later = importlib.import_module("fairseq_cli.later")
    monkeypatch.delitem(sys.modules, "fairseq_cli.later")
    assert later.NUMBER == [2, 2, 2]
    with pytest.raises(UserError, match=r"fairseq_cli\.later, line 5 \(return eval\(Options\.text\)\): '1 \+ open\(3\)'"):
        later.use()


def test_the_evaluated_options_are_known(calls):
    """Every eval(args.NAME), and every call of the three helpers of fairseq that call it."""
    found = set()
    for _, called, node in calls:
        if called == "eval" or called.rpartition(".")[2] in HELPERS:
            argument = node.args[0]
            if isinstance(argument, ast.Attribute):
                found.add(argument.attr)
            elif isinstance(argument, ast.Name):
                found.add(argument.id)
            else:
                found.add(ast.unparse(argument))
    # x and uf: the helpers' own, and the type of a command line's option; line.strip(): of a file of --task speech
    found -= {"x", "uf", "line.strip()", "getattr(override_args, 'model_overrides', '{}')"}
    assert literals.EVALUATED == found | {"encoder_xformers_att_config", "decoder_xformers_att_config"}


@pytest.mark.parametrize(
    "text, value",
    [
        ("[0.0003]", [0.0003]),
        ("1e-3", 1e-3),
        (" 4,2 ", (4, 2)),
        ("(0.9, 0.98)", (0.9, 0.98)),
        ("-1", -1),
        ("{'name': 'linformer', 'ratio': 4}", {"name": "linformer", "ratio": 4}),
        ("[(512, 10, 5)] + [(512, 3, 2)] * 2 + [(512,2,2)]", [(512, 10, 5), (512, 3, 2), (512, 3, 2), (512, 2, 2)]),
        ("3 * [7] + [2 * 5]", [7, 7, 7, 10]),
        ("None", None),
    ],
)
def test_literals(text, value):
    if text != "3 * [7] + [2 * 5]":
        assert value == eval(text)  # what fairseq would have had
        assert guard.evaluate(text) == value
    else:
        with pytest.raises(UserError):  # a sum within a list is none of fairseq's
            guard.evaluate(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').mkdir('x')",
        "open('x', 'w')",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "f'{1}'",
        "().__class__",
        "a",
        "(" * 300 + ")" * 300,
        "[0] * 10**9",
        "[0] * 100000 * 100000",
        "'a' * 99999999",
        "b'a' * 99999999",
        "[1] * [2]",
        "1 +",
        "\0",
        "",
        "1" * 5000,
    ],
)
def test_nothing_else_is_evaluated(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="is no literal") as caught:
        guard.evaluate(text)
    assert len(str(caught.value)) < 300
    assert not list(tmp_path.iterdir())


def test_what_is_no_string_stays_a_type_error():
    for value in (True, 3, b"1", compile("1", "", "eval")):  # fairseq's eval_bool counts on it
        with pytest.raises(TypeError):
            guard.evaluate(value)


def canary(folder: Path) -> str:
    return f"[__import__('os').mkdir({str(folder / 'it ran')!r})]"


def test_fairseqs_own_code_runs_no_canary(tmp_path):
    with pytest.raises(UserError, match=r"fairseq\.modules\.multihead_attention, line \d+ \(xformers_att_config = "):
        MultiheadAttention(8, 2, xformers_att_config=canary(tmp_path))
    options = Namespace(adaptive_softmax_cutoff=canary(tmp_path), share_decoder_input_output_embed=False, decoder=Namespace())
    with pytest.raises(UserError, match=r"transformer_decoder, line"):
        TransformerDecoderBase.build_output_projection(
            Namespace(output_embed_dim=4), options, range(10), torch.nn.Embedding(10, 4)
        )
    assert not list(tmp_path.iterdir())


def test_fasta_is_refused(tmp_path):
    (tmp_path / "a;touch b.fasta").write_text(">x\nACGT\n")
    with pytest.raises(UserError, match=r"FASTA is not read here"):
        FastaDataset(str(tmp_path / "a;touch b"))


@pytest.mark.parametrize("option", sorted(literals.EVALUATED))
def test_checkpoint_with_a_canary_is_refused(tmp_path, option):
    path = tmp_path / "a.pt"
    for place, options in (
        (f"cfg.model.{option}", {"cfg": {"model": {option: canary(tmp_path)}}}),
        (f"cfg.model.{option}", {"cfg": {"model": Namespace(**{option: canary(tmp_path)})}}),
        (f"cfg.model.w2v_args.task.0.{option}", {"cfg": {"model": {"w2v_args": Namespace(task=[{option: "a.b"}])}}}),
        (f"args.{option}", {"cfg": None, "args": Namespace(arch="transformer", **{option: "${x}"})}),
    ):
        torch.save({"model": {}, **options}, path)
        with pytest.raises(UserError) as caught:
            read_checkpoint(path)
        assert str(caught.value).startswith(f"{path}: refused: its option {place} is ")
    assert [file.name for file in tmp_path.iterdir()] == ["a.pt"]


@pytest.mark.parametrize("value", ["${oc.env:HOME}", "a/${ oc.decode:[1]}", "${oc.env:${common.user_dir}}"])
def test_checkpoint_with_a_resolver_is_refused(tmp_path, value):
    torch.save({"model": {}, "cfg": {"common": {"tensorboard_logdir": value}}}, tmp_path / "a.pt")
    with pytest.raises(UserError, match=r"refused: its option cfg\.common\.tensorboard_logdir is .*resolver"):
        read_checkpoint(tmp_path / "a.pt")


def test_ordinary_options_are_read(tmp_path):
    model = Namespace(adam_betas="(0.9, 0.98)", adaptive_softmax_cutoff="10,20", encoder_layers=6, pretrained="False",
                      decoder_layers="[(256, 4)] * 3", xformers_att_config=None)  # fmt: skip
    cfg = {"model": model, "common": {"user_dir": "a.b(c)", "seed": "${model.seed}:1"}, "task": {"eval_bleu_args": '{"beam": 5}'}}
    torch.save({"model": {}, "cfg": cfg, "args": None}, tmp_path / "a.pt")
    assert read_checkpoint(tmp_path / "a.pt")["cfg"] == cfg
    cfg["task"]["itself"] = cfg  # a nest without an end
    torch.save({"model": {}, "cfg": cfg}, tmp_path / "a.pt")
    read_checkpoint(tmp_path / "a.pt")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_a_canary(tmp_path, make_model, run, command):
    command = Command(command, tmp_path, make_model)
    state = torch.load(command.checkpoint)
    every = {option: canary(tmp_path) for option in literals.EVALUATED}
    cfg = {part: {**options, **every} if isinstance(options, dict) else Namespace(**{**vars(options), **every})
           for part, options in state["cfg"].items()}  # fmt: skip
    args = Namespace(arch="transformer_tiny", task="translation", data=str(command.data), **every)
    for place, options in (("cfg", {"cfg": cfg}), ("args", {"cfg": None, "args": args})):
        torch.save({**state, **options}, command.checkpoint)
        line = command.error_line(run)
        assert f"{command.checkpoint}: refused: its option {place}." in line
        assert "which fairseq would evaluate" in line
        assert not (tmp_path / "it ran").exists()
