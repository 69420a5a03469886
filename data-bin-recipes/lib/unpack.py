# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Unpack a .zip or .tar.* into a folder, and nothing outside it: unpack.py ARCHIVE FOLDER."""

import sys
import tarfile
import zipfile
import zlib
from pathlib import PurePosixPath


def leaves(name: str) -> bool:
    """Return whether a path of an archive is outside the folder that it is unpacked into."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts


def unpack_zip(path: str, folder: str) -> None:
    with zipfile.ZipFile(path) as archive:  # which writes a symbolic link as a file
        outside = [name for name in archive.namelist() if leaves(name)]
        if outside:
            raise ValueError(f"{outside[0]!r} is outside the folder")
        archive.extractall(folder)


def unpack_tar(path: str, folder: str) -> None:
    with tarfile.open(path) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
            return
        for member in archive:  # Python before 3.11.4
            if leaves(member.name) or not (member.isfile() or member.isdir()):
                raise ValueError(f"{member.name!r} is outside the folder or no file")
        archive.extractall(folder)


def main(path: str, folder: str) -> None:
    try:
        (unpack_zip if path.endswith(".zip") else unpack_tar)(path, folder)
    except (ValueError, tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error, RuntimeError) as error:
        reason = " ".join(str(error).split())
        sys.exit(f"unpack.py: error: {path}: cannot be unpacked ({reason}): it is damaged, or made to write elsewhere")


if __name__ == "__main__":
    main(*sys.argv[1:])
