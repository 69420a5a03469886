# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Prints one line for a user's mistake, instead of a traceback through fairseq."""

import re
import sys
from collections.abc import Callable

from veco_fairseq.cli import print_error, program_name, reader_is_gone, user_message

# What a training that goes on with batches of another size needs, too.
AS_NEW = " (with --reset-dataloader, if the last checkpoint is in the middle of an epoch)"

# fairseq's messages, and ours: what is wrong, where, and what to do. "{0}" is the first group.
MISTAKES = (
    (r"Must specify batch size either with --max-tokens or --batch-size", "no batch size: give --max-tokens N"),
    (
        r"Unsupported language modeling target|object has no attribute 'eval_lm_dataloader'",
        "the checkpoint is no language model, which fairseq-eval-lm needs: give it to fairseq-validate, with the --task of its training",
    ),
    (
        r"'TranslationFromPretrainedBARTTask' object has no attribute 'args'",
        "--task translation_from_pretrained_bart: does not work in this version of fairseq: give --task translation, and data whose "
        "dict.LANG.txt end in the model's language tokens and <mask>",
    ),
    (r"--path required for generation!", "no model: give --path CHECKPOINT"),
    (r"Model file not found: (.+\.pt:.+)", "{0}: no such checkpoint: give one alone, for A.pt:B.pt is for fairseq-generate"),
    (r"Model file not found: (.+)", "{0}: no such checkpoint: check --path"),
    (r"--finetune-from-model (.+) does not exist", "{0}: no such checkpoint: check --finetune-from-model"),
    (
        r"Dataset not found: (\S+) \((.*)\)",
        "{1}: has no {0} data of these languages: check the folder, the set, -s and -t, or make it with fairseq-preprocess",
    ),
    (
        r"Could not infer language pair, please provide it explicitly",
        "the data folder names no pair of languages: give one that veco binarize or fairseq-preprocess made, or -s LANG -t LANG",
    ),
    (
        r"Source and target must contain the same number of examples",
        "the data has more sentences of one language than of the other: make it from texts with equally many lines",
    ),
    (
        r"Optimizer does not match; .* AMPOptimizer vs \S+",
        "the checkpoint was trained with --amp: give it, too, or --reset-optimizer",
    ),
    (
        r"Optimizer does not match; .* vs AMPOptimizer",
        "the checkpoint was trained without --amp: leave it out, or give --reset-optimizer, too",
    ),
    (
        r"(Criterion|Optimizer) does not match; please reset the optimizer \(--reset-optimizer\)\. (\S+) vs (\S+)",
        "the checkpoint was trained with {1}, not {2}: give the same one, or --reset-optimizer",
    ),
    (
        r"loaded state dict (?:contains a parameter group that doesn't match the size|has a different number of parameter groups)",
        "the checkpoint's optimizer has other parameters, such as one fp32 copy of all of them: give --reset-optimizer",
    ),
    (
        r"'NoneType' object has no attribute '(?:xla_device|xrt_world_size)'|No module named 'torch_xla",
        "--bf16 is for TPUs in fairseq: give --autocast bf16 in pre-training and understanding, and --amp elsewhere",
    ),
    (r"(out of memory .* tokens)$", f"{{0}}: lower --max-tokens{AS_NEW}, or add --checkpoint-activations"),
    (
        r"DataLoader worker \(pid\(?s?\)? ([\d, ]+)\) (?:is|was) killed by signal: (\w+|\d+)",
        "the data loader's process {0} was killed ({1}): if memory ran out, lower --num-workers; start the same command "
        "again: a training goes on from its last checkpoint",
    ),
    (
        r"DataLoader worker \(pid\(?s?\)? ([\d, ]+)\) exited unexpectedly",
        "the data loader's process {0} was killed: if memory ran out, lower --num-workers; start the same command again: "
        "a training goes on from its last checkpoint",
    ),
    (r"Cannot use fp16 and AMP together", "--fp16 and --amp: leave out one of the two"),
    (
        r"Cannot combine --fp16 and --tpu",
        "--bf16 and --tpu are for TPUs in fairseq, and --fp16 is not: leave out one of them; in place of --bf16 give --autocast bf16 in "
        "pre-training and understanding, and --amp elsewhere",
    ),
    (
        r"Input features must be a multiple of block sizes",
        "--quant-noise-pq-block-size: does not divide all widths of the model: give one that does, such as 8",
    ),
    (r"Please install the megatron submodule", "--model-parallel-size: fairseq's code for it is not installed: leave it out"),
    (
        r"Torch not compiled with CUDA enabled|Found no NVIDIA driver",
        "an option such as --profile or --quant-noise-scalar is for GPUs, and PyTorch finds none here: leave it out",
    ),
    (
        r"^<class 'fairseq\.modules\.\w+\.\w+PositionalEmbedding'>$",  # the key of a table of modules
        "--quant-noise-scalar: fairseq's quantization does not know the positions here; --quant-noise-pq is for all layers: leave "
        "it out",
    ),
    (
        r"CUDA out of memory",
        f"out of memory: lower --max-tokens or --batch-size, and in training raise --update-freq as much{AS_NEW}",
    ),
    (
        r"gradients are Nan/Inf",
        "the gradients became NaN or infinite: lower --lr or raise --warmup-updates, and go on from a checkpoint before",
    ),
    (
        r"--share-all-embeddings requires a joined dictionary",
        "the two languages' dict.LANG.txt differ, but this model has one for both: make the data with --srcdict and "
        "--tgtdict of the model, or --joined-dictionary",
    ),
    (
        r"world size is (\d+) but have (\d+) available devices",
        "--distributed-world-size {0}: fairseq-train starts workers on GPUs alone, of which there are {1}: give at most as many; "
        "scripts/launch.sh --workers {0} also starts them on the processor, with --cpu",
    ),
    (
        r"Size of sample #(\d+) is invalid \(=(.*)\) since max_positions=(.*), skip this example",
        "sentence {0} of the data, counted from 0, has {1} tokens, but the model takes {2}: shorten it, or give "
        "--skip-invalid-size-inputs-valid-test",
    ),
    (
        r"^(\d+) < \1$",
        "a line's constraints, or its prefix with --match-source-len, do not fit into a translation of at most {0} tokens: shorten "
        "them, or raise --max-len-b or --beam",
    ),
    (
        r"Sentences lengths should not exceed max_tokens=(\d+)",
        "--max-tokens {0}: a sentence has more tokens than that: raise it, or in training --max-tokens-valid",
    ),
    (
        r"The dataset is empty\. This could indicate",
        "no sentence is left to train on: the set is empty, or each has more tokens than --max-tokens or the model takes: raise "
        "--max-tokens, or cut the sentences",
    ),
    (r"(Valid paths .* will be ignored\. .*)", "{0}"),
    (
        r"Please install xFormers",
        "--encoder-xformers-att-config and --decoder-xformers-att-config need the package xformers: leave them out",
    ),
    (
        r"(?s)Unknown post_process option:(.*)",
        "--remove-bpe {0}: fairseq does not know such pieces: give sentencepiece, subword_nmt or another of its kinds",
    ),
    (r"cannot specify cutoff larger than vocab size", "--adaptive-softmax-cutoff: is larger than the vocabulary: lower it"),
    (r"AdaptiveLoss is not compatible with the PyTorch version", "--criterion adaptive_loss: give --ddp-backend legacy_ddp, too"),
    (
        r"has no attribute 'weights_for_band'",
        "--tie-adaptive-weights: needs adaptive embeddings, which no translation model has: leave it out",
    ),
    # for an option such as --scoring wer, --bpe fastbpe, --tokenizer nltk or --zero-sharding os
    (r"^[Pp]lease install .+:\s+(pip install [\w-]+)$", "a package is missing: {0}, or leave out the option that needs it"),
    (r"^[Pp]lease install (.+)", "a package is missing: install {0}, or leave out the option that needs it"),
    # fairseq's own checks of options that do not go together, such as "--sampling-topk requires --sampling"
    # (one of them goes on with all options)
    (r"^(--[a-z][a-z0-9-]+ .*?)(?:: \{.*)?$", "{0}: leave out one of them, or give what is missing"),
)


# Of PyTorch's message, where the driver tells what each process has: GPU, capacity, and what this process has.
CROWDED = re.compile(r"(?s)GPU (\d+) has a total capacity of ([\d.]+ \w+) .*\bthis process has ([\d.]+ \w+) memory in use")
UNITS = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "bytes": 1}


def crowded(error: BaseException) -> str | None:
    """Return the line for an error of a GPU whose memory is full, but less than half of it with what this process has."""
    found = CROWDED.search(f"{error} {error.__cause__ or ''}")
    if not found:
        return None
    gpu, capacity, own = found.groups()
    whole, part = (float(number) * UNITS[unit] for number, unit in map(str.split, (capacity, own)))
    if part >= whole / 2:
        return None
    return (
        f"GPU {gpu} is out of memory, of which other programs have most: this one has {own} of {capacity}: end them, choose another "
        "GPU with CUDA_VISIBLE_DEVICES, or lower --max-tokens or --batch-size"
    )


def mistake(error: BaseException) -> str | None:
    """Return the one line for ``error``, or None if it is no known mistake of the user."""
    message = user_message(error) or crowded(error)
    if message is not None:
        return message
    # the error of a spawned worker (several GPUs) is the text of its traceback, and the last line has the message
    text = re.sub(r"np\.int(?:32|64)\((\d+)\)", r"\1", str(error)).strip()
    if type(error).__name__ == "ProcessRaisedException":
        text = text.rsplit("\n", 1)[-1]
    for pattern, line in MISTAKES:
        if found := re.search(pattern, text):
            return " ".join(line.format(*found.groups()).split())
    return None


def one_line_errors(previous: Callable) -> Callable:
    """Return an excepthook that prints ``fairseq-train: error: ...`` for a user's mistake, and otherwise calls ``previous``.

    The process ends with exit code 1 in both cases, as Python does after an exception. Where the reader of the output went
    away (``| head``), nothing is printed, and the code is 141, as in :func:`veco_fairseq.cli.run`.
    """

    def hook(kind, error, traceback) -> None:
        if isinstance(error, BrokenPipeError) and reader_is_gone():
            sys.exit(141)
        message = mistake(error)
        if isinstance(error, KeyboardInterrupt):  # before the training, or in another command
            print(f"{program_name()}: interrupted", file=sys.stderr, flush=True)
        elif message is None:
            previous(kind, error, traceback)
        else:
            print_error(message)

    return hook
