# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Writing files so that nobody ever sees half of one."""

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Union

from veco_fairseq.errors import UserError


@contextmanager
def atomic_output(path: Union[str, Path]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` when the block ends well.

    If the block raises, ``path`` is as it was before and the temporary file is gone.

    Raises:
        UserError: the folder cannot be made, or the file cannot be written (a full disk, no right).
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename not in (None, str(temporary), str(path.parent), str(path)):
            raise
        raise UserError(f"{path}: cannot be written ({error.strerror}): free some space or choose another folder") from error
    finally:
        temporary.unlink(missing_ok=True)
