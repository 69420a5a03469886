#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# fairseq-train on several workers: one for each GPU, or several processes on a CPU.
#
# usage: launch.sh [--workers N] [--nodes N --node-rank I --master HOST:PORT] [--] ARGUMENTS OF fairseq-train
#
#   --workers    number of workers on this machine (default: its GPUs; with --cpu among the arguments, 2)
#   --nodes      number of machines; give this command on each (default: 1)
#   --node-rank  number of this machine, from 0 (default: with several machines VECO_NODE_RANK or SLURM_NODEID, if set)
#   --master     a host and a free port of machine 0 that all machines reach (default: VECO_MASTER of the environment)
#
# When a worker fails it ends with 1; torchrun's last lines have the exit code of the worker that failed first.
set -euo pipefail

unset CDPATH # with it, cd also prints where it goes
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ ! -d $repository/.venv/bin ]] || PATH=$repository/.venv/bin:$PATH

fail() {
    printf 'launch.sh: error: %s\n' "$*" >&2
    exit 1
}

workers="" nodes=1 node_rank="" master=${VECO_MASTER:-}
while (($#)); do
    case $1 in
    --workers | --nodes | --node-rank | --master)
        (($# > 1)) || fail "$1: needs a value"
        case $1 in
        --workers) workers=$2 ;;
        --nodes) nodes=$2 ;;
        --node-rank) node_rank=$2 ;;
        --master) master=$2 ;;
        esac
        shift 2 ;;
    -h | --help)
        awk 'NR > 3 && !/^#/ { exit } NR > 3 { sub(/^# ?/, ""); print }' <"$0" # no word: awk takes a=b/c.sh for a variable
        exit 0 ;;
    --) shift; break ;;
    *) break ;;
    esac
done
(($#)) || fail "no arguments for fairseq-train: launch.sh --workers 2 ROOT --user-dir veco_fairseq --task camlm ..."

# Without this, fairseq starts separate runs that write into one folder, or no run at all.
cpu="" backend="" plugin=""
for argument; do
    case $argument in
    --cpu) cpu=1 ;;
    --user-dir=*) plugin=${argument#*=} ;;
    --user-dir) plugin=next ;;
    --distributed-* | --device-id* | --nprocs-per-node*)
        fail "$argument: this command sets fairseq's distributed options itself: leave it out" ;;
    --ddp-backend=*) backend=${argument#*=} ;;
    --ddp-backend) backend=next ;;
    --workers | --workers=* | --nodes | --nodes=* | --node-rank | --node-rank=* | --master | --master=*)
        fail "${argument%%=*}: is launch.sh's: give it before all options of fairseq-train, with a space before its value" ;;
    fairseq-train | torchrun) fail "$argument: give only the arguments of fairseq-train, not the command" ;;
    *)
        [[ $backend != next ]] || backend=$argument
        [[ $plugin != next ]] || plugin=$argument ;;
    esac
done
[[ -z $plugin || -d $plugin ]] || fail "--user-dir $plugin: no such folder"
[[ -z $backend || $backend == legacy_ddp ]] ||
    fail "--ddp-backend $backend: only fairseq's legacy_ddp handles parameters without a gradient: leave it out"

gpus=0
[[ -n $cpu ]] || gpus=$(python -c 'import torch; print(torch.cuda.device_count())') ||
    fail "PyTorch cannot be imported: run scripts/setup.sh first"
[[ -n $workers ]] || workers=$((cpu ? 2 : gpus))
# A cluster numbers the machines of trainings that know nothing of each other, too.
[[ -n $node_rank || $nodes == 1 ]] || node_rank=${VECO_NODE_RANK:-${SLURM_NODEID:-0}}
node_rank=${node_rank:-0}
for number in "$workers" "$nodes" "$node_rank"; do
    [[ $number =~ ^(0|[1-9][0-9]*)$ ]] || fail "$number: --workers, --nodes and --node-rank are whole numbers"
done
[[ -n $cpu ]] || ((gpus > 0)) || fail "no GPU here: add --cpu to train on the processor"
((workers > 0)) || fail "--workers $workers: must be 1 or more"
[[ -n $cpu ]] || ((workers <= gpus)) || fail "--workers $workers: there are $gpus GPUs here"
((nodes > 0 && node_rank < nodes)) || fail "--node-rank $node_rank: must be from 0 to $((nodes - 1)) (--nodes $nodes)"
((nodes == 1)) || [[ $master =~ ^[^:]+:[0-9]+$ ]] || fail "--master HOST:PORT is needed with --nodes $nodes"

if ((nodes == 1)); then
    rendezvous=(--standalone)
else
    rendezvous=(--nnodes "$nodes" --node_rank "$node_rank" --master_addr "${master%:*}" --master_port "${master#*:}")
fi
options=(--ddp-backend legacy_ddp --distributed-world-size $((workers * nodes)) --distributed-no-spawn
    --distributed-init-method env://)
[[ -z $cpu ]] || options+=(--distributed-backend gloo)

# One thread for each worker, unless chosen otherwise, since more compete for the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# After a signal, workers finish an update and save; torchrun leaves them 30 seconds by default.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-280}
exec torchrun "${rendezvous[@]}" --nproc_per_node "$workers" --no-python \
    bash -c 'exec fairseq-train "$@" --distributed-rank "$RANK" --device-id "$LOCAL_RANK"' fairseq-train \
    "$@" "${options[@]}"
