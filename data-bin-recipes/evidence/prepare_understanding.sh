#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# The data of understanding and retrieval, in the languages of pre-training.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"

about local DIR "the folder with xnli/{dev,test_a}-LANG.tsv, ud/*.conllu, tatoeba/tatoeba.LANG-eng.{LANG,eng} and \
flores101/LANG.devtest, plain or .gz (needed)"
parse_options out= local= try -- "$@"
choose_out
comparisons
local=${OPTIONS[local]}
[[ -n $local ]] || die "--local is needed: the folder with xnli/, ud/, tatoeba/ and flores101/"

# xtreme RECIPE TASK SOURCE OPTION...: the task's data by that recipe.
xtreme() {
    run bash "$REPOSITORY/data-bin-recipes/xtreme/$1/prepare.sh" --out "$OUT/understanding/$2" --local "$local/$3" \
        --langs "${TASK_LANGS[$2]}" "${@:4}" ${OPTIONS[try]:+--try}
}

# Of the development set all but 490 are for training; the first half of the test set is for the test.
xtreme xnli xnli xnli --train 'dev-@.tsv' --test 'test_a-@.tsv' --hold-out 490
xtreme udpos udpos ud --train '@_ewt-ud-train.conllu' --dev '@_ewt-ud-dev.conllu' --test '@_pud-ud-test.conllu'
xtreme tatoeba tatoeba tatoeba

# PUD's sentences are translations of each other: the last 300 choose the epoch (100) and are the test (200).
folder=$OUT/understanding/pud
OUT=$folder begin_data
for lang in ${TASK_LANGS[pud]}; do
    find_text "$local/ud" "${lang}_pud-ud-test.conllu" "--local needs it"
    step "PUD, $lang" "$folder/whole/$lang.conllu" to_file "{}" first 0 "$FILE"
    step "training set of PUD, $lang" "$folder/data/train-$lang.conllu" to_file "{}" some "$folder/whole/$lang.conllu" --but-last 300
    step "held-out PUD, $lang" "$folder/whole/last-$lang.conllu" to_file "{}" some "$folder/whole/$lang.conllu" --last 300
    step "dev set of PUD, $lang" "$folder/data/dev-$lang.conllu" to_file "{}" some "$folder/whole/last-$lang.conllu" --but-last 200
    step "test set of PUD, $lang" "$folder/data/test-$lang.conllu" to_file "{}" some "$folder/whole/last-$lang.conllu" --last 200
done
OUT=$folder end_data

folder=$OUT/understanding/flores
OUT=$folder begin_data
find_text "$local/flores101" eng.devtest "--local needs it"
english=$FILE
for lang in ${TASK_LANGS[flores]}; do
    find_text "$local/flores101" "$lang.devtest" "--local needs it"
    step "FLORES, $lang" "$folder/data/test-$lang.source" to_file "{}" first "$(lines_of test)" "$FILE"
    step "FLORES, English for $lang" "$folder/data/test-$lang.eng" to_file "{}" first "$(lines_of test)" "$english"
done
OUT=$folder end_data
