# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The codes of languages: those of a pair, and those that tools that know languages by two letters are given."""

import re

from veco_fairseq.errors import UserError

# Of the languages for which sacreBLEU, Moses, sacremoses or MLQA has rules of its own.
TWO_LETTERS = dict(
    pair.split("=")
    for pair in (
        "ara=ar asm=as ben=bn bod=bo tib=bo bur=my mya=my cat=ca ces=cs cze=cs chi=zh cmn=zh yue=zh zho=zh deu=de ger=de dut=nl nld=nl "
        "dzo=dz ell=el gre=el eng=en est=et fin=fi fra=fr fre=fr gle=ga guj=gu hin=hi hun=hu ice=is isl=is ita=it jpn=ja kan=kn "
        "khm=km kor=ko lao=lo lav=lv lit=lt mal=ml mar=mr ori=or pan=pa pol=pl por=pt ron=ro rum=ro rus=ru slk=sk slo=sk slv=sl "
        "spa=es swe=sv tam=ta tel=te tha=th vie=vi lzh=zh wuu=zh"
    ).split()
)
WITHOUT_SPACES = ("bo", "dz", "ja", "km", "lo", "my", "shn", "th", "zh")  # between words


def sides_of(pair: str) -> list[str]:
    """Return the two languages of a pair: ``en`` and ``pt-BR`` of en-pt-BR.

    The second begins with the last part of two or three small letters, as a language's code does and a region's does not; a
    script or a region may follow them after _, as in pt-BR-zh_Hans and pt-BR-es_419.
    """
    parts = pair.split("-")
    cut = max((place for place in range(1, len(parts)) if re.fullmatch(r"[a-z]{2,3}(_\w+)?", parts[place])), default=1)
    return ["-".join(parts[:cut]), "-".join(parts[cut:])]


def two_letters(option: str, language: str) -> str:
    """Return the code by which such a tool knows a language: ``en`` for EN, en_GB and eng.

    A language without rules of its own keeps a code of three letters.

    Raises:
        UserError: with the name of the option: it is no code of two or three letters.
    """
    code = known_as(language)
    if not re.fullmatch("[a-z]{2,3}", code):
        raise UserError(f"{option} {language}: is no code of a language: give its two letters, such as en")
    return code


def known_as(language: str) -> str:
    """Return the code by which such a tool knows a language, whose name may also be no code."""
    code = re.split("[-_]", language.lower())[0]
    return TWO_LETTERS.get(code, code)
