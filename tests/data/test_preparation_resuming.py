# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Preparation that is repeated, interrupted or killed does what is left, to the same bytes."""

import gzip
import os
import re
import signal
from dataclasses import replace

import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset
from support.preparation import (
    another_model,
    decoded,
    options_with,
    text_lines,
    vocabulary,  # noqa: F401  fixtures
    write_lines,
)

from veco_fairseq.data.prepare import encoding, growing, preparation
from veco_fairseq.data.prepare.preparation import MANIFEST_NAME, prepare_root
from veco_fairseq.data.sentencepiece import Encoder
from veco_fairseq.errors import UserError


def times(root):
    return {path.relative_to(root).as_posix(): path.stat().st_mtime_ns for path in root.rglob("*.*") if path.is_file()}


def test_second_run_does_only_what_changed(tmp_path, vocabulary, capsys):
    x = write_lines(tmp_path / "x", text_lines("xx", 30))
    y = write_lines(tmp_path / "y", text_lines("yy", 30))
    pair = write_lines(tmp_path / "px", text_lines("xx", 9)), write_lines(tmp_path / "py", text_lines("yy", 9))
    options = options_with(vocabulary, tmp_path / "root", [f"xx={x}", f"yy={y}"], [f"xx-yy={pair[0]},{pair[1]}"], valid_lines=3)
    first = prepare_root(options)
    before = times(tmp_path / "root")
    seconds = re.findall(r"lines encoded in ([\d.]+) s", capsys.readouterr().out)
    assert len(seconds) == 3 and all(float(took) < 300 for took in seconds)
    assert prepare_root(options) == first
    assert times(tmp_path / "root") == before
    assert capsys.readouterr().out.count("already there") == 4

    write_lines(y, text_lines("yy", 31))
    reports = prepare_root(options)
    assert reports["mono/yy"]["splits"]["train"]["yy"]["lines"] == 28
    changed = {name for name, when in times(tmp_path / "root").items() if before[name] != when}
    assert changed == {f"mono/yy/{name}" for name in ("train.bin", "train.idx", "valid.bin", "valid.idx")} | {MANIFEST_NAME}


def test_changed_pair_is_refused_before_anything_is_touched(tmp_path, vocabulary):
    x, y = write_lines(tmp_path / "x", text_lines("xx", 30)), write_lines(tmp_path / "y", text_lines("yy", 30))
    options = options_with(vocabulary, tmp_path / "root", [f"xx={x}"], [f"xx-yy={x},{y}"], valid_lines=3)
    prepare_root(options)
    before = times(tmp_path / "root")
    write_lines(x, text_lines("xx", 29))
    with pytest.raises(UserError, match=r"x has 29 lines and .*y has 30"):
        prepare_root(options)
    before.pop(MANIFEST_NAME)
    assert before.items() <= times(tmp_path / "root").items()


def test_the_order_of_the_dictionary_and_the_validation_text_are_those_of_the_last_run(tmp_path, vocabulary):
    lines = text_lines("xx", 9)
    x, v = write_lines(tmp_path / "x", lines[:5]), write_lines(tmp_path / "v", lines[5:])
    other = tmp_path / "other"
    other.mkdir()
    write_lines(other / "dict.txt", (vocabulary / "dict.txt").read_text(encoding="utf-8").splitlines()[::-1])
    (other / "spm.model").write_bytes((vocabulary / "spm.model").read_bytes())
    for folder, valid in ((vocabulary, lines[5:]), (other, lines[5:]), (other, lines[6:])):
        write_lines(v, valid)
        prepare_root(replace(options_with(folder, tmp_path / "root", [f"xx={x}"], mono_valid=[f"xx={v}"]), workers=1))
        found = [decoded(tmp_path / f"root/mono/xx/{split}", folder) for split in ("train", "valid")]
        assert found == [lines[:5], valid]


def test_a_given_vocabulary_is_its_model_and_its_dictionary(tmp_path, vocabulary):
    x = write_lines(tmp_path / "x", text_lines("xx", 3))
    options = options_with(vocabulary, tmp_path / "root", [f"xx={x}"])
    dictionary = write_lines(tmp_path / "dict", (vocabulary / "dict.txt").read_text(encoding="utf-8").splitlines()[:-1])
    model = another_model(tmp_path / "m", (vocabulary / "spm.model").read_bytes())
    made_from = [preparation._vocabulary_inputs(replace(options, **more))["given"]
                 for more in ({}, {"dictionary": dictionary}, {"sentencepiece": model}, {"workers": 7})]  # fmt: skip
    assert len(set(made_from)) == 3 and made_from[0] == made_from[3]


def test_validation_files_go_when_they_are_no_longer_asked_for(tmp_path, vocabulary):
    x = write_lines(tmp_path / "x", text_lines("xx", 30))
    prepare_root(options_with(vocabulary, tmp_path / "root", [f"xx={x}"], valid_lines=3))
    assert (tmp_path / "root/mono/xx/valid.idx").exists()
    prepare_root(options_with(vocabulary, tmp_path / "root", [f"xx={x}"], valid_lines=0))
    assert sorted(path.name for path in (tmp_path / "root/mono/xx").iterdir()) == ["train.bin", "train.idx"]
    assert len(MMapIndexedDataset(str(tmp_path / "root/mono/xx/train"))) == 30


def test_removed_or_truncated_file_is_made_again(tmp_path, vocabulary):
    x = write_lines(tmp_path / "x", text_lines("xx", 30))
    options = options_with(vocabulary, tmp_path / "root", [f"xx={x}"])
    prepare_root(options)
    tokens = tmp_path / "root/mono/xx/train.bin"
    content = tokens.read_bytes()
    tokens.write_bytes(content[:10])
    prepare_root(options)
    assert tokens.read_bytes() == content


def interrupt(monkeypatch, options, *, batches: int, seconds_between_marks: float = encoding.SECONDS_BETWEEN_MARKS) -> None:
    """Make the root in this process until so many batches of ten lines are encoded."""
    encode, calls = Encoder.flat, []

    def interrupted(self, lines):
        calls.append(lines)
        if len(calls) > batches:
            raise KeyboardInterrupt
        return encode(self, lines)

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "LINES_A_BATCH", 10)
        patch.setattr(encoding, "SECONDS_BETWEEN_MARKS", seconds_between_marks)
        patch.setattr(Encoder, "flat", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare_root(replace(options, workers=1))


def test_interrupted_step_has_no_file_under_its_name_and_goes_through_the_second_time(tmp_path, vocabulary, monkeypatch):
    x = write_lines(tmp_path / "x", text_lines("xx", 30))
    options = options_with(vocabulary, tmp_path / "root", [f"xx={x}"], valid_lines=3)
    interrupt(monkeypatch, options, batches=1)
    assert [path.name for path in (tmp_path / "root/mono/xx").iterdir() if not path.name.startswith(".")] == []
    # What a killed process could not clean up is cleaned up by the next one.
    (tmp_path / "root/mono/xx/.train.bin.1.tmp").touch()
    prepare_root(options)
    assert len(MMapIndexedDataset(str(tmp_path / "root/mono/xx/train"))) == 27
    assert len(list((tmp_path / "root/mono/xx").iterdir())) == 4


def test_notes_of_another_version_are_none_to_go_on_from(tmp_path, vocabulary, monkeypatch):
    source = write_lines(tmp_path / "x", text_lines("xx", 30))
    all_options = [
        replace(options_with(vocabulary, tmp_path / name, [f"xx={source}"], valid_lines=3), workers=1)
        for name in ("whole", "part")
    ]
    prepare_root(all_options[0])
    interrupt(monkeypatch, all_options[1], batches=2, seconds_between_marks=-1)
    notes = tmp_path / "part" / growing.PROGRESS_NAME
    assert '"position": {"text": 0, "rows": 20' in notes.read_text()
    notes.write_text(notes.read_text().replace('"position"', '"done"'))
    prepare_root(all_options[1])
    for name in ("train.bin", "train.idx", "valid.bin", "valid.idx"):
        assert (tmp_path / "part/mono/xx" / name).read_bytes() == (tmp_path / "whole/mono/xx" / name).read_bytes()


def killed(options, at: str, number: int) -> int:
    """Make the root in a fork that is killed with -9 when ``at`` is called for the ``number``-th time (0: never).

    Returns how many lines it encoded.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        calls = {"encode": 0, "finish": 0}
        originals = {"encode": Encoder.flat, "finish": growing.GrowingTokens.finish}

        def counted(name):
            def call(self, *lines):
                calls[name] += 1
                if name == at and calls[name] == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = originals[name](self, *lines)
                os.write(writer, b"." * len(lines[0]) if lines else b"")
                return result

            return call

        Encoder.flat, growing.GrowingTokens.finish = counted("encode"), counted("finish")
        encoding.LINES_A_BATCH, encoding.SECONDS_BETWEEN_MARKS = 10, -1
        try:
            prepare_root(replace(options, workers=1))  # in this process
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        lines = len(pipe.read())
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == (-signal.SIGKILL if number else 0)
    return lines


@pytest.mark.parametrize("stops", [
    [("encode", 3)], [("encode", 2), ("encode", 3), ("encode", 9)], [("encode", 13), ("finish", 1)], [("finish", 2)],
    [("finish", 4)], [("encode", 16)],
], ids=str)  # fmt: skip
def test_killed_inside_a_file_goes_on_there(tmp_path, vocabulary, stops):
    """The same bytes in the end, and nothing encoded twice but the three batches of a side that a kill can cut off."""
    x, y = text_lines("xx", 93), text_lines("yy", 93)
    x[40] = y[17] = ""
    a, b = write_lines(tmp_path / "a", x), tmp_path / "b.gz"
    b.write_bytes(gzip.compress("".join(f"{line}\n" for line in y).encode()))
    all_options = [replace(options_with(vocabulary, tmp_path / root, [f"xx={a}"], [f"xx-yy={a},{b}"], valid_lines=7), workers=1)
             for root in ("whole", "root")]  # fmt: skip
    prepare_root(all_options[0])
    lines = sum(killed(all_options[1], at, number) for at, number in stops) + killed(all_options[1], "", 0)
    roots = [{path.relative_to(options.output): path.read_bytes() for path in options.output.rglob("*") if path.is_file()}
             for options in all_options]  # fmt: skip
    assert roots[0] == roots[1] and len(roots[0]) == 15
    assert 93 + 2 * 91 <= lines <= 93 + 2 * 91 + 60 * sum(at == "encode" for at, _ in stops)


def test_text_that_changed_in_between_is_encoded_anew(tmp_path, vocabulary):
    source = write_lines(tmp_path / "x", text_lines("xx", 55))
    options = options_with(vocabulary, tmp_path / "root", [f"xx={source}"], valid_lines=3)
    killed(options, "encode", 4)
    write_lines(source, text_lines("xx", 55, seed=1))
    assert killed(options, "", 0) == 55
    assert decoded(tmp_path / "root/mono/xx/train", vocabulary) == text_lines("xx", 55, seed=1)[:52]


def test_files_that_were_cut_in_between_are_made_anew(tmp_path, vocabulary):
    source = write_lines(tmp_path / "x", text_lines("xx", 55))
    options = options_with(vocabulary, tmp_path / "root", [f"xx={source}"])
    killed(options, "encode", 4)
    (hidden, _) = growing.hidden_paths(tmp_path / "root/mono/xx/train")
    hidden.write_bytes(hidden.read_bytes()[:-1])
    assert killed(options, "", 0) == 55
    assert decoded(tmp_path / "root/mono/xx/train", vocabulary) == text_lines("xx", 55)


def test_a_full_disk_ends_in_one_line_and_goes_on(tmp_path, vocabulary, monkeypatch):
    source = write_lines(tmp_path / "x", text_lines("xx", 55))
    options = options_with(vocabulary, tmp_path / "root", [f"xx={source}"])
    mark, marks = growing.GrowingTokens.mark, []

    def full(self):
        marks.append(self.lines)
        if len(marks) == 3:
            raise OSError(28, "No space left on device")
        return mark(self)

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "LINES_A_BATCH", 10)
        patch.setattr(encoding, "SECONDS_BETWEEN_MARKS", -1)
        patch.setattr(growing.GrowingTokens, "mark", full)
        with pytest.raises(UserError, match=r"root/mono/xx: cannot be written \(No space left on device\): free some"):
            prepare_root(options)
    assert 35 <= killed(options, "", 0) < 55


@pytest.mark.parametrize("after", ["_survey", "_make_vocabulary", "encode_rows"])
def test_text_that_is_replaced_while_the_root_is_made_is_told_and_read_anew(tmp_path, vocabulary, monkeypatch, after):
    """The last lines of the shorter text would be held out by the number of lines of the longer one: none of them."""
    source = write_lines(tmp_path / "x", text_lines("xx", 55))
    options = replace(options_with(vocabulary, tmp_path / "root", [f"xx={source}"], valid_lines=3), workers=1)

    def replaced(*args, **options):
        found = there(*args, **options)
        write_lines(source, text_lines("xx", 40, seed=1))
        return found

    with monkeypatch.context() as patch:
        there = getattr(preparation, after)
        patch.setattr(preparation, after, replaced)
        with pytest.raises(UserError, match=f"^mono/xx: {source}: changed while the root was made: run the same command again"):
            prepare_root(options)
    reports = prepare_root(options)
    assert reports["mono/xx"]["rows"] == 40
    assert decoded(tmp_path / "root/mono/xx/train", vocabulary) == text_lines("xx", 40, seed=1)[:37]
    assert decoded(tmp_path / "root/mono/xx/valid", vocabulary) == text_lines("xx", 40, seed=1)[37:]
