# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The one line for each mistake that fairseq's and PyTorch's words tell, and what is said where a user interrupts."""

import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import REPOSITORY

from veco_fairseq.compat import mistakes

AGAIN = "if memory ran out, lower --num-workers; start the same command again: a training goes on from its last checkpoint"


# Their words as they are in fairseq 0.12.3.1 and PyTorch, and ours.
@pytest.mark.parametrize("words, line", [
    ("Must specify batch size either with --max-tokens or --batch-size", "no batch size: give --max-tokens N"),
    ("'TranslationFromPretrainedBARTTask' object has no attribute 'args'", "--task translation_from_pretrained_bart: does not work "
     "in this version of fairseq: give --task translation, and data whose dict.LANG.txt end in the model's language tokens and <mask>"),
    ("--path required for generation!", "no model: give --path CHECKPOINT"),
    *((words, "the checkpoint is no language model, which fairseq-eval-lm needs: give it to fairseq-validate, with the --task of "
       "its training") for words in ("Unsupported language modeling target: future",
                                     "'CamlmTask' object has no attribute 'eval_lm_dataloader'")),
    ("Model file not found: a.pt:b.pt", "a.pt:b.pt: no such checkpoint: give one alone, for A.pt:B.pt is for "
     "fairseq-generate"),
    ("Model file not found: a/b.pt", "a/b.pt: no such checkpoint: check --path"),
    ("--finetune-from-model a/b.pt does not exist", "a/b.pt: no such checkpoint: check --finetune-from-model"),
    ("Dataset not found: valid (a/b)", "a/b: has no valid data of these languages: check the folder, the set, -s and -t, or make it "
     "with fairseq-preprocess"),
    ("Could not infer language pair, please provide it explicitly",
     "the data folder names no pair of languages: give one that veco binarize or fairseq-preprocess made, or -s LANG -t LANG"),
    ("Criterion does not match; please reset the optimizer (--reset-optimizer). CamlmCriterion vs NluCriterion",
     "the checkpoint was trained with CamlmCriterion, not NluCriterion: give the same one, or --reset-optimizer"),
    ("Optimizer does not match; please reset the optimizer (--reset-optimizer). FairseqAdam vs SGD",
     "the checkpoint was trained with FairseqAdam, not SGD: give the same one, or --reset-optimizer"),
    ("Optimizer does not match; please reset the optimizer (--reset-optimizer). FairseqAdam vs AMPOptimizer",
     "the checkpoint was trained without --amp: leave it out, or give --reset-optimizer, too"),
    ("Optimizer does not match; please reset the optimizer (--reset-optimizer). AMPOptimizer vs FairseqAdam",
     "the checkpoint was trained with --amp: give it, too, or --reset-optimizer"),
    ("'NoneType' object has no attribute 'xla_device'", "--bf16 is for TPUs in fairseq: give --autocast bf16 in pre-training "
     "and understanding, and --amp elsewhere"),
    ("'NoneType' object has no attribute 'xrt_world_size'", "--bf16 is for TPUs in fairseq: give --autocast bf16 in pre-training "
     "and understanding, and --amp elsewhere"),  # of several workers
    ("No module named 'torch_xla'", "--bf16 is for TPUs in fairseq: give --autocast bf16 in pre-training "
     "and understanding, and --amp elsewhere"),
    ("DataLoader worker (pid 4321) is killed by signal: Killed. ", f"the data loader's process 4321 was killed (Killed): {AGAIN}"),
    ("DataLoader worker (pid(s) 12, 34) exited unexpectedly", f"the data loader's process 12, 34 was killed: {AGAIN}"),
    ("CUDA out of memory. Tried to allocate 2.00 GiB.", "out of memory: lower --max-tokens or --batch-size, and in training raise "
     "--update-freq as much (with --reset-dataloader, if the last checkpoint is in the middle of an epoch)"),  # not in generation
    ("gradients are Nan/Inf", "the gradients became NaN or infinite: lower --lr or raise --warmup-updates, and go on from a "
     "checkpoint before"),
    ("--share-all-embeddings requires a joined dictionary", "the two languages' dict.LANG.txt differ, but this model has one "
     "for both: make the data with --srcdict and --tgtdict of the model, or --joined-dictionary"),
    ("Please install editdistance to use WER scorer", "a package is missing: install editdistance to use WER scorer, or leave out the "
     "option that needs it"),
    ("Please install fastBPE with: pip install fastBPE", "a package is missing: pip install fastBPE, or leave out the option that "
     "needs it"),
    ("\n\nPlease install the fairscale package:\n\n  pip install fairscale", "a package is missing: pip install fairscale, or leave "
     "out the option that needs it"),
    ("--finetune-from-model and --restore-file (non-default value) can not be specified together: {'save_dir': 'a', 'patience': -1}",
     "--finetune-from-model and --restore-file (non-default value) can not be specified together: leave out one of them, or give "
     "what is missing"),
    ("loaded state dict contains a parameter group that doesn't match the size of optimizer's group", "the checkpoint's optimizer "
     "has other parameters, such as one fp32 copy of all of them: give --reset-optimizer"),
    ("Cannot use fp16 and AMP together", "--fp16 and --amp: leave out one of the two"),
    ("Cannot combine --fp16 and --tpu, use --bf16 on TPUs", "--bf16 and --tpu are for TPUs in fairseq, and --fp16 is not: leave "
     "out one of them; in place of --bf16 give --autocast bf16 in pre-training and understanding, and --amp elsewhere"),
    ("Input features must be a multiple of block sizes", "--quant-noise-pq-block-size: does not divide all widths of the model: give "
     "one that does, such as 8"),
    ("\n\nPlease install the megatron submodule:\n\n  git", "--model-parallel-size: fairseq's code for it is not installed: leave "
     "it out"),
    ("Torch not compiled with CUDA enabled", "an option such as --profile or --quant-noise-scalar is for GPUs, and PyTorch "
     "finds none here: leave it out"),
    ("<class 'fairseq.modules.learned_positional_embedding.LearnedPositionalEmbedding'>", "--quant-noise-scalar: fairseq's "
     "quantization does not know the positions here; --quant-noise-pq is for all layers: leave it out"),
    ("AdaptiveLoss is not compatible with the PyTorch version of DistributedDataParallel. Please use `--ddp-backend=legacy_ddp`",
     "--criterion adaptive_loss: give --ddp-backend legacy_ddp, too"),
    ("'Embedding' object has no attribute 'weights_for_band'", "--tie-adaptive-weights: needs adaptive embeddings, which no "
     "translation model has: leave it out"),
    ("world size is 2 but have 0 available devices", "--distributed-world-size 2: fairseq-train starts workers on GPUs alone, of "
     "which there are 0: give at most as many; scripts/launch.sh --workers 2 also starts them on the processor, with --cpu"),
    ("Size of sample #7 is invalid (=(2000, 3)) since max_positions=(1024, 1024), skip this example with --skip-invalid",
     "sentence 7 of the data, counted from 0, has (2000, 3) tokens, but the model takes (1024, 1024): shorten it, or give "
     "--skip-invalid-size-inputs-valid-test"),
    ("Size of sample #7 is invalid (=(np.int32(55), np.int64(66))) since max_positions=(64, 64), skip this example with",
     "sentence 7 of the data, counted from 0, has (55, 66) tokens, but the model takes (64, 64): shorten it, or give "
     "--skip-invalid-size-inputs-valid-test"),
    ("Sentences lengths should not exceed max_tokens=5", "--max-tokens 5: a sentence has more tokens than that: raise it, or in "
     "training --max-tokens-valid"),
    ("The dataset is empty. This could indicate that all", "no sentence is left to train on: the set is empty, or each has more "
     "tokens than --max-tokens or the model takes: raise --max-tokens, or cut the sentences"),
    ("3 < 3", "a line's constraints, or its prefix with --match-source-len, do not fit into a translation of at most 3 tokens: "
     "shorten them, or raise --max-len-b or --beam"),
    ("3 < 33", None),
    ("Unknown post_process option:\n x", "--remove-bpe x: fairseq does not know such pieces: give sentencepiece, subword_nmt or "
     "another of its kinds"),
    ("--sampling requires --nbest to be equal to --beam", "--sampling requires --nbest to be equal to --beam: leave out one of "
     "them, or give what is missing"),
    ("Valid paths ['a'] will be ignored. Give b:c.", "Valid paths ['a'] will be ignored. Give b:c."),
    ("--fp16-adam-stats is only supported with FusedAdamV1", "--fp16-adam-stats is only supported with FusedAdamV1: leave out "
     "one of them, or give what is missing"),
    ("'list' object has no attribute 'split'", None), ("a sum of --beam", None), ("--Beam is", None),
])  # fmt: skip
def test_each_mistake_has_its_line(words, line):
    assert mistakes.mistake(RuntimeError(words)) == line


def test_only_a_workers_error_is_its_last_line():
    """The text of a spawned worker's error is its traceback, whose other lines are no message."""

    class ProcessRaisedException(Exception):
        pass

    text = "\n-- Process 1 terminated with the following error:\n--path required for generation!\nKeyError: 'a'\n"
    assert mistakes.mistake(ProcessRaisedException(text)) is None
    assert mistakes.mistake(ProcessRaisedException(text + "AssertionError: --path required for generation!\n")) == (
        "no model: give --path CHECKPOINT"
    )
    assert mistakes.mistake(AssertionError("--path required for generation!\nand more")) == "no model: give --path CHECKPOINT"


def test_numpys_numbers_are_written_as_numbers():
    words = f"Size of sample #{np.int64(3)!r} is invalid (=({np.int64(12)!r}, 4)) since max_positions=8, skip this example"
    assert re.search("sentence 3 .* has .12, 4. tokens, but the model takes 8:", mistakes.mistake(Exception(words)))


def test_ctrl_c_before_a_training_is_no_error(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/some/where/fairseq-generate"])
    mistakes.one_line_errors(pytest.fail)(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "fairseq-generate: interrupted\n"


def test_a_reader_that_went_away_is_no_error():
    """As | head does. fairseq-generate and -interactive ended in a traceback; another broken pipe is a bug."""
    program = (
        "import sys\nfrom veco_fairseq.compat.mistakes import one_line_errors\n"
        "sys.excepthook = one_line_errors(sys.excepthook)\nif sys.argv[1:]: raise BrokenPipeError('another')\n"
        "while True: print('a line')"
    )
    for more, expected in ((), 141), (("another",), 1):
        process = subprocess.Popen([sys.executable, "-c", program, *more], cwd=REPOSITORY, stdout=-1, stderr=-1)
        if not more:
            process.stdout.close()
        errors = process.stderr.read().decode()
        process.stderr.close()
        process.stdout.close()
        assert (process.wait(), "BrokenPipeError: another" in errors, bool(errors)) == (expected, bool(more), bool(more))
