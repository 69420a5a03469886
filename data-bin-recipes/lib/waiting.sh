# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# shellcheck shell=bash
#
# Waiting for other processes and machines that make the same. To be sourced by steps.sh.

# hold FILE MESSAGE: keep other processes waiting here until `release`, or until this process and all that it has started
# have ended. Where another process holds the file, say MESSAGE and wait; return 1 then. HELD and LOCK are the caller's
# variables.
hold() {
    local waited=0 file=$1
    while :; do
        { exec {LOCK}>>"$file"; } 2>/dev/null || die "$file: cannot be written: choose another --out"
        if ! flock -n "$LOCK"; then
            say "$2"
            waited=1
            flock "$LOCK"
        fi
        if [[ $file -ef /dev/fd/$LOCK ]]; then
            HELD=$file
            trap '[[ -z ${HELD:-} ]] || rm -f -- "$HELD"' EXIT # a process that ends before `release`, but for SIGKILL, leaves no file
            return $waited
        fi
        exec {LOCK}>&- # its holder has removed it since it was opened
    done
}

# release [CODE]: let the others go on, and return CODE (default: 0).
release() {
    if [[ -n $HELD ]]; then
        rm -f -- "$HELD"
        exec {LOCK}>&-
        HELD=
    fi
    return "${1:-0}"
}

# train_alone FOLDER: end if another process trains into FOLDER. FOLDER.begun is locked until `let_train`, or until this process and
# all that it has started have ended.
TRAINING=
train_alone() {
    local code=0
    let_train # of this process
    { exec {TRAINING}>>"$1.begun"; } 2>/dev/null || die "$1.begun: cannot be written: choose another --out"
    flock -n "$TRAINING" || code=$?
    ((code != 1)) || # another code: the file system has no locks
        die "$1: another process trains into it: wait for its end, or give another --out or --name"
}

# let_train: let other processes train into the folder.
let_train() {
    [[ -z $TRAINING ]] || exec {TRAINING}>&-
    TRAINING=
}

# await NAME OUTPUT COMMAND...
# Wait until the first machine has run this step; all machines share the folder.
AWAIT_SECONDS=600
await() {
    local name=$1 output=$2 started made_from
    shift 2
    made_from=$(identity "$output" "$@")
    started=$SECONDS
    say "[$name] waits for the first machine to make $output"
    until is_made "$output" "$made_from"; do
        ((SECONDS - started < AWAIT_SECONDS)) ||
            die "$name: the first machine has not made $output after $AWAIT_SECONDS s: see its output, and start again"
        sleep 1
    done
}

# make_folder FOLDER: make it and those that it is in; end with one line where that fails.
make_folder() {
    local said
    [[ ! -d $1 ]] || return 0
    said=$(LC_ALL=C mkdir -p -- "$1" 2>&1) || die "$1: cannot be made${said:+ (${said##*: })}: choose another --out"
}
