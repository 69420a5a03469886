# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Texts to binarize, and what fairseq-preprocess makes of them."""

import io
import logging

from fairseq.options import get_preprocessing_parser
from fairseq_cli import preprocess
from support.preparation import text_lines, write_lines

from veco_fairseq.data.prepare import binarizing
from veco_fairseq.data.prepare.binarizing import parse_splits
from veco_fairseq.data.sentencepiece import MODEL_NAME, encode_text


def lines_with_faults(language):
    """Generated lines, among them an empty one, blank ones, unknown letters, tabs, and spaces of many kinds."""
    lines = text_lines(language, 60)
    lines[3], lines[10] = "", " \t "
    lines[20] = "ab☃☃ cd\tef\u3000gh\u00a0<unk> <s> ☃"
    lines[30] = "a\u2028b c\x85d"
    return lines


def texts(folder, splits=("train", "valid", "other", "test")):
    for split in splits:
        for language in ("xx", "yy"):
            lines = lines_with_faults(language) if split == "train" else text_lines(language, 7, seed=len(split))
            write_lines(folder / f"{split}.{language}", lines)
    return folder


def by_fairseq(folder, texts, model, dictionary, splits, languages=("xx", "yy"), workers=1):
    """The folder that encode and fairseq-preprocess make, and the lines of its log on texts."""
    pieces = folder.with_name(f"{folder.name}-pieces")
    for prefix in splits.values():
        for name in prefix.split(","):
            for language in languages:
                encode_text(model, texts / f"{name}.{language}", pieces / f"{name}.{language}", 1)
    words = ["-s", languages[0], "-t", languages[1], "--srcdict", str(dictionary), "--joined-dictionary", "--destdir", str(folder),
             "--workers", str(workers)]  # fmt: skip
    for split, prefix in splits.items():
        words += [f"--{split}pref", ",".join(str(pieces / name) for name in prefix.split(","))]
    logger, stream = logging.getLogger("fairseq_cli.preprocess"), io.StringIO()
    handler, level = logging.StreamHandler(stream), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        preprocess.main(get_preprocessing_parser().parse_args(words))
    finally:
        for added in [h for h in logger.handlers if h is handler or isinstance(h, logging.FileHandler)]:
            logger.removeHandler(added)
        logger.setLevel(level)
    (folder / "preprocess.log").unlink()
    return [line.replace(str(pieces), str(texts)) for line in stream.getvalue().splitlines() if "replaced" in line]


def content(folder):
    """Its files, without the two that fairseq-preprocess does not write."""
    ours = (binarizing.MANIFEST_NAME, MODEL_NAME)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in ours}


def prefixes(folder, names):
    """Of train, valid and test, in the folder of the texts."""
    paths = {split: ",".join(str(folder / name) for name in names[split].split(",")) for split in names}
    return parse_splits("xx", "yy", **paths)
