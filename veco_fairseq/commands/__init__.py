# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The commands of ``veco``, one module each: the docstring is its description; ``add_arguments`` and ``main`` run it.

No module here imports PyTorch before its ``main`` needs it, so that ``--help`` comes at once.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from veco_fairseq.arguments import Parser
from veco_fairseq.cli import run
from veco_fairseq.compat.imports import defer_packages
from veco_fairseq.compat.noise import quiet_known_warnings
from veco_fairseq.errors import UserError
from veco_fairseq.help_texts import HelpWithDefaults
from veco_fairseq.named import require_utf8

# Jobs of a user, with their commands and a few words on each.
GROUPS: dict[str, dict[str, str]] = {
    "get data ready": {
        "prepare": "raw text to a data root: vocabulary, held-out lines, token files",
        "inspect": "check a data root, and show what training would do with it",
        "clean": "pairs of sentences without the bad ones",
        "binarize": "raw text to translation data, for fairseq-train",
        "encode": "text to SentencePiece pieces, for fairseq-preprocess",
        "trim-vocab": "a smaller vocabulary, of the pieces that a text needs",
        "vocap": "one vocabulary for many languages (VoCap)",
    },
    "get a model ready": {
        "convert": "a pre-trained model to a translation model",
        "average": "the mean of a training's last checkpoints",
        "import": "the checkpoint that VECO's authors released",
        "export-hf": "a model for Hugging Face's transformers",
        "export-ct2": "a translation model for CTranslate2",
    },
    "use and judge it": {
        "translate": "raw text to raw text",
        "score": "BLEU and chrF of a translation",
        "comet": "COMET of a translation",
        "retrieve": "translations found by the sentences' states",
        "align": "words aligned with their translations",
        "evaluate": "understanding by language, and XTREME's table",
        "label": "tags for translations, by a tagger of English",
    },
    "look": {
        "plot curves": "learning curves",
        "plot scores": "scores as bars",
        "plot layers": "retrieval by layer",
        "plot attention": "where a sentence looks in its translation",
    },
    "measure": {
        "doctor": "what is installed, and what does not fit",
        "mend-fairseq": "fairseq for Python 3.14",
        "count-operations": "the operations that a training took",
        "bench": "speed and memory, beside the peers",
    },
}
MODULES = {"import": "import_veco"}  # where the name is no name for a module


def module(command: str) -> ModuleType:
    """Import the module of a command such as "plot curves"."""
    return import_module(f"{__name__}.{MODULES.get(command, command.replace('-', '_').replace(' ', '_'))}")


def parser(command: str, program: str | None = None) -> Parser:
    """Make the command's parser.

    Args:
        command: its name.
        program: its name in usage and errors (default: as it was started).
    """
    of_command = module(command)
    result = Parser(prog=program, description=of_command.__doc__, formatter_class=HelpWithDefaults)
    of_command.add_arguments(result)
    for action in result._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                text = choice.help or ""
                action.choices[choice.dest].description = f"{text[:1].upper()}{text[1:]}."
    return result


def import_user_dir(folder: str) -> None:
    """Import code of the user's own, as ``fairseq-train --user-dir`` does.

    Raises:
        UserError: there is no such folder.
    """
    from fairseq.utils import import_user_module

    from veco_fairseq import plugin  # noqa: F401  fairseq has to be prepared before

    if not Path(folder).is_dir():
        raise UserError(f"--user-dir {folder}: no such folder: give the one of your own code, which has an __init__.py")
    import_user_module(argparse.Namespace(user_dir=folder))


def start(command: str, user_dir: str | None = None) -> NoReturn:
    """Run a command with the arguments of the command line, and end the process.

    Args:
        user_dir: a folder of the user's own code to import before.
    """
    quiet_known_warnings()  # some come as soon as fairseq is imported
    defer_packages()

    def main() -> int | None:
        require_utf8(sys.argv[1:])
        args = parser(command).parse_args(sys.argv[1:])
        if user_dir is not None:
            import_user_dir(user_dir)
        return module(command).main(args)

    run(main)
