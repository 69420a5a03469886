# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""XLM-E's sizes and options, and its training from the command line."""

import math
import shutil
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.models import ARCH_CONFIG_REGISTRY
from omegaconf import OmegaConf
from support.pretraining import iterator
from support.training import logged
from support.xlme import criterion_for, make_xlme
from support.xlme_task import make_task  # noqa: F401  fixtures

from veco_fairseq.criterions.replaced_token import ReplacedTokenCriterionConfig
from veco_fairseq.errors import UserError
from veco_fairseq.models.xlme import XlmeModel


def options_of(arch: str) -> Namespace:
    args = Namespace(arch=arch)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


def test_sizes_are_those_of_tables_8_and_9():
    expected = {"base": (4, 12, 768, 3072, 12), "large": (6, 24, 1024, 4096, 16), "xl": (8, 48, 1536, 6144, 24)}
    for arch, sizes in expected.items():
        args = options_of(f"xlme_{arch}")
        of_encoder = (args.encoder_embed_dim, args.encoder_ffn_embed_dim, args.encoder_attention_heads)
        assert (args.generator_layers, args.encoder_layers, *of_encoder) == sizes

    class XlmrWords:
        nspecial = 4
        __len__ = staticmethod(lambda: 250_002)
        pad = staticmethod(lambda: 1)

    with torch.device("meta"):
        model = XlmeModel.build_model(options_of("xlme_base"), SimpleNamespace(source_dictionary=XlmrWords()))
    kept = sum(p.numel() for part in (model.encoder, model.detection_head) for p in part.parameters())
    assert round(kept / 1e6) == 278  # table 3: 279M, with the position bias
    assert len(model.encoder.sentence_encoder.layers) == 12 and len(model.generator.sentence_encoder.layers) == 4


@pytest.mark.parametrize("options", [{"autocast": "bf16"}, {"table_dim": 8}, {"checkpoint_activations": True}])
def test_options_of_the_model(make_task, options):  # noqa: F811
    task = make_task()
    half = next(iter(iterator(task).next_epoch_itr()))["bitext"]
    plain, other = make_xlme().train(), make_xlme(**options).train()
    losses, gradients = [], []
    for model in (plain, other):
        torch.manual_seed(5)
        loss, *_ = criterion_for(task)(model, half)
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    assert math.isfinite(losses[1]) and losses[1] == pytest.approx(losses[0], rel=0.5)
    assert other(**half["net_input"]).logits.dtype == torch.float32
    if "checkpoint_activations" in options:
        assert losses[0] == losses[1] and all(torch.equal(gradients[1][n], g) for n, g in gradients[0].items())


EVERYTHING = {
    f"{term}_{figure}"
    for terms, figures in (
        (("mono_mlm", "bitext_tlm"), ("loss", "ppl", "acc")),
        (("mono_mrtd", "bitext_trtd"), ("loss", "acc", "precision", "recall", "replaced")),
    )
    for term in terms
    for figure in figures
}


def test_trains_validates_and_resumes_exactly(make_root, train, tmp_path):  # noqa: F811
    root = make_root()
    options = "--criterion replaced_token --arch xlme_tiny --generator-layers 1 --save-interval-updates 2".split()
    whole = train(root, *options, "--max-update", "4", save_dir="whole")
    losses = logged(whole, "train_inner")
    assert EVERYTHING <= set(losses[0]) and float(losses[0]["bitext_trtd_replaced"]) > 0.1
    valid = logged(whole, "valid")
    languages = {f"valid_{name}" for name in ("aa_mono_mrtd_recall", "aa-bb_bitext_trtd_precision", "bb_mono_mlm_acc")}
    assert {f"valid_{name}" for name in EVERYTHING} | languages | {"valid_loss"} <= set(valid[0])
    (tmp_path / "part").mkdir()
    (tmp_path / "whole/checkpoint_1_2.pt").rename(tmp_path / "part/checkpoint_last.pt")
    part = train(root, *options, "--max-update", "4", save_dir="part")
    keys = [key for key in losses[0] if key in EVERYTHING or key in ("loss", "gnorm", "num_updates")]
    assert [[line[key] for key in keys] for line in logged(part, "train_inner")] == [
        [line[key] for key in keys] for line in losses[2:]
    ]
    keys = [key for key in valid[0] if "loss" in key or "recall" in key]
    assert [logged(part, "valid")[-1][key] for key in keys] == [valid[-1][key] for key in keys]
    ours, theirs = (torch.load(tmp_path / f"{name}/checkpoint_last.pt")["model"] for name in ("part", "whole"))
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


def test_what_does_not_fit_is_refused(make_task):
    task = make_task()
    for weight in (0, -2.5):
        with pytest.raises(UserError, match=f"--discriminator-weight {weight}: must be above 0"):
            criterion_for(task, discriminator_weight=weight)
    with pytest.raises(UserError, match="--no-trtd: there is no TRTD with --no-tlm"):
        criterion_for(make_task(no_tlm=True), no_trtd=True)
    for arch, criterion, other in (("xlme_tiny", "replaced_token", "camlm"), ("veco_tiny", "camlm", "replaced_token")):
        task.build_model(Namespace(arch=arch))
        task.build_criterion(criterion_options(criterion))
        with pytest.raises(UserError, match=f"--criterion {other}: --arch {arch} takes --criterion {criterion}"):
            task.build_criterion(criterion_options(other))


def test_a_criterion_that_extends_the_models_own_trains_it(make_task, monkeypatch):
    class Own(CRITERION_REGISTRY["replaced_token"]):
        """Somebody else's."""

    for registry, value in ((CRITERION_REGISTRY, Own), (CRITERION_DATACLASS_REGISTRY, ReplacedTokenCriterionConfig)):
        monkeypatch.setitem(registry, "own", value)
    task = make_task()
    task.build_model(Namespace(arch="xlme_tiny"))
    assert type(task.build_criterion(criterion_options("own"))) is Own
    task.build_model(Namespace(arch="veco_tiny"))
    with pytest.raises(UserError, match="--criterion own: --arch veco_tiny takes --criterion camlm"):
        task.build_criterion(criterion_options("own"))


def test_without_trtd_the_discriminator_needs_monolingual_text(make_task, make_root):  # noqa: F811
    """Otherwise it is never trained, though it is what is kept."""
    root = make_root()
    task = make_task(root)
    task.criterion = criterion_for(task, no_trtd=True)
    task.load_dataset("train")
    shutil.rmtree(root / "mono")
    with pytest.raises(UserError, match=r"^--no-trtd: \S+ has no mono/ to train on: leave the option out$"):
        task.load_dataset("train")
    task.load_dataset("valid")
    task.criterion = criterion_for(task)
    task.load_dataset("train")


def criterion_options(name: str):
    return OmegaConf.create({**vars(CRITERION_DATACLASS_REGISTRY[name]()), "_name": name})
