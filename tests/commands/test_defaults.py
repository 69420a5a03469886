# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What users get who give no options: the papers' values, the documented ones, and in Python the same as by command."""

import argparse
import importlib
import inspect
import math
from dataclasses import fields
from functools import reduce

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY
from malformed.options import parser_of
from support.command_table import COMMANDS, ELSEWHERE, PACKAGE

from veco_fairseq.arguments import Number
from veco_fairseq.criterions.knn import KnnCamlmCriterionConfig
from veco_fairseq.criterions.replaced_token import ReplacedTokenCriterionConfig
from veco_fairseq.tasks.camlm_options import CamlmTaskConfig
from veco_fairseq.tasks.nlu import NluTaskConfig

BENCH = "--tokens 4096 --length 128 --updates 3 --autocast none --vocabulary 250002"
# Of each command the options that have a default.
DEFAULTS = {
    "comet.py": "--model Unbabel/wmt22-comet-da --gpus 0 --batch-size 16",
    "translate.py": "--nbest 1 --temperature 1.0 --seed 1 --lenpen 1.0 --max-len-a 1.5 --max-len-b 20 --batch-size 64 "
    "--max-tokens 8192 --buffer-size 4096",
    "align.py": "--regularisation 1.0 --iterations 2 --max-tokens 8192",
    "retrieve.py tatoeba": "--score cosine --neighbours 10 --max-tokens 8192",
    "retrieve.py bucc": "--lang all --score csls --neighbours 10 --max-tokens 8192",
    "convert_to_seq2seq.py": "--layer-selection last --new-tokens mean --seed 1",
    "export_ct2.py": "--quantization float32",
    "export_hf.py": "--scores []",
    "import_veco.py": "--layer-selection last",
    "label_with_teacher.py": "--max-tokens 8192",
    "plot_attention.py": "--attention cross",
    "plot_curves.py": "--metric ['loss'] --title Learning curves",
    "vocap.py": "--alpha 0.7 --beta 0.7 --step 1000 --largest 50000 --lines 1000000 --character-coverage 1.0",
    "clean.py": "--punctuation sacremoses --min-length 1 --max-length 250 --max-ratio 3.0 --held-out []",
    "prepare_root.py": "--mono [] --bitext [] --mono-valid [] --bitext-valid [] --vocab-lines 500000 --character-coverage 0.9998",
    "evaluate_xtreme.py run": "--split test --max-tokens 8192",
    "evaluate_xtreme.py table": "--layer -1",
    "count_operations.py": "--sample-updates 20",
    "check_kills.py": "--kills 100 --inside-saves 30 --seed 1 --folder kills-out",
    "inspect_data.py": "--mono-alpha 0.5 --bitext-alpha 0.5 --mono-mask-prob 0.15 --bitext-mask-prob 0.25 --bitext-mask-spread 0.0 "
    "--mono-max-length 512 --bitext-max-length 128 --max-tokens 16384 --arch veco_small --autocast none --examples 0",
    **{
        f"bench.py {what}": f"{defaults} --rounds 3"
        for what, defaults in {
            "pretrain": f"--arch veco_small {BENCH}",
            "data": f"--arch veco_small {BENCH}",
            "knn": f"--neighbours [5, 25, 50, 100] --refresh 1000 --rest 8192 --arch veco_base {BENCH}",
            "finetune": f"--arch veco_mt_small {BENCH}",
            "head": "--rows 8192 --dim 768 --plain-rows 1024 --autocast none --vocabulary 250002",
            "attention": "--arch veco_small --tokens 2048 --lengths [16, 32, 64, 128, 256, 512]",
            "start": "--languages 50 --pairs 879 --sentences 1000000",
            "read": "--arch veco_large --vocabulary 250002",
            "generate": "--arch veco_large --decoder-layers [3, 6, 24] --sentences 50 --length 25 --lang de --beam 5 --batch-size 32 "
            "--quantization ['float32', 'int8'] --vocabulary 40000",
        }.items()
    },
    "plot_layers.py": "--pair mean --title Retrieval by layer (0: the embeddings)",
    "plot_scores.py": "--metric sacrebleu --title Test sets",
}
WITHOUT = {"average_checkpoints.py", "binarize.py", "encode.py", "score.py", "trim_vocab.py", "demo_report.py", "doctor.py",
           "make_options.py", "mend_fairseq.py", "versions.py"}  # fmt: skip
# VECO: table 8; VoCap: section 4.1; XLM-E: section 4.1 and appendix; XTREME's lengths.
CONFIGS = {
    CamlmTaskConfig: {"mono_alpha": 0.5, "bitext_alpha": 0.5, "mono_mask_prob": 0.15, "bitext_mask_prob": 0.25, "bitext_mask_spread": 0.0,
                      "mono_max_length": 512, "bitext_max_length": 128, "no_tlm": False},
    KnnCamlmCriterionConfig: {"objective": "camlm", "s_terms": "both", "no_stop_gradient": False, "knn_targets": None,
                              "knn_refresh": 1000, "knn_rest": 8192},
    ReplacedTokenCriterionConfig: {"discriminator_weight": 50.0, "no_trtd": False},
    NluTaskConfig: {"nlu_task": "classification", "plug": "out", "pivot_lang": "en", "max_length": 128, "stride": 128,
                    "word_pooling": "first", "no_answer": False, "answer_metric": "squad"},
}  # fmt: skip
# Layers, width, heads; the FFN is four times as wide. XLM-E's tables 8 and 9 have the generator's layers.
SIZES = {"tiny": (3, 192, 4), "small": (6, 768, 12), "base": (12, 768, 12), "large": (24, 1024, 16), "xl": (48, 1536, 24)}
GENERATORS = {"tiny": 1, "base": 4, "large": 6, "xl": 8}


@pytest.mark.parametrize("command", DEFAULTS)
def test_a_command_has_the_documented_defaults(command):
    actions = parser_of((f"scripts/{command.split()[0]}", *command.split()[1:]))._actions
    given = {action.option_strings[-1]: action.default for action in actions if action.option_strings}
    shown = " ".join(
        f"{option} {value}" for option, value in given.items() if value not in (None, argparse.SUPPRESS) and value is not False
    )
    assert shown == DEFAULTS[command]


MOST = 2**31 - 1
# Kind, least and greatest value (above: not itself), and the options of commands that take them.
BORDERS = [
    (int, 1, 1024, "workers threads inter-threads"), (int, 1, 65_536, "dim"), (int, 1, 10_000, "beam iterations"), (int, 1, 1_000_000, "sample-updates"), (int, 0, 1_000_000, "bootstrap"),
    (int, 1, MOST, "min-length max-length keep size step largest lines vocab-size vocab-lines nbest sampling-topk batch-size batch-tokens "
     "buffer-size num-update-checkpoints num-epoch-checkpoints max-tokens neighbours encoder-layers embed-dim generator-layers "
     "tokens length lengths updates rounds refresh rest rows plain-rows languages sentences decoder-layers beam"),
    (int, 4, MOST, "length"), (int, 6, MOST, "vocabulary"),
    (int, 0, MOST, "valid-lines seed max-len-b checkpoint-upper-bound gpus layer examples pairs"),
    (float, 0, 1, "attention-dropout"), (float, 1, math.inf, "max-ratio"), (float, 0, math.inf, "language-margin max-len-a"), (float, 0, 10, "alpha beta"),
    (float, -100, 100, "lenpen"), (float, -math.inf, math.inf, "threshold"),
    (float, "above 0", 1, "character-coverage sampling-topp"), (float, "above 0", 1e9, "regularisation"), (float, "above 0", math.inf, "temperature"),
]  # fmt: skip

# Options of such a name that take words, or are the developers' own.
NO_NUMBERS = {"align.py --layer", "retrieve.py bucc --layer", "convert_to_seq2seq.py --decoder-layers", "import_veco.py --decoder-layers",
              "check_kills.py --seed", "retrieve.py tatoeba --pairs"}  # fmt: skip


def test_the_borders_of_every_number():
    expected = {(*border, name) for *border, names in BORDERS for name in names.split()}
    found, without = set(), set()
    for command in DEFAULTS.keys() | COMMANDS.keys():
        for action in parser_of((f"scripts/{command.split()[0]}", *command.split()[1:]))._actions:
            name = (action.option_strings or [action.dest])[0].removeprefix("--")
            if isinstance(number := action.type, Number):
                assert number.below is None and (number.above is None or number.least == -math.inf)
                least = number.least if number.above is None else f"above {number.above:g}"
                found.add((number.kind, least, number.most, name))
            elif name in {border[-1] for border in expected}:
                without.add(f"{command} --{name}")
    assert found == expected
    assert without == NO_NUMBERS


def test_no_command_is_missing():
    scripts = {command.split()[0] for command in (*COMMANDS, *ELSEWHERE)}
    assert scripts == {command.split()[0] for command in DEFAULTS} | WITHOUT


@pytest.mark.parametrize("command", COMMANDS)
def test_the_function_has_the_commands_default(command):
    """Whoever calls Python gets what the command gives."""
    _, results, options = COMMANDS[command]
    actions = parser_of((f"scripts/{command.split()[0]}", *command.split()[1:]))._actions
    defaults = {action.option_strings[-1]: action.default for action in actions if action.option_strings}
    places = {place.rpartition(".")[2]: place for place in results}
    for words, expected in options.items():
        option = words.split()[0] if words else ""
        for place in expected if len([word for word in words.split() if word.startswith("--")]) == 1 else ():
            name, *path = place.split(".")
            if path and name in places and defaults.get(option) not in (None, []):
                module, _, function = (PACKAGE + places[name]).rpartition(".")
                parameters = inspect.signature(getattr(importlib.import_module(module), function)).parameters
                theirs = reduce(getattr, path[1:], parameters[path[0]].default)
                assert theirs in (inspect.Parameter.empty, defaults[option]), (
                    f"{place}: {theirs}, and {option} {defaults[option]}"
                )


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_training_has_the_papers_defaults(config):
    assert {field.name: field.default for field in fields(config) if field.name in CONFIGS[config]} == CONFIGS[config]


@pytest.mark.parametrize("arch", [name for name in ARCH_CONFIG_REGISTRY if name.startswith(("veco_", "xlme_"))])
def test_sizes_and_dropout_of_an_architecture(arch):
    options = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](options)
    family, _, size = arch.rpartition("_")
    layers, dim, heads = SIZES[size]
    sides = ["encoder", "decoder"] if family in ("veco_mt", "veco_transformer") else ["encoder"]
    for side in sides:
        found = [getattr(options, f"{side}_{name}") for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")]
        assert found == [layers, dim, 4 * dim, heads]
    assert (options.dropout, options.attention_dropout, options.activation_dropout) == (0.1, 0.1, 0.0)
    assert options.activation_fn == "gelu" and getattr(options, "max_positions", options.max_source_positions) == 512
    assert getattr(options, "generator_layers", None) == (GENERATORS[size] if family == "xlme" else None)
