# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The texts that a vocabulary is made from: the files of each language, and the lines to read."""

import re
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path

from veco_fairseq.data.prepare.text import LANGUAGE, is_drawn
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines, require_file
from veco_fairseq.named import require_utf8

CODE = re.compile(r"(?!md$)[a-z]{2,3}(_[A-Za-z]+)?")  # as in en, swh, zh_Hans; README.md is no text in a language "md"


def find_corpora(arguments: Sequence[str]) -> dict[str, list[Path]]:
    """Return the files of each language, sorted by its code, from folders and ``LANG=FILE`` arguments.

    In a folder every file (except hidden ones) is a text, plain, .gz or .xz. Its name ends with its language, before .txt,
    .gz and .xz: en.txt, train.en, news.en.gz. Several files of one language are read one after the other.

    Raises:
        UserError: a file or folder does not exist, a name does not end with a language code, or a text is there twice,
            such as packed and unpacked.
    """
    corpora: dict[str, list[Path]] = {}
    for argument in arguments:
        folder = Path(argument)
        if folder.is_dir():
            texts = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
            named = [(_language_of(path), path) for path in texts]
            if not named:
                raise UserError(f"--corpora {folder}: holds no file")
        else:
            language, equals, file = argument.partition("=")
            if not equals or not language:
                raise UserError(f"--corpora {argument}: no such folder, and not of the form LANG=FILE")
            if not LANGUAGE.fullmatch(language):
                raise UserError(f"--corpora {argument}: '{language}' is not a language code: use letters, digits and _")
            named = [(language, Path(file))]
        for language, path in named:
            require_file(path, told=f" (--corpora {argument})")
            require_utf8([str(path)])
            for other in corpora.get(language, []):
                if other.with_name(_unpacked(other)) == path.with_name(_unpacked(path)):
                    raise UserError(f"--corpora {argument}: has {path.name} and {other.name}: remove one of them")
            corpora.setdefault(language, []).append(path)
    return dict(sorted(corpora.items()))


def _unpacked(path: Path) -> str:
    """Return the file's name without .gz or .xz."""
    return path.name.removesuffix(".gz").removesuffix(".xz")


def _language_of(path: Path) -> str:
    language = _unpacked(path).removesuffix(".txt").rpartition(".")[2]
    if not CODE.fullmatch(language):
        raise UserError(
            f"--corpora {path.parent}: {path.name}: its name has no language: call it LANG.txt or NAME.LANG (.gz, .xz), "
            "with a code such as en or zh_Hans, move it elsewhere, or give LANG=FILE"
        )
    return language


def sentences(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the lines that are not blank, of all files in turn."""
    return (line for path in paths for line in read_lines(path) if line.strip())


def sample(paths: Sequence[Path], most: int) -> tuple[list[str], int]:
    """Return at most ``most`` sentences, drawn from all parts of the files, and the number of all sentences.

    Raises:
        UserError: there is none.
    """
    instances = sum(1 for _ in sentences(paths))
    if not instances:
        raise UserError(f"{', '.join(map(str, paths))}: holds no text")
    chosen = min(most, instances)
    return [line for i, line in enumerate(sentences(paths)) if is_drawn(i, chosen, instances)], instances


def drawn(paths: Sequence[Path], instances: int, share: int) -> Iterator[str]:
    """Yield ``share`` of the ``instances`` sentences; if there are fewer, each as often as the others, or once more."""
    every, some = divmod(share, instances)
    for number, line in enumerate(sentences(paths)):
        yield from repeat(line, every + is_drawn(number, some, instances))
