# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Options of fairseq that cannot work, or that a task does nothing for."""

from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest
import torch
from fairseq import options
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY

from veco_fairseq.checkpoints.own_options import own_options
from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.checkpoints.skeleton import check_skeleton
from veco_fairseq.criterions.camlm import CamlmCriterion
from veco_fairseq.criterions.knn import KnnCamlmCriterionConfig
from veco_fairseq.errors import UserError
from veco_fairseq.models.veco import VecoModel

CAMLM = "root --task camlm --arch veco_tiny --criterion camlm"
NLU = "data --task veco_nlu --arch veco_nlu_tiny --criterion veco_nlu"
TRANSLATION = "data --task translation --arch transformer_tiny"


def parse(words: str):
    return options.parse_args_and_arch(options.get_training_parser("translation"), words.split())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task, words, message", [
    (TRANSLATION, "--num-batch-buckets 2", "--num-batch-buckets: fairseq's code for it does not run with NumPy 2: leave it out"),
    (CAMLM, "--use-bmuf",
     "--use-bmuf: each worker has weights of its own, and a checkpoint keeps those of the first: leave it out"),
    (TRANSLATION, "--checkpoint-suffix _x --keep-best-checkpoints 2",
     "--checkpoint-suffix _x: --keep-best-checkpoints cannot read file names with one more _: write it without"),
    (TRANSLATION, "--store-ema --ema-seed-model none.pt", "--ema-seed-model none.pt: no such checkpoint: check the path"),
    (TRANSLATION, "--grouped-shuffling --fix-batches-to-gpus", "--grouped-shuffling and --fix-batches-to-gpus: the first gives all "
     "workers batches of like lengths at a time, and the second shuffles each one's own: leave out one of the two"),
    (TRANSLATION, "--num-shards 2", "--num-shards: fairseq-generate and fairseq-eval-lm alone take a part of a set: leave it out"),
    *((TRANSLATION, f"--disable-validation {words}{'' if ' ' in words else ' 2'}", f"{words}: goes by validations, and --disable-validation has none: leave out one "
       "of the two") for words in ("--patience", "--keep-best-checkpoints", "--lr-scheduler reduce_lr_on_plateau")),
    (TRANSLATION, "--lr-scheduler polynomial_decay --max-update 9 --force-anneal 2",
     "--force-anneal: with --lr-scheduler polynomial_decay, each epoch from there on would begin to decay anew from the rate "
     "that the last one came to, which is 0 before a warm-up: leave it out"),
    (TRANSLATION, "--criterion label_smoothed_cross_entropy_with_alignment", "--criterion label_smoothed_cross_entropy_with_alignment: "
     "learns no alignment without --load-alignments: give that, too, or --criterion label_smoothed_cross_entropy"),
    ("data --task veco_multilingual_translation --arch veco_mt_tiny", "--criterion label_smoothed_cross_entropy_with_alignment",
     "--criterion label_smoothed_cross_entropy_with_alignment: learns no alignment without --load-alignments: give --criterion "
     "label_smoothed_cross_entropy"),  # this task takes no alignments
    *((TRANSLATION, f"--load-alignments --criterion {name}", f"--load-alignments: --criterion {name} learns from none: leave it out, or give "
       "--criterion label_smoothed_cross_entropy_with_alignment") for name in ("cross_entropy", "label_smoothed_cross_entropy")),
    *((task, "--sentence-avg", "--sentence-avg: the loss is a mean over all predictions: leave it out") for task in (CAMLM, NLU)),
    *((task, "--combine-valid-subsets", "--combine-valid-subsets: each set to validate on stays by itself, as with --valid-subset "
       "valid,valid1: leave it out") for task in (CAMLM, NLU)),
    *((CAMLM, words, f"{words.split()[0]}: --task camlm plans its batches, whose order depends on --seed alone: leave it out")
      for words in ("--curriculum 1", "--grouped-shuffling", "--update-epoch-batch-itr true", "--fix-batches-to-gpus",
                    "--update-ordered-indices-seed")),
    (CAMLM, "--required-batch-size-multiple 1", "--required-batch-size-multiple: a batch has --mono-batch-size or "
     "--bitext-batch-size pairs, or as many as --max-tokens allows: leave it out"),
    (CAMLM, "--skip-invalid-size-inputs-valid-test", "--skip-invalid-size-inputs-valid-test: --task camlm leaves out longer pairs "
     "in any case, and cuts longer documents: leave it out"),
    *((task, "--required-seq-len-multiple 8", "--required-seq-len-multiple: a batch is as long as its longest sequence: leave it out")
      for task in (CAMLM, NLU)),
])  # fmt: skip
def test_what_does_nothing_or_ends_in_a_traceback_is_refused(task, words, message):
    with pytest.raises(UserError, match=f"^{message}$"):
        parse(f"{task} {words}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("words, message", [
    ("--save-dir c/d${HOME}x", r"--save-dir c/d\$\{HOME\}x: has \$\{, which fairseq takes for another option: write what it stands for$"),
    ("--save-dir ${HOME}", r"--save-dir \$\{HOME\}: has "),
    ("-s ${HOME}", r"(--source-lang|-s) \$\{HOME\}: has "), ("--restore-file=${x", r"--restore-file \$\{x: has "),
    ("--tensorboard-logdir a\\", r"--tensorboard-logdir a\\: has a backslash at its end or before a quote, which fairseq cannot read: leave it out$"),
    ("--save-dir a\\'b", r"--save-dir a\\'b: has a backslash"), ("--save-dir a\\b'c$d{e}", None),
])  # fmt: skip
def test_a_text_that_hydra_would_read_as_another_one_is_refused(words, message):
    """It had ended in a traceback of OmegaConf, or of hydra."""
    with pytest.raises(UserError, match=f"^{message}") if message else nullcontext():
        args = parse(f"{TRANSLATION} --criterion cross_entropy --optimizer adam --lr-scheduler fixed {words}")
        assert convert_namespace_to_omegaconf(args).checkpoint.save_dir == words.split()[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("words", [
    f"{CAMLM} --curriculum 0 --update-epoch-batch-itr false --checkpoint-suffix _x", f"{TRANSLATION} --keep-best-checkpoints 2",
    f"{TRANSLATION} --combine-valid-subsets --sentence-avg", f"{NLU} --curriculum 1",
    f"{CAMLM} --required-batch-size-multiple 8 --required-seq-len-multiple 1",  # fairseq's defaults
    f"{NLU} --required-batch-size-multiple 1 --skip-invalid-size-inputs-valid-test",
    f"{TRANSLATION} --required-batch-size-multiple 1 --required-seq-len-multiple 8 --skip-invalid-size-inputs-valid-test",
    f"{TRANSLATION} --lr-scheduler fixed --force-anneal 2", f"{TRANSLATION} --lr-scheduler polynomial_decay --max-update 9",
    f"{TRANSLATION} --disable-validation --patience -1 --keep-best-checkpoints 0", f"{TRANSLATION} --lr-scheduler reduce_lr_on_plateau",
    f"{TRANSLATION} --load-alignments --criterion label_smoothed_cross_entropy_with_alignment",
    "data --task multilingual_translation --arch transformer_tiny --criterion label_smoothed_cross_entropy_with_alignment",
    "data --arch fconv_self_att",  # which sets --pretrained-checkpoint to nothing itself
    f"{TRANSLATION} --ema-seed-model none.pt", f"{TRANSLATION} --store-ema --ema-seed-model {__file__}",
    f"{TRANSLATION} --max-valid-steps 2 --max-tokens-valid 9 --batch-size-valid 2",
    f"{TRANSLATION} --fix-batches-to-gpus",
    f"{TRANSLATION} --curriculum 1 --grouped-shuffling --update-epoch-batch-itr true --num-batch-buckets 0",
])  # fmt: skip
def test_what_works_is_taken(words):
    parse(words)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("command, words, message", [
    ("generation", "--constraints", "--constraints: a data folder has none: give them to fairseq-interactive, after tabs on each line"),
    ("generation", "--constraints unordered", "--constraints: a data folder has none"),
    ("generation", "--print-step", "--print-step: is for models that refine"), ("generation", "--print-alignment soft", None),
    ("generation", "--score-reference --print-alignment soft", "--print-alignment soft: references that are scored have links alone: "
     "give --print-alignment, or leave it out"), ("generation", "--score-reference --print-alignment", None),
    ("generation", "--score-reference", None), ("interactive_generation", "--constraints", None),
    ("interactive_generation", "--score-reference", "--score-reference: there are no references to score: give fairseq-generate a data "
     "folder that has them"),
    ("interactive_generation", "--print-alignment soft", "--print-alignment soft: fairseq-interactive prints links alone: give "
     "--print-alignment, or fairseq-generate"),
    *((command, f"{first} {second}", f"{first.split()[0]} and {second.split()[0]}: are different searches: leave out one of the two")
      for command, first, second in (("generation", "--sampling --nbest 5", "--diversity-rate 0.5"),
          ("generation", "--sampling --nbest 5", "--match-source-len"), ("generation", "--match-source-len", "--diversity-rate 0.5"),
          ("interactive_generation", "--constraints", "--sampling"), ("interactive_generation", "--constraints", "--match-source-len"),
          ("interactive_generation", "--constraints", "--diversity-rate 0"))),
    ("generation", "--sampling --diversity-rate 0", None), ("generation", "--match-source-len --prefix-size 2", None),
    ("generation", "--sampling --sampling-topk 5 --sampling-topp 0.9", "--sampling-topk and --sampling-topp: give only one of them"),
    ("generation", "--unnormalized --lenpen 0.6", "--lenpen 0.6: --unnormalized divides by no length: leave out one of the two"),
    ("generation", "--unnormalized --sampling --sampling-topk 5", None), ("generation", "--score-reference --beam 2 --lenpen 1", None),
    *(("generation", f"--score-reference {words}", f"{words.split()[0]}: --score-reference searches for nothing, and its score is the "
       "tokens' mean: leave it out") for words in ("--unnormalized", "--lenpen 0.6", "--prefix-size 2", "--temperature 2")),
    ("generation", "--retain-dropout-modules A", "--retain-dropout-modules: without --retain-dropout there is no dropout: give that"),
    ("generation", "--retain-dropout --retain-dropout-modules A", None), ("generation", "--fp16 --amp", "--fp16 and --amp: leave out one"),
    ("generation", "--prefix-size 2 --left-pad-target", "--left-pad-target: with --prefix-size a short reference would begin with "
     "padding: leave out one of the two"), ("generation", "--left-pad-target", None),
    ("generation", "--score-reference --left-pad-target", "--left-pad-target: with --score-reference a short reference would get the "
     "scores of its padding: leave out one of the two"),
    ("generation", "--prefix-size 5 --max-len-b 4", "--max-len-b 4: would cut off the prefix of --prefix-size 5 tokens: raise it"),
    ("generation", "--prefix-size 5 --max-len-b 5", None), ("generation", "--prefix-size 5 --max-len-b 1 --max-len-a 1", None),
    ("generation", "--num-shards 2 --shard-id 1", None), ("interactive_generation", "--num-shards 2", "--num-shards: fairseq-generate and"),
    ("eval_lm", "--num-shards 2 --shard-id 1", None), ("validation", "--task translation --num-shards 2", "--num-shards: fairseq-generate and"),
    *((command, f"--task translation {words} 2", f"{words}: fairseq-train alone follows it: {advice}$")
      for command in ("validation", "generation") for words, advice in (("--max-valid-steps", "leave it out"),
          ("--max-tokens-valid", "give --max-tokens"), ("--batch-size-valid", "give --batch-size"))),
    ("validation", "--task translation --max-tokens 2 --batch-size 2 --max-tokens-valid 2", None),
    ("interactive_generation", "--print-alignment", None), ("interactive_generation", "--print-alignment hard", None),
])  # fmt: skip
def test_what_a_command_cannot_do(command, words, message):
    """fairseq ends in a traceback, after its first batch, or does the same as without the option."""
    parser = getattr(options, f"get_{command}_parser")()
    with pytest.raises(UserError, match=f"^{message}") if message else nullcontext():
        options.parse_args_and_arch(parser, ["data", "--path", "a.pt", *words.split()])


@dataclass
class OwnConfig(KnnCamlmCriterionConfig):
    alpha: float = field(default=-1.5, metadata={"help": "one of somebody else's"})
    pretrained: str = field(default="", metadata={"help": "one of a name that fairseq evaluates"})
    power: float = field(default=-2.5, metadata={"help": "one that a schedule has, too"})


class Own(CamlmCriterion):
    """A criterion of somebody else's, with options of names that others here have."""


setattr(Own, "__dataclass", OwnConfig)  # as register_criterion does


@pytest.mark.filterwarnings("ignore")
def test_an_option_of_somebody_elses_has_no_border_here(monkeypatch, tmp_path):
    """... on the command line and in a checkpoint, but those of this project have, and those that both have."""
    monkeypatch.setitem(CRITERION_REGISTRY, "own", Own)
    words = "root --task camlm --arch veco_tiny --criterion own"
    assert (parse(f"{words} --alpha -3").alpha, parse(words).power) == (-3, -2.5)
    for more, message in (
        ("--knn-targets 0", "--knn-targets 0: must be"),
        ("--clip-norm -1", r"--clip-norm -1\.0: must be"),
        ("--lr-scheduler polynomial_decay --max-update 9 --power -3", r"--power -3\.0: must be"),
    ):
        with pytest.raises(UserError, match=f"^{message}"):
            parse(f"{words} {more}")
    with pytest.raises(UserError, match=r"^--alpha -3\.0: must be"):
        parse("data --task veco_multilingual_translation --arch veco_mt_tiny --alpha -3")
    for name, told in (("own", None), ("camlm", r"its options: --alpha -3\.0: must be")):
        state = {"model": {}, "cfg": {"criterion": {"_name": name, "alpha": -3.0}}}
        with pytest.raises(UserError, match=told) if told else nullcontext():
            check_skeleton("a.pt", state)
    for name, told in (("own", None), ("camlm", "its option cfg.criterion.pretrained is 'a/b.pt', which fairseq would evaluate")):
        state = {"model": {"a": torch.ones(1)}, "cfg": {"criterion": {"_name": name, "pretrained": "a/b.pt"}}}
        torch.save(state, tmp_path / "a.pt")
        with pytest.raises(UserError, match=told) if told else nullcontext():
            read_checkpoint(tmp_path / "a.pt")


def test_what_somebodys_model_takes_over_from_this_project_is_not_its_own(monkeypatch):
    monkeypatch.setitem(ARCH_MODEL_REGISTRY, "own_arch", type("OwnModel", (VecoModel,), {"__module__": "own_code"}))
    assert own_options({"arch": "own_arch"}) == set()
