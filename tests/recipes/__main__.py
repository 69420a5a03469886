# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Write the table anew."""

import tempfile
from pathlib import Path

from recipes import TABLE, table

with tempfile.TemporaryDirectory() as folder:
    TABLE.write_text(table(Path(folder)))
