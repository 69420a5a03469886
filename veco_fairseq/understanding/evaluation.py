# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""A fine-tuned model's predictions and figures on a test set, by language."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from fairseq import checkpoint_utils
from fairseq.utils import move_to_cuda
from tqdm import tqdm

from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_, atomic_output
from veco_fairseq.models.nlu import VecoNluModel
from veco_fairseq.tasks.nlu import NluTask
from veco_fairseq.understanding.dataset import Item, Side, UnderstandingDataset
from veco_fairseq.understanding.examples import TaggedSentence
from veco_fairseq.understanding.metrics import figures
from veco_fairseq.understanding.predictions import Prediction
from veco_fairseq.understanding.windows import Notes

SUFFIX = {"classification": "txt", "tagging": "tsv", "span": "json"}


class Evaluated(NamedTuple):
    """What a model says of a split.

    Attributes:
        nlu_task: classification, tagging or span.
        predictions: by language, in the files' order.
        figures: language -> name -> per cent.
        alone: of a plugged-in model, language -> number of examples that had no translation to look at.
    """

    nlu_task: str
    predictions: dict[str, list[Prediction]]
    figures: dict[str, dict[str, float]]
    alone: dict[str, int] = {}


class Finetuned(NamedTuple):
    """A fine-tuned model, where it computes, and its task."""

    model: VecoNluModel
    task: NluTask

    @torch.inference_mode()
    def predict(self, dataset: UnderstandingDataset, max_tokens: int, name: str) -> list[Prediction]:
        """What the model says of the examples, in their order.

        Args:
            max_tokens: of a batch, with padding.
            name: of the examples, for the line of progress.
        """
        on_gpu = next(self.model.parameters()).is_cuda
        order = {id(item.x): place for place, item in enumerate(dataset.items)}
        found: list[Prediction] = []
        batches = dataset.batch_by_size(dataset.ordered_indices(), max_tokens=max_tokens)
        for batch in tqdm(batches, desc=name, unit=" batches", disable=None, leave=False):
            sample = dataset.collater([dataset[index] for index in batch])
            net_input = move_to_cuda(sample["net_input"]) if on_gpu else sample["net_input"]
            found += self.task.predict(sample, self.model(**net_input))
        return sorted(found, key=lambda prediction: order[id(prediction.side)])


def load_finetuned(checkpoint: Path_, data: Path_, cpu: bool = False, **options) -> Finetuned:
    """Load a checkpoint of ``--task veco_nlu``, dict.txt and sentencepiece.bpe.model beside it.

    Args:
        data: the folder of the files to predict.
        options: of the task, to have otherwise than in training.

    Raises:
        UserError: the checkpoint is another model's or cannot be read, or the data is bad.
    """
    overrides = {"data": str(data), "vocabulary": str(Path(checkpoint).parent), "valid_langs": None, **options}
    if not Path(checkpoint).is_file():
        raise UserError(f"{checkpoint}: no such checkpoint")
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint), overrides)
    if state["cfg"] is None or getattr(state["cfg"].task, "_name", None) != "veco_nlu":
        raise UserError(f"{checkpoint}: is no model of --task veco_nlu: fine-tune it first")
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], state=state)
    device = "cuda" if torch.cuda.is_available() and not cpu else "cpu"
    return Finetuned(models[0].eval().to(device), task)


def evaluate(finetuned: Finetuned, split: str, max_tokens: int = 8192) -> Evaluated:
    """Predict a split, with the translation plugged in where the model takes one and there is one.

    Whose translation that is, does not depend on the languages that are asked for; those without are counted, and on
    standard error is where the first is.

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


def label(teacher: Finetuned, sentences: Sequence[Sequence[str]], max_tokens: int = 8192) -> list[list[str]]:
    """The tags that a tagger gives to the words of sentences: the silver labels of translations (section 5.1).

    Raises:
        UserError: the teacher is no tagger.
    """
    task = teacher.task
    if task.nlu_task != "tagging":
        raise UserError(f"the teacher is a model for {task.nlu_task}, not for tagging")
    make = task.windows(Notes())
    examples = [TaggedSentence(str(place), f"line {place}", tuple(words), ())
                for place, words in enumerate(sentences, start=1)]  # fmt: skip
    items = [Item(Side("", example, make(example))) for example in examples]
    dataset = UnderstandingDataset(items, task.nlu_task, task.dictionary.pad())
    return [prediction.value for prediction in teacher.predict(dataset, max_tokens, "sentences")]


def write_predictions(evaluated: Evaluated, folder: Path_, split: str) -> list[Path]:
    """One file a language: a label a line; ``word<TAB>tag`` lines; or question id -> answer as JSON.

    The second question of an id, as TyDiQA's training set has, is ID#2 there, and so on.

    Returns:
        The files.
    """
    paths = []
    for lang, found in evaluated.predictions.items():
        path = Path(folder) / f"{split}-{lang}.{SUFFIX[evaluated.nlu_task]}"
        with atomic_output(path) as temporary:
            temporary.write_text(_text(evaluated.nlu_task, found), encoding="utf-8")
        paths.append(path)
    return paths


def _text(nlu_task: str, found: list[Prediction]) -> str:
    if nlu_task == "classification":
        return "".join(f"{prediction.value}\n" for prediction in found)
    if nlu_task == "span":
        answers, seen = {}, Counter()
        for prediction in found:
            name = prediction.side.example.id
            seen[name] += 1
            answers[name if seen[name] == 1 else f"{name}#{seen[name]}"] = prediction.value
        return json.dumps(answers, ensure_ascii=False, indent=1) + "\n"
    sentences = []
    for prediction in found:
        words = zip(prediction.side.example.words, prediction.value)
        sentences.append("".join(f"{word}\t{tag}\n" for word, tag in words))
    return "\n".join(sentences)
