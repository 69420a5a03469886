#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Run all comparisons, the most telling ones first. Start it as often as the machine has cores: each takes the next job
# that nobody is at work on. A job that was stopped goes on where it was; one that has ended is not run again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/arms.sh"

about only PATTERN "run the jobs whose name matches this pattern, such as 'train.*' (default: all)"
about list "" "print the names of the jobs, and which have ended"
PROGRAM=fairseq-train
parse_options out= local= only= list results= try -- "$@"
choose_out evidence
comparisons
only=${OPTIONS[only]:-*} results=${OPTIONS[results]:-$OUT/results.jsonl}
recipe=$REPOSITORY/data-bin-recipes/evidence
export VECO_SKIP_SETUP=1

# job NAME "NEEDED ..." SCRIPT OPTION...: a job that can run when the needed ones have ended; --only chooses by name.
NAMES=()
declare -A NEEDS=() COMMANDS=()
job() {
    [[ ! -v COMMANDS[$1] ]] || return 0
    NAMES+=("$1") NEEDS[$1]=$2
    printf -v COMMANDS["$1"] '%q ' "${@:3}"
}

# pretraining ARM SEED: its job; sets NEEDED to the name.
pretraining() {
    NEEDED=prepare
    [[ $1 != random ]] || return 0
    job "train.$1.s$2" prepare train.sh --arm "$1" --seed "$2"
    NEEDED=train.$1.s$2
}

# grid ARM DATA: the learning rates, and then more dropout with the best of them; sets NEEDED to the last job's name.
grid() {
    local rate name needs
    pretraining "$1" 1
    needs=
    for rate in "${RATES[@]}"; do
        name=grid.$1.$2.lr$rate
        job "$name" "$NEEDED" finetune.sh --arm "$1" --data "$2" --lr "$rate" --dropout 0.1
        needs+=" $name"
    done
    NEEDED=grid.$1.$2.dropout0.3
    job "$NEEDED" "$needs" finetune.sh --arm "$1" --data "$2" --dropout 0.3
}

# scored ARM DATA PRETRAINING SEED: fine-tune with what validation prefers, and translate the test set.
scored() {
    local name=$1.p$3.$2.s$4 chosen=en-de.29000
    ((${2##*.} > 2000)) || chosen=en-de.2000
    ! trying || chosen=${SIZES[0]}
    grid "$1" "$chosen"
    local needs=$NEEDED
    pretraining "$1" "$3"
    job "finetune.$name" "$needs $NEEDED" finetune.sh --arm "$1" --data "$2" --pretraining "$3" --seed "$4"
    job "evaluate.$name" "finetune.$name" evaluate.sh --arm "$1" --data "$2" --pretraining "$3" --seed "$4" \
        --results "$results"
}

job prepare "" prepare.sh ${OPTIONS[local]:+--local "${OPTIONS[local]}"}
for data in "${SIZES[@]}"; do
    for seed in "${SEEDS[@]}"; do
        for arm in "${MAIN_ARMS[@]}"; do
            scored "$arm" "$data" 1 "$seed"
        done
    done
    [[ " ${REPEATED[*]} " == *" $data "* ]] || continue
    for seed in "${SEEDS[@]:1}"; do # more seeds of pre-training
        for arm in "${MAIN_ARMS[@]}"; do
            [[ $arm == random ]] || scored "$arm" "$data" "$seed" 1
        done
    done
    for arm in "${MORE_ARMS[@]}"; do
        scored "$arm" "$data" 1 1
    done
done

if [[ -n ${OPTIONS[list]} ]]; then
    for name in "${NAMES[@]}"; do
        state="to do"
        [[ ! -e $OUT/jobs/$name.done ]] || state=ended
        say "$name: $state"
    done
    exit
fi
mkdir -p "$OUT/jobs"

# ready NAME: whether the job can run now.
ready() {
    local need
    [[ ! -e $OUT/jobs/$1.done ]] || return 1
    for need in ${NEEDS[$1]}; do
        [[ -e $OUT/jobs/$need.done ]] || return 1
    done
}

while :; do
    left='' ran=''
    for name in "${NAMES[@]}"; do
        # shellcheck disable=SC2053 # a pattern
        [[ $name == $only && ! -e $OUT/jobs/$name.done ]] || continue
        left=$name
        ready "$name" || continue
        exec {lock}>"$OUT/jobs/$name.lock"
        if flock --nonblock "$lock" && ready "$name"; then
            eval "command=(${COMMANDS[$name]})"
            say "$(date +%T) $name"
            case ${command[0]} in
            train.sh | finetune.sh) command+=(-- "${EXTRA[@]}") ;;
            evaluate.sh) [[ " ${EXTRA[*]} " != *" --cpu "* ]] || command+=(-- --cpu) ;;
            esac
            ran=1
        fi
        [[ -z $ran ]] || break
        exec {lock}>&-
    done
    [[ -n $left ]] || break
    if [[ -z $ran ]]; then
        sleep 20 # what is left waits for other processes
        continue
    fi
    run bash "$recipe/${command[0]}" --out "$OUT" ${OPTIONS[try]:+--try} "${command[@]:1}" >"$OUT/jobs/$name.log" 2>&1 ||
        die "$name failed: see the end of $OUT/jobs/$name.log"
    touch "$OUT/jobs/$name.done"
    exec {lock}>&-
done
[[ ! -e $results ]] || python "$recipe/table.py" "$results"
