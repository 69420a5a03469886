# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""fairseq's translation with a look at what a checkpoint was trained for, and with the authors' language tokens."""

import logging
from typing import Any, Dict

from fairseq.data import AppendTokenDataset
from fairseq.tasks import TASK_REGISTRY, register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from veco_fairseq.data.vocabulary import require_same_symbols
from veco_fairseq.errors import UserError

logger = logging.getLogger(__name__)


class CheckedTranslationTask(TranslationTask):
    """What ``--task translation`` is with this plug-in: fairseq's, which does in silence what cannot go well.

    A checkpoint keeps the target's symbols and the two languages in its ``task_state``. One of another dictionary is
    refused, and one of the opposite direction, too, but for training. Where both dictionaries have their language's
    token the task is :class:`VecoTranslationTask`: ``fairseq-generate`` and ``fairseq-interactive`` take
    ``translation`` unless told otherwise, and a model of the authors' translates badly without the tokens.

    Raises:
        UserError: the checkpoint is of another dictionary or direction.
    """

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        languages = [cfg.source_lang, cfg.target_lang]
        self.state.merge_state_dict({"symbols": list(tgt_dict.symbols), "languages": languages})

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        """fairseq's task, with language tokens where the dictionaries have them."""
        task = super().setup_task(cfg, **kwargs)
        langs = cfg.source_lang, cfg.target_lang
        has_tokens = all(map(has_language_token, (task.src_dict, task.tgt_dict), langs))
        if cls is not CheckedTranslationTask or not has_tokens:
            return task
        logger.info("the dictionaries have [%s] and [%s]: sources and translations end with them", *langs)
        return VecoTranslationTask(cfg, task.src_dict, task.tgt_dict)

    def check_task_state(self, task_state: Dict[str, Any], checkpoint: str) -> None:
        """Refuse a checkpoint of another dictionary, to train from or to translate with."""
        require_same_symbols(task_state.get("symbols"), self.tgt_dict, checkpoint, self.cfg.data)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Of a model to translate with."""
        self.check_task_state(state_dict, "the checkpoint")
        source, target = self.cfg.source_lang, self.cfg.target_lang
        if source != target and state_dict.get("languages") == [target, source]:
            raise UserError(f"the checkpoint translates from {target} to {source}: check -s {source} and -t {target}")


TASK_REGISTRY["translation"] = CheckedTranslationTask


@register_task("veco_translation", dataclass=TranslationConfig)
class VecoTranslationTask(CheckedTranslationTask):
    """``translation`` for dictionaries with a token for each language, ``[en]``, placed as mBART's.

    Sources are ``x </s> [en]`` and targets ``y </s> [de]``: the target's token stands where ``</s>`` does otherwise, so
    that the decoder begins with it, and a translation ends with it.

    Raises:
        UserError: a dictionary has no such token; ``--num-batch-buckets``, which fixes lengths without the tokens.
    """

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        for dictionary, lang in ((src_dict, cfg.source_lang), (tgt_dict, cfg.target_lang)):
            if not has_language_token(dictionary, lang):
                raise UserError(
                    f"[{lang}]: is not in the dictionary: --task veco_translation needs it; try --task translation"
                )
        if cfg.num_batch_buckets > 0:
            raise UserError("--num-batch-buckets: cannot be had with language tokens; leave it away")
        self.source_token = src_dict.index(f"[{cfg.source_lang}]")
        self.target_token = tgt_dict.index(f"[{cfg.target_lang}]")

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """fairseq's, with the language tokens."""
        super().load_dataset(split, epoch, combine, **kwargs)
        pairs = self.datasets[split]
        pairs.src = AppendTokenDataset(pairs.src, self.source_token)
        pairs.src_sizes = pairs.src_sizes + 1
        if pairs.tgt is not None:
            pairs.tgt = AppendTokenDataset(pairs.tgt, self.target_token)
            pairs.tgt_sizes = pairs.tgt_sizes + 1
        pairs.sizes = pairs.sizes + 1
        pairs.eos = self.target_token

    def build_dataset_for_inference(self, src_tokens, src_lengths, constraints=None):
        """Sources with their language token; ``src_tokens`` end in ``</s>``."""
        tokens = [source.new_tensor([*source.tolist(), self.source_token]) for source in src_tokens]
        return super().build_dataset_for_inference(tokens, src_lengths + 1, constraints)

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, prefix_allowed_tokens_fn=None):
        """fairseq's, which begins and ends with the target's language token."""
        more = {**(extra_gen_cls_kwargs or {}), "eos": self.target_token}
        return super().build_generator(models, args, seq_gen_cls, more, prefix_allowed_tokens_fn)


def has_language_token(dictionary, lang: str) -> bool:
    """Whether ``[lang]`` is one of its tokens."""
    return f"[{lang}]" in dictionary
