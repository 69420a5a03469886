# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Loads a model fine-tuned for understanding, and predicts with it."""

from typing import NamedTuple

import torch
from fairseq import checkpoint_utils
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq.utils import move_to_cuda
from tqdm import tqdm

from veco_fairseq.checkpoints.reading import require_checkpoint
from veco_fairseq.data.symbols import vocabulary_folder
from veco_fairseq.errors import UserError
from veco_fairseq.files import Path_
from veco_fairseq.models.nlu import VecoNluModel
from veco_fairseq.modules.device import usual_device
from veco_fairseq.options.flags import flag
from veco_fairseq.tasks.nlu import NluTask, NluTaskConfig, refuse_without_effect
from veco_fairseq.understanding.dataset import UnderstandingDataset
from veco_fairseq.understanding.predictions import Prediction


class Finetuned(NamedTuple):
    """A fine-tuned model, its device, and its task."""

    model: VecoNluModel
    task: NluTask

    @torch.inference_mode()
    def predict(self, dataset: UnderstandingDataset, max_tokens: int, name: str) -> list[Prediction]:
        """Return the model's predictions for the examples, in their order.

        Args:
            max_tokens: of a batch, with padding.
            name: of the examples, for the progress bar.
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
    """Load a checkpoint of ``--task veco_nlu``, with the dict.txt and sentencepiece.bpe.model beside it.

    Args:
        data: the folder of the files to predict.
        options: of the task, where they differ from training.

    Raises:
        UserError: the checkpoint has another model or cannot be read, an option does nothing in its task, or is none, or the data is bad.
    """
    overrides = {"data": str(data), "vocabulary": str(vocabulary_folder(checkpoint)), "valid_langs": None, **options}
    require_checkpoint(checkpoint)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint), overrides)
    task_name = None if state["cfg"] is None else getattr(state["cfg"].task, "_name", None)
    if not issubclass(TASK_REGISTRY.get(task_name) or object, NluTask):  # or one of somebody else's that extends it
        raise UserError(f"{checkpoint}: is no model of --task veco_nlu: fine-tune it first")
    fields = TASK_DATACLASS_REGISTRY.get(task_name, NluTaskConfig).__dataclass_fields__
    known = [name for name in fields if not name.startswith("_")]
    if unknown := [name for name in options if name not in known]:
        raise UserError(f"{flag(unknown[0])}: is no option of --task {task_name}: there is {', '.join(map(flag, known))}")
    refuse_without_effect(state["cfg"].task, options)
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], state=state)
    return Finetuned(models[0].eval().to(usual_device(cpu)), task)
