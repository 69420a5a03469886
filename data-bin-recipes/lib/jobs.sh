# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Jobs that need each other: a list of them, and processes that share the work. To be sourced after steps.sh.

about only PATTERN "run the jobs whose name matches this pattern, such as 'train.*' (default: all)"
about list "" "print the names of the jobs, and which have ended"

# job NAME "NEEDED ..." SCRIPT OPTION...: a job that can run when the needed ones have ended; --only chooses by name.
NAMES=()
declare -A NEEDS=() COMMANDS=()
declare -A ENDED=() # jobs that need not run, although this folder has not seen their end
job() {
    [[ ! -v COMMANDS[$1] ]] || return 0
    NAMES+=("$1") NEEDS[$1]=$2
    printf -v COMMANDS["$1"] '%q ' "${@:3}"
}

# is_chosen NAME: whether --only chooses this job.
# shellcheck disable=SC2053 # a pattern
is_chosen() { [[ $1 == ${OPTIONS[only]:-*} ]]; }

# require_chosen: end if --only matches the name of no job, not even of one that has ended elsewhere.
require_chosen() {
    local name
    for name in "${NAMES[@]}" "${!ENDED[@]}"; do
        ! is_chosen "$name" || return 0
    done
    die "--only ${OPTIONS[only]}: no job has such a name: --list alone prints all of them"
}

# list_jobs: print the names of the jobs that --only chooses, and which have ended.
list_jobs() {
    local name state
    require_chosen
    for name in "${NAMES[@]}"; do
        is_chosen "$name" || continue
        state="to do"
        ! has_ended "$name" || state=ended
        say "$name: $state"
    done
}

# has_ended NAME: whether the job has ended, here or elsewhere.
has_ended() { [[ -v ENDED[$1] || -e $OUT/jobs/$1.done ]]; }

# leave_out_unneeded: also count as ended what only such jobs need that have ended. A job comes after those that it needs.
leave_out_unneeded() {
    local -A asked=() needed=()
    local name need place
    for name in "${NAMES[@]}"; do
        for need in ${NEEDS[$name]}; do
            asked[$need]=1
        done
    done
    for ((place = ${#NAMES[@]} - 1; place >= 0; place--)); do
        name=${NAMES[place]}
        if has_ended "$name" || [[ -v asked[$name] && ! -v needed[$name] ]]; then
            ENDED[$name]=1
            continue
        fi
        for need in ${NEEDS[$name]}; do
            needed[$need]=1
        done
    done
}

# ready NAME: whether the job can run now.
ready() {
    local need
    ! has_ended "$1" || return 1
    for need in ${NEEDS[$1]}; do
        has_ended "$need" || return 1
    done
}

# words_of NAME: set WORDS to the words of its command. What trains gets the user's own options of fairseq-train, and what evaluates
# gets --cpu of them.
words_of() {
    eval "WORDS=(${COMMANDS[$1]})"
    case ${WORDS[0]} in
    train.sh | finetune.sh | understand.sh) WORDS+=(-- "${EXTRA[@]}") ;;
    evaluate.sh) WORDS+=("${CPU[@]:+--}" "${CPU[@]}") ;;
    esac
}

# tell_of_other_options NAME...: say once if some of these jobs have ended, and with other words than they would have now.
tell_of_other_options() {
    local name file ended=()
    for name; do
        file=$OUT/jobs/$name.done
        [[ -s $file ]] || continue # there is none, or one that has no words
        words_of "$name"
        [[ $(<"$file") == "${WORDS[*]@Q}" ]] || ended+=("$name")
    done
    ((!${#ended[@]})) || say "${#ended[@]} of the jobs that have ended had other options, such as ${ended[0]}, and are not run again: \
for all with these options, give another --out"
}

# say_waiting NAME: say once that a job waits, and which others have to end first.
say_waiting() {
    local need needed=() told="$1: another process runs it"
    for need in ${NEEDS[$1]}; do
        has_ended "$need" || needed+=("$need")
    done
    [[ ${#needed[@]} == 0 ]] || told="$1 waits until another process has run: ${needed[*]}"
    [[ $WAITING == "$told" ]] || say "$told"
    WAITING=$told
}

# run_jobs FOLDER: run the jobs that are left, by the scripts of this folder.
run_jobs() {
    local name place left=() last ran lock WORDS WAITING=''
    for name in "${NAMES[@]}"; do
        ! is_chosen "$name" || left+=("$name")
    done
    [[ ${#left[@]} != 0 ]] || require_chosen
    find_cpu "${EXTRA[@]}"
    make_folder "$OUT/jobs"
    tell_of_other_options "${left[@]}"
    while :; do
        ran=''
        for place in "${!left[@]}"; do
            name=${left[place]}
            if has_ended "$name"; then
                unset "left[$place]"
                continue
            fi
            last=$name
            ready "$name" || continue
            exec {lock}>"$OUT/jobs/$name.lock"
            if flock --nonblock "$lock" && ready "$name"; then
                ran=1
                break
            fi
            exec {lock}>&-
        done
        [[ ${#left[@]} != 0 ]] || break
        if [[ -z $ran ]]; then
            say_waiting "$last"
            sleep 20
            continue
        fi
        words_of "$name"
        printf '%(%T)T %s\n' -1 "$name"
        # A job that goes on adds to its log, of which the learning curves are drawn.
        run bash "$1/${WORDS[0]}" --out "$OUT" ${OPTIONS[try]:+--try} "${WORDS[@]:1}" >>"$OUT/jobs/$name.log" 2>&1 ||
            die "$name failed: see the end of $OUT/jobs/$name.log"
        printf '%s' "${WORDS[*]@Q}" >"$OUT/jobs/$name.done"
        exec {lock}>&-
    done
}
