# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What is written to --log-file."""

import json


def test_each_update_of_each_epoch_is_written_once(make_root, train, tmp_path):
    log = tmp_path / "log"
    result = train(make_root(), "--updates-per-epoch", "2", "--max-epoch", "3", "--log-file", log)
    assert result.returncode == 0
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"epoch"')]
    assert [line["num_updates"] for line in lines if "num_updates" in line] == list("123456")
    assert [line["train_num_updates"] for line in lines if "train_num_updates" in line] == list("246")
    assert [line["valid_num_updates"] for line in lines if "valid_num_updates" in line] == list("246")
