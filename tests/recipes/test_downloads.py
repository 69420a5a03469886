# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Downloads are encrypted, checked and unpacked; what they hold becomes plain text."""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import zipfile

import pytest
from conftest import REPOSITORY
from support.sourced import needs_curl, sourced


def test_downloads_are_encrypted_and_checked():
    """Over https alone; by SHA-256, by a commit, or, the one archive of which no SHA-256 is known, by MD5."""
    scripts = [path.read_text() for path in (REPOSITORY / "data-bin-recipes").rglob("*.sh")]
    assert not [line for script in scripts for line in script.splitlines() if re.search(r"\b(http|ftp)://", line)]
    by_md5 = [
        line for script in scripts for line in script.splitlines() if re.search(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", line)
    ]
    assert [re.search(r"https://\S+", line)[0] for line in by_md5] == [
        "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/$ARCHIVE"
    ]
    for script in scripts:
        if re.search(r"^ *archive .* any$", script, re.MULTILINE):
            assert re.search(r"^URL=https://raw\.githubusercontent\.com/\S+/[0-9a-f]{40}/", script, re.MULTILINE)


@needs_curl
def test_archives_are_checked_and_unpacked(tmp_path):
    """curl takes file: addresses, too, so that nothing has to be fetched."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x/news.de-en.en", "one\n")
        archive.writestr("giga.en.gz", gzip.compress(b"two\n"))
    (tmp_path / "talks.en").write_text("three\n")
    with tarfile.open(tmp_path / "b.tgz", "w:gz") as archive:
        archive.add(tmp_path / "talks.en", "de-en/talks.en")
    sums = {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("a.zip", "b.tgz")}
    calls = "".join(f"archive file://{tmp_path}/{name} {checksum};" for name, checksum in sums.items())
    members = "to_file all members en a.zip x/news.de-en.@ a.zip giga.@.gz b.tgz de-en/talks.@; cat all"
    result = sourced(tmp_path / "out", f"cd {tmp_path}; {calls} {members}")
    assert result.returncode == 0 and result.stdout.endswith("one\ntwo\nthree\n"), result.stderr
    assert "already there" in sourced(tmp_path / "out", calls).stdout

    wrong = sourced(tmp_path / "other", f"archive file://{tmp_path}/a.zip {'0' * 32}")
    assert wrong.returncode == 1 and "a.zip: is not the file that this recipe was made for" in wrong.stderr
    assert list((tmp_path / "other/downloads").iterdir()) == []
    missing = sourced(tmp_path / "other", f"archive file://{tmp_path}/c.zip {'0' * 32}")
    assert missing.returncode == 1 and "give --local DIR" in missing.stderr
    members = "members en a.zip x/none.@ a.zip giga.@.gz"
    broken = sourced(tmp_path / "out", f"cd {tmp_path}; step text raw.en to_file '{{}}' {members}")
    assert broken.returncode == 1 and not (tmp_path / "raw.en").exists()


@pytest.mark.parametrize(
    ("code", "answer", "kept"),
    [(22, 416, False), (33, 200, False), (36, 0, False), (22, 503, True), (22, 404, True), (56, 206, True)],
    ids=["not satisfiable", "no ranges", "cannot resume", "a server that is busy", "not found", "connection lost"],
)
def test_a_part_of_another_file_is_not_resumed_for_ever(tmp_path, code, answer, kept):
    """... and gigabytes are not lost to a server that is away for a while."""
    incoming = tmp_path / "downloads/a.zip.incoming"
    incoming.parent.mkdir()
    incoming.write_text("other")
    result = sourced(tmp_path, f"curl() {{ printf {answer:03}; return {code}; }}; archive http://none/a.zip {'0' * 32}")
    assert "cannot be downloaded: try again" in result.stderr and incoming.exists() == kept
    assert [path for path in incoming.parent.iterdir() if path != incoming] == []


def test_a_machine_without_curl_is_told(tmp_path):
    """... in one line, and not by bash."""
    (tmp_path / "bin").mkdir()
    for program in ("basename", "cat", "dirname", "flock", "mkdir", "rm"):
        (tmp_path / "bin" / program).symlink_to(shutil.which(program))
    for call in ("archive http://none/a.zip any", "source $REPOSITORY/data-bin-recipes/lib/multi30k.sh; fetch train.en $OUT/a 0"):
        result = sourced(tmp_path, f"PATH=$OUT/bin; {call}")
        told = "error: curl is missing, which downloads: install it, or get the texts in another way and give --local DIR\n"
        assert result.returncode == 1 and result.stderr.endswith(told) and result.stderr.count("\n") == 1, result.stderr


@needs_curl
def test_a_file_without_a_checksum_is_fetched_from_its_beginning_and_is_not_empty(tmp_path):
    (tmp_path / "empty.txt").touch()
    result = sourced(tmp_path / "out", f"archive file://{tmp_path}/empty.txt any")
    assert result.returncode == 1 and "empty.txt" in result.stderr and list((tmp_path / "out/downloads").iterdir()) == []
    (tmp_path / "whole.txt").write_text("whole\n")
    (tmp_path / "out/downloads/whole.txt.incoming").write_text("hal")  # nobody could tell what it is the half of
    assert sourced(tmp_path / "out", f"archive file://{tmp_path}/whole.txt any").returncode == 0
    assert (tmp_path / "out/downloads/whole.txt").read_text() == "whole\n"


@pytest.fixture
def iwslt14(tmp_path):
    """The recipe's texts from an archive of short talks, of which one may be missing: its result."""

    def run(missing=None):
        folder = tmp_path / "de-en"
        make_talks(folder)
        if missing:
            for lang in ("de", "en"):
                (folder / f"IWSLT14.{missing}.de-en.{lang}.xml").unlink()
        with tarfile.open(tmp_path / "de-en.tgz", "w:gz") as archive:
            archive.add(folder, "de-en")
        md5 = hashlib.md5((tmp_path / "de-en.tgz").read_bytes()).hexdigest()
        recipe_folder = tmp_path / "recipes/iwslt14.de-en"
        recipe_folder.mkdir(parents=True)
        (tmp_path / "recipes/lib").symlink_to(REPOSITORY / "data-bin-recipes/lib")
        script = (REPOSITORY / "data-bin-recipes/iwslt14.de-en/prepare.sh").read_text()
        script = re.sub(r"archive http\S*/\$ARCHIVE \w+", f"archive file://{tmp_path}/$ARCHIVE {md5}", script)
        (recipe_folder / "prepare.sh").write_text(script.replace("\nprepare_task", ""))
        for name in ("model.pt", "sentencepiece.bpe.model", "dict.txt"):
            (tmp_path / name).touch()
        command = ["bash", recipe_folder / "prepare.sh", "--out", tmp_path / "out", "--pretrained", tmp_path / "model.pt"]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "VECO_SKIP_SETUP": "1"})

    return run


def make_talks(folder):
    folder.mkdir()
    for lang in ("de", "en"):
        lines = ["<url>http://x</url>", "<title>A title</title>", *(f" {lang} sentence {n} < 3 " for n in range(46))]
        lines[-3] += "\0 "  # for which grep would take it for no text
        (folder / f"train.tags.de-en.{lang}").write_text("".join(f"{line}\n" for line in lines))
        for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"):
            (folder / f"IWSLT14.{name}.de-en.{lang}.xml").write_text(
                f'<doc><title>x</title>\n<seg id="1"> {lang} of {name}. </seg>\n</doc>\n'
            )


@needs_curl
def test_talks_lose_their_tags(iwslt14, tmp_path):
    result = iwslt14()
    assert result.returncode == 0, result.stderr
    train, valid, test = ((tmp_path / f"out/raw/{split}.de").read_text().splitlines() for split in ("train", "valid", "test"))
    assert len(train) == 44 and train[0] == "de sentence 0 < 3"
    assert valid == ["de sentence 22 < 3", "de sentence 45 < 3"]
    assert test[:2] == ["de of TED.dev2010.", "de of TEDX.dev2012."] and len(test) == 5


@needs_curl
def test_a_missing_talk_is_an_error(iwslt14, tmp_path):
    result = iwslt14(missing="TED.tst2010")
    assert result.returncode == 1 and "TED.tst2010" in result.stderr, result.stderr
    assert (tmp_path / "out/raw/train.de").exists() and not (tmp_path / "out/raw/test.de").exists()


def test_a_whole_file_that_was_not_moved_yet_is_not_fetched_again(tmp_path):
    incoming = tmp_path / "downloads/a.zip.incoming"
    incoming.parent.mkdir()
    incoming.write_text("whole")
    checksum = hashlib.sha256(b"whole").hexdigest()
    assert sourced(tmp_path, f"curl() {{ return 9; }}; archive http://none/a.zip {checksum}").returncode == 0
    assert (tmp_path / "downloads/a.zip").read_text() == "whole"


def test_a_terminal_shows_the_progress_of_a_download_and_a_log_does_not(tmp_path):
    script = 'curl() { echo "$@" >$OUT/told; echo whole >$OUT/downloads/a.zip.incoming; }; archive http://none/a.zip any'
    terminal, other = os.openpty()
    for name, stderr in (("a", terminal), ("b", subprocess.PIPE)):
        sourced(tmp_path / name, script, stderr)
    told = [(tmp_path / name / "told").read_text() for name in ("a", "b")]
    for end in (terminal, other):
        os.close(end)
    assert [(" --progress-bar " in line, " --silent " in line) for line in told] == [(True, False), (False, True)]


@pytest.mark.parametrize("call", [
    "test_sets en none wmt14", "side 0 none there", "side 0 there none there", "members en none.tgz a b.tgz b", "first 0 none there",
    "made_of unpack none there", "made_of unpack none.zip there",
])  # fmt: skip
def test_a_text_of_which_the_first_part_is_missing_is_not_made(tmp_path, call):
    (tmp_path / "there").write_text("text\n")
    stand_ins = """sacrebleu() { [[ $2 != none ]]; }; tar() { [[ $2 != *none* ]]; }; python() { [[ $2 != none* ]]; }
        made_of() { "$1" folder "${@:2}"; }"""
    result = sourced(tmp_path, f"cd {tmp_path}; {stand_ins}; step text $OUT/text to_file '{{}}' {call}")
    assert result.returncode == 1 and "text failed" in result.stderr and not (tmp_path / "text").exists()


def test_every_place_of_the_language_in_a_name_is_filled_in(tmp_path):
    """Bitexts name their language in the folder and in the file."""
    result = sourced(tmp_path, 'member() { echo "$1 $2"; }; members de a.tgz @/text.@ b.tgz x')
    assert result.stdout == "a.tgz de/text.de\nb.tgz x\n"


def test_the_empty_side_of_a_text_is_named(tmp_path):
    (tmp_path / "valid.en").write_text("one\n")
    (tmp_path / "valid.de").touch()
    result = sourced(tmp_path, f"OPTIONS[local]={tmp_path}; raw valid none")
    assert result.returncode == 1 and result.stderr.endswith(f"error: {tmp_path}/valid.de: is empty\n")


def test_a_side_without_a_line_is_named(tmp_path):
    """... where the program that leaves out its blank lines says nothing."""
    (tmp_path / "blank").write_text("\n\n")
    result = sourced(tmp_path, f"cd {tmp_path}; step text $OUT/text to_file '{{}}' side 0 blank")
    assert result.stderr.splitlines()[-2].endswith(": error: blank: has no text")


def test_a_carriage_return_alone_is_a_blank_line(tmp_path):
    """As in a text of Windows; it had become a pair of empty sentences."""
    (tmp_path / "one").write_bytes(b"a\r\n\r\nb\r\n")
    (tmp_path / "same").write_bytes(b"c\n\nd\n")
    (tmp_path / "other").write_bytes(b"c\ne\nd\n")
    made = sourced(tmp_path, f"cd {tmp_path}; side 0 one >made; require_same_blanks one same; require_same_blanks one other")
    assert (tmp_path / "made").read_bytes() == b"a\r\nb\r\n"
    assert "error: line 2 is blank in one or other alone: " in made.stderr
