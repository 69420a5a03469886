#!/usr/bin/env bash
# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
# Translate test_2016_flickr with a fine-tuned model, and score it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib/translation.sh"

TEST=test_2016_flickr
evaluate_options src=en tgt=de average=0 -- "$@"
evaluate_task
