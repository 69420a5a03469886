# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Options that do not go together, and texts that lie where a command will write, told before anything is loaded."""

import shlex
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from veco_fairseq.arguments import files_of
from veco_fairseq.checkpoints.card import scores_list
from veco_fairseq.checkpoints.reading import DamagedCheckpoint
from veco_fairseq.commands import GROUPS, module, parser
from veco_fairseq.data.prepare.text import parse_parts
from veco_fairseq.errors import UserError
from veco_fairseq.named import named_files
from veco_fairseq.retrieval.tatoeba import read_pair
from veco_fairseq.vocab.comparison import named_models
from veco_fairseq.vocab.corpora import find_corpora

NAMES = [name for commands in GROUPS.values() for name in commands]


def parsed(line: str):
    """A command's module, and its arguments."""
    name = max((name for name in NAMES if line.startswith(f"{name} ")), key=len)
    return module(name), parser(name, f"veco {name}").parse_args(shlex.split(line.removeprefix(name)))


@pytest.mark.parametrize("line, message", [
    ("import --checkpoint a --dict b --output o --pretraining --decoder-layers 2", "which --decoder-layers is for"),
    ("import --checkpoint a --dict b --output o --pretraining --target-lang de", "which --target-lang is for"),
    ("import --checkpoint a --dict b --output o --target-lang de", "--source-lang and --target-lang: give both or none"),
    ("retrieve tatoeba a --pairs mean=a,b", "--pairs: a name comes twice, or is mean"),
    ("retrieve bucc a --source b --target c", "give --gold, to find the threshold of the best F1, or --threshold"),
    ("clean -s en -t de --inputs a b --outputs c d --min-length 3 --max-length 2", "--min-length 3: is more than --max-length 2"),
    ("clean -s en2 -t de --inputs a b --outputs c d", "--source-lang en2: is no code"),
    ("clean -s en -t german --inputs a b --outputs c d", "--target-lang german: is no code"),
    ("translate a --sampling-topp 0.5", "--sampling-topk and --sampling-topp: go with --sampling"),
    ("translate a --beam 2 --nbest 3", "--nbest 3: a search with --beam 2 finds at most 2"),
    ("average --inputs a . --output o", r"^\.: is a folder: say which of its checkpoints"),
    ("average --inputs a --checkpoint-upper-bound 0 --output o", "--checkpoint-upper-bound: goes with"),
    ("average --inputs a b --num-update-checkpoints 2 --output o", "take one folder"),
    ("label a --input b --output o.tsv", "--output o.tsv: is written as CoNLL-U"),
    ("plot layers a --output o", "a: not NAME=FILE"),
    ("plot scores a/b --output o", "a/b: not GROUP/NAME=FILE"),
    ("plot scores /b=c --output o", "/b=c: not GROUP/NAME=FILE"), ("plot scores a/=c --output o", "a/=c: not GROUP/NAME=FILE"),
    ("plot scores a/b=c.json a/d=e.json a/b=f.json --output o", "a/b=f.json: a/b is there twice: give each file a name of its own"),
    ("plot curves a=b.log a=c.log --output o", "a=c.log: a is there twice"),
    ("plot layers a=b.json a=c.json --output o", "a=c.json: a is there twice"),
    ("plot curves =b.log --output o", "^=b.log: not NAME=FILE"),
])  # fmt: skip
def test_a_mistake_is_told_first(monkeypatch, line, message):
    monkeypatch.setattr("veco_fairseq.retrieval.tatoeba.read_pair", lambda text: (text.partition("=")[0], ()))
    command, args = parsed(line)
    with pytest.raises(UserError, match=message):
        command.main(args)


@pytest.mark.parametrize("given", ["--source b.txt --target b", "--source b --target b.txt"])
def test_a_file_is_no_sentence(monkeypatch, tmp_path, given):
    """... where other commands take files as --source and --target; its name was drawn."""
    monkeypatch.chdir(tmp_path)
    Path("b.txt").write_text("b\n")
    command, args = parsed(f"plot attention a {given} --output o")
    with pytest.raises(
        UserError, match=r'^--(source|target) b\.txt: is a file: give a sentence of it, such as "\$\(head -n 1 b\.txt\)"$'
    ):
        command.main(args)


def test_a_path_with_an_equals_sign_needs_a_name_too(monkeypatch, tmp_path):
    """... and is no missing file."""
    monkeypatch.chdir(tmp_path)
    Path("lr=1").mkdir()
    for name in ("lr=1/a.log", "b=c"):
        Path(name).touch()
    with pytest.raises(UserError, match="^lr=1/a.log: not NAME=FILE$"):
        named_files(["a=c", "lr=1/a.log"])
    assert named_files(["a=lr=1/a.log", "b=1/a.log"]) == {"a": Path("lr=1/a.log"), "b": Path("1/a.log")}
    with pytest.raises(UserError, match="^--logs b=c: not N=F$"):
        named_files(["b=c"], "N=F", "--logs")
    Path("c").touch()
    assert named_files(["b=c"]) == {"b": Path("c")}


# A command with a text at {}, and the files that it writes.
WRITTEN = {
    "prepare --mono aa={} --valid-lines 1 --output o": ("dict.txt", "sentencepiece.bpe.model", "preparation.json", "mono/aa/train.bin",
                                                        "bitext/aa-bb/x"),
    "binarize -s aa -t bb --sentencepiece {} --dict d --destdir o": ("dict.aa.txt", "train.aa-bb.aa.bin", "train.aa-bb.aa.idx",
                                                                     "binarized.json"),
    "vocap --corpora aa={} --size 9 --output o": ("dict.txt", "sentencepiece.bpe.model", "sizes.tsv", "sizes.png", "x.json",
                                                  "languages/aa.model", "joint/dict.txt"),
    "trim-vocab {} --sentencepiece m --keep 9 --output o": ("dict.txt", "sentencepiece.bpe.model"),
    "export-hf --checkpoint {} --output o": ("a.txt", "a/b.pt"), "export-ct2 --checkpoint {} --output o": ("a.txt", "a/b.pt"),
}  # fmt: skip


@pytest.mark.parametrize("line", WRITTEN)
def test_what_is_read_is_not_overwritten(monkeypatch, tmp_path, line):
    monkeypatch.chdir(tmp_path)
    for name in WRITTEN[line]:
        with pytest.raises(UserError, match=f"o: would overwrite .* o/{name}: choose another path"):
            parsed(line.format(f"o/{name}"))
    if not line.startswith("export"):
        parsed(line.format("o/text.aa"))  # no name of theirs


POSITIONS = mock.Mock(max_source_positions=512, max_target_positions=512)
DONE = mock.Mock(notes=[], dropped=0, folder="o", has_language_tokens=False, model=POSITIONS)
A_PT, OF_BOTH = r"a\.pt", r"a\.pt, b\.pt"


@pytest.mark.parametrize("line, replaced, done, named", [
    ("average --inputs a.pt b.pt --output o", "averaging.average_checkpoints", (), OF_BOTH),
    ("convert --checkpoint a.pt --output o --decoder-layers 2", "seq2seq.convert_to_seq2seq", (), A_PT),
    ("export-ct2 --checkpoint a.pt --output o", "ct2.export_ct2", (), A_PT),
    ("export-ct2 --checkpoint a.pt --output o", "ct2.largest_ct2_difference", ("ct2.export_ct2",), A_PT),
    ("export-hf --checkpoint a.pt --output o", "translation.read_translation", (), A_PT),
    ("export-hf --checkpoint a.pt --output o", "bart.largest_translation_difference",
     ("translation.read_translation", "bart.export_translation"), A_PT),
    ("import --checkpoint a.pt --dict d --output o", "release.import_release", (), A_PT),
    ("import --checkpoint a.pt --dict d --output o --pretraining", "release.back_to_pretraining", (), A_PT),
    ("count-operations a.pt b.pt --equal", "..cost.flops.count_operations", (), OF_BOTH),
])  # fmt: skip
def test_a_damaged_checkpoint_is_named(monkeypatch, line, replaced, done, named):
    """All that are read together, where any of them may be the one."""
    for name in done:
        monkeypatch.setattr(f"veco_fairseq.checkpoints.{name}", lambda *_, **__: DONE)
    place = f"veco_fairseq.checkpoints.{replaced}".replace("checkpoints...", "")
    monkeypatch.setattr(place, lambda *_, **__: {}["model"])
    command, args = parsed(line)
    with pytest.raises(UserError, match=rf"^{named}: cannot be used \(KeyError: 'model'\)"):
        command.main(args)


FILE = Path("b=c")  # a name with the sign that stands before it on the command line
NAMED_FILES = {
    "prepare --mono": lambda: parse_parts(["aa=b=c"], [])[0].train == (FILE,),
    "vocap --corpora": lambda: find_corpora(["aa=b=c"]) == {"aa": [FILE]},
    "vocap --alp": lambda: named_models(["n=b=c"]) == {"n": FILE},
    "retrieve tatoeba --pairs": lambda: [path for path, _ in read_pair("n=b=c,b=c")[1]] == [FILE, FILE],
    "export-hf --scores": lambda: "- n, 7 sentences: sacreBLEU 5.25" in scores_list(["n=b=c"]),
    "paths of all commands": lambda: files_of("n=b=c") == ["b=c"],
}


@pytest.mark.parametrize("where", NAMED_FILES)
def test_a_file_may_have_an_equals_sign_in_its_name(monkeypatch, tmp_path, where):
    monkeypatch.chdir(tmp_path)
    FILE.write_text('{"sacrebleu": {"score": 5.25, "signature": "s"}, "lines": 7}\n')
    assert NAMED_FILES[where]()


@pytest.mark.parametrize("line, reader", [
    ("plot curves n=b=c --output o", "curves.read_curve"), ("plot layers n=b=c --output o --pair p", "retrieval.tatoeba.read_accuracies"),
    ("plot scores g/n=b=c --output o", "commands.plot_scores.read_score"), ("evaluate table xnli=b=c", "understanding.xtreme.read_results"),
])  # fmt: skip
def test_a_command_reads_a_file_with_an_equals_sign_in_its_name(monkeypatch, line, reader):
    read = mock.Mock(side_effect=UserError("read"))
    monkeypatch.setattr(f"veco_fairseq.{reader}", read)
    command, args = parsed(line)
    with pytest.raises(UserError, match="^read$"):
        command.main(args)
    assert read.call_args.args[0] in (FILE, str(FILE), [FILE])


def test_the_second_of_several_checkpoints_is_named_where_each_is_counted_alone(monkeypatch):
    counted = {"a.pt": SimpleNamespace(updates=3, per_update=2e9, total=6e9, error=0.5)}
    monkeypatch.setattr("veco_fairseq.cost.flops.count_operations", lambda checkpoint, _: counted[checkpoint])
    command, args = parsed("count-operations a.pt b.pt")
    with pytest.raises(UserError, match=r"^b\.pt: cannot be used \(KeyError: 'b\.pt'\)"):
        command.main(args)


def test_none_of_a_folders_checkpoints_is_overwritten_by_their_mean(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("checkpoint_1_10.pt", "checkpoint_1_20.pt"):
        (tmp_path / name).touch()
    command, args = parsed("average --inputs . --num-update-checkpoints 2 --output checkpoint_1_10.pt")
    with pytest.raises(UserError, match="--output checkpoint_1_10.pt: would overwrite --inputs checkpoint_1_10.pt"):
        command.main(args)


@pytest.mark.parametrize(
    "given, told", [("a.pt b.txt", r"cut off\. Each file .* is a model; .* give it with < FILE$"), ("a.pt", "cut off$")]
)
def test_a_text_among_the_models_of_translate(monkeypatch, given, told):
    """... is told how it is given; a damaged model alone is no text."""
    monkeypatch.setattr("veco_fairseq.inference.translator.Translator", mock.Mock(side_effect=DamagedCheckpoint("b: is cut off")))
    command, args = parsed(f"translate {given}")
    with pytest.raises(UserError, match=told):
        command.main(args)
