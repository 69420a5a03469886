# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Every command that reads a checkpoint, with what it needs beside one."""

from pathlib import Path

from conftest import error_line, save_with_vocabulary, write_tokens

from veco_fairseq.lock import LOCK_NAME

# CKPT is a checkpoint of pre-training, FILE a text, DIR a folder of data, OUT what is not there.
COMMANDS = (
    "translate.py CKPT",
    "retrieve.py tatoeba CKPT --pairs x=FILE,FILE",
    "retrieve.py bucc CKPT --source FILE --target FILE --threshold 1",
    "align.py CKPT --source FILE --target FILE",
    "plot_attention.py CKPT --source a --target b --output OUT",
    "evaluate_xtreme.py run CKPT --data DIR",
    "label_with_teacher.py CKPT --input FILE --output OUT.conllu",
    "count_operations.py CKPT",
    "export_hf.py --checkpoint CKPT --output OUT",
    "export_ct2.py --checkpoint CKPT --output OUT",
    "average_checkpoints.py --inputs CKPT CKPT --output OUT",
    "convert_to_seq2seq.py --checkpoint CKPT --output OUT --decoder-layers 1",
    "import_veco.py --checkpoint CKPT --dict DIR/dict.txt --output OUT",
    "fairseq-generate DIR --path CKPT -s de -t en --task translation",
    "fairseq-interactive DIR --path CKPT -s de -t en --task translation --input FILE",
    "fairseq-validate DIR --path CKPT --task translation --batch-size 2",
    "fairseq-train DIR -s de -t en --restore-file CKPT --save-dir OUT TRAIN",
    "fairseq-train DIR -s de -t en --finetune-from-model CKPT --save-dir OUT TRAIN",
)
TRAIN = "--arch transformer_tiny --cpu --batch-size 2 --lr [1e-3] --optimizer adam"
# fairseq's commands with --user-dir veco_fairseq, in a fork that has imported it already; what ends one is the plug-in's
# excepthook, which a fork does not call by itself
FAIRSEQ = """import sys
from fairseq_cli.{0} import cli_main
import veco_fairseq.plugin
sys.argv[0] = "fairseq-{0}"
try:
    cli_main()
except Exception:
    sys.excepthook(*sys.exc_info())
    sys.exit(1)
"""


class Command:
    """One of :data:`COMMANDS`, its ``checkpoint`` and ``data`` made; it is for a test to spoil the checkpoint."""

    def __init__(self, command: str, folder: Path, make_model):
        self.data, self.output = folder / "data", folder / "out"
        lines = [f"{a}{b} {b}{c}" for a in "bdg" for b in "aeiou" for c in "lmn"]
        self.checkpoint = save_with_vocabulary(self.data, make_model, lines, 24, layers=2)
        for lang in ("de", "en"):
            for split in ("train", "valid", "test"):
                write_tokens(self.data / f"{split}.de-en.{lang}", [[5, 6], [7]])
            (self.data / f"dict.{lang}.txt").write_bytes((self.data / "dict.txt").read_bytes())
        (self.data / "file").write_text("1\tbal al\n")
        names = {"TRAIN": TRAIN, "CKPT": self.checkpoint, "FILE": self.data / "file", "OUT": self.output, "DIR": self.data}
        for name, value in names.items():
            command = command.replace(name, str(value))
        self.words = command.split()
        if self.words[0].startswith("fairseq-"):
            script = folder / "command.py"
            script.write_text(FAIRSEQ.format(self.words[0].removeprefix("fairseq-")))
            self.words[0] = script
        else:
            self.words[0] = f"scripts/{self.words[0]}"

    def error_line(self, run) -> str:
        """The one line that it ends in, and nothing is written."""
        line = error_line(run(*self.words))
        written = [path for path in self.output.parent.glob("out*/*") if path.name != LOCK_NAME]
        assert not written and not [path for path in self.output.parent.glob("out*") if path.is_file()]
        return line
