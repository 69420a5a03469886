# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Mend the installed fairseq-fixed 0.12.3.1, which cannot be imported on Python 3.14.

fairseq recognises an optional option by the text typing.Optional[...], but Python 3.14 prints that type as X | None.
This command inserts a few lines that ask typing instead. It changes nothing but the released file. Run it with the
Python that fairseq is installed for; scripts/setup.sh does so for .venv.
"""

import argparse
import hashlib
import importlib.util
import os
import sys
from pathlib import Path

from veco_fairseq.arguments import Parser
from veco_fairseq.compat import FAIRSEQ
from veco_fairseq.errors import UserError

NAME = "dataclass/utils.py"
# SHA-256 of the released file, and of the mended one, with their line ends as \n: the source package has \r\n.
RELEASED = "901b08c0d0cf2261f2d25e73484993f207f160b4fe0a81bbdf2dd772f957b516"
MENDED = "836edfdc9d4b2fde2fa35519892ed01f95cca3aa2ccf042e80cf7ae08d3e8614"
BEFORE = "    typestring = str(field_type)\n"
INSERTED = """\
    # Put in by veco_fairseq for Python 3.14, which prints Optional[X] as X | None.
    import types
    from typing import Union, get_args, get_origin

    arguments = get_args(field_type)
    if get_origin(field_type) in (Union, types.UnionType) and type(None) in arguments:
        return next(argument for argument in arguments if argument is not type(None))

"""


def mended(source: str) -> str:
    """Insert the lines into the file's text.

    Args:
        source: the released file's text.
    """
    return source.replace(BEFORE, INSERTED + BEFORE)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a text file, with its line ends read as \\n."""
    text = path.read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n")
    return hashlib.sha256(text.encode()).hexdigest()


def mend(fairseq: Path) -> str:
    """Mend the file of a fairseq folder, and return a line that says what was done.

    Raises:
        UserError: the file is neither the released nor the mended one.
    """
    path = fairseq / NAME
    found = checksum(path)
    if found == MENDED:
        return f"{path}: was mended before"
    if found != RELEASED:
        raise UserError(
            f"{path}: is not fairseq-fixed {FAIRSEQ}'s (SHA-256 {found[:12]}..., not {RELEASED[:12]}...): "
            f"pip install --force-reinstall --no-deps fairseq-fixed=={FAIRSEQ}, and run this command again"
        )
    content = path.read_bytes()
    source, ends = content.decode("utf-8").replace("\r\n", "\n"), "\r\n" if b"\r\n" in content else "\n"
    # Write another file: pip and uv may share this one with other environments or a cache by hard links.
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(mended(source), encoding="utf-8", newline=ends)
    temporary.chmod(path.stat().st_mode)
    os.replace(temporary, path)
    return f"{path}: mended"


def add_arguments(parser: Parser) -> None:
    """Add nothing: the command has no options."""


def main(args: argparse.Namespace) -> None:
    if sys.version_info < (3, 14):
        print(f"Python {sys.version_info.major}.{sys.version_info.minor}: nothing to mend")
        return
    found = importlib.util.find_spec("fairseq")
    if found is None or not found.submodule_search_locations:
        raise UserError(f"fairseq is not installed for {sys.executable}: pip install fairseq-fixed=={FAIRSEQ}")
    print(mend(Path(found.submodule_search_locations[0])))
