# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Arguments such as ``NAME=FILE``, and names that are text."""

import re
from collections.abc import Iterable
from pathlib import Path

from veco_fairseq.errors import UserError


def named_files(arguments: Iterable[str], form: str = "NAME=FILE", option: str = "") -> dict[str, Path]:
    """Return the files of ``NAME=FILE`` arguments by their names.

    Args:
        arguments: the words of the command line.
        form: what they are called in the command's help.
        option: which option they belong to, if any.

    Raises:
        UserError: an argument has no name, or the name of another one.
    """
    files: dict[str, Path] = {}
    for argument in arguments:
        here = f"{option} {argument}" if option else argument
        name, equals, file = argument.partition("=")
        is_file_alone = Path(argument).is_file() and not Path(file).exists()  # with an equals sign in its path
        if not (name and equals) or is_file_alone:
            raise UserError(f"{here}: not {form}")
        if name in files:
            raise UserError(f"{here}: {name} is there twice: give each file a name of its own")
        files[name] = Path(file)
    return files


def require_utf8(names: Iterable[str]) -> None:
    """Refuse names of files, and other words, that are not UTF-8: no manifest and no report could hold them.

    Raises:
        UserError: with the first of them.
    """
    for name in names:
        if re.search("[\ud800-\udfff]", name):  # how Python keeps bytes that are not UTF-8
            raise UserError(f"{name}: is not UTF-8: rename the file, or make a link to it")
