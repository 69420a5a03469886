#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch MLQA (test sets of 7 languages), and SQuAD 1.1 to train on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../lib/understanding.sh"

prepare_options hold-out=0 train=train-@.json dev=dev-@.json test=test-@.json translations= langs="ar de en es hi vi zh" -- "$@"
archive https://dl.fbaipublicfiles.com/MLQA/MLQA_V1.zip \
    246e8089933d13007fe80684d5c5c0713d6834cf8b3b4a0ec7c66f0a0d2baac8
squad MLQA_V1.zip

examples train json 'squad*train.*@.json'
examples dev json squad-dev.@.json
examples test json MLQA_V1/test/test-context-@-question-@.json
tidy
