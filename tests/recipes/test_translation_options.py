# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Options of the translation recipes that cannot be, machines, and devices."""

import gzip
import lzma
import shutil
from pathlib import Path

from conftest import REPOSITORY
from support.sourced import sourced

FINETUNE = "finetune_options updates=4 warmup=1 lr=1 batch-tokens=8 save-every=2 decoder-layers=2 tie-self-attention=no"
OWN = "finetune_own_options updates=4"
TRAIN = "train_options updates=4 warmup=1"
BACK = FINETUNE.replace("finetune", "backtranslate")
DISTILL = FINETUNE.replace("finetune", "distill")
EVALUATE = "evaluate_options average=10"
WHOLE = "must be a whole number"
POSITIVE = "must be 1 or more"
BAD = [
    *((FINETUNE, f"--{name} x", WHOLE) for name in ("seed", "updates", "warmup", "save-every", "workers", "node-rank")),
    *((FINETUNE, f"--{name} 0", POSITIVE) for name in ("batch-tokens", "max-tokens", "nodes")),
    (FINETUNE, "--seed 08", WHOLE),
    (FINETUNE, "--nodes 010", WHOLE),
    (EVALUATE, "--average 08", WHOLE),  # in bash octal
    (FINETUNE, "--node-rank 1", "must be from 0 to 0 (--nodes 1)"),
    (FINETUNE, "--tie-self-attention maybe", "must be one of: yes no"),
    (FINETUNE, "--arm nmt", "must be one of: veco xlm random"),
    *((OWN, f"--{name} x", WHOLE) for name in ("seed", "updates", "warmup", "save-every")),
    (OWN, "--arm nmt", "must be one of: veco xlm random"),
    (OWN, "--pretrained-name mine --arm random", "random begins with no model: leave one out"),
    *((TRAIN, f"--{name} x", WHOLE) for name in ("seed", "updates", "warmup")),
    (TRAIN, "--objective tlm", "must be one of: camlm mlm"),
    *((EVALUATE, f"--{name} x", WHOLE) for name in ("seed", "average")),
    (BACK, "--topk x", WHOLE),
    *((BACK, f"--{name} 0", POSITIVE) for name in ("repeat", "average")),
    (DISTILL, "--average 0", POSITIVE),
]


def test_options_that_cannot_be_are_refused(tmp_path):
    calls = "\n".join(f"({reader} -- {given}) || :" for reader, given, _ in BAD)
    stand_ins = "require_pretrained() { :; }; OPTIONS[monolingual]=none"
    result = sourced(tmp_path, f"source {REPOSITORY}/data-bin-recipes/lib/synthetic.sh\n{stand_ins}\n{calls}")
    told = [line.split(": error: ", 1)[1] for line in result.stderr.splitlines()]
    assert told == [f"{given}: {message}" for _, given, message in BAD]


def test_another_set_is_not_scored_as_the_test_set(tmp_path):
    """... with whose reference its translations have nothing to do."""
    given = ("--gen-subset valid", "--gen-subset=valid", "--gen-subset test --gen-subset test1", "--gen-subset test", "--beam 4")
    result = sourced(tmp_path, "\n".join(f"({EVALUATE} -- -- --cpu {one}; echo {one}) || :" for one in given))
    told = [line.split(": error: ", 1)[1] for line in result.stderr.splitlines()]
    refused = ("--gen-subset=valid", "--gen-subset=valid", "--gen-subset=test1")
    assert told == [f"{one}: the reference is the test set's: leave it out" for one in refused]
    assert result.stdout.splitlines() == ["--gen-subset test", "--beam 4"]


def test_what_runs_on_one_machine_has_no_options_of_several(tmp_path):
    calls = "\n".join(f"({reader} -- --{name} 2) || :" for reader in (BACK, DISTILL) for name in ("nodes", "node-rank", "master"))
    result = sourced(tmp_path, f"source {REPOSITORY}/data-bin-recipes/lib/synthetic.sh\n{calls}")
    told = [line.split(": error: ", 1)[1] for line in result.stderr.splitlines()]
    assert [line.partition(" (there are ")[0] for line in told] == [
        f"--{name}: no such option" for name in ("nodes", "node-rank", "master")] * 2  # fmt: skip


def test_back_translation_needs_a_text(tmp_path):
    """... which can be read again, from its beginning to its end: this is known before a long training."""
    text = b"\n\n" + "".join(f"Satz {n} steht über allem.\n" for n in range(999)).encode()  # whose first lines are blank
    files = {
        "text": text, "text.gz": gzip.compress(text), "bad": text + "Über allem.\n".encode("latin-1"), "empty": b"",
        "wide": text.decode().encode("utf-16-le"), "cut.gz": gzip.compress(text)[:-9], "text.xz": lzma.compress(text),
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    given = [*(f"{tmp_path}/{name}" for name in (*files, "folder")), f"<(cat {tmp_path}/text)", "none.de"]
    calls = "; ".join(f"({BACK} -- --monolingual {one}) || :" for one in given)
    result = sourced(
        tmp_path,
        f"source {REPOSITORY}/data-bin-recipes/lib/synthetic.sh; require_pretrained() {{ :; }}; {calls}; {BACK} --",
    )
    told = [line.split(": error: ", 1)[1].removeprefix(f"{tmp_path}/") for line in result.stderr.splitlines()]
    expected = [
        "bad, line 1002: not UTF-8 (byte 0xdc at 1): convert",
        "empty: begins with no text: give one sentence a line",
        "wide, line 2: has a NUL character at 1: the file is UTF-16",
        "cut.gz: is damaged after line ",
        "text.xz: is packed by xz, which this script does not read: unpack it",
        "folder: is a folder",
        "/dev/fd/63: is a pipe, and would be read more than once: write it to a file first",
        f"{Path.cwd()}/none.de: is not there: give a text in de",
        "--monolingual is missing: give a text in de",
    ]
    assert [line.startswith(one) for line, one in zip(told, expected, strict=True)] == [True] * len(expected), told


MISSING = {
    f"{OWN} lr=1 -- --out $OUT --arm veco; mkdir -p $OUT/mt.en-de; finetune_own":
        "checkpoints/camlm/checkpoint_last.pt: is not there: run train.sh --objective camlm first",
    f"{OWN} lr=1 -- --out $OUT --arm xlm; finetune_own":
        "checkpoints/mlm/checkpoint_last.pt: is not there: run train.sh --objective mlm first",
    f"{OWN} lr=1 -- --out $OUT --pretrained-name mine; mkdir -p $OUT/mt.en-de; finetune_own":
        "checkpoints/camlm.mine/checkpoint_last.pt: is not there: run train.sh --objective camlm --name mine first",
    "evaluate any $OUT/none.pt": "none.pt: is not there: run finetune.sh first",
    "touch $OUT/any.pt; evaluate any $OUT/any.pt": "raw/test.de: is not there: run prepare.sh first",
    "text_there train": "raw/train.en: is not there: run prepare.sh first",
    f"{EVALUATE} -- --out $OUT --name mine --seed 2; evaluate_task":
        "checkpoints/finetune.mine.s2: is not there: run finetune.sh first",
    f"mkdir -p $OUT/checkpoints/finetune.a.s1; touch $OUT/checkpoints/finetune.a.s1/checkpoint_{{2_30,best}}.pt; "
    f"{EVALUATE} -- --out $OUT --name a --checkpoint checkpoint_2_40.pt; evaluate_task":
        "checkpoints/finetune.a.s1/checkpoint_2_40.pt: is not there: --checkpoint must be one of: "
        "checkpoint_2_30.pt checkpoint_best.pt",
}  # fmt: skip


def test_what_is_missing_is_told_with_what_makes_it(tmp_path):
    calls = "\n".join(f"({call}) || :" for call in MISSING)
    result = sourced(tmp_path, f"source {REPOSITORY}/data-bin-recipes/lib/synthetic.sh\n{calls}")
    assert [line.split(f": error: {tmp_path}/", 1)[1] for line in result.stderr.splitlines()] == list(MISSING.values())


def test_a_pre_training_of_the_name_that_is_not_taken_is_told(tmp_path):
    """... as train.sh --name gives it: the --name of finetune.sh is the new model's."""
    for name in ("mt.en-de", "checkpoints/camlm", "checkpoints/camlm.mine"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "checkpoint_last.pt").write_text(name)
    stand_ins = """python() { echo "$3" >$OUT/taken; touch "$5"; }
        fairseq-train() { touch "$folder/checkpoint_last.pt"; }"""
    told = []
    for given in ("--name mine", "--name mine --pretrained-name mine", "--name mine --pretrained-name ''", "--name yours"):
        for name in ("checkpoints/finetune.mine.s1", "converted"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        result = sourced(tmp_path, f"{stand_ins}\n{OWN} lr=1 -- --out $OUT {given}; finetune_own")
        assert result.returncode == 0, result.stderr
        (model,) = tmp_path.glob("converted/*.pt")
        is_told = "takes camlm, not camlm.mine: for that one give --pretrained-name mine\n" in result.stdout
        told.append(((tmp_path / "taken").read_text().split("/")[-2], model.name, is_told))
    assert told == [
        ("camlm", "veco.s1.pt", True), ("camlm.mine", "veco.mine.s1.pt", False), ("camlm", "veco.s1.pt", False),
        ("camlm", "veco.s1.pt", False),
    ]  # fmt: skip


def test_a_model_without_its_vocabulary_is_told(tmp_path):
    for name in ("sentencepiece.bpe.model", "dict.txt"):
        (tmp_path / name).mkdir()
        (tmp_path / name / {"dict.txt": "sentencepiece.bpe.model"}.get(name, "dict.txt")).touch()
        result = sourced(tmp_path, f"OPTIONS[pretrained]=x PRETRAINED={tmp_path}/{name}/model.pt; find_vocabulary")
        told = f"{tmp_path}/{name}/{name}: is not there: pre-training leaves it beside its checkpoints\n"
        assert result.returncode == 1 and result.stderr.endswith(f"error: {told}")


def test_a_machine_has_its_number_from_the_environment(tmp_path):
    """... the recipe's own variable before that of the cluster, and only where there are several."""
    environments = ("", "SLURM_NODEID=2", "VECO_NODE_RANK=1 SLURM_NODEID=2 VECO_MASTER=a:1")
    calls = "".join(
        f'({given or ":"}; {FINETUNE} -- --nodes {nodes}; echo "${{OPTIONS[node-rank]}} ${{OPTIONS[master]}}")\n'
        for nodes in (3, 1) for given in environments
    )  # fmt: skip
    result = sourced(tmp_path, f"unset SLURM_NODEID; require_pretrained() {{ :; }}\n{calls}")
    assert result.stdout == "0 \n2 \n1 a:1\n" + "0 \n0 \n0 a:1\n", result.stderr


def test_another_precision_is_taken_in_place_of_fp16(tmp_path):
    """With both, the weights of understanding are in fp16 under --autocast bf16, and fairseq ends with --bf16, which is for TPUs."""
    script = """python() { echo 1; }; PROGRAM=any
        for given in '' --amp '--autocast bf16' --autocast=bf16 --bf16 --memory-efficient-bf16 --tpu --cpu '--autocast none' \
            '--lr 1 --amp --seed 2'; do
            parse_options workers=0 -- -- $given; choose_device; echo "$given: ${DEVICE[*]}"; done"""
    assert sourced(tmp_path, script).stdout.splitlines() == [
        ": --fp16", "--amp: ", "--autocast bf16: ", "--autocast=bf16: ", "--bf16: ",
        "--memory-efficient-bf16: ", "--tpu: ", "--cpu: ", "--autocast none: --fp16",
        "--lr 1 --amp --seed 2: ",
    ]  # fmt: skip


def test_a_machine_without_gpus(tmp_path):
    """Only a try goes on there by itself; with --cpu there may be several workers."""
    script = "python() { echo 0; }; PROGRAM=any; choose() { parse_options workers=0 try -- $*; choose_device; echo ${DEVICE[*]} $WORKERS; }"
    result = sourced(tmp_path, f"{script}; choose --try; choose --workers 3 -- --cpu; choose -- --lr --cpus")
    assert result.stdout == "--cpu 1\n3\n" and result.returncode == 1
    told = "error: no GPU here: add -- --cpu to train on the processor\n"
    assert result.stderr.endswith(told)
    several = sourced(tmp_path, f"{script}; choose --workers 2 -- --amp; choose --try --workers 2; choose --workers 2")
    assert (several.stdout, several.returncode) == ("2\n--cpu 1\n", 1) and several.stderr.endswith(told)  # and not of --fp16
