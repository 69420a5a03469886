# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Translation that checks what a checkpoint was trained for, and knows the authors' language tokens."""

import logging
from itertools import chain
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.data import AppendTokenDataset
from fairseq.logging import metrics
from fairseq.models import FairseqEncoderDecoderModel, FairseqEncoderModel, FairseqLanguageModel
from fairseq.search import LengthConstrainedBeamSearch, LexicallyConstrainedBeamSearch
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks import TASK_REGISTRY, register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from veco_fairseq.checkpoints.kinds import model_class
from veco_fairseq.checkpoints.task_state import NOT_FINE_TUNED, is_only_converted
from veco_fairseq.data.directions import the_direction
from veco_fairseq.data.languages import sides_of
from veco_fairseq.data.vocabulary import has_language_token, require_dictionaries, require_same_symbols
from veco_fairseq.errors import UserError
from veco_fairseq.tasks.base import require_model
from veco_fairseq.tasks.bleu import check_bleu, counted_in, log_bleu
from veco_fairseq.tasks.endings import meeting_constraints, of_least_length
from veco_fairseq.tasks.links import link_words_alone

logger = logging.getLogger(__name__)

NO_TRANSLATORS = (FairseqEncoderModel, FairseqLanguageModel)


class CheckedTranslationTask(TranslationTask):
    """``--task translation`` with this plug-in: fairseq's task, with checks for its silent failures.

    A checkpoint keeps the dictionaries' symbols and both languages in its ``task_state``. A checkpoint with another
    dictionary is refused, and, except for training, one of the opposite direction. If both dictionaries have their
    language's token, the task is :class:`VecoTranslationTask`. This is the default because ``fairseq-generate`` and
    ``fairseq-interactive`` take ``translation`` unless told otherwise, and the authors' models translate badly without
    the tokens.

    Attributes:
        tokens_beside: that a source has beside its pieces: ``</s>``.
        without_effect: options of fairseq that do nothing for the task, each with the reason.

    Raises:
        UserError: the checkpoint has another dictionary or direction.
    """

    tokens_beside = 1
    without_effect = dict.fromkeys(
        ("print_step", "retain_iter_history", "iter_decode_force_max_iter", "iter_decode_with_external_reranker"),
        "is for models that refine a whole translation step by step",
    )

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        self.languages_of_ensemble: list[str] | None = None  # of its first model that says them
        symbols = {"symbols": list(tgt_dict.symbols), "languages": [cfg.source_lang, cfg.target_lang]}
        if src_dict != tgt_dict:
            symbols["source_symbols"] = list(src_dict.symbols)
        self.state.merge_state_dict(symbols)

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        """Make the task, with language tokens if the dictionaries have them.

        Raises:
            UserError: the folder has no dictionary of a language that was given, or data of several directions and none was given.
        """
        folder, langs = Path(utils.split_paths(cfg.data)[0]), (cfg.source_lang, cfg.target_lang)
        require_dictionaries(folder, filter(None, langs), "-s and -t")
        if not all(langs) and (found := the_direction(folder, *langs)):
            cfg.source_lang, cfg.target_lang = found
        task = super().setup_task(cfg, **kwargs)
        if cls is not CheckedTranslationTask:
            return task
        langs = cfg.source_lang, cfg.target_lang
        has_tokens = list(map(has_language_token, (task.src_dict, task.tgt_dict), langs))
        if all(has_tokens):
            logger.info("the dictionaries have [%s] and [%s]: sources and translations end with them", *langs)
            return VecoTranslationTask(cfg, task.src_dict, task.tgt_dict)
        if any(has_tokens):
            logger.warning("only one of [%s] and [%s] is in the dictionaries: language tokens are not used", *langs)
        return task

    def build_model(self, cfg, from_checkpoint: bool = False):
        """Build the model.

        Raises:
            UserError: it has no decoder, such as one of pre-training; or see :func:`check_bleu`.
        """
        if issubclass(model_class(cfg) or object, NO_TRANSLATORS):  # one of another --user-dir may extend fairseq's base alone
            advice = "--arch veco_mt_SIZE, or another translation model"
            require_model(cfg, FairseqEncoderDecoderModel, self.cfg._name or "translation", advice)
        if self.cfg.eval_bleu:
            check_bleu(self.cfg, self.tgt_dict.symbols, getattr(self, "targets", [self.cfg.target_lang]))
        return super().build_model(cfg, from_checkpoint)

    def _inference_with_bleu(self, generator, sample, model):
        """Translate and count for ``--eval-bleu``, by the words of the language translated into."""
        with counted_in(sides_of(sample["direction"])[1] if "direction" in sample else self.cfg.target_lang):
            return super()._inference_with_bleu(generator, sample, model)

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion) -> None:
        """Log what fairseq does, and BLEU in every validation with ``--eval-bleu``."""
        super().reduce_metrics(logging_outputs, criterion)
        if logs := [log for log in logging_outputs if "_bleu_sys_len" in log]:
            if not any(log["_bleu_totals_0"] for log in logs):  # fairseq logs nothing, not even that the references have words
                metrics.log_scalar("_bleu_ref_len", float(sum(log["_bleu_ref_len"] for log in logs)))
            log_bleu()

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """Load a set, and check that it has translations; without them, fairseq fails only with the first batch.

        Raises:
            UserError: a set for training or validation, under whatever name, has no target side, or ``--load-alignments`` finds
                none of the set to train on.
        """
        super().load_dataset(split, epoch, combine, **kwargs)
        # fairseq-generate, which needs no translations, gives task_cfg; fairseq-train does not
        to_train = "task_cfg" not in kwargs or split == self.cfg.train_subset or split.startswith("valid")
        if self.datasets[split].tgt is None and to_train:
            raise UserError(
                f"{self.cfg.data}: its {split} data has no {self.cfg.target_lang}: run fairseq-preprocess again with both "
                "languages"
            )
        if self.cfg.load_alignments and self.datasets[split].align_dataset is None and split == self.cfg.train_subset:
            raise UserError(
                f"--load-alignments: {self.cfg.data} has no {split}.align.{self.cfg.source_lang}-{self.cfg.target_lang}: run "
                "fairseq-preprocess again with --align-suffix, or leave the option out"
            )

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, prefix_allowed_tokens_fn=None):
        """Make the search of fairseq; with ``--match-source-len`` translations have as many pieces as their sources.

        With ``--prefix-size``, an empty translation is a prefix that ends at once. A beam has it a single time, and fairseq
        would look for more until it fails.

        Raises:
            UserError: ``--prefix-size`` without translations to take prefixes of; or ``--lm-path`` is no language model.
        """
        has_prefixes = getattr(args, "prefix_size", 0) > 0
        if has_prefixes and any(pairs.tgt is None for pairs in self.datasets.values()):
            raise UserError(
                f"--prefix-size: {self.cfg.data} has no {self.cfg.target_lang} to take prefixes of: leave it out, or give "
                "prefixes with veco translate --prefixes"
            )
        lm = (extra_gen_cls_kwargs or {}).get("lm_model")
        if lm is not None and not isinstance(lm, FairseqLanguageModel):
            raise UserError(f"--lm-path {args.lm_path}: is no language model: give a checkpoint of --task language_modeling")
        generator = super().build_generator(models, args, seq_gen_cls, extra_gen_cls_kwargs, prefix_allowed_tokens_fn)
        if has_prefixes and hasattr(generator, "search") and not args.match_source_len:  # which lets none be empty
            generator.search.stop_on_max_len = True
        if isinstance(search := getattr(generator, "search", None), LengthConstrainedBeamSearch):
            search.min_len_b = search.max_len_b = -self.tokens_beside  # which fairseq counts as pieces of the source
        return generator

    def resume_task_state(self, task_state: dict[str, Any], checkpoint: str) -> None:
        """Refuse a checkpoint with another dictionary, for training and for translation."""
        of_target = task_state.get("symbols")
        of_both = (
            (task_state.get("source_symbols", of_target), self.src_dict, self.cfg.source_lang),
            (of_target, self.tgt_dict, self.cfg.target_lang),
        )
        data = Path(utils.split_paths(self.cfg.data)[0])
        for symbols, dictionary, lang in of_both:
            require_same_symbols(symbols, dictionary, checkpoint, data / f"dict.{lang}.txt")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Check the state of a model to translate with, or of each of an ensemble."""
        require_translation_model(state_dict)
        source, target = self.cfg.source_lang, self.cfg.target_lang
        if state_dict.get("lang_pairs"):
            raise UserError("the checkpoint is one of many directions: add --task veco_multilingual_translation")
        if source != target and state_dict.get("languages") == [target, source]:
            raise UserError(f"the checkpoint translates from {target} to {source}: check -s {source} and -t {target}")
        languages = state_dict.get("languages")
        if languages and None not in languages:
            first = self.languages_of_ensemble = self.languages_of_ensemble or languages
            if languages != first:
                pairs = " and from ".join(map(" to ".join, (first, languages)))
                raise UserError(f"an ensemble has models of one direction, and these are from {pairs}")
        self.resume_task_state(state_dict, "the checkpoint")


def require_translation_model(state: dict[str, Any]) -> None:
    """Refuse to translate with a model of pre-training or understanding, whose state names its task.

    One that ``veco convert`` has written is told: its translations are those of no training.
    """
    if task := state.get("task"):
        raise UserError(
            f"the checkpoint is of --task {task}, and does not translate: convert a pre-trained one (veco convert) and fine-tune it"
        )
    if is_only_converted(state):
        logger.warning(f"the checkpoint {NOT_FINE_TUNED}")


TASK_REGISTRY["translation"] = CheckedTranslationTask


def refuse_fixed_lengths(cfg: TranslationConfig) -> None:
    """Refuse options that fix the lengths of sentences before their language tokens are there."""
    if cfg.num_batch_buckets > 0 or cfg.truncate_source:
        option = "--truncate-source" if cfg.truncate_source else "--num-batch-buckets"
        raise UserError(f"{option}: does not work with language tokens: leave it out")


@register_task("veco_translation", dataclass=TranslationConfig)
class VecoTranslationTask(CheckedTranslationTask):
    """``translation`` for dictionaries with a token for each language, such as ``[en]``, which stands where mBART has it.

    Sources are ``x </s> [en]`` and targets ``y </s> [de]``. The target's token plays the role of ``</s>``: the decoder
    begins with it, and a translation ends with it.

    Raises:
        UserError: a dictionary has no such token, or ``--num-batch-buckets`` or ``--truncate-source`` is given, which fix
            lengths without the tokens.
    """

    tokens_beside = 2

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        for dictionary, lang in ((src_dict, cfg.source_lang), (tgt_dict, cfg.target_lang)):
            if not has_language_token(dictionary, lang):
                raise UserError(f"[{lang}]: is not in the dictionary: --task veco_translation needs it; try --task translation")
        refuse_fixed_lengths(cfg)
        self.source_token = src_dict.index(f"[{cfg.source_lang}]")
        self.target_token = tgt_dict.index(f"[{cfg.target_lang}]")

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """Load a set, and append the language tokens."""
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
        """Append the language token to the sources; ``src_tokens`` end in ``</s>``."""
        tokens = [source.new_tensor([*source.tolist(), self.source_token]) for source in src_tokens]
        return super().build_dataset_for_inference(tokens, [len(source) for source in tokens], constraints)

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, prefix_allowed_tokens_fn=None):
        """Make a beam search that begins and ends with the target's language token, and meets its constraints before.

        Raises:
            UserError: ``--match-source-len``, whose search ends with ``</s>``.
        """
        if getattr(args, "match_source_len", False):
            raise UserError("--match-source-len: does not work with language tokens: leave it out")
        more = {**(extra_gen_cls_kwargs or {}), "eos": self.target_token}
        generator = super().build_generator(models, args, seq_gen_cls, more, prefix_allowed_tokens_fn)
        if isinstance(search := getattr(generator, "search", None), LexicallyConstrainedBeamSearch):
            search.eos = self.target_token
            search.step = meeting_constraints(search, self.tgt_dict.eos())
        if search and getattr(generator, "min_len", 1) > 1:
            search.step = of_least_length(generator, self.tgt_dict.eos())
        if isinstance(generator, SequenceScorer):  # of --score-reference: what is printed of a reference has no token
            generator.symbols_to_strip_from_output.add(self.target_token)
        link_words_alone(generator, [self.src_dict.eos(), self.source_token], [self.tgt_dict.eos(), self.target_token])
        return generator

    def inference_step(self, *args, **kwargs):
        """Translate a batch; hypotheses end in ``</s>``, so that it is not printed."""
        hypotheses = super().inference_step(*args, **kwargs)
        for hypothesis in chain.from_iterable(hypotheses):
            hypothesis["tokens"] = self._with_eos(hypothesis["tokens"])
        return hypotheses

    def _inference_with_bleu(self, generator, sample, model):
        """Translate and count for ``--eval-bleu`` without the token, which would count as a word that is always right."""
        return super()._inference_with_bleu(generator, {**sample, "target": self._with_eos(sample["target"])}, model)

    def _with_eos(self, tokens):
        return tokens.masked_fill(tokens.eq(self.target_token), self.tgt_dict.eos())
