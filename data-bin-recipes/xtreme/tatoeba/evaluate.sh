#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Print the share of Tatoeba's sentences that are nearest to their own translation, by the cosine of mean-pooled states.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

about name NAME "the model's name, which keeps several apart"
PROGRAM="retrieve.py tatoeba"
parse_options out= pretrained= name=tatoeba try -- "$@"
begin
require_pretrained
require_whole "$OUT/data"
small_model_of_data
pairs=()
for source in "$OUT"/data/test-*.source; do
    require "$source" "run prepare.sh first"
    lang=$(basename "$source" .source)
    pairs+=("${lang#test-}=$source,${source%.source}.eng")
done
run python "$REPOSITORY/scripts/retrieve.py" tatoeba "$PRETRAINED" --pairs "${pairs[@]}" \
    --json "$OUT/scores/${OPTIONS[name]}.json" "${EXTRA[@]}"
