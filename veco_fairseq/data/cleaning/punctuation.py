# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Lines normalised as sacremoses normalises them, many times as fast; and without what cannot be printed.

sacremoses applies about fifty regular expressions to each line, most of which find nothing. Here an expression is applied
to a line only where the line has the letters that it must find: ``(\\d) %`` finds nothing in a line without `` %``.
"""

import re
import unicodedata
from collections.abc import Callable
from re import _parser  # type: ignore[attr-defined]  # it knows which letters an expression must find

from sacremoses import MosesPunctNormalizer

SACREMOSES, PERL, KEEP = CHOICES = ("sacremoses", "perl", "keep")
SPACES = (r" +", " ")  # the one expression that is in every line, and changes those with two spaces alone


class Punctuation:
    """``MosesPunctNormalizer(lang).normalize``, to the letter.

    Args:
        lang: two letters, which choose some of the rules.
        perl: as Moses' Perl script, which makes a double quotation mark of a ’ that is not between letters. It also sees the
            line's end, so that a full stop and a quotation mark there change places; it has this rule of German, French and
            Spanish for all languages but English and Czech; and digits are those of ASCII alone, since it reads bytes.
    """

    def __init__(self, lang: str, perl: bool = False):
        moses = MosesPunctNormalizer(lang, perl_parity=perl)
        substitutions, self.end = moses.substitutions, ""
        if perl:
            self.end = "\n"
            if lang not in ("en", "cs", "cz", "de", "es", "fr"):
                before_numbers = len(substitutions) - len(moses.OTHER)
                substitutions[before_numbers:before_numbers] = moses.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
        flags = re.ASCII if perl else 0
        self.rules = [Rule(expression, replacement, flags) for expression, replacement in substitutions]
        self.of_ascii = [rule for rule in self.rules if rule.key.isascii()]
        # Most lines have no letter that a rule needs, or none beyond ASCII; a rule that needs none is for every line.
        keys = {rule.key for rule in self.rules} - {" "}
        self.has_any = re.compile("" if "" in keys else f"[{re.escape(''.join(sorted(keys)))}]").search
        self.has_other = re.compile(f"[{''.join(sorted(key for key in keys if not key.isascii()))}]").search

    def __call__(self, line: str) -> str:
        line += self.end
        if "  " in line or self.has_any(line):
            for rule in self.of_ascii if line.isascii() or not self.has_other(line) else self.rules:
                if rule.key in line and rule.needed in line:
                    line = rule.apply(line)
        return line.strip()


class Rule:
    """A substitution of sacremoses.

    Attributes:
        needed: what a line must have for it to change the line.
        key: the letter of this that the fewest lines have, which is quicker to find.
        apply: what it makes of a line.
    """

    __slots__ = ("needed", "key", "apply")

    def __init__(self, expression: str, replacement: str, flags: int = 0):
        find = re.compile(expression, flags)
        self.needed = "  " if (expression, replacement) == SPACES else must_have(expression)
        self.key = max(self.needed, key=_rarity, default="")
        self.apply: Callable[[str], str] = lambda line: find.sub(replacement, line)
        if self.needed == literal(expression) and "\\" not in replacement:
            self.apply = lambda line: line.replace(self.needed, replacement)


def _rarity(letter: str) -> tuple[bool, bool]:
    return not letter.isascii(), not letter.isalnum() and letter not in " ,."


def must_have(expression: str) -> str:
    """The longest text that is in whatever a regular expression finds; empty where that can be anything."""
    runs = [""]
    for kind, value in _parser.parse(expression):
        if kind is _parser.LITERAL:
            runs[-1] += chr(value)
        else:
            runs.append("")
    return max(runs, key=len)


def literal(expression: str) -> str | None:
    """The one text that an expression finds, if there is one."""
    parsed = _parser.parse(expression)
    return "".join(chr(value) for _, value in parsed) if all(kind is _parser.LITERAL for kind, _ in parsed) else None


def without_controls(line: str) -> str:
    """The line with a space for each character that is no character to print: Unicode's category C, as Moses does it.

    Those are control and format characters (a tab, a soft hyphen, a joiner), and what is not assigned.
    """
    if line.isprintable():
        return line
    return "".join(" " if unicodedata.category(letter)[0] == "C" else letter for letter in line).strip()
