#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Find the translations in BUCC's texts by the sentences' mean-pooled states, with the threshold that is best on the dev
# set, and print F1 by language.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

about name NAME "the model's name, which keeps several apart"
PROGRAM="retrieve.py bucc"
parse_options out= pretrained= name=bucc layer= try -- "$@"
begin
require_pretrained
require_whole "$OUT/data"
small_model_of_data
layer=() results=()
[[ -z ${OPTIONS[layer]} ]] || layer=(--layer "${OPTIONS[layer]}")

# mined SPLIT LANG OPTION...
mined() {
    local prefix=$OUT/data/$1-$2 split=$1 lang=$2
    shift 2
    say "[$split set, $lang]"
    run python "$REPOSITORY/scripts/retrieve.py" bucc "$PRETRAINED" --source "$prefix.source" --target "$prefix.en" \
        --gold "$prefix.gold" --lang "$lang" --json "$OUT/scores/${OPTIONS[name]}.$split.$lang.json" \
        "${layer[@]}" "$@" "${EXTRA[@]}" || exit
}

for source in "$OUT"/data/test-*.source; do
    require "$source" "run prepare.sh first"
    lang=$(basename "$source" .source)
    lang=${lang#test-}
    mined dev "$lang"
    threshold=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["threshold"])' \
        "$OUT/scores/${OPTIONS[name]}.dev.$lang.json")
    mined test "$lang" "--threshold=$threshold"
    results+=("$OUT/scores/${OPTIONS[name]}.test.$lang.json")
done
run python "$REPOSITORY/scripts/evaluate_xtreme.py" table "bucc=$(IFS=, && printf '%s' "${results[*]}")" \
    --json "$OUT/scores/${OPTIONS[name]}.json"
