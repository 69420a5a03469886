# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Text is read and checked; files are written so that nobody ever sees half of one."""

import codecs
import collections
import gzip
import itertools
import json
import lzma
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from veco_fairseq.errors import SYSTEM_ERRORS, UserError, write_failure
from veco_fairseq.signals import ended_by_sigterm

Path_ = str | Path

# What a file is that is no plain UTF-8, and what makes a text of it; by its first bytes.
NO_TEXT: dict[bytes | tuple[bytes, ...], str] = {
    b"\x1f\x8b": "is packed: unpack it with gzip -dc",
    b"\xfd7zXZ\0": "is packed: unpack it with xz -dc",
    b"BZh": "is packed: unpack it with bzip2 -dc",
    b"\x28\xb5\x2f\xfd": "is packed: unpack it with zstd -dc",
    b"PK\3\4": "is a checkpoint or packed: give a text, or unpack it with unzip -p",  # torch packs so, too
    (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE): "is UTF-16: convert it with iconv -f UTF-16 -t UTF-8",
}


def is_device(path: Path) -> bool:
    """Return whether a path is a device, a pipe, or an open file such as /dev/stdout: what is written into and never replaced."""
    if not path.exists():
        return False
    target = path.parent / os.readlink(path) if path.is_symlink() else path
    is_open = any(os.path.realpath(place.parent).startswith("/proc/") for place in (path, target))
    return is_open or not (path.is_file() or path.is_dir())


def followed(path: Path_) -> Path:
    """Return where a link leads, and what is no link itself: a renamed file would take the link's place."""
    return Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)


@contextmanager
def atomic_output(path: Path_) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` when the block ends without an exception.

    If the block raises, or SIGTERM comes, ``path`` stays as it was, and the temporary file is removed. A device or a pipe is
    yielded itself. A link stays, and what it leads to is replaced.

    Raises:
        UserError: the folder cannot be made, or the file cannot be written (full disk, no permission).
    """
    path = Path(path)
    kept = is_device(path)
    target = path if kept else followed(path)
    temporary = path if kept else target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    with ended_by_sigterm():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            if not kept:
                os.replace(temporary, target)
        except Exception as error:
            failure = write_failure(error)
            file = getattr(error, "filename", None)
            is_ours = file in (None, str(path.parent), str(path)) or str(file).startswith(str(temporary))
            if failure is None or not is_ours:
                raise
            raise UserError(f"{path}: cannot be written ({failure.reason}): {failure.advice}") from error
        finally:
            if not kept:
                with suppress(OSError):  # such as a file system that is read-only, of which the block has told
                    temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path_) -> Iterator[Path]:
    """Make a new folder under a temporary name and yield it; otherwise as :func:`atomic_output`.

    Raises:
        UserError: ``path`` exists and is not an empty folder, or cannot be written.
    """
    path = Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"--output {path}: is there already: remove it, or choose another folder")
    with atomic_output(path) as folder:
        folder.mkdir()
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder)
            raise
        if path.exists():
            followed(path).rmdir()


def decoded_lines(file: BinaryIO, name: Path_) -> Iterator[str]:
    r"""Yield the lines of an open UTF-8 text without their line ends.

    Lines end only at ``\n`` (or ``\r\n``), as fairseq and sentencepiece count them; U+0085 and U+2028 are part of a line.
    The byte order mark (U+FEFF) at the beginning of a text is left out; elsewhere it stays.

    Args:
        name: of the text, for messages.

    Raises:
        UserError: a line is not UTF-8, or has a NUL, as in UTF-16 that is read as UTF-8; with the line's number, from 1.
    """
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            _refuse_no_text(line, number, name)
            raise UserError(
                f"{name}, line {number}: not UTF-8 (byte 0x{line[error.start]:02x} at {error.start + 1}): "
                "convert the file from its own encoding, for example with iconv -f ISO-8859-1 -t UTF-8"
            ) from error
        if "\0" in text:
            _refuse_no_text(line, number, name)
            raise UserError(
                f"{name}, line {number}: has a NUL character at {text.index(chr(0)) + 1}: the file is UTF-16 or no text; "
                "convert it, for example with iconv -f UTF-16 -t UTF-8, or remove the NULs with tr -d '\\000'"
            )
        yield (text if number > 1 else text.removeprefix("\ufeff")).rstrip("\r\n")


def _refuse_no_text(line: bytes, number: int, name: Path_) -> None:
    for beginning, what in NO_TEXT.items():
        if number == 1 and line.startswith(beginning):
            raise UserError(f"{name}: {what}")


def open_text(path: Path_) -> BinaryIO:
    """Open a text that is plain, .gz or .xz, as bytes."""
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
    return openers.get(Path(path).suffix, open)(path, "rb")


def read_lines(path: Path_) -> Iterator[str]:
    """Yield the lines of a UTF-8 text, plain, .gz or .xz, as :func:`decoded_lines` does.

    Raises:
        UserError: the file does not exist or cannot be read or unpacked, or a line is not text.
    """
    number = 0
    try:
        with open_text(path) as file:
            for number, line in enumerate(decoded_lines(file, path), start=1):  # noqa: B007  the error names it
                yield line
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path}: is damaged after line {number} ({error}): fetch or compress it again") from error
    except OSError as error:
        reason = SYSTEM_ERRORS.get(error.errno or 0, f"cannot be read ({error.strerror})")
        raise UserError(f"{path}: {reason}") from error


def read_blocks(path: Path_, lines: int, skip: int = 0) -> Iterator[bytes]:
    """Yield so many lines of a text at a time, as bytes with their ends, for :func:`lines_of`; the last block has the rest.

    This takes a tenth of the time of :func:`read_lines`, which must have read the text before: the bytes are not looked at.

    Args:
        path: plain, .gz or .xz.
        lines: of a block.
        skip: lines at the beginning that are left out.

    Raises:
        UserError: as :func:`read_lines`, but for lines that are no text.
    """
    try:
        with open_text(path) as file:
            collections.deque(itertools.islice(file, skip), maxlen=0)
            mark = b"" if skip else codecs.BOM_UTF8
            while block := b"".join(itertools.islice(file, lines)):
                yield block.removeprefix(mark)
                mark = b""
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        collections.deque(read_lines(path), maxlen=0)  # which says where
        raise


def lines_of(block: bytes) -> list[str]:
    """Return the lines of a block of :func:`read_blocks`, as :func:`read_lines` yields them.

    Raises:
        UserError: it is not UTF-8.
    """
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError("a text is not UTF-8 any more: it was changed while it was read: start again") from error
    lines = text.removesuffix("\n").split("\n")
    return [line.rstrip("\r") for line in lines] if "\r" in text else lines


def split_words(line: str) -> list[str]:
    """Split a line at spaces and tabs; a no-break space, for instance, can be part of a word."""
    return re.findall(r"[^ \t]+", line)


def count_lines(path: Path_) -> int:
    """Return how many lines :func:`read_lines` yields, in a tenth of its time; it checks every byte and raises the same."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    count, last = 0, b"\n"
    try:
        with open_text(path) as file:
            while block := file.read(2**20):
                if "\0" in decoder.decode(block):
                    return sum(1 for _ in read_lines(path))
                count, last = count + block.count(b"\n"), block[-1:]
            decoder.decode(b"", final=True)
    except (UnicodeDecodeError, OSError, EOFError, zlib.error, lzma.LZMAError):
        return sum(1 for _ in read_lines(path))  # which says where
    return count + (last != b"\n")


def require_file(path: Path_, told: str = "") -> None:
    """Refuse what is no file that can be read again.

    Args:
        path: the file.
        told: where it was given, for the message.
    """
    if not Path(path).is_file():
        of_others = (
            "is a folder" if Path(path).is_dir() else "is a pipe, and would be read more than once: write it to a file first"
        )
        raise UserError(f"{path}: {of_others if Path(path).exists() else 'no such file'}{told}")


def count_translations(*paths: Path_) -> int:
    """Return how many lines each of these texts has; line N of one is the translation of line N of the others.

    Raises:
        UserError: they are empty or of different length, or no files that can be read again, or as :func:`read_lines`.
    """
    for path in filter(os.path.exists, paths):
        require_file(path)
    counts = [count_lines(path) for path in paths]
    require_equal_lengths(paths, counts)
    return counts[0]


def require_equal_lengths(paths: Sequence[Path_], counts: Sequence[int]) -> None:
    """Refuse texts of which one is empty, or that have different numbers of lines; UserError."""
    for path, count in zip(paths, counts):
        if not count:
            raise UserError(f"{path}: holds no text")
        if count != counts[0]:
            raise UserError(
                f"{paths[0]} has {counts[0]:,} lines and {path} has {count:,}: line N of the one must be the translation of "
                "line N of the other"
            )


def read_json(path: Path_) -> Any:
    """Return the content of a JSON file.

    Raises:
        UserError: as :func:`read_lines`; or the file is no JSON, or holds half of a surrogate pair or very deep nesting,
            which no command writes.
    """
    try:
        found = json.loads("\n".join(read_lines(path)))
        json.dumps(found, ensure_ascii=False).encode("utf-8")
        return found
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: is not JSON ({error.msg}): it is damaged or another file") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error}): it is damaged or another file") from error


def write_json(path: Path, value: Any, *, ensure_ascii: bool = True) -> None:
    """Write a JSON file, either all of it or nothing."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=ensure_ascii) + "\n")


def read_translations(source: Path_, target: Path_) -> tuple[list[str], list[str]]:
    """Return the lines of two texts whose lines N are translations of each other.

    Raises:
        UserError: as :func:`read_lines`; or the texts are empty or have different numbers of lines.
    """
    texts = list(read_lines(source)), list(read_lines(target))
    require_equal_lengths((source, target), [*map(len, texts)])
    return texts


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, either all of it or nothing."""
    with atomic_output(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
