#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Run all comparisons, the most telling ones first. Start it as often as the machine has cores: each takes the next job
# that nobody is at work on. A job that was stopped goes on where it was; one that has ended is not run again, nor is one
# whose line is in --results, which another machine may have written.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../lib/jobs.sh"

PROGRAM=fairseq-train
about local DIR "the folder with the texts, plain or .gz (needed until the data is made): the recipe's README lists them"
parse_options out= local= only= list results= try -- "$@"
choose_out
results=${OPTIONS[results]:-$OUT/results.jsonl}
recipe=$REPOSITORY/data-bin-recipes/evidence
export VECO_SKIP_SETUP=1

# texts NAME: take the settings of these texts for the jobs that follow. The names of the others' jobs begin with PREFIX, and
# SET is their option.
texts() {
    local out=$OUT
    source "$recipe/settings"
    OPTIONS[set]=$1 PREFIX='' SET=()
    [[ $1 == captions ]] || PREFIX=$1. SET=(--set "$1")
    comparisons
    OUT=$out # the scripts choose theirs
}

# pretraining ARM SEED: its job, after that of the arm that it begins with; sets NEEDED to the name.
pretraining() {
    local arm before
    NEEDED=${PREFIX}prepare
    [[ $1 != random ]] || return 0
    origin "$1"
    arm=$ORIGIN
    [[ ! -v BEGUN_FROM[$arm] ]] || pretraining "${BEGUN_FROM[$arm]}" "$2"
    before=$NEEDED NEEDED=${PREFIX}train.$arm.s$2
    job "$NEEDED" "$before" train.sh "${SET[@]}" --arm "$arm" --seed "$2"
}

# grid ARM DATA: the learning rates, and then more dropout with the best of them; sets NEEDED to the last job's name.
grid() {
    local rate name needs
    NEEDED=
    [[ ! -v ENDED[${PREFIX}grid.$1.$2] ]] || return 0
    pretraining "$1" 1
    needs=
    for rate in "${RATES[@]}"; do
        name=${PREFIX}grid.$1.$2.lr$rate
        job "$name" "$NEEDED" finetune.sh "${SET[@]}" --arm "$1" --data "$2" --lr "$rate" --dropout 0.1
        needs+=" $name"
    done
    NEEDED=${PREFIX}grid.$1.$2.dropout0.3
    job "$NEEDED" "$needs" finetune.sh "${SET[@]}" --arm "$1" --data "$2" --dropout 0.3
}

# scored ARM DATA PRETRAINING SEED: fine-tune with what validation prefers, and translate the test set.
scored() {
    local name=$1.p$3.$2.s$4 needs
    local options=("${SET[@]}" --arm "$1" --data "$2" --pretraining "$3" --seed "$4")
    grid_of "$1" "$2"
    grid "${GRID[@]}"
    needs=$NEEDED
    pretraining "$1" "$3"
    job "${PREFIX}finetune.$name" "$needs $NEEDED" finetune.sh "${options[@]}" --results "$results"
    job "${PREFIX}evaluate.$name" "${PREFIX}finetune.$name" evaluate.sh "${options[@]}" --results "$results"
}

# every_seed DATA ARMS: fine-tune each of these arms (names of lists) on each of these data with every seed, from the first
# pre-training.
every_seed() {
    local -n all_data=$1 all_arms=$2
    local seed data arm
    for seed in "${SEEDS[@]}"; do
        for data in "${all_data[@]}"; do
            for arm in "${all_arms[@]}"; do
                scored "$arm" "$data" 1 "$seed"
            done
        done
    done
}

# judged TASK ARM PLUG SEED: a task of understanding or retrieval with the pre-training of this seed. Random weights, which
# have none, have a seed of fine-tuning.
judged() {
    local pretraining=$4 seed=1
    [[ $2 != random ]] || pretraining=1 seed=$4
    pretraining "$2" "$pretraining"
    job "understand.$1.$2.$3.p$pretraining.s$seed" "$NEEDED prepare_understanding" understand.sh --task "$1" --arm "$2" \
        --plug "$3" --pretraining "$pretraining" --seed "$seed" --results "$results"
}

# understood SEED: all of these tasks with the pre-trainings of this seed.
understood() {
    local row
    for row in "${JUDGED[@]}"; do
        read -ra row <<<"$row"
        judged "${row[@]}" "$1"
    done
}

ended=
[[ ! -s $results ]] || ended=$(python "$recipe/results.py" "$OUT" ended "$results")
for name in $ended; do
    ENDED[$name]=1
done

texts captions
local=(${OPTIONS[local]:+--local "${OPTIONS[local]}"})
job prepare "" prepare.sh "${local[@]}"
every_seed SIZES MAIN_ARMS
for data in "${REPEATED[@]}"; do
    for arm in "${MORE_ARMS[@]}"; do
        scored "$arm" "$data" 1 1
    done
done

job prepare_understanding "" prepare_understanding.sh "${local[@]}"
understood 1
for row in "${JUDGED_ONCE[@]}"; do
    read -ra row <<<"$row"
    judged "${row[@]}" 1
done
for arm in "${COSTS[@]}"; do
    pretraining "$arm" 1
    job "cost.$arm.s1" "$NEEDED" cost.sh --arm "$arm" --results "$results"
done
for arm in "${ATTENTION[@]}"; do
    pretraining "$arm" 1
    job "attention.$arm.s1" "$NEEDED" attention.sh --arm "$arm"
done

# More seeds of pre-training; then what each ingredient brings.
for seed in "${SEEDS[@]:1}"; do
    for data in "${REPEATED[@]}"; do
        for arm in "${MAIN_ARMS[@]}"; do
            [[ $arm == random ]] || scored "$arm" "$data" "$seed" 1
        done
    done
    understood "$seed"
done
for seed in "${ABLATION_SEEDS[@]}"; do
    for arm in "${ABLATIONS[@]}"; do
        scored "$arm" "$ABLATION_DATA" "$seed" 1
        judged tatoeba "$arm" out "$seed"
        judged flores "$arm" out "$seed"
    done
done
for arm in "${HALF_ARMS[@]}"; do
    scored "$arm" "$ABLATION_DATA" 1 1
done

texts bible
job bible.prepare "" prepare_bible.sh "${local[@]}"
every_seed SIZES MAIN_ARMS

texts captions
every_seed LARGE_DATA LARGE_ARMS
for data in "${MORE_LARGE_DATA[@]}"; do
    for arm in "${MORE_LARGE_ARMS[@]}"; do
        scored "$arm" "$data" 1 1
    done
done
for seed in "${SEEDS[@]:1}"; do
    for data in "${REPEATED[@]}"; do
        for arm in "${LARGE_ARMS[@]}"; do
            scored "$arm" "$data" "$seed" 1
        done
    done
done

for seed in "${SEEDS[@]}"; do
    for arm in "${DEPTHS[@]}"; do
        scored "$arm" "$DEPTH_DATA" 1 "$seed"
    done
done

leave_out_unneeded
if [[ -n ${OPTIONS[list]} ]]; then
    list_jobs
    exit
fi
{ # read as a whole, so that this file may change while the jobs run
    run_jobs "$recipe"
    [[ ! -s $results ]] || python "$recipe/table.py" "$results"
    exit
}
