#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Generate the toy corpus and make its data: a pre-training root of three languages, and aa -> bb for translation.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

about words N "content words of each language"
about pairs N "parallel sentences for pre-training"
about mono N "further sentences of each language"
about finetune-pairs N "fine-tune on this many of the parallel sentences, the first ones"
about valid N "sentences of the validation set"
about test N "sentences of the test set"
SRC=aa TGT=bb
parse_options out= seed=1 words=24 pairs=8000 mono=3000 finetune-pairs=300 valid=250 test=250 vocab-size=300 try -- "$@"
in_try pairs=$TRY_TRAIN mono=500 valid=$TRY_REST test=$TRY_REST
require_number seed words pairs mono finetune-pairs valid test vocab-size
begin
raw=$OUT/raw

sizes=()
for name in seed words pairs mono finetune-pairs valid test; do
    sizes+=("--$name" "${OPTIONS[$name]}")
done
begin_data
step corpus "$raw" python "$REPOSITORY/data-bin-recipes/toy/generate.py" --output "{}" "${sizes[@]}"

# This command skips what is there already.
mono=() bitext=() valid=()
for lang in aa bb cc; do
    mono+=("$lang=$raw/mono.$lang")
done
for pair in aa-bb aa-cc bb-cc; do
    bitext+=("$pair=$raw/train.${pair%-*},$raw/train.${pair#*-}")
    valid+=("$pair=$raw/valid.${pair%-*},$raw/valid.${pair#*-}")
done
run python "$REPOSITORY/scripts/prepare_root.py" --mono "${mono[@]}" --bitext "${bitext[@]}" --bitext-valid "${valid[@]}" \
    --valid-lines "${OPTIONS[valid]}" --vocab-size "${OPTIONS[vocab-size]}" --character-coverage 1 \
    --output "$OUT/pretrain"

prepare_translation train=finetune valid test
end_data
