# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""All changes that this plug-in makes to fairseq, one line a change with its reason; :func:`install` makes them.

Each module here has one concern, and keeps the replaced functions under names ``_fairseq_...``.
"""

import atexit
import logging
from pkgutil import resolve_name

from veco_fairseq.cli import finish_output
from veco_fairseq.compat.patching import Patch, make, replacement_of
from veco_fairseq.errors import UserError

# The release of 2024, which can be imported on Python 3.11 and later.
FAIRSEQ = "0.12.3.1"

TRAINER = "fairseq.trainer:Trainer"
ITERATOR = "fairseq.data.iterators:EpochBatchIterator"
PLATEAU = "fairseq.optim.lr_scheduler.reduce_lr_on_plateau:ReduceLROnPlateauLRSchedule"
AMP = "fairseq.optim.amp_optimizer:AMPOptimizer"
FP16 = "fairseq.optim.fp16_optimizer:"
SMOOTHED = "fairseq.criterions.label_smoothed_cross_entropy:LabelSmoothedCrossEntropyCriterion"
DIGITS = "a training that is resumed under --fp16, --bf16 or --amp goes on with rounded weights, or with another loss scale"
ORDER = "resumed in a later epoch, a training has other batches than an undisturbed one"
FORKS = "the data loaders' processes import everything again where Python does not fork by itself"

# What only changes the time that something takes: benchmarks measure fairseq without these.
SPEED = (
    Patch("fairseq.utils:multi_tensor_total_norm", ".optim.norms:total_norm", "without Apex it has a kernel for each parameter"),
    Patch("fairseq.utils:multi_tensor_l2norm_available", ".optim.norms:AVAILABLE", "see the line above"),
    Patch(f"{TRAINER}.clip_grad_norm", ".optim.norms:clip_grad_norm", "a GPU is waited for three times to read the norm"),
    Patch("fairseq.optim.adam:Adam.step", ".optim.fused_adam:step", "it makes eight passes over all parameters"),
    *(Patch(f"torch.optim:Optimizer.{method}", ".optim.eager:without_compiler", "a training starts a second later", wraps=True)
      for method in ("add_param_group", "load_state_dict", "state_dict", "zero_grad")),
    Patch("fairseq.modules.fairseq_dropout:FairseqDropout.forward", ".modules.dropout:forward",
          "on a CPU, its random numbers take a tenth of an update"),
    Patch("fairseq.modules:MultiheadAttention.forward", ".modules.attention:forward",
          "on a CPU, its random numbers take a tenth of an update, and in bf16 its backward pass a third"),
    Patch("fairseq.modules:gelu", "torch.nn.functional:gelu", "in 16 bits, its copies in fp32 take as long as the function"),
    Patch(f"{SMOOTHED}.forward", ".criterions.smoothed:forward",
          "on a CPU, the logits of all tokens and a dozen passes over them take a third of an update"),
    Patch(f"{SMOOTHED}.compute_loss", ".criterions.smoothed:compute_loss", "see the line above"),
)  # fmt: skip

PATCHES = (
    # Options
    Patch("fairseq.options:parse_args_and_arch", ".compat.command_line:parse_args_and_arch",
          "a value beyond its border ends in a traceback hours later, or is ignored"),
    Patch("fairseq.dataclass.utils:eval_str_list", ".compat.command_line:eval_str_list", "a list of numbers is evaluated as code"),
    # Data
    Patch("fairseq.utils:split_paths", ".compat.data_files:split_paths", "a folder with a colon in its name is taken for two"),
    Patch("fairseq.data.indexed_dataset:make_dataset", ".compat.data_files:make_dataset", "a damaged file is read as it is"),
    Patch("fairseq.data.indexed_dataset:dataset_exists", ".compat.data_files:dataset_exists", "half a token file counts as none"),
    Patch("fairseq.data.indexed_dataset:infer_dataset_impl", ".compat.data_files:infer_dataset_impl",
          "a file of unknown format is read as one of 2017"),
    Patch("fairseq.data.dictionary:Dictionary.add_from_file", ".compat.data_files:add_from_file",
          "the error in a dict.txt names no line"),
    Patch("fairseq.file_chunker_utils:Chunker.__enter__", ".compat.data_files:open_chunk",
          "the byte order mark of a text becomes part of its first word"),
    Patch("fairseq.data.indexed_dataset:IndexedRawTextDataset.read_data", ".compat.data_files:read_raw",
          "as above, and a carriage return ends a line"),
    Patch("fairseq.data:TokenBlockDataset._build_slice_indices", ".compat.data_files:of_sentences",
          "--sample-break-mode eos does not run with NumPy 2", wraps=True),
    Patch("fairseq.data.data_utils:batch_by_size", ".compat.batches:batch_by_size",
          "up to seven sentences at the end of a test set are never translated"),
    Patch("fairseq.data.encoders.sentencepiece_bpe:SentencepieceBPE.encode", ".compat.texts:spelling_no_symbol",
          "a text's </s> ends the sentence where SentencePiece knows none of its letters", wraps=True),
    Patch("fairseq.data.data_utils:post_process", ".compat.texts:of_bytes",
          "what a model with byte fallback has no piece for is printed and scored as <0xE2><0x82><0xAC>", wraps=True),
    Patch("fairseq.data.encoders.sentencepiece_bpe:SentencepieceBPE.decode", ".compat.texts:decode",
          "see the line above: so it is with --bpe sentencepiece"),
    # Checkpoints
    Patch("fairseq.checkpoint_utils:load_checkpoint_to_cpu", ".compat.checkpoints:load_checkpoint_to_cpu",
          "a checkpoint can run code, and the error for a bad one tells the user nothing"),
    Patch("fairseq.checkpoint_utils:load_checkpoint", ".compat.stopping:load_checkpoint",
          "two trainings can save into one folder, and a finished one is trained for one more update"),
    Patch("fairseq.checkpoint_utils:load_model_ensemble_and_task", ".compat.checkpoints:load_model_ensemble_and_task",
          "a model that does not fit its checkpoint ends in a traceback"),
    Patch("fairseq.models.transformer:TransformerDecoderBase.upgrade_state_dict_named", ".compat.softmax:without_projection",
          "a checkpoint with tied embeddings and an adaptive softmax cannot be loaded", wraps=True),
    Patch("fairseq.checkpoint_utils:torch_persistent_save", ".compat.checkpoints:torch_persistent_save",
          "a temporary file is left on a full disk"),
    Patch("fairseq.checkpoint_utils:_torch_persistent_save", "torch:save",
          "a failed write is repeated into the same open file, which cannot succeed"),
    Patch("fairseq.file_io:PathManager.copy", ".compat.checkpoints:copy",
          "a run that is killed during the copy has no checkpoint_last.pt any more"),
    Patch("fairseq.utils:move_to_cpu", ".compat.checkpoints:move_to_cpu", "tied weights are saved twice from a GPU"),
    Patch(f"{TRAINER}.load_checkpoint", ".compat.checkpoints:trainer_load_checkpoint",
          "a missing --restore-file is passed over, and a damaged checkpoint_last.pt ends the training"),
    Patch(f"{TRAINER}.save_checkpoint", ".compat.stopping:trainer_save_checkpoint", "the count of --patience is forgotten"),
    Patch("fairseq.checkpoint_utils:save_checkpoint", ".compat.best:keeping_best",
          "--keep-best-checkpoints keeps one alone if each validation is worse than the one before", wraps=True),
    Patch("fairseq.checkpoint_utils:save_checkpoint", ".compat.best:keeping_own",
          "--keep-interval-updates removes each new checkpoint at once where there are later ones of another training", wraps=True),
    Patch("fairseq.models.ema.ema:EMA.step", ".compat.ema:step",
          "the mean of tied weights decays twice as fast, and depends on where a training was stopped"),
    Patch("fairseq.checkpoint_utils:load_ema_from_checkpoint", ".compat.ema:read_mean",
          "an --ema-seed-model without a mean ends in a traceback, and what is read is not checked"),
    Patch("fairseq.models.ema.ema:EMA.__init__", ".compat.ema:begun", "an --ema-seed-model that does not fit ends in a traceback",
          wraps=True),
    Patch("fairseq.models.ema.ema:EMA.restore", ".compat.ema:with_versions",
          "--store-ema with --adaptive-softmax-cutoff ends in a traceback after the first update", wraps=True),
    # Batches of a resumed training
    Patch(f"{TRAINER}.get_train_iterator", ".compat.batches:get_train_iterator", ORDER),
    Patch(f"{ITERATOR}._get_iterator_for_epoch", ".compat.batches:iterator_for_epoch", ORDER),
    Patch(f"{ITERATOR}.state_dict", ".compat.batches:epoch_state", ORDER),
    Patch(f"{ITERATOR}.load_state_dict", ".compat.batches:load_epoch_state", ORDER),
    Patch("fairseq.data.iterators:GroupedIterator.__init__", ".compat.batches:group",
          "an epoch that is resumed with another --update-freq is not trained to its end, and then trained again"),
    Patch(f"{ITERATOR}._get_iterator_for_epoch", ".compat.workers:forked", FORKS, wraps=True),
    Patch("fairseq.data.iterators:GroupedEpochBatchIterator._get_iterator_for_epoch", ".compat.workers:forked", FORKS,
          wraps=True),
    Patch("fairseq.data.iterators:StreamingEpochBatchIterator._get_iterator_for_epoch", ".compat.workers:forked", FORKS,
          wraps=True),
    Patch(f"{PLATEAU}.state_dict", ".compat.plateau:plateau_state", "the count of validations without progress is lost"),
    Patch(f"{PLATEAU}.load_state_dict", ".compat.plateau:load_plateau_state", "the count of validations without progress is lost"),
    Patch(f"{PLATEAU}.step", ".compat.plateau:plateau_step", "after a resumption within an epoch, it counts one epoch too many"),
    Patch("fairseq.optim.lr_scheduler.polynomial_decay_schedule:PolynomialDecayLRSchedule.get_next_lr",
          "fairseq.optim.lr_scheduler.fixed_schedule:FixedLRSchedule.get_next_lr",
          "the first of several rates in --lr is never used, and each other one an epoch too early"),
    Patch(f"{TRAINER}.lr_step", ".compat.lowest_rate:risen", "--stop-min-lr ends a training in its warm-up", wraps=True),
    Patch(f"{TRAINER}.begin_epoch", ".compat.lowest_rate:in_force_again", "see the line above", wraps=True),
    # Precision, noise, optimizer
    *(Patch(f"fairseq.{module}", ".compat.weight_noise:of_one_pass",
            "the noise of --quant-noise-pq stays in the weights, which are 0 in the end", wraps=True)
      for module in ("modules.multihead_attention:quant_noise", "modules.transformer_layer:quant_noise",
                     "modules.adaptive_softmax:quant_noise", "models.transformer.transformer_encoder:apply_quant_noise_",
                     "models.transformer.transformer_decoder:apply_quant_noise_")),
    Patch("fairseq.tasks:FairseqTask.train_step", ".compat.precision:train_step", "--amp does nothing on a CPU"),
    Patch("fairseq.modules.checkpoint_activations:CheckpointFunction.forward", ".compat.precision:in_its_precision",
          "with --amp, what --checkpoint-activations computes again is in fp32", wraps=True),
    Patch(f"{AMP}.step", ".compat.precision:amp_step", "on a GPU the gradients are unscaled twice"),
    Patch(f"{AMP}.clip_grad_norm", ".compat.precision:amp_clip_grad_norm",
          "without a loss scale to lower, a NaN reaches the optimizer's step"),
    *(Patch(f"{optimizer}.{word}_dict", f".compat.master_weights:{ing}", DIGITS, wraps=True)
      for optimizer, what in ((f"{FP16}FP16Optimizer", "counts"), (f"{FP16}MemoryEfficientFP16Optimizer", "counts"), (AMP, "scale"))
      for word, ing in (("state", f"saving_{what}"), ("load_state", f"loading_{what}"))),
    Patch(f"{FP16}_FP16OptimizerMixin._sync_fp16_grads_to_fp32", ".compat.master_weights:keeping_none",
          "--weight-decay shrinks parameters without a gradient, and in fp32 it does not", wraps=True),
    Patch(f"{TRAINER}._build_optimizer", ".compat.precision:build_optimizer",
          "options that no optimizer or schedule can be made of end in a traceback, or are blamed on checkpoint_last.pt", wraps=True),
    Patch("fairseq.trainer:NanDetector", "contextlib:nullcontext",
          "it looks for the first NaN with hooks that newer versions of PyTorch call differently, and fails itself"),
    *SPEED,
    # Workers
    Patch(f"{TRAINER}.__init__", ".compat.workers:trainer_init",
          "its default for several workers allows neither two backward passes an update nor parameters without a gradient"),
    Patch(f"{TRAINER}.__init__", ".compat.precision:telling_of_slow_bf16", "bf16 that is slower than fp32 looks like any other",
          wraps=True),
    Patch("fairseq.distributed.utils:distributed_main", ".compat.workers:distributed_main",
          "a worker can abort at its very end: 'terminate called without an active exception'"),
    Patch(f"{TRAINER}.train_step", ".compat.workers:trainer_train_step",
          "a worker out of memory drops its batch, and the others hang; with --update-freq, an epoch's last gradients are too large"),
    Patch("fairseq.distributed.legacy_distributed_data_parallel:LegacyDistributedDataParallel.all_reduce_grads",
          ".compat.workers:keeping_none", "--weight-decay shrinks parameters without a gradient, and on one worker it does not",
          wraps=True),
    Patch("torch.utils.data._utils.signal_handling:_set_worker_signal_handlers",
          ".compat.workers:set_worker_signal_handlers", "a data loader that SIGTERM ends also ends the training"),
    # Commands
    Patch("fairseq.logging.progress_bar:progress_bar", ".compat.log_file:written_once",
          "a --log-file has each line of the tenth epoch ten times", wraps=True),
    Patch("fairseq_cli.train:fsdp_enable_wrap", ".compat.workers:no_fully_sharded", "nothing here was made for sharded models"),
    Patch("fairseq_cli.train:validate_and_save", ".compat.stopping:validate_and_save",
          "a training that is told to end loses its work since the last checkpoint, and the best validation may not be saved"),
    Patch("fairseq.data.data_utils:raise_if_valid_subsets_unintentionally_ignored", ".compat.validation:checked",
          "a set both to train and to validate on loses its first epoch to the validations", wraps=True),
    Patch("fairseq.data.data_utils:_find_extra_valid_paths", ".compat.validation:by_name",
          "--valid-subset valid,valid1 is refused, since valid1 would be ignored", wraps=True),
    Patch(f"{TRAINER}.get_valid_iterator", ".compat.validation:spread",
          "--max-valid-steps takes the shortest sentences, of the first direction alone, and one batch more", wraps=True),
    Patch("fairseq_cli.train:validate", ".compat.validation:saving", "a mistake that validation finds costs what was trained",
          wraps=True),
    Patch("fairseq_cli.train:validate", ".compat.validation:judged",
          "after a validation whose figure is NaN no checkpoint is the best one any more", wraps=True),
    Patch("fairseq_cli.train:validate", ".compat.validation:timed", "nothing tells how much of the time it takes", wraps=True),
    Patch("fairseq_cli.train:get_valid_stats", ".compat.validation:of_the_metric",
          "a --best-checkpoint-metric that validation does not have ends in a traceback", wraps=True),
    Patch("fairseq_cli.generate:_main", ".compat.precision:translating", "--amp is ignored", wraps=True),
    Patch("fairseq_cli.generate:_main", ".compat.batches:sharded", "--num-shards is ignored", wraps=True),
    Patch("fairseq_cli.generate:_main", ".compat.texts:telling_of_long_words", "a Chinese sentence is one word for its BLEU",
          wraps=True),
    *(Patch(f"fairseq_cli.{command}", ".compat.texts:joined_once",
            "--bpe sentencepiece beside --remove-bpe sentencepiece takes all spaces away, and BLEU is nearly 0", wraps=True)
      for command in ("generate:_main", "interactive:main")),
    Patch("fairseq_cli.validate:main", ".compat.precision:translating", "--amp is ignored", wraps=True),
    Patch("fairseq_cli.validate:convert_namespace_to_omegaconf", ".compat.workers:on_one_gpu",
          "on several GPUs fairseq-validate ends in a traceback, unless all have as many batches", wraps=True),
    Patch("fairseq_cli.interactive:main", ".compat.precision:translating", "--amp is ignored", wraps=True),
    Patch("fairseq.models:BaseFairseqModel.prepare_for_inference_", ".compat.sampling:of_known_modules",
          "with a misspelt --retain-dropout-modules there is no dropout", wraps=True),
    Patch("fairseq.ngram_repeat_block:NGramRepeatBlock._no_repeat_ngram", ".compat.repeats:no_repeat_ngram",
          "--no-repeat-ngram-size does nothing where its CUDA kernel is not built"),
    Patch("fairseq.search:Sampling.step", ".compat.sampling:within_range",
          "where a translation must end, a low temperature can leave nothing to draw from", wraps=True),
    Patch("fairseq.sequence_generator:SequenceGeneratorWithAlignment.generate", ".compat.alignment:generate",
          "--print-alignment ends in a traceback where a sentence has fewer translations than the beam, as with constraints"),
    Patch("fairseq_cli.interactive:buffered_read", ".compat.texts:buffered_read", "its text is read in the locale's encoding"),
    Patch("fairseq_cli.interactive:make_batches", ".compat.texts:naming_long_lines", "the line that is too long has no name",
          wraps=True),
    Patch("fairseq_cli.interactive:pack_constraints", ".compat.texts:without_empty", "an empty constraint ends in a traceback",
          wraps=True),
    Patch("fairseq_cli.preprocess:_build_dictionary", ".compat.texts:checked_first", "a bad text ends in half a data folder",
          wraps=True),
    Patch("fairseq_cli.preprocess:_make_all", ".compat.texts:checked_first", "a bad text ends in half a data folder", wraps=True),
    Patch("sys:excepthook", ".compat.mistakes:one_line_errors", "a user's mistake ends in a traceback", wraps=True),
)  # fmt: skip


def install() -> None:
    """Make all changes; call this once, before anything of fairseq is used.

    Raises:
        UserError: the changes were written for another version of fairseq.
    """
    import fairseq_cli.train  # noqa: F401  before the rest of fairseq, since it sets up the log

    found = resolve_name("fairseq:__version__")
    if found != FAIRSEQ:
        raise UserError(
            f"fairseq {found} is installed, and this plug-in changes parts of {FAIRSEQ}: pip install fairseq-fixed=={FAIRSEQ}"
        )
    from veco_fairseq.compat import guard, noise

    noise.quiet_known_warnings()
    guard.install()
    # Import all modules before the first change, since each keeps fairseq's functions as it finds them.
    replacements = [replacement_of(patch) for patch in PATCHES]
    for patch, replacement in zip(PATCHES, replacements, strict=True):
        make(patch, replacement)
    logging.raiseExceptions = False  # a log that cannot be written must not stop a training, or print a traceback a line
    atexit.register(finish_output)
