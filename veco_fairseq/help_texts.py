# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Help texts that say what an option is if nobody gives it, and those that several commands share."""

import argparse
import re

PRETRAINED = "a checkpoint of --task camlm, with its dict.txt and sentencepiece.bpe.model beside it; or the folder of an XLM-R"
TRUST = "unpickle a checkpoint that holds more than tensors and plain values; such a file can run any code"


def with_default(text: str, action: argparse.Action) -> str:
    """Return an option's help text with its default, unless the text names it, or a flag or nothing is the default."""
    default = action.default
    if re.search(r"\(?default", text) or default in (None, [], "") or isinstance(default, bool) or not action.option_strings:
        return text
    if default == argparse.SUPPRESS or str(default).startswith("${"):
        return text
    shown = ",".join(map(str, default)) if isinstance(default, (list, tuple)) else str(default)
    beside_the_papers = re.search(r"\([A-Za-z-]+: [^()]*\)$", text)
    return f"{text[:-1]}; default: {shown})" if beside_the_papers else f"{text} (default: {shown})".lstrip()


class HelpWithDefaults(argparse.HelpFormatter):
    """argparse's help, with the defaults that the texts do not name."""

    def _expand_help(self, action: argparse.Action) -> str:
        return with_default(super()._expand_help(action), action)
