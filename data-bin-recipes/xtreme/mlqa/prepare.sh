#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Fetch MLQA (test sets of 7 languages), and SQuAD 1.1 to train on.
#
# usage: prepare.sh [--out DIR] [--local DIR] [--train PATTERN] [--dev PATTERN] [--test PATTERN] [--hold-out N]
#                   [--langs "LANG ..."] [--translations DIR]
#
#   --out       folder for everything (default: data-bin/xtreme/mlqa in the repository)
#   --local     take the files from this folder instead of downloading them
#   --train, --dev, --test  their names there, @ for the language, .gz or not (defaults:
#               train-@.json, dev-@.json, test-@.json); a language that has none is left out
#   --hold-out  the last N training examples are the dev set (default: 0, there is one)
#   --langs     (default: ar de en es hi vi zh)
#   --translations  SQuAD's training set in other languages, of XTREME's public folder of translations:
#               squad.translate.train.en-LANG.json for --setting translate-train (default: none)
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
