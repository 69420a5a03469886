# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The recipes of published translation tasks: from a pre-trained model and raw text to BLEU, at the smallest size."""

import gzip
import json
import random
import re
import shutil

import pytest
from conftest import save_with_vocabulary
from support.sourced import sourced
from support.starting import recipe

from veco_fairseq.checkpoints.reading import read_checkpoint
from veco_fairseq.data.tokens import load_tokens
from veco_fairseq.data.vocabulary import read_dictionary

RECIPES = {"wmt14.en-de": ("en", "de"), "wmt14.en-fr": ("en", "fr"), "iwslt14.de-en": ("de", "en")}
SENTENCES = {"train": 120, "valid": 12, "test": 13}


def text(lang, split):
    """Lines of made-up words, which are another language's with an ending."""
    rng = random.Random(split)
    ending = {"en": "", "de": "en", "fr": "e"}[lang]
    words = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnr"]
    return [" ".join(rng.choice(words) + ending for _ in range(rng.randint(2, 6))) for _ in range(SENTENCES[split])]


@pytest.fixture
def local(tmp_path):
    """Raw text of three languages, some of it compressed."""
    folder = tmp_path / "local texts"
    folder.mkdir()
    for split in SENTENCES:
        for lang in ("en", "de", "fr"):
            content = "".join(f"{line}\n" for line in text(lang, split)).encode()
            if split == "train":
                (folder / f"{split}.{lang}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / f"{split}.{lang}").write_bytes(content)
    return folder


@pytest.fixture
def pretrained(tmp_path, make_model):
    lines = [line for lang in ("en", "de", "fr") for line in text(lang, "train")]
    return save_with_vocabulary(tmp_path / "pretrained", make_model, lines, 90)


SHORT = ("--updates", 4, "--warmup", 1, "--save-every", 2, "--batch-tokens", 300, "--max-tokens", 200)


@pytest.mark.parametrize("name", RECIPES)
def test_from_a_local_corpus_to_bleu(name, tmp_path, local, pretrained):
    src, tgt = RECIPES[name]
    out = tmp_path / "out"
    trimmed = name == "wmt14.en-fr"
    prepare = ("--out", out, "--pretrained", pretrained, "--local", local, *(("--keep", 60) if trimmed else ()))
    told = recipe(f"{name}/prepare", *prepare)
    assert "already there" not in told and "download" not in told
    started_again = name == "iwslt14.de-en"  # of one of them it is enough
    if started_again:
        assert recipe(f"{name}/prepare", *prepare).count("already there") == 8
    words = len(read_dictionary(out / f"mt.{src}-{tgt}" / f"dict.{tgt}.txt"))
    assert words == (60 + 4 if trimmed else 90 + 1)  # <s>, <pad>, </s>, <unk>; of the 90 three are among these
    assert (out / "raw" / f"train.{tgt}").read_text().splitlines() == text(tgt, "train")

    if name != "iwslt14.de-en":
        report = json.loads((out / "clean/train.json").read_text())
        assert report["kept"] == len(load_tokens(out / f"mt.{src}-{tgt}/train.{src}-{tgt}.{tgt}")) > 80
        assert (report["options"]["max_ratio"], report["options"]["punctuation"]) == (1.5 if trimmed else 250, "perl")
    depth = {"wmt14.en-de": ("--decoder-layers", "all", "--tie-self-attention", "yes"),
             "wmt14.en-fr": ("--decoder-layers", 2)}.get(name, ())  # fmt: skip
    finetune = ("--out", out, "--pretrained", pretrained, *SHORT, *depth, "--", "--cpu")
    recipe(f"{name}/finetune", *finetune)
    folder = out / "checkpoints/finetune.veco.s1"
    config = read_checkpoint(folder / "checkpoint_last.pt")["cfg"]
    assert (config["dataset"]["max_tokens"], config["optimization"]["update_freq"]) == (150, [2])
    assert config["model"].decoder_layers == (2 if trimmed else 3)
    assert getattr(config["model"], "tie_self_attention", None) == ("0,1,2" if name == "wmt14.en-de" else None)
    if started_again:
        assert "already there" in recipe(f"{name}/finetune", *finetune)

    evaluate = ("--out", out, "--average", 2, "--", "--cpu")
    scores = recipe(f"{name}/evaluate", *evaluate)
    assert "nrefs:1|case:mixed" in scores and "lower-cased, compounds not split" in scores
    assert set(json.loads((out / "scores/finetune.veco.s1.json").read_text())) >= {"sacrebleu"}
    if started_again:
        assert recipe(f"{name}/evaluate", *evaluate).count("already there") == 2


def test_a_text_that_changed_is_binarised_anew(tmp_path):
    """... whether it is raw or cleaned; a step that was not run again in this run notices it, too."""
    made = "make() { mkdir -p $OUT/clean; for lang in en de; do echo $1 >$OUT/clean/train.$lang; done; touch $OUT/clean/train.json; }"
    script = f"{made}; on_all_processors() {{ mkdir -p ${{@: -1}}; }}; step clean $OUT/clean/train.json make TEXT; REMAKE=; \
        CLEANED[train]=clean; prepare_translation train"
    assert sourced(tmp_path, script.replace("TEXT", "one")).stdout.count("already there") == 0
    assert sourced(tmp_path, script.replace("TEXT", "one")).stdout.count("already there") == 2
    (tmp_path / "clean/train.de").write_text("two\n")
    told = sourced(tmp_path, script.replace("TEXT", "one")).stdout
    assert "[clean] already there" in told and "[binarise] done" in told


def test_the_source_of_a_test_set_gets_apostrophes(tmp_path):
    """... and its reference stays as it is, with which scores are compared."""
    made = 'said() { echo "$1 l’un ’ l\'autre $2"; }'
    told = sourced(tmp_path, f"{made}; to_translate en said x; to_translate de said x; apostrophes de said y").stdout
    assert told == "en l'un ' l'autre x\nde l’un ’ l'autre x\nde l'un ' l'autre y\n"


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 16, 32])
@pytest.mark.parametrize("tokens", [65536, 262144])
def test_the_batch_of_all_workers_is_the_same(workers, tokens, tmp_path):
    script = f"batch {tokens} {workers} 4096; echo $MAX_TOKENS $UPDATE_FREQ"
    size, frequency = map(int, sourced(tmp_path, script).stdout.split())
    assert 2048 <= size <= 4096 and tokens - workers * frequency < size * frequency * workers <= tokens


def test_every_worker_has_a_token(tmp_path):
    assert sourced(tmp_path, "batch 8 8 4096; echo $MAX_TOKENS $UPDATE_FREQ").stdout == "1 1\n"
    result = sourced(tmp_path, "batch 7 8 4096")
    assert result.returncode == 1 and result.stderr.endswith("error: --batch-tokens 7: leaves no token for one of 8 workers\n")


@pytest.mark.parametrize("extra, expected", [
    ("", "--fp16 4"), ("--amp", " 4"), ("--cpu", " 1"), ("--cpu --amp", " 1"), ("--lr 1", "--fp16 4"),
])  # fmt: skip
def test_device(tmp_path, extra, expected):
    script = f"python() {{ echo 4; }}; PROGRAM=any; parse_options workers=0 -- -- {extra}; choose_device"
    assert sourced(tmp_path, f'{script}; echo "${{DEVICE[*]}} $WORKERS"').stdout == f"{expected}\n"


def test_bad_input(tmp_path, local, pretrained):
    options = ("--out", tmp_path / "out")
    prepare = lambda *more: recipe("wmt14.en-de/prepare", *options, *more, code=1)  # noqa: E731
    assert "--pretrained is needed" in prepare()
    assert "none.pt: is not there" in prepare("--pretrained", tmp_path / "none.pt")
    given = ("--pretrained", pretrained, "--local")
    assert "train.en[.gz]: is not there" in prepare(*given, tmp_path)
    (local / "valid.de").write_text("eins\n")
    assert "valid: 12 lines of en and 1 of de" in prepare(*given, local)
    (local / "valid.de").write_text("x\n" * 12 + "without its end")
    assert "valid: 12 lines of en and 13 of de" in prepare(*given, local)
    (local / "valid.en").write_text("")
    assert "valid.en: is empty" in prepare(*given, local)
    zero = ("--batch-tokens", 0, "--pretrained", pretrained)
    assert "error: --batch-tokens 0: must be 1 or more\n" in recipe("wmt14.en-de/finetune", *zero, code=1)
    finetune = recipe("wmt14.en-de/finetune", *options, "--pretrained", pretrained, "--", "--cpu", code=1)
    assert finetune.count("\n") == 1 and "mt.en-de: is not there: run prepare.sh first" in finetune
    assert "run finetune.sh first" in recipe("wmt14.en-de/evaluate", *options, code=1)


def test_other_machines_wait_for_the_first_ones_conversion(tmp_path):
    """... for one by the same command from the same files, and not for ever."""
    made, source = tmp_path / "made", tmp_path / "source"
    source.write_text("one")
    call = f"conversion {made} cp {source} {made}"
    assert sourced(tmp_path, f"step {call}").returncode == 0
    result = sourced(tmp_path, f"await {call}")
    assert result.returncode == 0 and "waits for the first machine" in result.stdout
    source.write_text("two")
    stale = sourced(tmp_path, f"AWAIT_SECONDS=1; await {call}")
    assert stale.returncode == 1 and "the first machine has not made" in stale.stderr


STAND_INS = """
python() { for word; do [[ $word != */*.pt ]] || echo '{}' | tee "$word" >"$word.json"; done; echo; }
bash() { [[ $1 == */launch.sh ]] || return 0; echo "$VECO_NODE_RANK $VECO_MASTER" >>"$OUT/log"; touch "$folder/checkpoint_1_1.pt"; [[ -e $OUT/ok ]]; }
fairseq-generate() { :; }
choose_device() { WORKERS=1 DEVICE=(); }
"""


def test_a_training_goes_on_on_other_machines(tmp_path):
    """Each job of a cluster has other ones; where it is done, none of them starts."""
    (tmp_path / "mt.en-de").mkdir()
    (tmp_path / "model").touch()

    def finetune(rank, master):
        options = "updates=4 warmup=1 lr=1 batch-tokens=8 save-every=2 decoder-layers=2 tie-self-attention=no"
        given = f"--out {tmp_path} --pretrained {tmp_path}/model --nodes 2 --node-rank {rank} --master {master}"
        return sourced(tmp_path, f"{STAND_INS} finetune_options {options} -- {given}; finetune_task")

    assert "fine-tuning, veco failed" in finetune(0, "first:1").stderr
    (tmp_path / "ok").touch()
    for rank in (1, 0):
        result = finetune(rank, "second:2")
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "log").read_text() == "0 first:1\n1 second:2\n0 second:2\n"
    for rank in (1, 0):
        assert "[fine-tuning, veco] already there" in finetune(rank, "third:3").stdout
    assert (tmp_path / "log").read_text().count("\n") == 3


@pytest.mark.parametrize("left, average, told, taken", [
    (["1_10", "1_20", "2_30"], 2, "", "--num-update-checkpoints 2"),
    (["1_10", "last"], 1, "", "--num-update-checkpoints 1"),
    (["1_10", "1_20", "last"], 10, "of 2 checkpoints, not 10: finetune.sh has left no more", "--num-update-checkpoints 2"),
    (["best", "last"], 10, "of no checkpoints: finetune.sh has left only checkpoint_last.pt", "s1/checkpoint_last.pt"),
    (["best"], 10, "of no checkpoints: finetune.sh has left only checkpoint_best.pt", "s1/checkpoint_best.pt"),
    (["1_10", "last"], 0, "", "s1/checkpoint_last.pt"),
])  # fmt: skip
def test_a_short_training_is_evaluated(tmp_path, left, average, told, taken):
    """... by the checkpoints that it has left, and it is said which."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/test.de").touch()
    folder = tmp_path / "checkpoints/finetune.veco.s1"
    folder.mkdir(parents=True)
    for name in left:
        (folder / f"checkpoint_{name}.pt").touch()
    stand_ins = f"""{STAND_INS}
        python() {{ echo "$*" >>{tmp_path}/log; touch "${{@: -1}}"; }}; fairseq-generate() {{ echo "$*" >>{tmp_path}/log; }}"""
    script = f"{stand_ins}\n evaluate_options average={average} -- --out {tmp_path}; evaluate_task"
    result = sourced(tmp_path, script)
    assert result.returncode == 0, result.stderr
    assert taken in (tmp_path / "log").read_text()
    assert told in result.stdout and ("finetune.sh has left" in result.stdout) == bool(told)
    if told:  # what it advises are options of finetune.sh
        advised = re.findall(r"--[a-z-]+", re.search(r"finetune.sh has left .*", result.stdout)[0])
        for name in (*RECIPES, "toy", "multi30k"):
            assert advised and set(advised) <= set(re.findall(r"--[a-z-]+", recipe(f"{name}/finetune", "--help"))), name


def test_a_folder_without_checkpoints_is_one_line(tmp_path):
    (tmp_path / "checkpoints/finetune.veco.s1").mkdir(parents=True)
    result = sourced(tmp_path, f"evaluate_options average=10 -- --out {tmp_path}; evaluate_task")
    assert result.returncode == 1 and "checkpoint_best.pt: is not there: run finetune.sh first\n" in result.stderr


def test_try_needs_nothing(tmp_path):
    """A made-up text, a tiny model of it, a few updates, BLEU."""
    given = ("--try", "--out", tmp_path / "out")
    (tmp_path / "fairseq-train").write_text(
        '#!/usr/bin/env bash\nPATH=${PATH#*:} exec fairseq-train "$@" --max-update 4\n'
    )  # of 40
    (tmp_path / "fairseq-train").chmod(0o755)
    told = recipe("wmt14.en-de/prepare", *given, path=[tmp_path])
    assert "[text] generated instead of downloaded" in told and "[download" not in told
    lines = [len((tmp_path / f"out/raw/{split}.de").read_text().splitlines()) for split in ("train", "valid", "test")]
    assert lines == [2000, 20, 20]
    recipe("wmt14.en-de/finetune", *given, "--updates", 2, "--save-every", 1)
    told = recipe("wmt14.en-de/evaluate", *given)
    assert "of 2 checkpoints, not 10: finetune.sh has left no more" in told and "sacreBLEU" in told


def test_try_takes_the_beginning_of_a_local_text(tmp_path, local, pretrained):
    """... plain or .gz, in the order in which the files are looked for; a model of one's own is not pre-trained again."""
    (local / "valid.en").write_text("".join(f"{line}\n" for line in text("en", "valid") * 3))
    (local / "valid.de.gz").write_bytes(gzip.compress(b"not this\n"))
    (local / "valid.de").write_text("".join(f"{line}\n" for line in text("de", "valid") * 3))
    out = tmp_path / "out"
    told = recipe("wmt14.en-de/prepare", "--try", "--out", out, "--local", local, "--pretrained", pretrained)
    assert "pre-training" not in told and not (out / "checkpoints").exists()
    assert (out / "raw/train.de").read_text().splitlines() == text("de", "train")
    assert (out / "raw/valid.de").read_text().splitlines() == (text("de", "valid") * 3)[:20]


def test_a_training_that_goes_on_is_evaluated_anew(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/test.de").touch()
    folder = tmp_path / "checkpoints/finetune.veco.s1"
    folder.mkdir(parents=True)
    for update in (1, 2):
        (folder / f"checkpoint_1_{update}.pt").touch()
    script = f"{STAND_INS} evaluate_options average=2 -- --out {tmp_path}; evaluate_task"
    for done in (False, False, True):
        if done:
            folder.with_name(f"{folder.name}.done").write_text("by this")
        result = sourced(tmp_path, script)
        assert result.returncode == 0 and result.stdout.count(" done in ") == 2, result.stderr
    assert sourced(tmp_path, script).stdout.count("already there") == 2


def test_scores_of_another_average_are_replaced_and_that_is_told(tmp_path):
    model = "checkpoints/finetune.veco.s1"
    for name in ("raw/test.de", f"{model}.done", *(f"{model}/checkpoint_{which}.pt" for which in ("1_1", "1_2", "last"))):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    stand_ins = f'{STAND_INS} python() {{ [[ -e "${{@: -1}}" ]] || echo "$*" >"${{@: -1}}"; }};'
    told = []
    for words in ("2", "2", "1", "1 --lenpen 0.6", "1 --lenpen 0.6", "0"):
        script = f"{stand_ins} evaluate_options average=2 -- --out {tmp_path} --average {words}; evaluate_task"
        result = sourced(tmp_path, script)
        assert result.returncode == 0, result.stderr
        told.append(f"to keep its scores, copy {tmp_path}/scores/finetune.veco.s1.json now\n" in result.stdout)
    assert told == [False, False, True, True, False, False]  # the last one has a name of its own


def test_the_mean_of_a_training_whose_folder_was_removed_is_made_anew(tmp_path):
    folder = tmp_path / "checkpoints/run"
    script = f"""made() {{ touch "$1"/checkpoint_1_{{1,2}}.pt; }}; python() {{ touch "${{@: -1}}"; }}
        training train {folder} made {folder}; REMAKE=; average run 2"""
    told = [sourced(tmp_path, script).stdout, sourced(tmp_path, script).stdout]
    shutil.rmtree(folder)
    told.append(sourced(tmp_path, script).stdout)
    assert [text.count("already there") for text in told] == [0, 2, 0]
