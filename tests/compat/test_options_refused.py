# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Options of fairseq that cannot work, or that a task does nothing for."""

import pytest
from fairseq import options

from veco_fairseq.errors import UserError

CAMLM = "root --task camlm --arch veco_tiny --criterion camlm"
TRANSLATION = "data --task translation --arch transformer_tiny"


def parse(words: str):
    return options.parse_args_and_arch(options.get_training_parser("translation"), words.split())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task, words, message", [
    (TRANSLATION, "--num-batch-buckets 2", "--num-batch-buckets: fairseq's code for it does not run with NumPy 2: leave it out"),
    (CAMLM, "--use-bmuf",
     "--use-bmuf: each worker has weights of its own, and a checkpoint keeps those of the first: leave it out"),
    (TRANSLATION, "--checkpoint-suffix _x --keep-best-checkpoints 2",
     "--checkpoint-suffix _x: --keep-best-checkpoints cannot read file names with one more _: write it without"),
    (CAMLM, "--sentence-avg", "--sentence-avg: the loss of --task camlm is a mean over the tokens to predict: leave it out"),
    *((CAMLM, words, f"{words.split()[0]}: --task camlm plans its batches, whose order depends on --seed alone: leave it out")
      for words in ("--curriculum 1", "--grouped-shuffling", "--update-epoch-batch-itr true", "--fix-batches-to-gpus",
                    "--update-ordered-indices-seed")),
])  # fmt: skip
def test_what_does_nothing_or_ends_in_a_traceback_is_refused(task, words, message):
    with pytest.raises(UserError, match=f"^{message}$"):
        parse(f"{task} {words}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("words", [
    f"{CAMLM} --curriculum 0 --update-epoch-batch-itr false --checkpoint-suffix _x", f"{TRANSLATION} --keep-best-checkpoints 2",
    f"{TRANSLATION} --curriculum 1 --grouped-shuffling --update-epoch-batch-itr true --num-batch-buckets 0",
])  # fmt: skip
def test_what_works_is_taken(words):
    parse(words)
