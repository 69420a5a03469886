# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A fine-tuned model's predictions and figures on a test set, by language."""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from veco_fairseq.errors import UserError, require_list
from veco_fairseq.files import Path_, write_text
from veco_fairseq.inference.finetuned import Finetuned
from veco_fairseq.understanding.dataset import Item, Side, UnderstandingDataset
from veco_fairseq.understanding.examples import TaggedSentence
from veco_fairseq.understanding.metrics import figures
from veco_fairseq.understanding.predictions import Prediction
from veco_fairseq.understanding.windows import Notes

SUFFIX = {"classification": "txt", "tagging": "tsv", "span": "json"}


class Evaluated(NamedTuple):
    """A model's results on a split.

    Attributes:
        nlu_task: classification, tagging or span.
        predictions: by language, in the files' order.
        figures: language -> name -> per cent.
        alone: for a plugged-in model, language -> number of examples without a translation to attend to.
    """

    nlu_task: str
    predictions: dict[str, list[Prediction]]
    figures: dict[str, dict[str, float]]
    alone: dict[str, int] = {}


def evaluate(finetuned: Finetuned, split: str, max_tokens: int = 8192) -> Evaluated:
    """Predict a split; a model that takes translations gets them where there are any.

    An example's translation does not depend on the chosen languages. Examples without one are counted, and standard error
    names the first.

    Raises:
        UserError: the data is bad.
    """
    task = finetuned.task
    task.load_dataset(split, training=False)
    found = finetuned.predict(task.dataset(split), max_tokens, split)
    sums = task.sums(found)
    by_lang: dict[str, list[Prediction]] = {lang: [] for lang in task.validation_langs}
    for prediction in found:
        by_lang[prediction.side.lang].append(prediction)
    of_langs = {lang: figures(sums[lang]) for lang in by_lang if lang in sums}
    alone = Counter(item.x.lang for item in task.dataset(split).items if task.plug_in and item.y is None)
    return Evaluated(task.nlu_task, by_lang, of_langs, dict(alone))


def label(
    teacher: Finetuned, sentences: Sequence[Sequence[str]], max_tokens: int = 8192, name: Path_ = "teacher"
) -> list[list[str]]:
    """Return a tagger's tags for the words of sentences, a list each: the silver labels of translations (VECO, section 5.1).

    Args:
        name: of the teacher, for a refusal.

    Raises:
        UserError: the teacher is no tagger.
    """
    task = teacher.task
    if task.nlu_task != "tagging":
        raise UserError(f"{name}: is a model for {task.nlu_task}, not for tagging: give a checkpoint of --nlu-task tagging")
    require_list(sentences, "sentences")
    for words in sentences:
        require_list(words, "the words of a sentence")
    make = task.windows(Notes())
    examples = [TaggedSentence(str(place), f"line {place}", tuple(words), ())
                for place, words in enumerate(sentences, start=1) if words]  # fmt: skip
    items = [Item(Side("", example, make(example))) for example in examples]
    dataset = UnderstandingDataset(items, task.nlu_task, task.dictionary.pad())
    tagged = iter(teacher.predict(dataset, max_tokens, "sentences"))
    return [list(next(tagged).value) if words else [] for words in sentences]


def write_predictions(evaluated: Evaluated, folder: Path_, split: str) -> list[Path]:
    """Write one file for each language: a label a line; ``word<TAB>tag`` lines; or question id -> answer as JSON.

    If an id occurs twice, as in TyDiQA's training set, the second question is ID#2, unless a question has this id, and so on.

    Returns:
        The files.
    """
    paths = []
    for lang, found in evaluated.predictions.items():
        path = Path(folder) / f"{split}-{lang}.{SUFFIX[evaluated.nlu_task]}"
        write_text(path, _text(evaluated.nlu_task, found))
        paths.append(path)
    return paths


def _text(nlu_task: str, found: list[Prediction]) -> str:
    if nlu_task == "classification":
        return "".join(f"{prediction.value}\n" for prediction in found)
    if nlu_task == "span":
        own = {prediction.side.example.id for prediction in found}
        numbers: dict[str, Iterator[int]] = defaultdict(lambda: itertools.count(2))
        answers: dict[str, str | list[str]] = {}
        for prediction in found:
            name = given = prediction.side.example.id
            while name in answers or name != given and name in own:
                name = f"{given}#{next(numbers[given])}"
            answers[name] = prediction.value
        return json.dumps(answers, ensure_ascii=False, indent=1) + "\n"
    sentences = []
    for prediction in found:
        example = prediction.side.example
        assert isinstance(example, TaggedSentence)
        words = zip(example.words, prediction.value)
        sentences.append("".join(f"{word}\t{tag}\n" for word, tag in words))
    return "\n".join(sentences)
