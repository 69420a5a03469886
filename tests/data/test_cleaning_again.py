# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""veco clean after a kill, on a full disk, and with bad input."""

import os
import signal
from dataclasses import replace
from functools import partial

import pytest
from support.preparation import text_lines, write_lines

from veco_fairseq.data.cleaning import cleaning
from veco_fairseq.data.cleaning.cleaning import clean
from veco_fairseq.data.cleaning.rules import Options
from veco_fairseq.data.prepare import encoding
from veco_fairseq.data.prepare.growing import Progress
from veco_fairseq.errors import UserError


def pairs(folder, seed=0, count=90):
    """Texts of pairs, a third of them duplicates and some of them bad."""
    source, target = text_lines("xx", count, seed), text_lines("yy", count, seed)
    source[20:50], target[20:50] = source[:30], target[:30]
    source[7], target[60] = "", "x"
    return write_lines(folder / "in.xx", source), write_lines(folder / "in.yy", target)


OPTIONS = Options("xx", "yy", min_length=2)


def in_a_fork(call, save=None, replace=None):
    """Run ``call`` with small chunks, killed with -9 at the so-many-th note, or renaming; what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        cleaning.LINES_A_BATCH, encoding.SECONDS_BETWEEN_MARKS = 10, -1
        cleaning.say = lambda message: os.write(writer, f"{message}\n".encode())
        for place, name, number in ((Progress, "save", save), (os, "replace", replace)):
            original, calls = getattr(place, name), []

            def counted(*words, original=original, calls=calls, number=number):
                original(*words)
                calls.append(1)
                if len(calls) == number:
                    os.kill(os.getpid(), signal.SIGKILL)

            setattr(place, name, counted)
        try:
            call()
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == (-signal.SIGKILL if save or replace else 0)
    return told


def test_links_stay(tmp_path):
    """... in a run that is killed after the first of the two has its name, and goes on."""
    texts = pairs(tmp_path)
    (tmp_path / "large").mkdir()
    outputs = tuple(tmp_path / f"out.{lang}" for lang in ("xx", "yy"))
    for path in outputs:
        path.symlink_to(f"large/{path.name}")
    in_a_fork(lambda: clean(texts, outputs, OPTIONS, workers=1), replace=11)
    assert sorted(os.listdir(tmp_path / "large"))[-1] == "out.xx"
    assert "going on after 90" in in_a_fork(lambda: clean(texts, outputs, OPTIONS, workers=1))
    alone = tuple(tmp_path / f"alone.{lang}" for lang in ("xx", "yy"))
    clean(texts, alone, OPTIONS, workers=1)
    assert all(path.is_symlink() for path in outputs) and sorted(os.listdir(tmp_path / "large")) == ["out.xx", "out.yy"]
    assert [path.read_bytes() for path in outputs] == [path.read_bytes() for path in alone]


@pytest.mark.parametrize("name", ["out.{}", "out.{}.gz"])
@pytest.mark.parametrize("stops, where", [
    ([{"save": 3}], 30), ([{"save": 1}, {"save": 4}], 50), ([{"save": 9}], 90), ([{"save": 10}], 90), ([{"replace": 11}], 90),
    ([{"replace": 12}], 90), ([{"save": 5}, {"replace": 6}, {"replace": 3}], 90),
], ids=str)  # fmt: skip
def test_a_killed_run_goes_on(tmp_path, stops, where, name):
    """To the same bytes, the same report, and with the same duplicates; every note is a file that is renamed, too."""
    inputs = pairs(tmp_path)
    results = []
    for folder in ("whole", "killed"):
        (tmp_path / folder).mkdir()
        outputs = tuple(tmp_path / folder / name.format(side) for side in ("xx", "yy"))
        call = partial(clean, inputs, outputs, OPTIONS, workers=1, report=tmp_path / folder / "report")
        for stop in stops if folder == "killed" else ():
            in_a_fork(call, **stop)
        told = in_a_fork(call)
        results.append({path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()})
    assert results[0] == results[1] and len(results[0]) == 3
    assert f"going on after {where} of 90 pairs" in told


def test_other_options_or_texts_begin_anew(tmp_path):
    outputs = (tmp_path / "o.xx", tmp_path / "o.yy")
    for change in (Options("xx", "yy", min_length=3), None):
        in_a_fork(partial(clean, pairs(tmp_path), outputs, OPTIONS, workers=1), save=4)
        inputs = pairs(tmp_path, seed=int(change is None))
        told = in_a_fork(partial(clean, inputs, outputs, change or OPTIONS, workers=1))
        assert "going on" not in told
        expected = clean(inputs, (tmp_path / "e.xx", tmp_path / "e.yy"), change or OPTIONS, workers=1)
        assert expected["kept"] == (tmp_path / "o.xx").read_text().count("\n")
        assert (tmp_path / "o.yy").read_bytes() == (tmp_path / "e.yy").read_bytes()


def test_what_a_result_depends_on(tmp_path, monkeypatch):
    """A run does not go on where another one stopped, whose texts, options, packages or outputs were others."""
    inputs, others = pairs(tmp_path), [write_lines(tmp_path / name, ["a"]) for name in ("model", "held", "held2")]
    options = Options("xx", "yy", sentencepiece=others[0], held_out=tuple(others[1:]))
    outputs = (tmp_path / "o.xx", tmp_path / "o.yy")
    made_from = cleaning._made_from(inputs, outputs, options)
    assert cleaning._made_from(inputs, outputs, replace(options)) == made_from
    for changed in ({"language_margin": 3.0}, {"held_out": options.held_out[::-1]}, {"copies": True}):
        assert cleaning._made_from(inputs, outputs, replace(options, **changed)) != made_from, changed
    assert cleaning._made_from(inputs, (outputs[0], tmp_path / "o.yy.gz"), options) != made_from
    with monkeypatch.context() as patch:
        patch.setattr(cleaning, "version", lambda package: f"{package} 9")
        assert cleaning._made_from(inputs, outputs, options) != made_from
    for path in (*inputs, *others):
        write_lines(path, ["another"])
        changed = cleaning._made_from(inputs, outputs, options)
        assert changed != made_from, path.name
        made_from = changed


@pytest.mark.parametrize("part", [".o.xx.part.tmp", ".o.yy.part.tmp", ".o.xx.hashes.part.tmp"])
def test_what_was_cut_in_between_is_made_anew(tmp_path, part):
    outputs = (tmp_path / "o.xx", tmp_path / "o.yy")
    call = partial(clean, pairs(tmp_path), outputs, OPTIONS, workers=1)
    in_a_fork(call, save=4)
    (tmp_path / part).write_bytes((tmp_path / part).read_bytes()[:-1])
    assert "going on" not in in_a_fork(call)


def test_a_full_disk_is_one_line_and_goes_on(tmp_path, monkeypatch):
    outputs = (tmp_path / "o.xx", tmp_path / "o.yy")
    write, written = cleaning.GrowingFile.write, []

    def full(self, content):
        written.append(content)
        if len(written) == 17:
            raise OSError(28, "No space left on device")
        write(self, content)

    inputs = pairs(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(cleaning, "LINES_A_BATCH", 10)
        patch.setattr(encoding, "SECONDS_BETWEEN_MARKS", -1)
        patch.setattr(cleaning.GrowingFile, "write", full)
        with pytest.raises(UserError, match=r"o.xx: cannot be written \(No space left on device\): free some space"):
            clean(inputs, outputs, OPTIONS, workers=1)
    assert not outputs[0].exists()
    assert "going on after 60 of 90" in in_a_fork(partial(clean, inputs, outputs, OPTIONS, workers=1))


@pytest.mark.parametrize("damage, message", [
    (lambda folder: (folder / "in.yy").write_text("a\n"), "in.xx has 90 lines and .*in.yy has 1"),
    (lambda folder: (folder / "in.xx").write_text(""), "in.xx: holds no text"),
    (lambda folder: (folder / "in.xx").write_bytes(b"a\n" * 5 + b"\xff\n" * 85), "in.xx, line 6: not UTF-8"),
    (lambda folder: (folder / "in.xx").unlink(), "in.xx: no such file"),
])  # fmt: skip
def test_bad_texts_are_noticed_before_anything_is_written(tmp_path, damage, message):
    inputs = pairs(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=message):
        clean(inputs, (tmp_path / "o.xx", tmp_path / "o.yy"), OPTIONS, workers=2)
    assert not list(tmp_path.glob("*o.*"))


def test_bad_options(tmp_path):
    for options, message in (({"sentencepiece": tmp_path / "in.xx"}, "not a SentencePiece model"),
                             ({"held_out": (tmp_path / "none",)}, "none: no such file")):  # fmt: skip
        with pytest.raises(UserError, match=message):
            clean(pairs(tmp_path), (tmp_path / "o.xx", tmp_path / "o.yy"), Options("xx", "yy", **options), workers=2)


def test_two_links_of_one_name_lead_to_two_texts(tmp_path):
    """... in one folder: each has a hidden file of its own there."""
    (tmp_path / "large").mkdir()
    outputs = []
    for lang in ("xx", "yy"):
        (tmp_path / lang).mkdir()
        outputs.append(tmp_path / lang / "clean")
        outputs[-1].symlink_to(f"../large/{lang}")
    kept = [
        clean(pairs(tmp_path), texts, OPTIONS, workers=1)["kept"]
        for texts in ((tmp_path / "out.xx", tmp_path / "out.yy"), tuple(outputs))
    ]
    assert kept[0] == kept[1] > 0
    assert [path.read_text() for path in outputs] == [(tmp_path / f"out.{lang}").read_text() for lang in ("xx", "yy")]
    assert outputs[0].read_text() != outputs[1].read_text() and all(path.is_symlink() for path in outputs)
