#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Translate test_2016_flickr with a fine-tuned model, and score it.
#
# usage: evaluate.sh [--out DIR] [--src LANG] [--tgt LANG] [--name veco|xlm|random|...] [--seed N]
#                    [--checkpoint FILE]
#
#   --out         the folder of the other scripts (default: data-bin/multi30k.SRC-TGT in the repository)
#   --name        what finetune.sh called it (default: veco)
#   --checkpoint  a file in the model's folder (default: checkpoint_last.pt)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

parse_options out= src=en tgt=de name=veco seed=1 checkpoint=checkpoint_last.pt -- "$@"
require_number seed
src=${OPTIONS[src]} tgt=${OPTIONS[tgt]} checkpoint=${OPTIONS[checkpoint]}
out=${OPTIONS[out]:-$REPOSITORY/data-bin/multi30k.$src-$tgt}
run=$(run_name "${OPTIONS[name]}" "${OPTIONS[seed]}")
evaluate "$out" "$src" "$tgt" test "$run.${checkpoint%.pt}" "$out/checkpoints/$run/$checkpoint" \
    "$out/raw/test_2016_flickr.$tgt"
