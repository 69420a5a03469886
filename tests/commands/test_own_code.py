# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``veco --user-dir``, and what is said of models that only code of the user's own knows."""

import re
import shlex
from argparse import Namespace

import pytest
import torch
from conftest import changed, make_dictionary, save_pretrained
from fairseq import checkpoint_utils
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from support.starting import all_tests

from veco_fairseq.checkpoints.huggingface import export_hf
from veco_fairseq.checkpoints.kinds import notes_on_own_code
from veco_fairseq.checkpoints.seq2seq import convert_to_seq2seq
from veco_fairseq.checkpoints.translation import read_translation
from veco_fairseq.commands import import_user_dir
from veco_fairseq.errors import UserError
from veco_fairseq.models.base import set_defaults
from veco_fairseq.models.veco import VecoModel

# As docs/architecture.md has it.
CODE = """
import veco_fairseq.plugin
from fairseq.models import register_model_architecture
from veco_fairseq.models.base import Size, encoder_architecture

@register_model_architecture("veco", "own_odd")
def own_odd(args):
    encoder_architecture(args, Size(layers=5, dim=40, heads=5))
"""
ADVICE = re.escape(": give --user-dir DIR, the folder of the code that registers it (veco --user-dir DIR COMMAND)")


def test_a_command_imports_it(make_root, tmp_path):
    folder = tmp_path / "own_code"
    folder.mkdir()
    (folder / "__init__.py").write_text(CODE, encoding="utf-8")
    command = ("veco", "--user-dir", folder, "inspect", make_root(), *"--arch own_odd --max-tokens 64".split())
    result = all_tests()[0].bash("-c", shlex.join(map(str, command)), capture_output=True)
    assert result.returncode == 0, result.stderr
    # 45 tokens and 514 positions of 40 numbers; a layer has 8 products of 40 x 40, 2 of 40 x 160, and 3 LayerNorms
    layer = 8 * (40 * 40 + 40) + 2 * 40 * 160 + 200 + 3 * 80
    expected = (45 + 514) * 40 + 80 + 5 * layer + 40 * 40 + 40 + 80 + 45
    assert f"own_odd: {expected:,} parameters" in result.stdout


def test_the_rest_of_an_architecture_is_that_of_another():
    """As docs/architecture.md has it, of translation and of understanding."""
    for arch, more in (("veco_mt_small", {"decoder_layers": 3}), ("veco_nlu_small", {})):
        args = Namespace(encoder_embed_dim=40)  # of the command line
        set_defaults(args, encoder_layers=5, encoder_embed_dim=50, encoder_attention_heads=5, activation_fn="relu", **more)
        ARCH_CONFIG_REGISTRY[arch](args)
        found = {name: getattr(args, f"encoder_{name}") for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")}
        assert found == {"layers": 5, "embed_dim": 40, "ffn_embed_dim": 3072, "attention_heads": 5}
        assert args.activation_fn == "relu" and getattr(args, "decoder_layers", 3) == 3 and args.dropout == 0.1


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="^--user-dir .*/none: no such folder: give the one of your own code"):
        import_user_dir(str(tmp_path / "none"))


@pytest.fixture
def checkpoint(make_model, tmp_path):
    path = save_pretrained(tmp_path / "m.pt", make_model(layers=2), make_dictionary().symbols)
    with changed(path) as state:
        state["cfg"]["model"] = Namespace(**{**vars(state["cfg"]["model"]), "arch": "own_odd", "_name": "own_odd"})
    return path


def test_a_model_that_nothing_registers_is_named(checkpoint, tmp_path):
    told = f"^{checkpoint}: has a model of --arch own_odd, which nothing here registers{ADVICE}$"
    for use in (read_translation, lambda path: export_hf(path, tmp_path / "hf")):
        with pytest.raises(UserError, match=told):
            use(checkpoint)
    with pytest.raises(UserError, match=f"^{checkpoint}: nothing here registers the model of its training{ADVICE}$"):
        torch.save(make_dictionary().symbols, tmp_path / "dict.pt")
        make_dictionary(mask=False).save(str(tmp_path / "dict.txt"))
        checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides={"data": str(tmp_path)})


def test_a_conversion_tells_that_it_takes_no_code(checkpoint, tmp_path, monkeypatch):
    """Of a class of somebody else's, and where the class is not known; an architecture of this project's model has sizes alone."""
    note = "--arch own_odd is not of this project: what its own code computes in another way is not taken over"
    assert convert_to_seq2seq(checkpoint, tmp_path / "mt.pt", 1)["notes"] == [note]
    monkeypatch.setitem(ARCH_MODEL_REGISTRY, "own_odd", type("Own", (VecoModel,), {"__module__": "own"}))
    assert notes_on_own_code(Namespace(arch="own_odd")) == [note]
    monkeypatch.setitem(ARCH_MODEL_REGISTRY, "own_odd", VecoModel)
    assert notes_on_own_code(Namespace(arch="own_odd")) == notes_on_own_code(None) == []
