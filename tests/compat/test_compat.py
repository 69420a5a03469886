# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What the plug-in changes in fairseq: run as commands, on a small stock translation model."""

import argparse
import sys
import warnings

import fairseq_cli.generate
import fairseq_cli.train
import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary, LanguagePairDataset, ListDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from support.stock import EVAL_BLEU, after_the_import, error_line, run, train, trained  # noqa: F401  fixtures

from veco_fairseq.compat import command_line, mistakes, noise
from veco_fairseq.errors import UserError


def test_training_is_quiet(trained, tmp_path):
    result = train(trained, "--max-update", "3", *EVAL_BLEU, save_dir=tmp_path, env={})  # all that a process of its own prints
    assert (result.returncode, after_the_import(result.stderr)) == (0, "")


def test_warnings_of_the_users_own_code_are_left_alone():
    kept = ("pin_memory is slow", "version_base", "torch.cuda.amp.autocast(args...) is deprecated")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        noise.quiet_known_warnings()
        for message in kept:
            warnings.warn(message)
        # fairseq's very own, but laid at this file
        warnings.warn("`torch.cuda.amp.autocast(args...)` is deprecated.", FutureWarning)
        warnings.warn("hydra.experimental.compose() is no longer experimental. Use hydra.compose()")
    assert [str(warning.message) for warning in caught] == [*kept, "`torch.cuda.amp.autocast(args...)` is deprecated."]


@pytest.mark.parametrize(
    "words, line",
    [
        (
            "--sampling-topk requires --sampling",
            "--sampling-topk requires --sampling: leave out one of them, or give what is missing",
        ),
        ("Unknown post_process option: -1", "--remove-bpe -1: fairseq does not know such pieces"),
        ("Unknown post_process option: ", "--remove-bpe : fairseq does not know such pieces"),
        ("\n\n  Please install xFormers.", "--encoder-xformers-att-config and --decoder-xformers-att-config need"),
        ("cannot specify cutoff larger than vocab size", "--adaptive-softmax-cutoff: is larger than the vocabulary"),
    ],
)
def test_fairseqs_words_for_options(words, line):
    assert mistakes.mistake(AssertionError(words)).startswith(line)


# Mistakes that fairseq itself notices, made for real, but without a process of their own, which takes seconds.

BATCH = ("--max-tokens", "300")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["none", *BATCH], "none: no such file or folder: check the path"),
        (["none", "-s", "de", "-t", "en", *BATCH], "none/dict.de.txt: no such file or folder: check the path"),
        (
            ["data", "-s", "de", "-t", "fr", *BATCH],
            "data: has no dict.fr.txt beside those of de, en: check the folder, -s and -t, or make it with fairseq-preprocess",
        ),
        (
            [".", *BATCH],
            "the data folder names no pair of languages: give one that veco binarize or fairseq-preprocess made, or -s LANG -t LANG",
        ),
        (
            ["data", "--valid-subset", "dev", *BATCH],
            "data: has no dev data of these languages: check the folder, the set, -s and -t, or make it with fairseq-preprocess",
        ),
        (["data", "--finetune-from-model", "none.pt", *BATCH], "none.pt: no such checkpoint: check --finetune-from-model"),
        (["data"], "no batch size: give --max-tokens N"),
    ],
)
def test_mistakes_of_training(trained, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(trained)
    options_too = ["--cpu", "--arch", "transformer_tiny", "--optimizer", "adam", "--save-dir", str(tmp_path / "ckpt")]
    args = options.parse_args_and_arch(options.get_training_parser(), [*arguments, *options_too])
    with pytest.raises(Exception) as caught:
        fairseq_cli.train.main(convert_namespace_to_omegaconf(args))
    assert mistakes.mistake(caught.value) == words


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["data", "--path", "none.pt"], "none.pt: no such checkpoint: check --path"),
        (["data"], "no model: give --path CHECKPOINT"),
    ],
)
def test_mistakes_of_generating(trained, monkeypatch, arguments, words):
    monkeypatch.chdir(trained)
    args = options.parse_args_and_arch(options.get_generation_parser(), [*arguments, "--cpu"])
    with pytest.raises(Exception) as caught:
        fairseq_cli.generate.main(convert_namespace_to_omegaconf(args))
    assert mistakes.mistake(caught.value) == words


@pytest.mark.filterwarnings("ignore:data_utils.filter_by_size is deprecated")
def test_a_line_that_is_too_long_for_the_model(trained, tmp_path):
    (tmp_path / "a.txt").write_text("w1 w2\n" + "w3 w4 " * 600 + "\n")
    options = (
        "data",
        "--path",
        "ckpt/checkpoint_last.pt",
        "-s",
        "de",
        "-t",
        "en",
        "--buffer-size",
        "9",
        "--input",
        tmp_path / "a.txt",
    )
    words = error_line(run("fairseq-interactive", *options, cwd=trained), "fairseq-interactive")
    assert words.startswith(
        f"{tmp_path}/a.txt: the line that begins with 'w3 w4 w3 w4 w3 w4 w3 w4 w3 w4 ' has more than the 1024 tokens"
    )
    with pytest.raises(Exception) as caught:
        data_utils.filter_by_size(np.array([0, 1]), ListDataset([torch.ones(2), torch.ones(9)], np.array([2, 9])), 8, True)
    assert mistakes.mistake(caught.value).startswith(
        "sentence 1 of the data, counted from 0, has 9 tokens, but the model takes 8: "
    )


OF_ITS_OWN = "convert the file from its own encoding, for example with iconv -f ISO-8859-1 -t UTF-8"


def test_mistakes_in_a_dictionary(tmp_path):
    path = tmp_path / "dict.txt"
    for content, words in (
        (b"a 1\na 1\n", f"{path}, line 2: 'a' is there twice; remove one"),
        (b"a 1\nb\n", f"{path}, line 2: expected '<token> <count>', found 'b': mend the line, or give fairseq's dict.txt"),
        (b"\xfc 1\n", f"{path}, line 1: not UTF-8 (byte 0xfc at 1): {OF_ITS_OWN}"),
    ):
        path.write_bytes(content)
        with pytest.raises(Exception) as caught:
            Dictionary.load(str(path))
        assert mistakes.mistake(caught.value) == words


def test_mistakes_in_the_number_of_sentences():
    words = Dictionary()
    with pytest.raises(AssertionError) as caught:
        LanguagePairDataset([torch.ones(1)] * 2, [1, 1], words, [torch.ones(1)], [1], words)
    assert "more sentences of one language than of the other" in mistakes.mistake(caught.value)


def test_bugs_keep_their_traceback(capsys):
    seen = []
    hook = mistakes.one_line_errors(lambda *arguments: seen.append(arguments))
    for bug in (KeyError("key"), AssertionError(), RuntimeError("Error in the model"), OSError("no file named")):
        hook(type(bug), bug, None)
    assert [type(error) for _, error, _ in seen] == [KeyError, AssertionError, RuntimeError, OSError]
    assert capsys.readouterr().err == ""


def test_hook_prints_the_program_and_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/some/where/fairseq-train", "--all"])
    hook = mistakes.one_line_errors(pytest.fail)
    try:
        try:
            raise UserError("data/x:\n is bad")
        except UserError:
            raise Exception("Cannot load model parameters from checkpoint a.pt; please ensure ...")
    except Exception as error:
        hook(type(error), error, None)
    assert capsys.readouterr().err == "fairseq-train: error: data/x: is bad\n"


@pytest.mark.parametrize("change, words", [
    ({"seed": 2}, "--seed was 1 and is 2"), ({"num_shards": 2}, "number of workers was 1 and is 2"),
    ({"sizes": [3, 4, 5, 7]}, "checksum"), ({"batches": [[0, 2], [1, 3]]}, "checksum"), ({"batches": [[1, 0], [2, 3]]}, "checksum"),
    ({"batches": [[0], [1], [2, 3]]}, "number of batches was 2 and is 3"),
])  # fmt: skip
def test_other_batches_of_translation_are_refused_in_the_middle_of_an_epoch(change, words):
    """Of data that grew, another seed, and what --max-tokens or another order make of them."""

    class Sentences(torch.utils.data.Dataset):
        sizes = np.array([3, 4, 5, 6])

        def __len__(self):
            return 4

        def __getitem__(self, index):
            return index

    def epochs(seed=1, num_shards=1, sizes=None, batches=((0, 1), (2, 3))):
        data = Sentences()
        data.sizes = np.array(sizes or data.sizes)
        return EpochBatchIterator(data, list, [list(batch) for batch in batches], seed=seed, num_shards=num_shards)

    begun = epochs()
    next(begun.next_epoch_itr(shuffle=False))
    epochs().load_state_dict(begun.state_dict())
    with pytest.raises(UserError, match=words):
        epochs(**change).load_state_dict(begun.state_dict())


@pytest.mark.parametrize("count", [0, 3, 8, 13])
def test_the_last_batch_is_not_left_out(count):
    sizes = np.full(count, 5)
    for limits in ({"required_batch_size_multiple": 8}, {"max_sentences": 4}, {"max_tokens": 20}):
        batches = data_utils.batch_by_size(range(count), lambda i: 5, num_tokens_vec=sizes, **limits)
        assert [i for batch in batches for i in batch] == list(range(count))
        assert all(len(batch) * 5 <= limits.get("max_tokens", 1000) for batch in batches)


def test_known_arguments_are_checked_where_others_are_left(monkeypatch):
    """fairseq-train parses twice; the first time it gives what it does not know, too."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--beam", type=int, default=5)
    for value in (5, 0):
        found = argparse.Namespace(beam=value), ["--other"]
        monkeypatch.setattr(command_line, "_fairseq_parse_args_and_arch", lambda *_, **__: found)
        if value:
            assert command_line.parse_args_and_arch(parser) is found
        else:
            with pytest.raises(UserError, match="--beam 0: must be at least 1"):
                command_line.parse_args_and_arch(parser)
