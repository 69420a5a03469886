#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Which share of Tatoeba's sentences is nearest to its own translation, by the cosine of mean-pooled states.
#
# usage: evaluate.sh [--out DIR] --pretrained FILE [--name NAME] [-- OPTIONS OF retrieve.py tatoeba]
#
#   --out   the folder that prepare.sh filled (default: data-bin/xtreme/tatoeba in the repository)
#   --name  what to call it (default: tatoeba)
#
# The figures of every layer go to scores/NAME.json.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

parse_options out= pretrained= name=tatoeba -- "$@"
OUT=${OPTIONS[out]:-$REPOSITORY/data-bin/xtreme/$RECIPE}
require_pretrained
require "$OUT/data" "run prepare.sh first"
pairs=()
for source in "$OUT"/data/test-*.source; do
    require "$source" "run prepare.sh first"
    lang=$(basename "$source" .source)
    pairs+=("${lang#test-}=$source,${source%.source}.eng")
done
python "$REPOSITORY/scripts/retrieve.py" tatoeba "$PRETRAINED" --pairs "${pairs[@]}" \
    --json "$OUT/scores/${OPTIONS[name]}.json" "${EXTRA[@]}"
