# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Many directions in one model: trained, validated by direction, and translated with; each from the command line."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from conftest import REPOSITORY, error_line
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks import TASK_REGISTRY, setup_task
from support.directions import MANY, SIZES
from support.here import run_here
from support.training import logged

from veco_fairseq.benchmarks.systems import Search, with_fairseq, with_generate
from veco_fairseq.data.sentencepiece import load_sentencepiece
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines
from veco_fairseq.inference.scoring import read_generate_output
from veco_fairseq.inference.search import set_target
from veco_fairseq.inference.translator import Translator

ALL = ["aa-bb", "bb-aa", "aa-cc", "cc-aa"]
TASK = ("--user-dir", "veco_fairseq", "--task", "veco_multilingual_translation")


@pytest.fixture(scope="module")
def trained(directions, tmp_path_factory):
    """A model of two epochs, and what was logged."""

    folder = tmp_path_factory.mktemp("trained")
    command = ["fairseq-train", directions, *MANY, "--max-tokens", 300, "--max-epoch", 2, "--log-interval", 1, "--eval-bleu",
               "--eval-bleu-args", '{"beam": 2, "max_len_a": 1, "max_len_b": 3}', "--save-dir", folder,
               "--save-interval-updates", 20, "--no-epoch-checkpoints"]  # fmt: skip
    result = run_here([str(part) for part in command], REPOSITORY)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return folder, result


def test_fairseq_generate_is_measured_by_direction(directions, trained):
    """... beside ``veco translate``: the same translations, and others into another language."""
    checkpoint, lines = trained[0] / "checkpoint_last.pt", list(read_lines(directions / "test.aa-bb.aa.txt"))
    pieces, found = load_sentencepiece(directions / "sentencepiece.bpe.model"), {}
    for to in ("bb", "cc"):
        how = {"search": Search(1, 20, beam=3, batch_size=4, to=to), "device": "cpu"}
        found[to], same = (
            system(checkpoint, directions, pieces, lines, **how)["translations"] for system in (with_generate, with_fairseq)
        )
        assert found[to] == same and any(found[to])
    assert found["bb"] != found["cc"]


def test_counting_operations_says_nothing_of_validation(trained, run):
    """It had warned that the BLEU of validation is of pieces, as translating had."""
    counted = run("scripts/count_operations.py", trained[0] / "checkpoint_best.pt", "--sample-updates", "1")
    assert counted.stderr == "" and counted.stdout.endswith(" operations\n")


def test_validation_tells_every_direction_and_all_together(directions, trained, run):
    folder, result = trained
    # the roots of 90 and 25 are as 1.8974 : 1; twice each of 230 in all
    assert "an epoch has aa-bb 75 of 90, bb-aa 75 of 90, aa-cc 40 of 25, cc-aa 40 of 25" in result.stdout
    found = logged(result, "valid")[-1]
    together = {}
    for name in ALL:  # each as fairseq has it for a set of one direction
        alone = run("fairseq-validate", directions, *TASK, "-s", name[:2], "-t", name[3:], "--path",
                    folder / "checkpoint_last.pt", "--max-tokens", 300, "--cpu", "--log-format", "json")  # fmt: skip
        assert alone.returncode == 0, alone.stderr[-2000:]
        (line,) = re.findall(r"\| valid \| (\{.*\})", alone.stderr + alone.stdout)
        line = json.loads(line)
        for metric in ("loss", "ppl", "bleu"):
            assert line[f"valid_{metric}"] == found[f"valid_{name}_{metric}"], (name, metric)
            assert float(line[f"valid_{metric}"]) > 0
        together[float(line["valid_loss"])] = float(line["valid_wpb"])  # the set is one batch
    mean = sum(loss * tokens for loss, tokens in together.items()) / sum(together.values())
    assert abs(mean - float(found["valid_loss"])) < 0.002
    assert {key for key in found if "-" in key} == {f"valid_{name}_{key}" for name in ALL for key in ("loss", "ppl", "bleu")}
    assert not [key for line in logged(result, "train_inner") for key in line if "-" in key]


@pytest.mark.parametrize("source, target, pair", [("bb", "aa", "aa-bb"), ("bb", "cc", "bb-cc")])
def test_translate_gives_what_fairseq_generate_does(directions, trained, run, tmp_path, source, target, pair):
    """... and what fairseq-interactive does, also of a direction without training; the token is the target's."""
    checkpoint = trained[0] / "checkpoint_last.pt"
    limits = ("--max-len-a", "0", "--max-len-b", "9", "--cpu")
    generated = run("fairseq-generate", directions, *TASK, "-s", source, "-t", target, "--path", checkpoint,
                    "--remove-bpe", "sentencepiece", *limits)  # fmt: skip
    assert generated.returncode == 0, generated.stderr[-2000:]
    assert re.search(r"\([\d.]+ sentences/s", generated.stderr)  # where evidence/evaluate.sh has it from
    (tmp_path / "generated").write_text(generated.stdout)
    text = directions / f"test.{pair}.{source}.txt"
    with open(text, "rb") as lines:
        translated = run("scripts/translate.py", checkpoint, "--to", target, *limits, stdin=lines)
    assert translated.stderr == "" and translated.stdout.splitlines() == read_generate_output(tmp_path / "generated")
    assert len(translated.stdout.splitlines()) == SIZES["test"][pair]
    sources = [line.split("\t")[1] for line in generated.stdout.splitlines() if line.startswith("S-")]
    assert len(sources) == SIZES["test"][pair] and all(line.startswith(f"<2{target}>") for line in sources)
    pieces = tmp_path / "pieces"
    run("scripts/encode.py", "--sentencepiece", directions / "sentencepiece.bpe.model", "--inputs", text, "--outputs", pieces)
    with open(pieces, "rb") as lines:
        answered = run("fairseq-interactive", directions, *TASK, "-s", source, "-t", target, "--path", checkpoint, *limits,
                       "--remove-bpe", "sentencepiece", stdin=lines)  # fmt: skip
    assert re.findall(r"^D-\d+\t\S+\t(.*)$", answered.stdout, re.MULTILINE) == translated.stdout.splitlines()


def test_the_token_tells_the_target(trained):
    translators = {to: Translator([trained[0] / "checkpoint_last.pt"], to=to, cpu=True) for to in ("bb", "cc")}
    for to, translator in translators.items():
        assert translator.max_pieces == 510  # of 512 positions, beside the token and </s>
        ids = torch.tensor([7, 9, 2])
        (source,) = (item["source"] for item in translator.task.build_dataset_for_inference([ids], [3]))
        assert [translator.task.source_dictionary[number] for number in source[:1]] == [f"<2{to}>"]
        assert source[1:].tolist() == [7, 9, 2]


@pytest.mark.parametrize("targets, to, chosen", [(["cc"], None, ["cc"]), (["bb", "cc"], "bb", ["bb"]), (["cc"], "bb", ["bb"])])
def test_the_only_language_needs_no_choice(targets, to, chosen):
    given = []
    set_target(SimpleNamespace(targets=targets, choose_target=given.append), "m.pt", to)
    assert given == chosen


def test_a_task_with_a_search_of_its_own_is_refused():
    """As mBART's, which has a token after </s> and takes neither sampling nor constraints; not one that a --user-dir makes."""
    tasks = TASK_REGISTRY["translation_from_pretrained_bart"], TASK_REGISTRY["translation_multi_simple_epoch"]
    for task in tasks:
        with pytest.raises(UserError, match=r"^m\.pt: is of --task translation_(from_pretrained_bart|multi_simple_epoch), whose"):
            set_target(object.__new__(task), "m.pt", None)
    own = type("Own", (TASK_REGISTRY["translation"],), {"build_generator": lambda task: None})
    for task in (own, TASK_REGISTRY["translation"], TASK_REGISTRY["translation_from_pretrained_xlm"]):
        set_target(object.__new__(task), "m.pt", None)


def test_a_model_that_has_moved_needs_no_training_data(directions, trained, tmp_path):
    for path in (*directions.glob("dict.*.txt"), directions / "sentencepiece.bpe.model"):
        shutil.copyfile(path, tmp_path / path.name)
    moved, stayed = (
        Translator([trained[0] / "checkpoint_last.pt"], to="cc", cpu=True, data=data) for data in (tmp_path, directions)
    )
    text = list(read_lines(directions / "test.aa-bb.aa.txt"))[:3]
    assert moved.translate(text) == stayed.translate(text)


def test_mistakes_in_translating_are_one_line(directions, trained, run, tmp_path):
    checkpoint = trained[0] / "checkpoint_last.pt"
    translate = ("scripts/translate.py", checkpoint, "--cpu")
    assert error_line(run(*translate)).endswith("checkpoint_last.pt: translates into aa, bb, cc: choose one with --to")
    assert "dd: the model does not translate into it, but into aa, bb, cc: choose one" in error_line(
        run(*translate, "--to", "dd")
    )
    generate = ("fairseq-generate", directions, "--user-dir", "veco_fairseq", "--path", checkpoint, "--cpu")
    assert "is one of many directions: add --task veco_multilingual_translation" in run(*generate, "-s", "aa", "-t", "bb").stderr
    one = run("fairseq-train", directions, *MANY, "--task", "translation", "-s", "aa", "-t", "bb", "--max-tokens", 300,
              "--max-update", 1, "--save-dir", tmp_path)  # fmt: skip
    assert one.returncode == 0, one.stderr
    single = tmp_path / "checkpoint_last.pt"
    refused = run(*generate, *TASK[2:], "-s", "aa", "-t", "bb", "--path", single)
    assert "the checkpoint is of one direction: give --task translation instead" in refused.stderr
    message = error_line(run("scripts/translate.py", single, "--cpu", "--to", "bb"))
    assert "--to bb: " in message and "translates in one direction alone: take --to away" in message


def test_mistakes_in_training_are_one_line(directions, run, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(directions, data)

    def refused(*options):
        result = run(
            "fairseq-train", data, *MANY, "--max-tokens", 300, "--max-update", 1, "--save-dir", tmp_path / "save", *options
        )
        assert result.returncode == 1 and result.stderr.count("\n") == 1, result.stderr
        return result.stderr

    assert "has no train data of bb-cc: check --lang-pairs" in refused("--lang-pairs", "aa-bb,bb-cc")
    assert "--lang-pairs aa: 'aa' is no direction" in refused("--lang-pairs", "aa")
    assert "name the directions to train twice: take -s and -t away" in refused("--lang-pairs", "aa-bb", "-s", "bb", "-t", "aa")
    assert "--load-alignments: does not work with many directions" in refused("--load-alignments")
    assert "--truncate-source: does not work with language tokens" in refused("--truncate-source")
    assert "--alpha" in refused("--alpha", "nan")
    assert "has no dict.dd.txt beside those of aa, bb, cc: check the folder, --lang-pairs" in refused("--lang-pairs", "aa-dd")
    text = (data / "dict.cc.txt").read_text()
    (data / "dict.cc.txt").write_text(text.replace("<2cc> 1\n", ""))
    assert "dict.cc.txt: is another dictionary than" in refused()
    for lang in ("aa", "bb", "cc"):
        (data / f"dict.{lang}.txt").write_text(text.replace("<2cc> 1\n", ""))
    assert "has no token <2cc>: add the line '<2cc> 1' at its end, in every dict.LANG.txt" in refused()
    assert "has no token <2cc>" in refused("--lang-pairs", "aa-cc")  # the target's is needed, and not the source's
    for file in data.glob("train.*"):
        file.unlink()
    assert "has no train data of any pair of languages" in refused()


def test_a_language_that_is_only_read_is_no_target(directions, trained, run, tmp_path):
    state = torch.load(trained[0] / "checkpoint_last.pt", weights_only=False)
    state["task_state"]["lang_pairs"], state["cfg"]["task"]["lang_pairs"] = ["aa-bb", "cc-bb"], "aa-bb,cc-bb"
    torch.save(state, tmp_path / "one-way.pt")
    refused = error_line(run("scripts/translate.py", tmp_path / "one-way.pt", "--cpu", "--to", "cc"))
    assert "cc: the model does not translate into it, but into bb: choose one" in refused


def test_each_epoch_reads_the_next_part_of_the_data(directions, run, tmp_path):
    """The first part comes first; the others need no data that is validated on."""
    data = [tmp_path / "first", tmp_path / "second"]
    for folder, pairs in zip(data, (ALL, ALL[:2])):
        shutil.copytree(directions, folder)
        for file in folder.glob("train.aa-cc.*" if len(pairs) == 2 else "nothing"):
            file.unlink()
    lacking = run("fairseq-train", ":".join(map(str, data)), *MANY, "--max-tokens", 300, "--max-epoch", 2, "--log-interval", 1,
                  "--save-dir", tmp_path / "save")  # fmt: skip
    assert f"{data[1]}: has no train data of aa-cc" in error_line(lacking)
    assert lacking.stdout.count("| valid | {") == 1


@pytest.mark.parametrize("change", [("--alpha", "1"), ("--lang-pairs", "aa-bb,bb-aa"), ("--max-tokens", "200")])
def test_an_epoch_cannot_go_on_with_other_batches(directions, trained, run, tmp_path, change):
    shutil.copyfile(trained[0] / "checkpoint_1_20.pt", tmp_path / "checkpoint_last.pt")
    result = run("fairseq-train", directions, *MANY, "--max-tokens", 300, "--save-dir", tmp_path, *change)
    assert "the checkpoint is in the middle of epoch 1, whose other batches cannot be the same any more: " in error_line(result)
    if change[0] != "--max-tokens":
        assert f"{change[0]} was " in result.stderr and f" and is {change[1]}" in result.stderr


def test_what_is_validated_may_lack_a_direction(directions, run, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(directions, data)
    for file in data.glob("valid.aa-cc.*"):
        file.unlink()
    result = run("fairseq-train", data, *MANY, "--max-tokens", 300, "--max-update", 1, "--save-dir", tmp_path / "save")
    assert "has no valid data of aa-cc, cc-aa" in result.stdout
    assert {key for key in logged(result, "valid")[-1] if "-" in key} == {
        f"valid_{name}_{key}" for name in ("aa-bb", "bb-aa") for key in ("loss", "ppl")
    }


def test_what_a_set_is_made_with(directions, tmp_path):
    """To train: the seed, --alpha and the epoch's part of the data; to validate: all of the first part, as it is."""
    second = tmp_path / "second"
    shutil.copytree(directions, second)
    for lang in ("aa", "bb"):
        shutil.copyfile(second / f"valid.aa-bb.{lang}.bin", second / f"train.aa-bb.{lang}.bin")
        shutil.copyfile(second / f"valid.aa-bb.{lang}.idx", second / f"train.aa-bb.{lang}.idx")
    for file in second.glob("valid.*"):
        file.unlink()
    words = [f"{directions}:{second}", *MANY, "--max-tokens", "300", "--seed", "7", "--alpha", "0", "--lang-pairs", "aa-bb,aa-cc"]
    words[words.index("--user-dir") + 1] = str(REPOSITORY / "veco_fairseq")
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    task = setup_task(cfg.task)
    pairs = []
    for split, epoch in (("train", 1), ("train", 2), ("train", 3), ("valid", 2)):
        task.load_dataset(split, epoch=epoch)
        pairs.append(list(task.dataset(split).pairs_of))
    assert pairs == [[90, 25], [20, 25], [90, 25], [20, 11]]
    assert task.dataset("train").seed == 7
    assert list(task.dataset("train").draws) == [58, 57] and task.dataset("valid").draws is None  # of 115


@pytest.mark.slow
def test_two_workers_validate_as_one(directions, launch, run, tmp_path):
    """... also when one of them has a batch less: 5 batches of at most 18 pairs, of three directions."""
    result = launch(directions, *MANY, "--lang-pairs", ",".join(ALL[:3]), "--batch-size", 18, "--max-update", 2, "--save-dir", tmp_path, "--eval-bleu",
                    "--eval-bleu-args", '{"beam": 2, "max_len_a": 1, "max_len_b": 3}', "--ddp-backend", "legacy_ddp")  # fmt: skip
    found = logged(result, "valid")[-1]
    alone = run("fairseq-validate", directions, *TASK, "--path", tmp_path / "checkpoint_last.pt", "--batch-size", 18, "--cpu",
                "--log-format", "json")  # fmt: skip
    (line,) = re.findall(r"\| valid \| (\{.*\})", alone.stderr + alone.stdout)
    line = json.loads(line)
    keys = [key for key in line if re.search("_(loss|ppl|bleu)$", key)]
    assert len(keys) == 3 * 3 + 4 and all(found[key] == line[key] for key in keys)
