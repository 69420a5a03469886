#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
#
# The whole way on the embedded toy corpus: sets up what is missing, pre-trains, converts, fine-tunes from the
# converted weights and from random ones, translates, and reports. About 5 minutes on 2 cores, after the set-up.
#
# usage: demo.sh [--out DIR]          DIR (default: demo-out) gets report.md, report.json, learning_curve.png,
#                                     attention.png, checkpoints/ and the full output of each stage in logs/
#
# The same command goes on where it was interrupted, and does nothing twice.
set -euo pipefail

unset CDPATH  # with it, cd also prints where it goes
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
fail() { echo "demo.sh: error: $*" >&2; exit 1; }

out=demo-out
case "${1:-}" in
"") ;;
--out) [[ $# -eq 2 && -n "$2" ]] || fail "usage: demo.sh [--out DIR]"; out=$2 ;;
-h | --help) sed -n '5,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
*) fail "$1: no such option; usage: demo.sh [--out DIR]" ;;
esac
said=$(LC_ALL=C mkdir -p -- "$out/logs" 2>&1) || fail "$out: cannot be made (${said##*: }): choose another --out"
[[ $out == /* ]] || out=./$out  # cd takes - for another folder
out="$(cd -- "$out" && pwd)"

bash "$repository/scripts/setup.sh"
export VECO_SKIP_SETUP=1
python="$repository/.venv/bin/python"
toy="$repository/data-bin-recipes/toy"
processors=$("$python" -c 'import os; print(len(os.sched_getaffinity(0)))')
device=()
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || device=(--cpu)
pretraining=("${device[@]}") finetuning=("${device[@]}")
# Less than the time of fp32; on Intel's processors without AMX it is more.
cpu=$(cat /proc/cpuinfo 2>/dev/null || :)
if ((${#device[@]})) && [[ $cpu == *amx_bf16* || ($cpu == *AuthenticAMD* && $cpu == *avx512_bf16*) ]]; then
    pretraining+=(--autocast bf16) finetuning+=(--amp)
fi

# stop CODE: end with this exit code, after what runs here has ended: it gets the signal, too, since a training that went on would
# stand in the way of the same command. A training saves then. The shell waits for tee, too, and tee for the end of the output.
output=
stop() {
    trap '' INT TERM
    [[ -z $output ]] || exec {output}>&-
    kill $(jobs -p) 2>/dev/null || :
    wait
    exit "$1"
}
stop_at_signals() { trap 'stop 130' INT && trap 'stop 143' TERM; }

# stage NAME COMMAND...: run COMMAND with its output in logs/NAME.log, and print a line of progress now and then.
# seconds.tsv gets its time (of several runs the longest, since the others found a part done).
stage() {
    local name=$1 started=$SECONDS output='' runs teller code=0
    shift
    stop_at_signals # a part of the script that runs in the background has no traps yet
    echo "== $name"
    exec {output}> >(trap '' INT TERM; tee -a "$out/logs/$name.log" | sed -u -n -E "
        s/.* train_inner .*[ ,](loss=[0-9.]+), .*num_updates=([0-9]+),.*/   $name, update \2: \1/p
        s/.* valid on .* subset \| (loss [0-9.]+) .*/   $name, validation: \1/p
        /error: |^\[|^sacreBLEU|lines encoded/s/^/   $name: /p
    ")
    teller=$!
    (trap - INT && exec "$@" {output}>&-) >&"$output" 2>&1 & # without the trap, what runs in the background ignores Ctrl-C
    runs=$!
    exec {output}>&-
    wait "$runs" || code=$?
    wait "$teller" || :
    ((code == 0)) || fail "$name failed: its output is in $out/logs/$name.log"
    printf '%s\t%s\n' "$name" $((SECONDS - started)) >>"$out/seconds.tsv"
}

stage data bash "$toy/prepare.sh" --out "$out"
stage pretraining bash "$toy/train.sh" --out "$out" -- "${pretraining[@]}"
# Both at once, with half of the processor each: two threads of one are not twice as fast.
runs=()
for arm in veco random; do
    OMP_NUM_THREADS=$(((processors + 1) / 2)) \
        stage "finetuning-$arm" bash "$toy/finetune.sh" --out "$out" --arm $arm -- "${finetuning[@]}" &
    runs+=($!)
done
failed=
for arm in "${runs[@]}"; do wait "$arm" || failed=1; done # of both: a training would go on without the demo
[[ -z $failed ]] || exit 1
stage report "$python" "$repository/scripts/demo_report.py" "$out"
cat "$out/report.md"
