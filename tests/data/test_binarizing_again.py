# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""veco binarize: a second run, a run after a kill, a full disk, and bad input."""

import os
import re
import signal

import pytest
from support.binarizing import content, prefixes, texts
from support.preparation import (
    another_model,
    text_lines,
    vocabulary,  # noqa: F401  fixtures
    write_lines,
)

from veco_fairseq.data.prepare import binarizing, encoding
from veco_fairseq.data.prepare.binarizing import binarize, parse_splits
from veco_fairseq.errors import UserError

# Again, and after a kill -------------------------------------------------------------------------------


def test_a_second_run_does_what_changed(tmp_path, vocabulary, capsys):
    files = vocabulary / "spm.model", vocabulary / "dict.txt"
    names = {"train": "train", "valid": "valid"}
    first = binarize(prefixes(texts(tmp_path), names), *files, tmp_path / "bin", workers=1)
    capsys.readouterr()
    assert binarize(prefixes(tmp_path, names), *files, tmp_path / "bin", workers=1) == first
    assert capsys.readouterr().out == "train.xx-yy: already there\nvalid.xx-yy: already there\n"
    write_lines(tmp_path / "valid.yy", text_lines("yy", 7, seed=9))
    binarize(prefixes(tmp_path, {**names, "test": "test"}), *files, tmp_path / "bin", workers=1)
    told = capsys.readouterr().out
    assert (
        "train.xx-yy: already there" in told and "valid.xx-yy: 7 lines encoded" in told and "test.xx-yy: 7 lines encoded" in told
    )
    assert told.count("was made from other options or texts") == 1 and "valid.xx-yy and what follows are made again" in told
    (tmp_path / "bin/train.xx-yy.xx.idx").unlink()
    binarize(prefixes(tmp_path, {"train": "train"}), *files, tmp_path / "bin", workers=1)
    assert "train.xx-yy: 60 lines encoded" in capsys.readouterr().out


def test_several_pairs_in_one_folder(tmp_path, vocabulary, capsys):
    """... with one vocabulary, none of which touches another's files; another vocabulary is refused."""
    files = vocabulary / "spm.model", vocabulary / "dict.txt"
    for language in ("xx", "yy", "zz"):
        write_lines(tmp_path / f"train.{language}", text_lines("xx" if language == "zz" else language, 9))
    pairs = [parse_splits(*pair, train=str(tmp_path / "train")) for pair in (("xx", "yy"), ("zz", "yy"))]
    for splits in (*pairs, *pairs):
        binarize(splits, *files, tmp_path / "bin", workers=1)
    assert capsys.readouterr().out.count("already there") == 2
    made = content(tmp_path / "bin")
    assert len(made) == 3 + 2 * 4 and made["train.xx-yy.yy.bin"] == made["train.zz-yy.yy.bin"]
    other = write_lines(tmp_path / "dict", (vocabulary / "dict.txt").read_text(encoding="utf-8").splitlines()[1:])
    with pytest.raises(UserError, match="bin: dict.xx.txt, train.xx-yy would be left over from another vocabulary"):
        binarize(pairs[1], files[0], other, tmp_path / "bin", workers=1)
    assert content(tmp_path / "bin") == made


def test_another_model_of_the_same_dictionary_makes_all_anew(tmp_path, vocabulary, capsys):
    splits, files = prefixes(texts(tmp_path), {"test": "test"}), (vocabulary / "spm.model", vocabulary / "dict.txt")
    binarize(splits, *files, tmp_path / "bin", workers=1)
    model = another_model(tmp_path / "m", files[0].read_bytes())
    capsys.readouterr()
    binarize(splits, model, files[1], tmp_path / "bin", workers=1)
    assert "test.xx-yy: 7 lines encoded" in capsys.readouterr().out
    assert (tmp_path / "bin/sentencepiece.bpe.model").read_bytes() == model.read_bytes()


def test_another_dictionary_is_refused_while_other_splits_stay(tmp_path, vocabulary):
    files = vocabulary / "spm.model", vocabulary / "dict.txt"
    binarize(prefixes(texts(tmp_path), {"train": "train", "test": "test"}), *files, tmp_path / "bin", workers=1)
    before = content(tmp_path / "bin")
    other = write_lines(tmp_path / "dict", (vocabulary / "dict.txt").read_text(encoding="utf-8").splitlines()[1:])
    with pytest.raises(UserError, match="bin: test.xx-yy would be left over from another vocabulary"):
        binarize(prefixes(tmp_path, {"train": "train"}), files[0], other, tmp_path / "bin", workers=1)
    assert content(tmp_path / "bin") == before
    binarize(prefixes(tmp_path, {"train": "train", "test": "test"}), files[0], other, tmp_path / "bin", workers=1)
    after = content(tmp_path / "bin")
    assert not [name for name in before if name.endswith((".bin", ".txt")) and before[name] == after[name]]


@pytest.mark.parametrize("stops, where", [
    ([3], "train.xx-yy: going on after 30 lines"), ([1, 1], "train.xx-yy: going on after 20 lines"),
    ([5, 4], "valid.xx-yy: going on after 7 lines"), ([9], "valid.xx-yy: going on after 7 lines"), ([10], "valid1.xx-yy: going on after 7 lines"),
], ids=str)  # fmt: skip
def test_a_killed_run_goes_on(tmp_path, vocabulary, stops, where):
    """To the same bytes: killed at the so-many-th batch of text that it has noted."""
    splits = prefixes(texts(tmp_path), {"train": "train", "valid": "valid,other"})
    files = vocabulary / "spm.model", vocabulary / "dict.txt"
    binarize(splits, *files, tmp_path / "whole", workers=1)
    told = ""
    for stop in [*stops, 0]:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            encoding.say = binarizing.say = lambda message: os.write(writer, f"{message}\n".encode())
            encoding.LINES_A_BATCH, encoding.SECONDS_BETWEEN_MARKS = 10, -1
            save, calls = binarizing.Progress.save, []

            def counted(self):
                save(self)
                calls.append(1)
                if len(calls) == stop:
                    os.kill(os.getpid(), signal.SIGKILL)

            binarizing.Progress.save = counted
            try:
                binarize(splits, *files, tmp_path / "killed", workers=1)
            finally:
                os._exit(0)
        os.close(writer)
        with open(reader) as pipe:
            told = pipe.read()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (-signal.SIGKILL if stop else 0)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    split, done = re.findall(r"(.*): going on after (\d+)", where)[0]  # of 60 or 7 lines
    assert f"{split}: {(60 if split.startswith('train') else 7) - int(done)} lines encoded in " in told
    assert where in told and ("train.xx-yy: already there" in told) == where.startswith("valid")


def test_a_full_disk_is_one_line_and_goes_on(tmp_path, vocabulary, monkeypatch):
    splits, files = prefixes(texts(tmp_path), {"train": "train"}), (vocabulary / "spm.model", vocabulary / "dict.txt")

    def full(self, *arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(encoding.GrowingTokens, "add", full)
        with pytest.raises(UserError, match=r"bin/train.xx-yy: cannot be written \(No space left on device\): free some space"):
            binarize(splits, *files, tmp_path / "bin", workers=2)
    binarize(splits, *files, tmp_path / "bin", workers=2)
    assert sorted(content(tmp_path / "bin")) == sorted(
        ["dict.xx.txt", "dict.yy.txt", *(f"train.xx-yy.{x}.{y}" for x in ("xx", "yy") for y in ("bin", "idx"))]
    )


# Bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage, message", [
    (lambda folder: (folder / "train.yy").unlink(), r"train.yy\[.gz\]: no such file: check the prefix and the languages"),
    (lambda folder: (folder / "valid.xx").write_text("a\n"), "valid.xx has 1 lines and .*valid.yy has 7: line N of the one"),
    (lambda folder: (folder / "valid.xx").write_text(""), "valid.xx: holds no text"),
    (lambda folder: (folder / "test.yy").write_bytes(b"a\n" * 5 + b"\xff\n"), "test.yy, line 6: not UTF-8"),
    (lambda folder: (folder / "test.yy").write_bytes(b"a\n" * 5 + b"\0a\n"), "test.yy, line 6: has a NUL"),
    (lambda folder: (folder / "test.yy").write_bytes(b"a\n" * 5 + "ä".encode()[:1]), "test.yy, line 6: not UTF-8"),
])  # fmt: skip
def test_bad_texts_are_noticed_before_anything_is_written(tmp_path, vocabulary, damage, message):
    splits = prefixes(texts(tmp_path), {"train": "train", "valid": "valid", "test": "test"})
    damage(tmp_path)
    with pytest.raises(UserError, match=message):
        binarize(splits, vocabulary / "spm.model", vocabulary / "dict.txt", tmp_path / "bin", workers=1)
    assert not (tmp_path / "bin").exists()


def test_a_dictionary_of_another_model_is_refused(tmp_path, vocabulary):
    dictionary = write_lines(tmp_path / "dict", [f"w{number} 1" for number in range(40)])
    with pytest.raises(UserError, match="does not belong to the dictionary"):
        binarize(prefixes(texts(tmp_path), {"train": "train"}), vocabulary / "spm.model", dictionary, tmp_path / "bin", workers=1)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/dict.yy.txt").touch()
    with pytest.raises(UserError, match="holds a dict.yy.txt that this command did not make"):
        binarize(
            prefixes(tmp_path, {"train": "train"}), vocabulary / "spm.model", vocabulary / "dict.txt", tmp_path / "bin", workers=1
        )


@pytest.mark.parametrize("words, message", [
    (("xx", "xx", "t", None, None), "--source-lang and --target-lang are both xx"),
    (("xx", "yy", None, None, None), "nothing to binarize: give --trainpref, --validpref or --testpref"),
    (("xx", "yy", "t", "v,", None), "--validpref v,: names nothing beside a comma"),
])  # fmt: skip
def test_bad_arguments(words, message):
    with pytest.raises(UserError, match=message):
        parse_splits(*words[:2], **dict(zip(("train", "valid", "test"), words[2:])))


def test_a_comma_in_the_name_of_a_text(tmp_path):
    """... that is there; otherwise it stands between two."""
    (tmp_path / "news,2013.xx.gz").touch()
    splits = parse_splits("xx", "yy", valid=f"{tmp_path}/news,2013", test=f"{tmp_path}/news,2014")
    assert splits.prefixes == {"valid": f"{tmp_path}/news,2013", "test": f"{tmp_path}/news", "test1": "2014"}
