# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Notes on what a folder was made from, so that finished steps are not done again."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from veco_fairseq.errors import UserError
from veco_fairseq.files import read_json, require_file, write_text

CHECKSUM = "sha256"  # the key of the steps' checksum in the manifest's file
SAMPLE = 2**16  # bytes of a file, at three places, that its fingerprint is made of


def fingerprint(paths: Iterable[Path]) -> list[list[Any]]:
    """Return name, size, time of change and a checksum of files; this shows that one was replaced without reading all of it.

    The checksum is of the first, the middle and the last 64 KiB, since a copy (cp -p) or an archive can keep size and time.

    Raises:
        UserError: a path is no file that can be read, and read again.
    """
    found = []
    for path in paths:
        require_file(path)
        try:
            size, time, contents = path.stat().st_size, path.stat().st_mtime_ns, []
            with open(path, "rb") as file:
                for place in (0, (size - SAMPLE) // 2, size - SAMPLE):
                    file.seek(max(0, place))
                    contents.append(file.read(SAMPLE))
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from error
        found.append([path.name, size, time, checksum(*contents)])
    return found


def checksum(*contents: bytes) -> str:
    """Return one checksum of several byte strings."""
    return hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents)).hexdigest()


class Manifest:
    """Notes for each step: what it was made from, the sizes of its files, and its report.

    Args:
        root: the folder of the files.
        name: of the manifest in this folder.
        results: files of the folder that only this command may have made.

    Raises:
        UserError: the manifest is damaged, or a result exists without a manifest.
    """

    def __init__(self, root: Path, name: str, results: Iterable[str]):
        self.root = root
        self.path = root / name
        self.steps: dict[str, dict[str, Any]] = {}
        self.told = False  # that something is made again
        if self.path.is_file():
            try:
                self.steps = _sound(read_json(self.path))
            except (UserError, ValueError, KeyError, TypeError, AttributeError) as error:
                if isinstance(error.__cause__, OSError):  # it may be whole, and the folder what took days
                    raise
                raise UserError(f"{self.path}: damaged: remove the folder {root} and start again") from error
        for result in results:
            if not self.path.is_file() and (root / result).exists():
                raise UserError(f"{root}: holds a {result} that this command did not make: name another folder")

    def is_done(self, step: str, made_from: dict[str, Any]) -> bool:
        """Return whether the step was done with these inputs, and its files are still as it left them."""
        entry = self.steps.get(step)
        if entry is None or entry["made_from"] != json.loads(json.dumps(made_from)):
            return False
        paths = {name: self.root / name for name in entry["files"]}
        return all(path.is_file() and path.stat().st_size == entry["files"][name] for name, path in paths.items())

    def require_all(self, steps: Iterable[str]) -> None:
        """Refuse to make these steps with another vocabulary while other steps would keep the old one; UserError."""
        left_over = sorted(set(self.steps) - set(steps))
        if left_over:
            raise UserError(
                f"{self.root}: {', '.join(left_over)} would be left over from another vocabulary: "
                "also name it, remove the folder, or choose another one"
            )

    def start(self, step: str, files: Iterable[str] = ()) -> None:
        """Forget the step and remove its old files, so that a mixture of new and old files never counts as done."""
        old = self.steps.pop(step, {"files": {}})["files"]
        if old and not self.told:
            print(
                f"{self.root}: was made from other options or texts, or has changed since: {step} and what follows are made again"
            )
            self.told = True
        self.save()
        for name in sorted({*old, *files}):
            path = self.root / name
            # A killed run leaves its temporary files (see atomic_output).
            for stale in (path, *path.parent.glob(f".{path.name}.*.tmp")):
                stale.unlink(missing_ok=True)

    def finish(self, step: str, made_from: dict[str, Any], files: Iterable[str], report: dict[str, Any]) -> None:
        """Note that the step is done."""
        sizes = {name: (self.root / name).stat().st_size for name in files}
        self.steps[step] = {"made_from": made_from, "files": sizes, "report": report}
        self.save()

    def save(self) -> None:
        held = {"steps": self.steps, CHECKSUM: checksum(_bytes(self.steps))}
        write_text(self.path, json.dumps(held, indent=1, ensure_ascii=False))


def _sound(held: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the steps of a manifest's file after a check; an old file has no checksum.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the steps are not as they were written.
    """
    steps = held["steps"]
    if held.get(CHECKSUM, checksum(_bytes(steps))) != checksum(_bytes(steps)):
        raise ValueError("another checksum")
    for step in steps.values():
        names = [Path(name) for name in step["files"]]
        # These files are removed when the step is done again, so none may lie elsewhere.
        if any(name.is_absolute() or ".." in name.parts for name in names) or not isinstance(step["report"], dict):
            raise ValueError("no steps of ours")
    return steps


def _bytes(steps: dict[str, Any]) -> bytes:
    return json.dumps(steps, sort_keys=True).encode()
