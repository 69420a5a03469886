# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Reads questions on contexts, in the format of SQuAD."""

from collections.abc import Iterator
from pathlib import Path

from veco_fairseq.errors import UserError
from veco_fairseq.files import read_json
from veco_fairseq.understanding.examples import Question


def read_questions(path: Path, lang: str) -> Iterator[Question]:
    """Yield the questions of a file in the format of SQuAD, version 1 or 2.

    Raises:
        UserError: the file is no JSON, or a key is missing.
    """
    data = read_json(path)
    try:
        for article in data["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    where = f"{path}, question {entry['id']}"
                    answers = [] if entry.get("is_impossible") else entry.get("answers", [])
                    answers = tuple((answer["answer_start"], answer["text"]) for answer in answers if answer["text"])
                    example = Question(str(entry["id"]), where, entry["question"], paragraph["context"], answers)
                    if not _has_right_types(example):
                        wanted = "texts are strings, and answer_start is a number"
                        raise UserError(f"{where}: is not in SQuAD's format: {wanted}")
                    yield example
    except KeyError as error:
        raise UserError(f"{path}: is not in SQuAD's format: {error} is missing") from error
    except (TypeError, AttributeError) as error:
        raise UserError(f"{path}: is not in SQuAD's format ({error})") from error


def _has_right_types(question: Question) -> bool:
    texts = [question.question, question.context, *(text for _, text in question.answers)]
    return all(type(text) is str for text in texts) and all(type(start) is int for start, _ in question.answers)
