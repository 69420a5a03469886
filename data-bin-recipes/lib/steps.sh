# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Options and steps, which every recipe begins with. Source this file in bash 4.4 or newer, after `set -euo pipefail`. It
# sets REPOSITORY and RECIPE (the name of the recipe's folder). VECO_SKIP_SETUP=1 leaves the installation as it is.

unset CDPATH # with it, cd also prints where it goes
unset GOLD HELD INPUT OTHER_NAMES # the scripts' own, which may be exported
REPOSITORY=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)
RECIPE=$(cd "$(dirname "$0")" && pwd) && RECIPE=${RECIPE##*/}
USER_DIR=$REPOSITORY/veco_fairseq
source "${BASH_SOURCE[0]%/*}/waiting.sh"
export PYTHONPATH="$REPOSITORY${PYTHONPATH:+:$PYTHONPATH}"

say() { printf '%s\n' "$*"; }

# die MESSAGE: end with one line on standard error.
die() {
    printf '%s: error: %s\n' "$RECIPE/$(basename "$0")" "$*" >&2
    exit 1
}

# about NAME VALUE TEXT: set what --help says about the option --NAME VALUE, in every script that has it. An option without
# a VALUE stands alone.
declare -A ABOUT=()
about() { ABOUT[$1]="--$1${2:+ $2}"$'\n'"$3"; }

about out DIR "the folder for everything that the recipe makes (default: a folder named after the recipe \
in data-bin/ of the repository; with --try its name ends in .try)"
about local DIR "take the texts from this folder, plain or .gz, instead of downloading them"
about try "" "make everything small, to see all steps in minutes on a CPU: some of the texts, a tiny model, few updates; \
options that you give still count"
about seed N "seed of all random numbers"
about name NAME "the model's name, which keeps several apart"

# parse_options NAME=DEFAULT... [NAME...] -- "$@"
# Fill OPTIONS[NAME] from `--NAME VALUE` arguments, or with 1 from a `--NAME` that stands alone; set GIVEN[NAME] for each;
# make the paths of DIR and FILE absolute;
# fill EXTRA with the user's arguments after `--`, which are for PROGRAM; then set up what is missing. --help prints the
# comment at the head of the calling script, and the texts of its options.
PROGRAM=
parse_options() {
    declare -gA OPTIONS=() GIVEN=()
    declare -ga EXTRA=()
    local names=() flags=" " name
    while [[ $1 != -- ]]; do
        name=${1%%=*}
        OPTIONS[$name]=${1#"$name"}
        OPTIONS[$name]=${OPTIONS[$name]#=}
        [[ $1 == *=* ]] || flags+="$name "
        names+=("--$name")
        shift
    done
    shift
    while (($#)); do
        name=${1#--}
        case $1 in
        --)
            [[ -n $PROGRAM || $# == 1 ]] || die "--: no program here takes further options: leave out $2"
            EXTRA=("${@:2}")
            break ;;
        -h | --help)
            print_help "${names[@]#--}"
            exit 0 ;;
        --*)
            [[ -v OPTIONS[$name] ]] || die "$1: no such option (there are ${names[*]})"
            if [[ $flags == *" $name "* ]]; then
                OPTIONS[$name]=1
            else
                [[ $# -gt 1 && $2 != --* ]] || die "$1: needs a value"
                OPTIONS[$name]=$2
                # absolute, so that a step is the same one however its files are given
                [[ ${ABOUT[$name]:-} != "--$name "@(DIR|FILE)$'\n'* || -z $2 ]] || OPTIONS[$name]=$(realpath -ms -- "$2")
                shift
            fi
            GIVEN[$name]=1
            shift ;;
        *) die "$1: is not an option (there are ${names[*]})" ;;
        esac
    done
    [[ -v OPTIONS[name] ]] || TRAINED_OTHERWISE=${TRAINED_OTHERWISE% or --name}
    set_up
}

# print_help NAME...: print the script's help, with the options of these names.
print_help() {
    local name text usage line
    awk 'NR > 3 && !/^#/ { exit } NR > 3 { sub(/^# ?/, ""); print }' <"$0" # no word: awk takes a=b/c.sh for a variable
    line="usage: $(basename "$0")" usage=
    for name in "$@" ${PROGRAM:+--}; do
        text="[${ABOUT[$name]:-}]"
        [[ $name != -- ]] || text="[-- OPTIONS OF $PROGRAM]"
        text=${text/$'\n'*/]}
        if ((${#line} + ${#text} > 110)); then
            usage+=$line$'\n' line="      "
        fi
        line+=" $text"
    done
    printf '\n%s\n' "$usage$line"
    for name; do
        text=${ABOUT[$name]#*$'\n'}
        [[ -z ${OPTIONS[$name]} ]] || text+=" (default: ${OPTIONS[$name]})"
        printf '\n  %s\n%s\n' "${ABOUT[$name]%%$'\n'*}" "$text"
    done | fold -s -w 110 | sed -E 's/ *$//; /^($|  --)/! s/^/      /'
}

# trying: whether --try is given.
trying() { [[ -n ${OPTIONS[try]:-} ]]; }

# in_try NAME=VALUE...: with --try, take these values instead of the defaults.
in_try() {
    local option
    trying || return 0
    for option; do
        [[ -v GIVEN[${option%%=*}] ]] || OPTIONS[${option%%=*}]=${option#*=}
    done
}

# choose_out [NAME]: set OUT, by default the folder of this name, or of the recipe's, in data-bin.
choose_out() {
    OUT=${OPTIONS[out]:-$REPOSITORY/data-bin/${1:-$RECIPE}}
    [[ -n ${OPTIONS[out]} ]] || ! trying || OUT+=.try
}

# require_number NAME...: end unless these options are whole numbers. (Bash would read 010 as eight.)
require_number() {
    local name
    for name; do
        [[ ${OPTIONS[$name]} =~ ^(0|[1-9][0-9]*)$ ]] || die "--$name ${OPTIONS[$name]}: must be a whole number"
    done
}

# require_positive NAME...: end unless these are whole numbers from 1 on.
require_positive() {
    local name
    require_number "$@"
    for name; do
        [[ ${OPTIONS[$name]} != 0 ]] || die "--$name ${OPTIONS[$name]}: must be 1 or more"
    done
}

# require_choice NAME CHOICE...: end unless this option is one of the choices.
require_choice() {
    local name=$1 choice
    shift
    for choice; do
        [[ ${OPTIONS[$name]} == "$choice" ]] && return
    done
    die "--$name ${OPTIONS[$name]}: must be one of: $*"
}

# require PATH MESSAGE: end if there is no such file or folder.
require() { [[ -e $1 ]] || die "$1: is not there: $2"; }

# identity OUTPUT COMMAND...: print the words of a command, and a checksum of each word that is a file, was made by a step,
# is a data root, a folder in one or one with a vocabulary (and a model.pt), or is a prefix of files that steps made or in a step's
# folder. The command's own output is left out, and so are numbers, of which the folder of the call may have a file (2>1 makes
# one). The words and the order of files are the same in every locale: %q writes ö in another way where characters are bytes.
identity() {
    local output=$1 word file files made LC_ALL=C.UTF-8 2>/dev/null # no warning on a machine without it
    shift
    printf '%q ' "$@"
    for word; do
        [[ $word != "$output" && $word != "$output"/* && ! $word =~ ^[0-9.e-]+$ ]] || continue
        for file in "$word" "$word.done" {"$word","${word%/*}"}/preparation.json; do
            if [[ -f $file ]]; then
                printf '%s ' "$(cksum <"$file")"
                continue 2
            fi
        done
        files=("$word".*) made=("$word".*.done)
        if [[ -f $word/dict.txt ]]; then
            printf '%s ' "$(cat -- "$word"/{dict.txt,sentencepiece.bpe.model,model.pt} 2>/dev/null | cksum)"
        elif [[ ! -e $word && -f ${files[0]} && (-f ${word%/*}.done || -f ${made[0]}) ]]; then
            printf '%s ' "$(cat -- "${files[@]}" | cksum)"
        fi
    done
}

# run COMMAND...: run it. If it is a program, SIGTERM is passed on to it (a training saves), and the script ends with 143; it
# reads the file INPUT.
run() {
    local child='' code=0 terminated=
    ! declare -F "$1" >/dev/null && type -P "$1" >/dev/null || { "$@"; return; }
    trap 'terminated=1; [[ -z $child ]] || kill "$child" 2>/dev/null || :' TERM
    (trap - INT && exec "$@") <"${INPUT:-/dev/null}" & # without the trap, a program in the background ignores Ctrl-C
    child=$!
    [[ -z $terminated ]] || kill "$child" 2>/dev/null || : # the signal has come before the number was known
    wait "$child" || code=$?
    while [[ -n $terminated ]] && kill -0 "$child" 2>/dev/null; do # the signal has ended the wait, not the program
        wait "$child" || :
    done
    trap - TERM
    [[ -z $terminated ]] || exit 143
    return $code
}

# is_made OUTPUT IDENTITY: whether a step with this identity has made OUTPUT.
is_made() { [[ -e $1 && -f $1.done && $(<"$1.done") == "$2" ]]; }

# step NAME OUTPUT COMMAND...
# Run COMMAND to make OUTPUT (a file or a folder), unless OUTPUT is there and was made by the same command from the same
# files. `{}` in COMMAND stands for a temporary name, which becomes OUTPUT at the end. Without `{}`, COMMAND writes OUTPUT
# itself, and can be interrupted and started again. When a step has run, all later steps of the script run, too. Where another
# process makes OUTPUT by way of a temporary name, this one waits for its end.
REMAKE=
step() {
    local name=$1 output=$2 parent=. started=$SECONDS word words=() made_from HELD='' LOCK=''
    shift 2
    made_from=$(identity "$output" "$@")
    if [[ -z $REMAKE ]] && is_made "$output" "$made_from"; then
        say "[$name] already there: $output"
        return
    fi
    [[ $output != */* ]] || parent=${output%/*}
    make_folder "$parent"
    if [[ $* == *'{}'* ]] && ! hold "$parent/.${output##*/}.lock" \
        "[$name] waits: another process makes $output" && is_made "$output" "$made_from"; then
        release
        say "[$name] already there: $output"
        return
    fi
    REMAKE=1
    say "[$name] makes $output"
    rm -rf -- "$output.done" "$output.partial"
    for word; do
        words+=("${word//\{\}/"$output.partial"}")
    done
    run "${words[@]}" || release $? || die "$name failed (exit code $?): see the lines above"
    if [[ $* == *'{}'* ]]; then
        rm -rf -- "$output"
        mv -- "$output.partial" "$output"
    fi
    [[ -e $output ]] || die "$name ended without making $output"
    printf '%s' "$made_from" >"$output.done" || exit
    release
    say "[$name] done in $((SECONDS - started)) s"
}

TRAINED_OTHERWISE="was trained with other options or data: remove it, or choose another --out or --name"

# has_checkpoints FOLDER: whether a training has saved there.
has_checkpoints() {
    local saved
    for saved in "$1"/checkpoint_*.pt "$1"/*/{checkpoint_*.pt,score}; do
        [[ ! -e $saved ]] || return 0
    done
    return 1
}

# same_training FOLDER COMMAND...: end if the folder has checkpoints of other options or other data, so that two
# experiments are never mixed; or if another process trains into it, which has perhaps not saved yet. `let_train` lets others go on.
same_training() {
    local folder=$1 begun
    shift
    [[ -e $folder ]] || rm -f -- "$folder.done" "$folder".average*.pt.done # nor are means of a training whose folder was removed done
    make_folder "$folder"
    train_alone "$folder"
    begun=$(identity "$folder" "$@")
    if [[ -s $folder.begun && $(<"$folder.begun") != "$begun" ]]; then # the lock makes an empty one
        ! has_checkpoints "$folder" || die "$folder: $TRAINED_OTHERWISE"
    fi
    printf '%s' "$begun" >"$folder.begun" || exit
}

# training NAME FOLDER COMMAND...
# A step that trains into FOLDER and resumes from its last checkpoint. FOLDER.command gets the words of COMMAND.
training() {
    local name=$1 folder=$2
    shift 2
    same_training "$folder" "$@"
    printf '%q ' "$@" >"$folder.command" || exit
    REMAKE='' step "$name" "$folder" "$@"
    let_train
}

# to_file FILE COMMAND...: run COMMAND with its standard output in FILE.
to_file() { run "${@:2}" >"$1"; }

# logged FILE COMMAND...: run COMMAND, and add all that it says to FILE, too, of which fairseq's --log-file has a part.
logged() {
    local file=$1 out log teller code=0
    exec {out}>&1
    coproc TELLER { trap '' INT TERM && echo && exec tee -a -- "$file" >&"$out"; }
    log=${TELLER[1]} teller=$TELLER_PID
    read -r <&"${TELLER[0]}" || : # no signal ends it any more: it ends with the program, which says that it saves
    run "${@:2}" >&"$log" 2>&1 || code=$?
    exec {log}>&- {out}>&- && wait "$teller" || :
    return $code
}

# on_all_processors COMMAND...: run COMMAND with --workers, whose number is no part of the step's identity.
on_all_processors() { run "$@" --workers "$(unset OMP_NUM_THREADS && nproc)"; }

# set_up: make or mend .venv, and put its commands first on PATH.
set_up() {
    [[ ! -f $REPOSITORY/scripts/setup.sh ]] || bash "$REPOSITORY/scripts/setup.sh"
    [[ ! -d $REPOSITORY/.venv/bin ]] || PATH=$REPOSITORY/.venv/bin:$PATH
}
