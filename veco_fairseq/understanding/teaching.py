# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Makes training sets from translations and a teacher's tags."""

import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sacremoses import MosesTokenizer

from veco_fairseq.data.languages import WITHOUT_SPACES, two_letters
from veco_fairseq.data.moses import has_abbreviations
from veco_fairseq.errors import UserError
from veco_fairseq.files import read_lines, split_words, write_text
from veco_fairseq.understanding.examples import seen
from veco_fairseq.understanding.reading import read_examples

logger = logging.getLogger(__name__)


def read_words(path: Path, lang: str | None) -> list[list[str]]:
    """Return the words of each line, without those of which nothing can be seen, such as U+200B and a lone U+00A0.

    Args:
        lang: cut as the Moses tokenizer does for this language; None: see :func:`veco_fairseq.files.split_words`.

    Raises:
        UserError: the file cannot be read, has no line, or a line has no word; or Moses does not cut this language.
    """
    code = lang and two_letters("--tokenize", lang)
    if code in WITHOUT_SPACES:
        raise UserError(f"--tokenize {lang}: Moses does not cut a language without spaces: segment the text, and leave this out")
    if code and not has_abbreviations(code):
        logger.warning(
            f"--tokenize {lang}: Moses has no abbreviations of this language, and takes those of English: is it the code?"
        )
    split = partial(MosesTokenizer(lang=code).tokenize, escape=False) if code else split_words
    sentences = [[word for word in split(line) if seen(word).strip()] for line in read_lines(path)]
    if not sentences:
        raise UserError(f"{path}: is empty")
    if [] in sentences:
        raise UserError(f"{path}, line {sentences.index([]) + 1}: has no word: every sentence needs its translation")
    return sentences


def ids_like(originals: Path, translations: Path, count: int) -> list[str]:
    """Return the ids of the tagged originals.

    Raises:
        UserError: their number is not ``count``, some have no id or the same one, or the file is bad.
    """
    ids = [example.id for example in read_examples(originals, "", "tagging")]
    if len(ids) != count:
        raise UserError(f"{originals}: has {len(ids):,} sentences, but {translations} has {count:,} lines")
    advice = "by which --plug in finds translations: give one of its own to each sentence, # sent_id = ID, or leave out --like"
    if "" in ids:
        raise UserError(f"--like {originals}: sentence {ids.index('') + 1:,} has no id, {advice}")
    if len({*ids}) < count:
        raise UserError(f"--like {originals}: the id {Counter(ids).most_common(1)[0][0]} is there twice, {advice}")
    return ids


def write_conllu(path: Path, ids: Sequence[str], sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> None:
    """Write sentences with their ids, words and tags as CoNLL-U."""
    empty = "\t_" * 6
    blocks = []
    for name, words, of_words in zip(ids, sentences, tags):
        tagged = enumerate(zip(words, of_words), start=1)
        rows = (f"{number}\t{word}\t_\t{tag}{empty}\n" for number, (word, tag) in tagged)
        blocks.append(f"# sent_id = {name}\n{''.join(rows)}")
    write_text(path, "\n".join(blocks) + "\n")
