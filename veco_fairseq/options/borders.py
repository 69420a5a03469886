# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The borders of fairseq's and this plug-in's options, checked once for every command and checkpoint.

fairseq itself checks hardly any. A value beyond its border ends in a traceback from deep inside, hours later, or goes
unnoticed (``--mono-alpha nan``).
"""

import argparse
import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from veco_fairseq.arguments import (
    COUNT,
    EXPONENT,
    FINITE,
    FROM_0,
    LENGTH_PENALTY,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    SEED,
    SHARE,
    SIZE,
    WHOLE,
    Number,
    short,
)
from veco_fairseq.errors import UserError
from veco_fairseq.options.flags import flag
from veco_fairseq.options.literals import EVALUATED

OFF_OR_MORE = Number(int, least=-1)  # -1 switches it off
PROBABILITY = Number(least=0, below=1)  # of dropping something; with 1, nothing is left to train
LAYERS = Number(int, least=1, most=1_000)
POSITIONS = Number(int, least=1, most=2**20)  # each has a row in a table
PROCESSES = Number(int, least=0, most=1_024)  # more are a typo, and can stop the machine
MACHINES = Number(int, least=1, most=65_536)

BORDERS: dict[str, Number] = {
    name: border
    for border, names in (
        # Divisors, and numbers that must be at least 1
        (COUNT, "log_interval fp16_init_scale fp16_scale_window amp_init_scale amp_scale_window all_gather_list_size "
                "max_tokens max_tokens_valid batch_size batch_size_valid required_batch_size_multiple "
                "required_seq_len_multiple validate_interval max_valid_steps num_shards bucket_cap_mb localsgd_frequency "
                "save_interval checkpoint_shard_count ema_update_freq quant_noise_pq_block_size model_parallel_size "
                "mono_batch_size bitext_batch_size updates_per_epoch knn_targets knn_refresh max_length stride "
                "total_num_update nbest iter_decode_with_beam update_freq force_anneal"),
        (Number(int, least=4), "mono_max_length bitext_max_length"),  # two tokens, <s> and </s>
        (FROM_0, "amp_batch_retries empty_cache_freq data_buffer_size validate_interval_updates validate_after_updates "
                 "curriculum shard_id distributed_rank device_id pipeline_chunks max_epoch max_update "
                 "save_interval_updates ema_start_update min_params_to_wrap freeze_backbone_updates knn_rest "
                 "warmup_updates num_batch_buckets ignore_prefix_size min_len max_len_b max_len_b_mt prefix_size "
                 "no_repeat_ngram_size iter_decode_max_iter buffer_size base_layers base_sublayers base_shuffle pad eos "
                 "unk beam_mt"),
        (OFF_OR_MORE, "heartbeat_timeout keep_interval_updates keep_interval_updates_pattern keep_last_epochs "
                      "keep_best_checkpoints patience upsample_primary mha_heads_to_keep ffn_blocks_to_remove "
                      "sampling_topk"),
        (Number(int, least=-1, most=0), "diverse_beam_groups"),
        # fairseq adds epochs and updates to it
        (SEED, "seed fixed_validation_seed"),
        (PROCESSES, "num_workers"),
        (MACHINES, "distributed_world_size distributed_num_procs nprocs_per_node"),
        (Number(int, least=-1, most=65_535), "distributed_port"),
        # The model
        (LAYERS, "encoder_layers decoder_layers generator_layers"),
        (SIZE, "encoder_embed_dim decoder_embed_dim encoder_attention_heads decoder_attention_heads table_dim "
               "decoder_input_dim decoder_output_dim"),
        (Number(int, least=1, most=4 * 65_536), "encoder_ffn_embed_dim decoder_ffn_embed_dim"),
        (POSITIONS, "max_positions max_source_positions max_target_positions"),
        (PROBABILITY, "dropout attention_dropout activation_dropout relu_dropout pooler_dropout head_dropout "
                      "encoder_layerdrop decoder_layerdrop adaptive_softmax_dropout label_smoothing quant_noise_pq"),
        (SHARE, "quant_noise_scalar ema_decay fp16_scale_tolerance slowmo_momentum warmup_ratio bitext_mask_spread"),
        (POSITIVE_SHARE, "mono_mask_prob bitext_mask_prob"),
        (POSITIVE, "adam_eps temperature lr_shrink min_loss_scale threshold_loss_scale adaptive_softmax_factor"),
        (NOT_NEGATIVE, "lr clip_norm stop_time_hours weight_decay end_learning_rate power discriminator_weight "
                       "mha_reg_scale_factor ffn_reg_scale_factor max_len_a max_len_a_mt diverse_beam_strength"),
        (Number(least=1), "t_mult"),
        (Number(least=-1), "min_lr stop_min_lr warmup_init_lr diversity_rate"),
        (Number(least=-1, most=1), "sampling_topp"),
        (EXPONENT, "mono_alpha bitext_alpha alpha"),
        # Translation
        (Number(int, least=1, most=10_000), "beam"),
        (LENGTH_PENALTY, "lenpen lenpen_mt"),
    )
    for name in names.split()
}  # fmt: skip
LISTS = ("lr", "update_freq")  # a value an epoch


def _are_betas(value: Any) -> bool:
    return len(value) == 2 and all(PROBABILITY.problem(beta) is None for beta in value)


def _are_growing(value: Any) -> bool:
    sizes = list(value)
    return bool(sizes) and all(COUNT.problem(size) is None for size in sizes) and sizes == sorted(set(sizes))


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _are_rates(value: Any) -> bool:
    """Whether it is what ``--lr-scheduler manual`` reads: keys such as '4', '1-3' and '1,2,3', each with a rate."""
    key = re.compile(r"\s*\d+\s*((,\s*\d+\s*)*|-\s*\d+\s*)")
    return all(key.fullmatch(which) and NOT_NEGATIVE.problem(rate) is None for which, rate in value.items())


# Options whose text fairseq reads as a Python or JSON value: how to read it, what is true of a right value, and in words.
VALUES: dict[str, tuple[Callable[[str], Any], Callable[[Any], bool], str]] = {
    "adam_betas": (ast.literal_eval, _are_betas, "two numbers from 0 to below 1, such as '(0.9, 0.98)'"),
    "adaptive_softmax_cutoff": (ast.literal_eval, _are_growing, "growing numbers of tokens, such as 1000,10000"),
    "model_overrides": (ast.literal_eval, _is_dict, "like {'dropout': 0.1}"),
    "optimizer_overrides": (ast.literal_eval, _is_dict, "like {'lr': 0.1}"),
    "epoch2lr": (ast.literal_eval, _are_rates, "a rate for each of some numbers in quotes, such as \"{'1-3': 1e-3, '4': 1e-4}\""),
    "update2lr": (
        ast.literal_eval,
        _are_rates,
        "a rate for each of some numbers in quotes, such as \"{'1-300': 1e-3, '301': 1e-4}\"",
    ),
    "eval_bleu_args": (json.loads, _is_dict, 'like {"beam": 4}'),
    "eval_bleu_detok_args": (json.loads, _is_dict, "like {}"),
}
KEPT_LAYERS = ("encoder_layers_to_keep", "decoder_layers_to_keep")
BOOLEANS = ("update_epoch_batch_itr", "left_pad_source", "left_pad_target")
# Text that may be empty.
MAY_BE_EMPTY = ("checkpoint_suffix", "replace_unk", "post_process", "eval_bleu_remove_bpe", "eval_bleu_detok")


def check_options(options: Mapping[str, Any], where: str = "") -> None:
    """Refuse options beyond their borders, each alone and in combination.

    Args:
        options: by fairseq's names; options that are None or refer to others, ``${...}``, are not checked.
        where: the beginning of the message, such as ``a.pt: its options: ``; empty for the command line.

    Raises:
        UserError: names the option, the value, and its border.
    """
    for message in _problems(options):
        raise UserError(f"{where}{message}")


def _problems(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if value is None or isinstance(value, str) and value.startswith("${"):
            continue
        if isinstance(value, str) and name in EVALUATED and name not in (*VALUES, *BOOLEANS):
            continue  # layers of other models, such as "[(512, 3)] * 20"
        values = value if name in LISTS and isinstance(value, (list, tuple)) else [value]
        if not values:
            yield f"{flag(name)}: is empty: give a value, or one for each epoch"
        if name in BOOLEANS and str(value).lower() not in ("true", "false"):
            yield f"{flag(name)} {short(value)}: must be true or false"
        elif name in KEPT_LAYERS and isinstance(value, list):  # which fairseq's Transformer then takes for a text
            yield f"{flag(name)}: does not work in this version of fairseq: leave it out; veco convert chooses layers"
        elif name in VALUES:
            yield from _of_value(name, value)
        elif name == "lr_period_updates" and value != -1:
            if problem := _problem(Number(least=1), value):
                yield f"--lr-period-updates {short(value)}: {problem}, or -1 for one period"
        elif name == "diverse_beam_groups" and isinstance(value, int) and value > 0:
            yield (
                f"--diverse-beam-groups {value}: must be left out: fairseq's search for it adds more to translations that have "
                "ended; --diversity-rate or --sampling gives translations that differ"
            )
        elif name in BORDERS:
            for one in values:
                if problem := _problem(BORDERS[name], one):
                    yield f"{flag(name)} {short(one)}: {problem}"
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and name != "softmax_batch":
            if problem := (WHOLE if isinstance(value, int) else FINITE).problem(value):
                yield f"{flag(name)} {short(value)}: {problem}"
    yield from _together(options)


def _problem(border: Number, value: Any) -> str | None:
    if isinstance(value, str):  # fairseq converts it later, such as --total-num-update
        try:
            border(value)
        except argparse.ArgumentTypeError as error:
            return str(error).partition(": ")[2]
        return None
    return border.problem(0 if value is False else value)  # --base-shuffle of fairseq's architectures of language models


def _of_value(name: str, value: Any) -> Iterator[str]:
    read, is_right, wanted = VALUES[name]
    try:
        right = is_right(read(value or "{}") if isinstance(value, str) else value)  # the empty text is a dict without entries
    except Exception:  # literal_eval raises many kinds
        right = False
    if not right:
        yield f"{flag(name)} {short(value)}: must be {wanted}"


def _together(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with combinations of options."""
    yield from searches(options)
    options = {name: value for name, value in options.items() if isinstance(value, (int, float))}
    for side in ("encoder", "decoder"):
        dim, heads = (options.get(f"{side}_{name}") for name in ("embed_dim", "attention_heads"))
        if dim and heads and dim % heads:
            yield f"--{side}-attention-heads {heads}: must divide --{side}-embed-dim {dim}"
    for part, whole in (("shard_id", "num_shards"), ("distributed_rank", "distributed_world_size")):
        if (options.get(part) or 0) >= (options.get(whole) or 1):
            yield f"{flag(part)} {options[part]}: must be below {flag(whole)}, {options.get(whole)}"
    beam, nbest = options.get("beam"), options.get("nbest")
    if beam and nbest and nbest > beam:
        yield f"--nbest {nbest}: must be at most --beam {beam}"
    yield from lengths(options)


def lengths(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the lengths of translations: even the shortest source, </s>, must get an allowed length."""
    a, b, least = (options.get(name) for name in ("max_len_a", "max_len_b", "min_len"))
    if a is not None and b is not None and least is not None and int(a + b) < max(1, least):
        yield f"--max-len-a {a:g} and --max-len-b {b}: must allow at least {max(1, least)} tokens (--min-len {least})"
    elif a == 0 and b is not None and b < (prefix := options.get("prefix_size") or 0):
        yield f"--max-len-b {b}: would cut off the prefix of --prefix-size {prefix} tokens: raise it"


def searches(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with options of a search of which fairseq follows one and passes over the other, or fails."""
    numbers = {name: value for name, value in options.items() if isinstance(value, (int, float))}
    constraints, rate = options.get("constraints"), numbers.get("diversity_rate", -1)
    given = {"constraints": constraints, **{name: numbers.get(name) for name in ("sampling", "match_source_len")}}
    given["diversity_rate"] = rate > (-1 if constraints else 0)  # by 0 it changes nothing, but would take the constraints' place
    chosen = [flag(name) for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        yield f"{chosen[0]} and {chosen[1]}: are different searches: leave out one of the two"
    if numbers.get("sampling_topk", 0) > 0 and numbers.get("sampling_topp", 0) > 0:
        yield "--sampling-topk and --sampling-topp: give only one of them"
    if numbers.get("unnormalized") and (lenpen := numbers.get("lenpen", 1)) != 1:
        yield f"--lenpen {lenpen:g}: --unnormalized divides by no length: leave out one of the two"
