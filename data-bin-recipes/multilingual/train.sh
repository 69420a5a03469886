#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Pre-train as the paper does: VECO starts from an XLM-R, trains its cross-attention alone at first, then everything.
#
# veco plot curves draws mlm.log, camlm.log and xlme[.NAME].log in --out.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/pretraining.sh"

about init-from XLMR "an XLM-R of veco_tiny's size; without it the script first trains one, with MLM and TLM, and exports it"
about xlm-updates N "updates of that training; 0: the VECO starts from nothing"
about frozen-updates N "first updates of the VECO, which train the cross-attention alone"
about updates N "updates of the VECO, with these first ones; 0: no VECO"
about xlme-updates N "updates of an XLM-E on the same data, from nothing; 0: no XLM-E"
about name NAME "name of an XLM-E with other options; its checkpoints are in checkpoints/xlme.NAME"
PROGRAM=fairseq-train
parse_options out= init-from= xlm-updates=600 frozen-updates=200 updates=1000 xlme-updates=0 warmup=100 name= \
    seed=1 try -- "$@"
in_try xlm-updates=20 frozen-updates=10 updates=20 warmup=10
require_number xlm-updates frozen-updates updates xlme-updates warmup seed
choose_out
out=$OUT seed=${OPTIONS[seed]} xlmr=${OPTIONS[init-from]}
require_whole "$out/pretrain/dict.txt" "$out/pretrain/.progress.json" # else there is no folder for the logs
mono=16 bitext=32
! trying || mono=4 bitext=8
options=(--mono-batch-size "$mono" --bitext-batch-size "$bitext" --max-tokens 8192 --mono-max-length 128 --bitext-max-length 96
    --bitext-mask-prob 0.5 --bitext-mask-spread 0.5 --lr 2e-3 --dropout 0 --attention-dropout 0
    --updates-per-epoch 200 --warmup-updates "${OPTIONS[warmup]}" --log-format json)
start=()
# log FILE COMMAND...: run COMMAND, and add what it says to FILE, which begins anew where the training does.
log() {
    has_checkpoints "$out/checkpoints/$(basename "$1" .log)" || : >"$1"
    logged "$@"
}
if [[ -z $xlmr ]] && ((OPTIONS[xlm-updates])); then
    xlmr=$out/xlmr
    log "$out/mlm.log" pretrain "$out" mlm "${OPTIONS[xlm-updates]}" "$seed" "${options[@]}" "${EXTRA[@]}"
    step "export of XLM" "$xlmr" python "$REPOSITORY/scripts/export_hf.py" \
        --checkpoint "$out/checkpoints/mlm/checkpoint_last.pt" --output "{}"
fi
[[ -z $xlmr ]] || start=(--init-from "$xlmr" --freeze-backbone-updates "${OPTIONS[frozen-updates]}")
if ((OPTIONS[updates])); then
    log "$out/camlm.log" pretrain "$out" camlm "${OPTIONS[updates]}" "$seed" "${options[@]}" "${start[@]}" "${EXTRA[@]}"
fi
if ((OPTIONS[xlme-updates])); then
    xlme=xlme${OPTIONS[name]:+.${OPTIONS[name]}}
    # ELECTRA's masks, and the paper's learning rate: a discriminator of this size learns more slowly with 1e-3, and nothing
    # with 2e-3.
    options+=(--bitext-mask-prob 0.15 --bitext-mask-spread 0 --lr 5e-4 "${EXTRA[@]}")
    log "$out/$xlme.log" pretrain "$out" "$xlme" "${OPTIONS[xlme-updates]}" "$seed" "${options[@]}"
fi
