# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""on_full_disk.py BYTES COMMAND ...: run a command of which no file may have more bytes, as on a disk that is full.

A limit of the process (``ulimit -f``) stands in for the disk: the writing fails alike, and anybody may set it. What the
command prints goes through another process, which has no limit.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from malformed.running import child


def main() -> None:
    size, command = int(sys.argv[1]), tuple(sys.argv[2:])
    pipes = os.pipe(), os.pipe()
    kept = sys.stdin, sys.stdout, sys.stderr  # child() replaces them, and they would close 0, 1 and 2 when they are gone
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        streams = tuple(Path(f"/dev/fd/{writing}") for _, writing in pipes)
        child(command, Path.cwd(), streams, None, {})
        del kept
    copies = []
    for number, (reading, writing) in enumerate(pipes, start=1):
        os.close(writing)
        copy = os.fork()
        if copy == 0:
            while block := os.read(reading, 1 << 16):
                os.write(number, block)
            os._exit(0)
        os.close(reading)
        copies.append(copy)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for copy in copies:
        os.waitpid(copy, 0)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
