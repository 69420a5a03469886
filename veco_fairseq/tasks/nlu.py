# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--task veco_nlu``: sentence pairs, tags and answers to questions (VECO, section 3.1)."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import register_task
from omegaconf import II
from torch import Tensor

from veco_fairseq.data.roots import load_dictionary
from veco_fairseq.data.sentencepiece import DICT_NAME, MODEL_NAME, load_sentencepiece
from veco_fairseq.data.symbols import require_own_pieces, vocabulary_folder
from veco_fairseq.data.vocabulary import require_same_symbols
from veco_fairseq.errors import UserError
from veco_fairseq.models.nlu import VecoNluModel
from veco_fairseq.options.flags import flag
from veco_fairseq.tasks.base import VecoTask
from veco_fairseq.understanding.dataset import Item, Side, UnderstandingDataset, by_window
from veco_fairseq.understanding.examples import Question, has_gold, without_text
from veco_fairseq.understanding.labels import labels_of
from veco_fairseq.understanding.metrics import SUMS, Sums
from veco_fairseq.understanding.partners import Pairing, asked
from veco_fairseq.understanding.predictions import Prediction, predictions, sums_by_language
from veco_fairseq.understanding.reading import NLU_TASKS, READERS, find_files, read_examples
from veco_fairseq.understanding.windows import MAX_QUESTION, Notes, Windows

logger = logging.getLogger(__name__)

# Options that do nothing but with this value of another one.
ONLY_WITH = {"word_pooling": ("nlu_task", "tagging"), "no_answer": ("nlu_task", "span"), "answer_metric": ("nlu_task", "span"),
             "pivot_lang": ("plug", "in"), "attach_memory": ("plug", "in")}  # fmt: skip


@dataclass
class NluTaskConfig(FairseqDataclass):
    """The task's options."""

    data: Optional[str] = field(
        default=None,
        metadata={"help": "folder of the raw files {train,dev,test}-LANG.{tsv,conllu,json}, plain, .gz or .xz"},
    )
    nlu_task: ChoiceEnum(list(NLU_TASKS)) = field(  # type: ignore[valid-type]  # fairseq makes the type
        default="classification",
        metadata={"help": "classification: sentence pairs; tagging: words; span: answers to questions"},
    )
    plug: ChoiceEnum(["in", "out"]) = field(  # type: ignore[valid-type]
        default="out",
        metadata={"help": "in: predict from [H; S], with cross-attention to the translation; out: predict from H"},
    )
    vocabulary: Optional[str] = field(
        default=None,
        metadata={"help": "folder of dict.txt and sentencepiece.bpe.model (default: that of --finetune-from-model, "
                  "or else --save-dir)"},
    )  # fmt: skip
    train_langs: Optional[str] = field(
        default=None,
        metadata={"help": "comma-separated languages to train on: en alone for cross-lingual transfer (default: all that "
                  "have a training set, for translate-train-all)"},
    )  # fmt: skip
    valid_langs: Optional[str] = field(
        default=None, metadata={"help": "comma-separated languages to validate on (default: all found)"}
    )
    pivot_lang: str = field(
        default="en",
        metadata={"help": "with --plug in: the language that the other files are translations of; its own translations come "
                  "from the first other language in alphabetical order"},
    )  # fmt: skip
    max_length: int = field(default=128, metadata={"help": "longest sequence, in tokens (XTREME: 128, and 384 for questions)"})
    stride: int = field(
        default=128, metadata={"help": "tokens from the start of one window of a long context to the start of the next"}
    )
    word_pooling: ChoiceEnum(["first", "mean"]) = field(  # type: ignore[valid-type]
        default="first", metadata={"help": "predict a word's tag from its first token, or from the mean of its tokens"}
    )
    no_answer: bool = field(
        default=False, metadata={"help": "questions may have no answer; without this option, training leaves such questions out"}
    )
    answer_metric: ChoiceEnum(["squad", "mlqa"]) = field(  # type: ignore[valid-type]
        default="squad", metadata={"help": "how to compare answers: by SQuAD's rules, or by MLQA's for each language"}
    )
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    save_dir: str = II("checkpoint.save_dir")
    no_save: bool = II("checkpoint.no_save")
    train_subset: str = II("dataset.train_subset")
    seed: int = II("common.seed")


@register_task("veco_nlu", dataclass=NluTaskConfig)
class NluTask(VecoTask):
    """Understanding tasks over raw files.

    The checkpoint's ``task_state`` keeps the dictionary's symbols, the labels, and which tokens a word's tag was learnt from.

    Raises:
        UserError: the options or the data cannot be trained with.
    """

    task_name = "veco_nlu"
    models = VecoNluModel
    archs = "--arch veco_nlu_SIZE"
    instead_of_translating = "veco evaluate predicts with them"

    def __init__(self, cfg: NluTaskConfig, dictionary: Dictionary, *, pieces, vocabulary: Path, labels: Sequence[str]):
        super().__init__(cfg, dictionary, vocabulary)
        self.pieces = pieces
        self.nlu_task = str(cfg.nlu_task)
        self.plug_in = str(cfg.plug) == "in"
        self.labels = list(labels)
        self.validation_langs: list[str] = []
        self.pooling = str(cfg.word_pooling)
        self.state.merge_state_dict({"labels": self.labels, "word_pooling": self.pooling})

    @classmethod
    def setup_task(cls, cfg: NluTaskConfig, **kwargs) -> "NluTask":
        if not cfg.data:
            raise UserError("the first argument, the folder of the task's files, is missing")
        if not Path(cfg.data).is_dir():
            raise UserError(f"{cfg.data}: no such folder: the first argument is the folder of the task's files")
        nlu_task = str(cfg.nlu_task)
        from_checkpoint = kwargs.get("from_checkpoint", False)  # which has its labels in its task_state
        if not from_checkpoint:
            given = (name for name in ONLY_WITH if str(getattr(cfg, name, None)) != str(getattr(NluTaskConfig, name, None)))
            refuse_without_effect(cfg, given)
        shortest = MAX_QUESTION + 4 + cfg.stride if nlu_task == "span" else 8
        if cfg.max_length < shortest:
            raise UserError(f"--max-length {cfg.max_length}: must be at least {shortest}, for this task and --stride")
        vocabulary = _vocabulary(cfg, from_checkpoint)
        labels = []
        if nlu_task != "span" and not from_checkpoint:
            files = find_files(Path(cfg.data), cfg.train_subset, nlu_task)
            labels = labels_of(_chosen(files, cfg.train_langs, cfg, cfg.train_subset), nlu_task)
        pieces = load_sentencepiece(vocabulary / MODEL_NAME)
        dictionary = load_dictionary(vocabulary)
        require_own_pieces(pieces, vocabulary / MODEL_NAME, dictionary.symbols)
        return cls(cfg, dictionary, pieces=pieces, vocabulary=vocabulary, labels=labels)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of a checkpoint to predict with, whose labels are the model's outputs."""
        self.resume_task_state({"symbols": state_dict.get("symbols")}, "the checkpoint")
        self.labels = list(state_dict.get("labels", self.labels))

    def resume_task_state(self, task_state: dict[str, Any], checkpoint: str) -> None:
        """Refuse a checkpoint with another dictionary, other labels, or another ``--word-pooling``."""
        require_same_symbols(task_state.get("symbols"), self.dictionary, checkpoint, self.vocabulary)
        if (theirs := list(task_state.get("labels", self.labels))) != self.labels:
            there, here = (f"the labels {', '.join(of)}" if of else "no labels (--nlu-task span)" for of in (theirs, self.labels))
            found = f"has {there}, but the data has {here}"
            raise UserError(f"{checkpoint}: {found}: give data with the same, or begin with the pre-trained checkpoint")
        if (pooling := task_state.get("word_pooling", self.pooling)) != self.pooling:
            raise UserError(f"{checkpoint}: has learnt with --word-pooling {pooling}, not {self.pooling}: give that option, too")

    def build_model(self, cfg, from_checkpoint: bool = False):
        """Build the model; check that it has positions for the longest sequences."""
        model = super().build_model(cfg, from_checkpoint)
        refuse_without_effect(self.cfg, ["attach_memory"] if model.args.attach_memory and not from_checkpoint else [])
        if self.cfg.max_length > model.max_positions():
            raise UserError(f"--max-length {self.cfg.max_length}: the model has {model.max_positions()} positions")
        if model.args.init_from or model.args.freeze_backbone_updates:
            option = "--init-from" if model.args.init_from else "--freeze-backbone-updates"
            raise UserError(f"{option}: is for pre-training: give --finetune-from-model PRETRAINED")
        return model

    # Data

    def load_dataset(self, split: str, combine: bool = False, training: bool | None = None, **kwargs) -> None:
        """Read a split in its languages, and cut it into windows.

        Args:
            training: whether to learn from it (default: if it is ``--train-subset``, and the command is fairseq-train).

        Raises:
            UserError: the data cannot be used for this.
        """
        must_have_labels = training is None  # data of a training needs labels; data to predict does not
        if training is None:
            training = split == self.cfg.train_subset and "task_cfg" not in kwargs  # which fairseq-validate gives
        wanted = self.cfg.train_langs if training else self.cfg.valid_langs
        files = find_files(Path(self.cfg.data), split, self.nlu_task)
        langs = _chosen(files, wanted, self.cfg, split)
        notes = {lang: Notes() for lang in files}

        def read(lang: str) -> list[Side]:
            return self._rows(files[lang], lang, training=training, wanted=lang in langs, notes=notes[lang])

        pairing = Pairing(files, self.cfg.pivot_lang, read, notes)
        sides = {lang: asked(pairing.rows(lang)) for lang in langs}
        unlabelled = (side.has_nothing_to_learn(self.cfg.no_answer) for lang in langs for side in sides[lang])
        if must_have_labels and not training and all(unlabelled):  # training has left those out already
            names = ", ".join(str(files[lang]) for lang in langs)
            raise UserError(f"{names}: has no labels or answers to choose a checkpoint by: give a set with them")
        if self.plug_in:
            items = list(chain.from_iterable(pairing.items(langs, training)))
        else:
            items = [Item(side) for lang in langs for side in sides[lang]]
        if training and self.nlu_task == "span":
            items = list(chain.from_iterable(map(by_window, items)))
        if training and self.plug_in and not any(item.y for item in items):
            why = next(f"{lang}: {line}" for lang, of in notes.items() for line in of.lines() if "translation" in line)
            raise UserError(
                f"--plug in: no example of {', '.join(langs)} has a translation, that is one with the same "
                f"id{' or row' * (self.nlu_task == 'classification')} ({why}; --pivot-lang {self.cfg.pivot_lang})"
            )
        seed = self.cfg.seed if training else None
        self.datasets[split] = UnderstandingDataset(items, self.nlu_task, self.dictionary.pad(), seed)
        for lang in langs:
            logger.info(f"{split} {lang}: {len(sides[lang]):,} examples of {files[lang]}")
        for lang, of_lang in notes.items():
            for line in of_lang.lines():
                logger.warning(f"{split} {lang}: {line}")
        if not training:
            self.validation_langs = list(dict.fromkeys([*self.validation_langs, *langs]))

    def windows(self, notes: Notes) -> Windows:
        """Return the object that turns examples into the model's input."""
        return Windows(
            self.dictionary,
            self.pieces,
            self.labels,
            max_length=self.cfg.max_length,
            stride=self.cfg.stride,
            word_pooling=self.pooling,
            notes=notes,
        )

    def _rows(self, path: Path, lang: str, *, training: bool, wanted: bool, notes: Notes) -> list[Side]:
        """Read a language's examples; for training without their text, and those without a label only to be looked at."""
        windows = self.windows(notes)
        sides = []
        for example in read_examples(path, lang, self.nlu_task):
            side = Side(lang, example, windows(example))
            if side.has_nothing_to_learn(self.cfg.no_answer):
                if training and wanted:
                    notes.add("without label or answer, left out", example.where)
                    side.only_seen = True
                for window in side.windows:  # a question's would ask for no answer
                    window.predict_nothing()
            if not training and wanted and not (has_gold(example) or (self.cfg.no_answer and isinstance(example, Question))):
                notes.add("without label or answer, not counted", example.where)
            if training:  # some sets have millions
                side.example = without_text(example)
            sides.append(side)
        if not asked(sides):
            missing = "answers are missing (see --no-answer)" if self.nlu_task == "span" else "labels are missing"
            raise UserError(f"{path}: has no example to learn from: {missing}")
        return sides

    # Predictions

    def predict(self, batch: dict[str, Any], logits: Tensor) -> list[Prediction]:
        """Return the model's predictions for a batch's examples."""
        return list(predictions(batch, logits, nlu_task=self.nlu_task, labels=self.labels, no_answer=self.cfg.no_answer))

    def sums(self, found: list[Prediction]) -> dict[str, Sums]:
        """Return sums over the predictions that the scores follow from, by language."""
        return sums_by_language(found, self.nlu_task, str(self.cfg.answer_metric), self.cfg.no_answer)

    def validation_sums(self, batch: dict[str, Any], logits: Tensor) -> dict[str, float]:
        """Return ``LANG/NAME`` -> value, with the same keys for every batch."""
        found = self.sums(self.predict(batch, logits))
        return {f"{lang}/{name}": found.get(lang, {}).get(name, 0.0)
                for lang in self.validation_langs for name in SUMS[self.nlu_task]}  # fmt: skip


def refuse_without_effect(cfg: NluTaskConfig, given: Iterable[str]) -> None:
    """Raise UserError for an option, by name, of another ``--nlu-task`` or ``--plug``."""
    for name in given:
        option, value = ONLY_WITH.get(name, ("", ""))
        if option and str(getattr(cfg, option)) != value:
            raise UserError(f"{flag(name)}: is for {flag(option)} {value} alone: leave it out")


def _vocabulary(cfg: NluTaskConfig, from_checkpoint: bool) -> Path:
    """Return the folder of dict.txt and the SentencePiece model: a checkpoint to predict with has them beside it."""
    folders = [vocabulary_folder(cfg.finetune_from_model)] if cfg.finetune_from_model else []
    folders.insert(0 if from_checkpoint else 1, Path(cfg.save_dir or ""))
    folders = [Path(cfg.vocabulary)] if cfg.vocabulary else folders
    for folder in folders:
        if (folder / DICT_NAME).is_file() and (folder / MODEL_NAME).is_file():
            return folder
    how = "copy both there" if from_checkpoint else "give --finetune-from-model with both beside it, or --vocabulary FOLDER"
    raise UserError(f"{folders[0]}: has no {DICT_NAME} and {MODEL_NAME}: {how}")


def _chosen(files: dict[str, Path], wanted: str | None, cfg: NluTaskConfig, split: str) -> dict[str, Path]:
    """Return the files of the chosen languages."""
    if not files:
        suffix, *_ = READERS[str(cfg.nlu_task)]
        raise UserError(f"{cfg.data}: has no {split} set of --nlu-task {cfg.nlu_task}: files such as {split}-en.{suffix}")
    langs = wanted.split(",") if wanted else list(files)
    if missing := [lang for lang in langs if lang not in files]:
        raise UserError(f"{cfg.data}: has no {split} set of {', '.join(missing)}; there is {', '.join(files)}")
    return {lang: files[lang] for lang in langs}
