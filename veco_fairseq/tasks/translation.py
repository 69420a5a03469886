# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translation with the authors' language tokens, mBART's way: sources ``x </s> [en]``, targets ``y </s> [de]``."""

import logging

from fairseq.data import AppendTokenDataset
from fairseq.tasks import TASK_REGISTRY, register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from veco_fairseq.errors import UserError

logger = logging.getLogger(__name__)


@register_task("veco_translation", dataclass=TranslationConfig)
class VecoTranslationTask(TranslationTask):
    """fairseq's ``translation`` for dictionaries with a token for each language, ``[en]``.

    The source's token is appended to it; the target's stands where ``</s>`` does otherwise: the decoder begins with
    it, and a translation ends with it.

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


class TranslationByDictionaryTask(TranslationTask):
    """What ``--task translation`` is with this plug-in: fairseq's, or :class:`VecoTranslationTask` for a dictionary
    with both languages' tokens.

    ``fairseq-generate`` and ``fairseq-interactive`` take ``translation`` unless told otherwise, and a model that was
    trained with language tokens translates badly without them, in silence.
    """

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        """fairseq's task, or ours."""
        task = TranslationTask.setup_task(cfg, **kwargs)
        langs = cfg.source_lang, cfg.target_lang
        if not all(map(has_language_token, (task.src_dict, task.tgt_dict), langs)):
            return task
        logger.info("the dictionaries have [%s] and [%s]: sources and translations end with them", *langs)
        return VecoTranslationTask(cfg, task.src_dict, task.tgt_dict)


TASK_REGISTRY["translation"] = TranslationByDictionaryTask


def has_language_token(dictionary, lang: str) -> bool:
    """Whether ``[lang]`` is one of its tokens."""
    return f"[{lang}]" in dictionary
