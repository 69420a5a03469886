# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""What each command cannot do without, what it reads, and what it writes: none of it empty, and no text overwritten."""

import pytest

from veco_fairseq.commands import GROUPS, module, parser
from veco_fairseq.errors import UserError

# Of each command: what it cannot do without; what it reads, {} being the path; what it writes, w being the path, or the
# name before / or +, which is all that is given.
COMMANDS = {
    "prepare": (
        "--valid-lines 1 | --output o",
        "--mono aa={} | --mono-valid aa={} | --bitext aa-bb={},a | --bitext-valid aa-bb=a,{} | --sentencepiece {} | --dict {}",
        "--output w/dict.txt",
    ),
    "clean": (
        "--source-lang en | --target-lang de | --inputs a b | --outputs c d",
        "--inputs {} b | --inputs a {} | --sentencepiece {} | --held-out a {}",
        "--outputs w d | --outputs c w | --report w",
    ),
    "binarize": (
        "--source-lang aa | --target-lang bb | --sentencepiece m | --dict e | --destdir o",
        "--sentencepiece {} | --dict {}",
        "--destdir w/a.bin",
    ),
    "encode": ("--sentencepiece m | --inputs a | --outputs c", "--sentencepiece {} | --inputs a {}", "--outputs c w"),
    "trim-vocab": ("a | --sentencepiece m | --keep 9 | --output o", "{} | --sentencepiece {}", "--output w/dict.txt"),
    "vocap": ("--corpora a", "--corpora {} | --corpora aa={}", "--output w/x.tsv"),
    "convert": (
        "--checkpoint a | --output o | --decoder-layers all",
        "--checkpoint {} | --dict {}",
        "--output w | --output w+.json",
    ),
    "average": ("--inputs a | --output o", "--inputs a {}", "--output w"),
    "import": ("--checkpoint a | --dict d | --output o", "--checkpoint {} | --dict {}", "--output w | --output w+.json"),
    "export-hf": (
        "--checkpoint a | --output o",
        "--checkpoint {} | --data {} | --sentencepiece {} | --scores n={}",
        "--output w/x",
    ),
    "export-ct2": ("--checkpoint a | --output o", "--checkpoint {} | --data {} | --sentencepiece {}", "--output w/x"),
    "translate": ("a", "{} | --sentencepiece {} | --data {}", ""),
    "score": (
        "--hypothesis h | --reference r | --lang de",
        "--hypothesis {} | --generate-output {} | --reference {} | --baseline {}",
        "--json w",
    ),
    "comet": (
        "--hypothesis h | --reference r | --source s",
        "--hypothesis {} | --generate-output {} | --reference {} | --source {}",
        "--json w | --environment w/x",
    ),
    "retrieve tatoeba": ("a | --pairs n=b,c", "{} | --pairs n={},c | --pairs n=b,{}", "--json w"),
    "retrieve bucc": (
        "a | --source s | --target t",
        "{} | --source {} | --target {} | --gold {}",
        "--output w | --json w",
    ),
    "align": ("a | --source s | --target t", "{} | --source {} | --target {} | --gold {}", "--output w"),
    "evaluate run": ("a | --data d", "{} | --data {}", "--predictions w/x | --json w"),
    "evaluate table": ("xnli=a", "xnli={} | xnli=a,{}", "--plot w | --json w"),
    "label": ("a | --input i | --output o", "{} | --input {} | --like {}", "--output w"),
    "plot curves": ("n=a | --output o", "n={}", "--output w"),
    "plot scores": ("g/n=a | --output o", "g/n={}", "--output w"),
    "plot layers": ("n=a | --output o", "n={}", "--output w"),
    "plot attention": ("a | --source one | --target two | --output o", "{}", "--output w"),
    "count-operations": ("a", "{}", ""),
    "bench read": ("", "--file {}", "--json w"),
    "bench generate": ("", "--checkpoint {} | --data {} | --sentencepiece {} | --source {} | --reference {}", "--json w"),
    **{f"bench {what}": ("", "", "--json w") for what in ("pretrain", "data", "knn", "finetune", "head", "attention", "start")},
    **{name: ("", "", "") for name in ("inspect .", "doctor", "mend-fairseq")},
}
INSTEAD = {"--generate-output": "--hypothesis"}  # either the one or the other


def pieces(text: str) -> list[str]:
    return [piece for piece in text.split(" | ") if piece]


def option(piece: str) -> str:
    """The option's name; nothing for an argument without one."""
    return piece.split()[0] if piece.startswith("--") else ""


def parse(command: str, given: list[str]) -> None:
    """Parse a command line of these pieces, of which later ones take an earlier one's place."""
    by_option = {}
    for piece in given:
        by_option.pop(INSTEAD.get(option(piece)), None)
        by_option[option(piece)] = piece
    name = max((name for names in GROUPS.values() for name in names if f"{command} ".startswith(f"{name} ")), key=len)
    words = [word for piece in by_option.values() for word in (piece.split(" ") if piece else [""])]
    parser(name, "veco").parse_args([*command.removeprefix(name).split(), *words])


def written(piece: str) -> tuple[str, str]:
    """What is given, and the path that is written then."""
    path = next(word for word in piece.split() if word[0] == "w")
    return piece.replace(path, "w"), path.replace("+", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_it_says_what_it_cannot_do_without(capsys, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    needed = pieces(COMMANDS[command][0])
    parse(command, needed)  # that is all
    for piece in needed:
        with pytest.raises(SystemExit) as end:
            parse(command, [other for other in needed if other != piece])
        line = capsys.readouterr().err
        assert end.value.code == 2 and "required" in line and option(piece) in line, piece


@pytest.mark.parametrize("command", COMMANDS)
def test_it_overwrites_nothing_that_it_reads_and_takes_no_empty_path(capsys, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    needed, read, writes = map(pieces, COMMANDS[command])
    for one in writes:
        given, path = written(one)
        for other in read:
            with pytest.raises(UserError, match=f"^{option(one)} w\\S*: would overwrite .*{path}: choose another path"):
                parse(command, [*needed, other.replace("{}", path), given])
    for piece in [*(other.replace("{}", "") for other in read), *(written(one)[0].replace("w", "") for one in writes)]:
        with pytest.raises(SystemExit) as end:
            parse(command, [*needed, piece])
        assert end.value.code == 2 and "is an empty path: name a file or folder" in capsys.readouterr().err, piece


@pytest.mark.parametrize("command", COMMANDS)
def test_what_it_does_not_pack_gets_no_name_of_something_packed(capsys, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    needed, _, writes = map(pieces, COMMANDS[command])
    for one in (one for one in writes if "/" not in one):
        given = written(one)[0].replace("w", "w.xz")
        if (command, option(one)) == ("clean", "--outputs"):
            parse(command, [*needed, given])
            continue
        with pytest.raises(SystemExit) as end:
            parse(command, [*needed, given])
        assert end.value.code == 2 and f"{option(one)} w.xz: is not packed by this command" in capsys.readouterr().err


@pytest.mark.parametrize("line, said", [
    ("average --inputs a --output o --num-update-checkpoints 2 --num-epoch-checkpoints 3", "not allowed with argument"),
    ("score --reference r --lang de --hypothesis h --generate-output g", "not allowed with argument"),
    ("comet --reference r --source s --hypothesis h --generate-output g", "not allowed with argument"),
    ("vocap --corpora c --size 9", "--size and --output are needed (or --alp)"),
    ("vocap --corpora c --output o", "--size and --output are needed (or --alp)"),
    *((f"vocap --corpora c --alp a=m {way}",
       f"{way.split()[0]}: is to make a vocabulary, and --alp measures some: run one command after the other")
      for way in ("--size 9", "--alpha 0.3", "--beta 0.3", "--step 9", "--largest 9", "--character-coverage 0.95",
                  "--train-every-size", "--joint")),
    ("retrieve", "required: command"), ("evaluate", "required: command"), ("bench", "required: command"),
])  # fmt: skip
def test_of_two_ways_one_is_chosen(capsys, line, said):
    name, *words = line.split()
    with pytest.raises(SystemExit) as end:
        module(name).main(parser(name, "veco").parse_args(words))
    assert end.value.code == 2 and said in capsys.readouterr().err


def test_no_command_is_missing_here():
    names = {name for names in GROUPS.values() for name in names}
    assert {next(name for name in names if f"{command} ".startswith(f"{name} ")) for command in COMMANDS} == names
