# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The task that pre-training and understanding share, with one vocabulary for all languages."""

from pathlib import Path

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.tasks import FairseqTask

from veco_fairseq.checkpoints.kinds import arch_of, model_class
from veco_fairseq.data.sentencepiece import DICT_NAME, MODEL_NAME
from veco_fairseq.errors import UserError
from veco_fairseq.models.base import PretrainingModel


def require_model(cfg, models: type, task: str, advice: str) -> None:
    """Check before a model is built that the task can train it.

    Args:
        cfg: fairseq's options of the model, which name it.
        models: the class of the models that the task takes.
        advice: what to give instead.

    Raises:
        UserError: the task takes other models.
    """
    model = model_class(cfg)
    if model is not None and not issubclass(model, models):
        raise UserError(f"--arch {arch_of(cfg)}: is no model of --task {task}: give {advice}")


class VecoTask(FairseqTask):
    """A task with one dictionary. Checkpoints keep its symbols and the task's name in ``task_state``.

    Args:
        vocabulary: the folder of dict.txt and, if there is one, sentencepiece.bpe.model.

    Attributes:
        ddp_backend: replaces fairseq's default, which allows neither parameters without a gradient nor several backward
            passes an update.
        idle_parameters: some may learn from no batch (:class:`veco_fairseq.compat.hooks.HasIdleParameters`).
        task_name: of ``--task``.
        models: the class of the models that it takes, and of those that extend it.
        archs: what ``--arch`` can be, for errors.
        instead_of_translating: what to do with its models, for the error.
        without_effect: options of fairseq that do nothing for it, each with the reason.
    """

    ddp_backend = "legacy_ddp"
    idle_parameters = True
    task_name = ""
    models: type = PretrainingModel
    archs = ""
    instead_of_translating = ""
    without_effect = {
        "sentence_avg": "the loss is a mean over all predictions",
        "combine_valid_subsets": "each set to validate on stays by itself, as with --valid-subset valid,valid1",
        "required_seq_len_multiple": "a batch is as long as its longest sequence",
    }

    def __init__(self, cfg, dictionary: Dictionary, vocabulary: Path):
        super().__init__(cfg)
        self.dictionary = dictionary
        self.vocabulary = vocabulary
        self.arch, self.criterion_of_model = "", None
        self.state.merge_state_dict({"symbols": list(dictionary.symbols), "task": self.task_name})

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    target_dictionary = source_dictionary

    def build_model(self, cfg, from_checkpoint: bool = False):
        """Build the model, and note what it takes.

        Raises:
            UserError: it is a model of another task.
        """
        require_model(cfg, self.models, self.task_name, self.archs)
        model = super().build_model(cfg, from_checkpoint)
        self.arch, self.criterion_of_model = getattr(model.args, "arch", ""), getattr(model, "criterion", None)
        return model

    def build_criterion(self, cfg, from_checkpoint: bool = False):
        """Build the criterion; check that it is the model's, or extends it."""
        name, own = getattr(cfg, "_name", None), self.criterion_of_model
        if None not in (name, own) and name != own and not issubclass(CRITERION_REGISTRY[name], CRITERION_REGISTRY[own]):
            raise UserError(f"--criterion {name}: --arch {self.arch} takes --criterion {self.criterion_of_model}")
        return super().build_criterion(cfg, from_checkpoint)

    def build_generator(self, *args, **kwargs):
        """Refuse fairseq-generate and fairseq-interactive.

        Raises:
            UserError: always.
        """
        raise UserError(f"--task {self.task_name}: its models do not translate: {self.instead_of_translating}")

    def begin_epoch(self, epoch: int, model) -> None:
        """Copy the dictionary and the SentencePiece model to the checkpoints, if any, so that these can be used alone."""
        if distributed_utils.get_global_rank() == 0 and not self.cfg.no_save:
            for name in (DICT_NAME, MODEL_NAME):
                if (self.vocabulary / name).is_file():  # under a fixed temporary name, so that kills leave one file at most
                    PathManager.copy(str(self.vocabulary / name), str(Path(self.cfg.save_dir) / name), overwrite=True)
