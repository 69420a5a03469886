# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The border of every option of fairseq and of this plug-in, and its values that are lists or dicts."""

import pytest
from fairseq import options as fairseqs

from veco_fairseq.errors import UserError
from veco_fairseq.options import borders
from veco_fairseq.options.flags import flag

MOST = 2**31 - 1
# The least and the greatest value, one below and one above, and the options.
WHOLE_FROM_1 = """
    all_gather_list_size amp_init_scale amp_scale_window batch_size batch_size_valid bitext_batch_size
    bucket_cap_mb checkpoint_shard_count ema_update_freq force_anneal fp16_init_scale fp16_scale_window iter_decode_with_beam
    knn_refresh knn_targets localsgd_frequency log_interval max_length max_tokens max_tokens_valid max_valid_steps
    model_parallel_size mono_batch_size nbest num_shards quant_noise_pq_block_size required_batch_size_multiple
    required_seq_len_multiple save_interval stride total_num_update update_freq updates_per_epoch validate_interval"""
WHOLE_FROM_0 = """
    amp_batch_retries base_layers base_shuffle base_sublayers beam_mt buffer_size curriculum data_buffer_size device_id
    distributed_rank ema_start_update empty_cache_freq eos fixed_validation_seed freeze_backbone_updates ignore_prefix_size
    iter_decode_max_iter knn_rest max_epoch max_len_b max_len_b_mt max_update min_len min_params_to_wrap no_repeat_ngram_size
    num_batch_buckets pad pipeline_chunks prefix_size save_interval_updates seed shard_id unk validate_after_updates
    validate_interval_updates warmup_updates"""
OFF = """
    ffn_blocks_to_remove heartbeat_timeout keep_best_checkpoints keep_interval_updates
    keep_interval_updates_pattern keep_last_epochs mha_heads_to_keep patience sampling_topk upsample_primary"""
OF_DROPPING = """
    activation_dropout adaptive_softmax_dropout attention_dropout decoder_layerdrop dropout encoder_layerdrop head_dropout
    label_smoothing pooler_dropout quant_noise_pq relu_dropout"""
SHARES = """
    bitext_mask_spread ema_decay fp16_scale_tolerance quant_noise_scalar slowmo_momentum warmup_ratio"""
FROM_0 = """
    clip_norm discriminator_weight diverse_beam_strength end_learning_rate ffn_reg_scale_factor lr max_len_a max_len_a_mt
    mha_reg_scale_factor power stop_time_hours weight_decay"""
WIDTHS = """
    decoder_attention_heads decoder_embed_dim decoder_input_dim decoder_output_dim encoder_attention_heads encoder_embed_dim
    table_dim"""
TABLE = [
    (1, MOST, 0, MOST + 1, WHOLE_FROM_1), (0, MOST, -1, MOST + 1, WHOLE_FROM_0), (-1, MOST, -2, MOST + 1, OFF),
    (4, MOST, 3, MOST + 1, "bitext_max_length mono_max_length"),
    (0, 1024, -1, 1025, "num_workers"), (-1, 65_535, -2, 65_536, "distributed_port"), (1, 10_000, 0, 10_001, "beam"),
    (-1, 0, -2, 1, "diverse_beam_groups"),
    (1, 65_536, 0, 65_537, "distributed_num_procs distributed_world_size nprocs_per_node"),
    (1, 1000, 0, 1001, "decoder_layers encoder_layers generator_layers"), (1, 65_536, 0, 65_537, WIDTHS),
    (1, 262_144, 0, 262_145, "decoder_ffn_embed_dim encoder_ffn_embed_dim"),
    (1, 1_048_576, 0, 1_048_577, "max_positions max_source_positions max_target_positions"),
    (0.0, 0.999, -0.001, 1.0, OF_DROPPING), (0.0, 1.0, -0.001, 1.001, SHARES), (0.0, 1e30, -0.001, float("inf"), FROM_0),
    (1e-9, 1.0, 0.0, 1.001, "bitext_mask_prob mono_mask_prob"),
    (1e-9, 1e30, 0.0, float("inf"), "adam_eps adaptive_softmax_factor lr_shrink min_loss_scale temperature threshold_loss_scale"),
    (1.0, 1e30, 0.999, float("inf"), "t_mult"), (0.0, 10.0, -0.001, 10.001, "alpha bitext_alpha mono_alpha"),
    (-1.0, 1e30, -1.001, float("inf"), "diversity_rate min_lr stop_min_lr warmup_init_lr"),
    (-1.0, 1.0, -1.001, 1.001, "sampling_topp"), (-100.0, 100.0, -100.001, 100.001, "lenpen lenpen_mt"),
]  # fmt: skip
PARTS = {"shard_id": "num_shards", "distributed_rank": "distributed_world_size"}  # must be below these


@pytest.mark.parametrize("least, most, below, above, names", TABLE)
def test_the_border_of_every_option(least, most, below, above, names):
    whole = isinstance(least, int)
    for name in names.split():
        for value in (least, most):
            if not (name in PARTS and value):
                borders.check_options({name: value, "beam": None})
        for value in (below, above, *([least + 0.5] if whole else [])):
            with pytest.raises(UserError, match=f"{flag(name)} .*: must be "):
                borders.check_options({name: value})


def test_no_option_is_missing():
    listed = [name for *_, names in TABLE for name in names.split()]
    assert sorted(listed) == sorted(borders.BORDERS)


@pytest.mark.parametrize("name, value", [
    ("adam_betas", "(0.9, 0.98, 0.99)"), ("adaptive_softmax_cutoff", "0,5"), ("adaptive_softmax_cutoff", "5,3"),
    ("optimizer_overrides", "[]"), ("optimizer_overrides", "lr=1"), ("epoch2lr", "{1: 1e-4}"), ("epoch2lr", "1e-4"),
    ("update2lr", "{'1': 'high'}"), ("update2lr", "{'1-': 1e-4}"), ("update2lr", "{'1': nan}"), ("epoch2lr", "{'1': -1e-4}"),
    ("eval_bleu_detok_args", "[]"), ("eval_bleu_args", "{'beam': 4}"),
    ("left_pad_source", "yes"), ("left_pad_target", 1), ("update_epoch_batch_itr", "no"), ("total_num_update", "0"),
    ("lr", (0.1, -1.0)), ("an_option_of_tomorrow", -MOST - 1),
])  # fmt: skip
def test_a_value_of_a_wrong_form_is_refused(name, value):
    with pytest.raises(UserError, match=f"{flag(name)} .*: must be "):
        borders.check_options({name: value})


def test_values_of_a_right_form_are_taken():
    borders.check_options({
        "optimizer_overrides": "{'lr': 0.1}", "epoch2lr": "{'1-3': 1e-3, '4, 5': 1e-4, '6': 0}",
        "eval_bleu_detok_args": "{}", "eval_bleu_args": "", "left_pad_source": "True",
        "left_pad_target": "FALSE", "update_epoch_batch_itr": True, "seed": "${x}", "dropout": "${model.dropout}",
        "lr_period_updates": 1, "total_num_update": "1", "lr": (0.1, 0.0), "update_freq": (1, 2), "a_flag": True,
        "adaptive_softmax_cutoff": "10,20,3000", "an_option_of_tomorrow": -0.5,
    })  # fmt: skip


@pytest.mark.parametrize("chosen, message", [
    ({"decoder_embed_dim": 192, "decoder_attention_heads": 5}, "--decoder-attention-heads 5: must divide --decoder-embed-dim 192"),
    ({"distributed_rank": 3, "distributed_world_size": 3}, "--distributed-rank 3: must be below --distributed-world-size, 3"),
    ({"shard_id": 1}, "--shard-id 1: must be below --num-shards, None"),
    ({"max_len_a": 0.4, "max_len_b": 0, "min_len": 0}, "--max-len-a 0.4 and --max-len-b 0: must allow at least 1 tokens (--min-len 0)"),
    ({"max_len_a": 1.9, "max_len_b": 1, "min_len": 3}, "--max-len-a 1.9 and --max-len-b 1: must allow at least 3 tokens (--min-len 3)"),
])  # fmt: skip
def test_what_does_not_go_together(chosen, message):
    with pytest.raises(UserError) as caught:
        borders.check_options(chosen, "a.pt: its options: ")
    assert str(caught.value) == "a.pt: its options: " + message


def test_what_goes_together():
    for chosen in (
        {"shard_id": 1, "num_shards": 2, "distributed_rank": 0, "distributed_world_size": 1}, {"shard_id": 0},
        {"beam": 4, "diverse_beam_groups": -1}, {"beam": 3, "diverse_beam_groups": -1, "nbest": 3}, {"beam": 4, "diverse_beam_groups": 0},
        {"max_len_a": 1.0, "max_len_b": 2, "min_len": 3}, {"max_len_a": 0.0, "max_len_b": 1, "min_len": 0}, {"encoder_embed_dim": 192},
    ):  # fmt: skip
        borders.check_options(chosen)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("parser, words", [
    (fairseqs.get_training_parser, "--task translation --arch veco_mt_tiny --eval-bleu-remove-bpe= --eval-bleu-detok="),
    (fairseqs.get_generation_parser, "--replace-unk= --post-process="),
])  # fmt: skip
def test_text_that_may_be_empty(parser, words):
    chosen = vars(fairseqs.parse_args_and_arch(parser(), ["data", *words.split()]))
    names = [word[2:-1].replace("-", "_") for word in words.split() if word.endswith("=")]
    assert [chosen[name] for name in names] == ["", ""]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("metric, highest, message", [
    ("score", False, "--best-checkpoint-metric score: the best is the highest: give --maximize-best-checkpoint-metric, too"),
    ("zh-Hans_score", False, "--best-checkpoint-metric zh-Hans_score: the best is the highest"),
    ("bitext_h_acc", False, "--best-checkpoint-metric bitext_h_acc: the best is the highest"),
    ("bitext_disc_recall", False, "--best-checkpoint-metric bitext_disc_recall: the best is the highest"),
    ("mono_disc_precision", False, "--best-checkpoint-metric mono_disc_precision: the best is the highest"),
    ("mono_disc_precision", True, None),
    (None, True, "--maximize-best-checkpoint-metric: the best loss is the lowest: leave it out, or name another metric"),
    ("bitext_h_ppl", True, "--maximize-best-checkpoint-metric: the best bitext_h_ppl is the lowest"),
    ("score", True, None), ("loss", False, None), (None, False, None), ("wps", True, None), ("wps", False, None),
])  # fmt: skip
def test_the_best_checkpoint_is_not_the_worst(metric, highest, message):
    words = ["data", "--task", "camlm", "--arch", "veco_tiny", *(["--best-checkpoint-metric", metric] if metric else [])]
    words += ["--maximize-best-checkpoint-metric"] * highest
    if message is None:
        fairseqs.parse_args_and_arch(fairseqs.get_training_parser(), words)
        return
    with pytest.raises(UserError, match=f"^{message}"):
        fairseqs.parse_args_and_arch(fairseqs.get_training_parser(), words)
