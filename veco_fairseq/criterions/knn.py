# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""``--criterion camlm`` with k-NN target sampling: a softmax over a batch's targets and the tokens most like them.

VoCap, section 3.1. Without ``--knn-targets`` this is :class:`veco_fairseq.criterions.camlm.CamlmCriterion`.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist
from fairseq.criterions import register_criterion
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from torch import Tensor

from veco_fairseq.criterions.camlm import CamlmCriterion, CamlmCriterionConfig
from veco_fairseq.modules.embedding import TokenEmbedding
from veco_fairseq.modules.nearest import nearest
from veco_fairseq.modules.prediction import Subset

logger = logging.getLogger(__name__)


class Sampled(NamedTuple):
    """A batch's part of the vocabulary, and its cost.

    Attributes:
        vocabulary: V' of equation 5 with the targets themselves, and tokens that stand for all others.
        targets: the number of different targets in the batch.
        looked_up: the number of tokens whose neighbours were looked up since the last batch, on all workers.
        age: the sum over the targets of the updates since their neighbours were looked up.
        seconds: the time for looking them up.
    """

    vocabulary: Subset
    targets: int
    looked_up: int
    age: int
    seconds: float


class KnnTargetSampler:
    """Keeps a table of every token's ``k`` neighbours, and makes V' for a batch.

    Algorithm 2 of the paper computes the whole table every ``refresh`` updates. Here a token's row is computed when the
    token is a target, and its row is missing or ``refresh`` updates old. So no row in use is older than in the paper,
    training never waits for the whole table, and tokens that are no targets cost nothing. All workers have the same
    table. They share the work on the rows that any of them needs.

    The paper's V' leaves out all tokens unlike a batch's targets. Then nothing keeps the logits of rare tokens down, and
    in small batches most tokens are rare. So ``rest`` tokens, drawn at random from all others, stand for all of them.
    log(others / ``rest``) is added to their logits, so the softmax's sum is in expectation the sum over the whole
    vocabulary. The sampled softmax of Jean et al. (2015) corrects for its proposal in the same way.

    Args:
        k: neighbours of a token, usually with itself; if it is the number of tokens, this is the full softmax.
        refresh: updates after which a row is computed again.
        rest: tokens drawn for each batch; 0: only V', as in the paper.
    """

    def __init__(self, k: int, refresh: int, rest: int = 0):
        self.k, self.refresh, self.rest = k, refresh, rest
        self.update = 0  # the current update; the criterion sets it
        self.resumed: int | None = None  # the last update of the run whose state was loaded
        self.neighbours = torch.empty(0, 0, dtype=torch.int32)  # (vocabulary, k)
        self.made_at = torch.empty(0, dtype=torch.int32)  # (vocabulary): the update; -1 where there is no row yet
        self.looked_up, self.seconds = 0, 0.0  # since the last batch

    @torch.no_grad()
    def look_up(self, targets: Tensor, embeddings: TokenEmbedding) -> None:
        """Compute the rows of these targets that are missing or too old; several batches at once are cheapest.

        Args:
            targets: masked tokens, any shape.
            embeddings: of all tokens.
        """
        if self._is_full_softmax(embeddings):
            return
        self._prepare(embeddings.weight)
        started = time.perf_counter()
        targets = targets.unique()
        made_at = self.made_at[targets]
        needed = _of_all_workers(targets[(made_at < 0) | (self.update - made_at >= self.refresh)], len(self.made_at))
        if len(needed):
            self.neighbours[needed] = _made_together(needed, embeddings, self.neighbours.shape[1])
            self.made_at[needed] = self.update
            self.neighbours[needed[0], 0].item()  # waits for the device
        self.looked_up += len(needed)
        self.seconds += time.perf_counter() - started

    @torch.no_grad()
    def __call__(self, targets: Tensor, embeddings: TokenEmbedding) -> Sampled:
        """Return V' for a batch.

        Args:
            targets: masked tokens of the batch, any shape.
            embeddings: of all tokens.
        """
        targets = targets.unique()
        self.look_up(targets, embeddings)
        if self._is_full_softmax(embeddings):
            everything = torch.arange(len(embeddings.weight), device=targets.device)
            return Sampled(self._with_rest(everything, len(everything)), len(targets), 0, 0, 0.0)
        age = self.update * len(targets) - int(self.made_at[targets].sum())
        looked_up, seconds = self.looked_up, self.seconds
        self.looked_up, self.seconds = 0, 0.0
        subset = torch.cat([targets, self.neighbours[targets].flatten().long()]).unique()
        return Sampled(self._with_rest(subset, len(embeddings.weight)), len(targets), looked_up, age, seconds)

    def _is_full_softmax(self, embeddings: TokenEmbedding) -> bool:
        return self.k >= len(embeddings.weight)

    def _with_rest(self, subset: Tensor, vocabulary: int) -> Subset:
        """Add :attr:`rest` of the other tokens to the subset."""
        is_other = torch.ones(vocabulary, dtype=torch.bool, device=subset.device)
        is_other[subset] = False
        others = is_other.nonzero().squeeze(1)
        drawn = others[torch.randperm(len(others), device=subset.device)[: self.rest]]
        offset = math.log(len(others) / len(drawn)) if len(drawn) else 0.0
        tokens, order = torch.cat([subset, drawn]).sort()
        return Subset(tokens, (order >= len(subset)) * offset)

    def _prepare(self, table: Tensor) -> None:
        """Make room for this vocabulary on its device, and keep the known rows.

        Loaded rows count only if this update follows theirs, or is theirs again, whose gradients overflowed; otherwise they come
        from a run with other embeddings.
        """
        if self.resumed not in (None, self.update - 1, self.update):
            self.made_at = self.made_at[:0]
        self.resumed = None
        if len(self.made_at) != len(table):
            self.neighbours = self._empty(len(table), self.k, device=table.device)
            self.made_at = self._empty(len(table), device=table.device)
        self.neighbours, self.made_at = self.neighbours.to(table.device), self.made_at.to(table.device)

    @staticmethod
    def _empty(*size: int, device: torch.device) -> Tensor:
        return torch.full(size, -1, dtype=torch.int32, device=device)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the known rows, ``tokens`` (n), their ``neighbours`` (n, k) and ``made_at`` (n), and the update."""
        tokens = self.made_at.ge(0).nonzero().squeeze(1)
        return {
            "tokens": tokens,
            "neighbours": self.neighbours[tokens],
            "made_at": self.made_at[tokens],
            "vocabulary": torch.tensor(len(self.made_at)),
            "update": torch.tensor(self.update),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> bool:
        """Take the rows over, and return True; if they have another k, take nothing and return False."""
        vocabulary, neighbours = int(state["vocabulary"]), state["neighbours"]
        if vocabulary and neighbours.shape[1] != self.k:
            return False
        self.resumed = int(state["update"])
        self.neighbours = self._empty(vocabulary, neighbours.shape[1], device=neighbours.device)
        self.made_at = self._empty(vocabulary, device=neighbours.device)
        self.neighbours[state["tokens"]] = neighbours
        self.made_at[state["tokens"]] = state["made_at"]
        return True


def _of_all_workers(tokens: Tensor, vocabulary: int) -> Tensor:
    """Return the union of all workers' tokens, ascending, of a vocabulary of this size."""
    if distributed_utils.get_global_world_size() == 1:
        return tokens
    is_needed = torch.zeros(vocabulary, dtype=torch.uint8, device=tokens.device)
    is_needed[tokens] = 1
    dist.all_reduce(is_needed, dist.ReduceOp.MAX)
    return is_needed.nonzero().squeeze(1)


def _made_together(tokens: Tensor, embeddings: TokenEmbedding, k: int) -> Tensor:
    """Return the result of :func:`nearest`; each worker computes its share of the rows."""
    workers = distributed_utils.get_global_world_size()
    if workers == 1:
        return nearest(tokens, embeddings, k)
    share = -(-len(tokens) // workers)
    mine = tokens[dist.get_rank() * share : (dist.get_rank() + 1) * share]
    rows = torch.zeros(share, k, dtype=torch.int32, device=tokens.device)
    rows[: len(mine)] = nearest(mine, embeddings, k)
    return torch.cat(distributed_utils.all_gather(rows, dist.group.WORLD))[: len(tokens)]


@dataclass
class KnnCamlmCriterionConfig(CamlmCriterionConfig):
    """The criterion's options, with those of k-NN target sampling."""

    knn_targets: Optional[int] = field(
        default=None,
        metadata={
            "help": "train with a softmax over the batch's targets, the N nearest neighbours of each in the embeddings, and "
            "--knn-rest other tokens: VoCap's k-NN target sampling (VoCap: 50). Validation always has the softmax "
            "over all tokens (default: training has it, too)"
        },
    )
    knn_refresh: int = field(default=1000, metadata={"help": "look up a target's neighbours again after this many updates"})
    knn_rest: int = field(
        default=8192,
        metadata={
            "help": "tokens drawn at random for each batch to stand for all others. They make the softmax's sum right in "
            "expectation, and keep the logits of rare tokens down (paper: 0)"
        },
    )


@register_criterion("camlm", dataclass=KnnCamlmCriterionConfig)
class KnnCamlmCriterion(CamlmCriterion):
    """CA-MLM and TLM; with ``--knn-targets``, the softmax of training is over part of the vocabulary.

    The log of training has ``knn_vocabulary`` (tokens in a batch's softmax), ``knn_looked_up`` (tokens whose neighbours
    were looked up), ``knn_ms`` (the time for it), and ``knn_age`` (updates since the batch's targets were looked up).
    Training's loss, ppl and acc are then about a choice among these tokens, and not comparable with validation's.
    """

    def __init__(self, cfg: KnnCamlmCriterionConfig, task):
        super().__init__(cfg, task)
        self.sampler, self.sampled = None, None
        if cfg.knn_targets is not None:
            self.sampler = KnnTargetSampler(cfg.knn_targets, cfg.knn_refresh, cfg.knn_rest)
            self.chooses_operations_by_values = True

    def begin_update(self, update: int, model, sample: dict[str, dict]) -> None:
        """Look up the neighbours of all batches' targets at once."""
        if self.sampler is not None:
            self.sampler.update = update
            targets = torch.cat([self._targets(batch) for batch in sample.values()])
            self._with_embeddings(self.sampler.look_up, model, targets)

    def vocabulary(self, model, sample: dict) -> Subset | None:
        """Return V' of the batch, in training."""
        self.sampled = None
        if self.sampler is not None and self.training:
            self.sampled = self._with_embeddings(self.sampler, model, self._targets(sample))
        return self.sampled and self.sampled.vocabulary

    @staticmethod
    def _with_embeddings(function: Callable, model, targets: Tensor):
        with model.autocast(targets.device):
            return function(targets, model.encoder.sentence_encoder.embed_tokens)

    def _targets(self, batch: dict) -> Tensor:
        targets = batch["net_input"]["targets"]
        return targets[targets.ne(self.padding_idx)]

    def logging_output(self, sample: dict, sums: dict[str, dict], loss: Tensor, sample_size: int) -> dict:
        """Return the sums, with the size and the cost of the batch's V'."""
        log = super().logging_output(sample, sums, loss, sample_size)
        if self.sampled is not None:
            vocabulary, targets, looked_up, age, seconds = self.sampled
            log.update({"knn_vocabulary": len(vocabulary.tokens), "knn_targets": targets, "knn_batches": 1})
            log.update({"knn_looked_up": looked_up, "knn_age": age, "knn_ms": 1000 * seconds})
        return log

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict]) -> dict:
        """Log the total, every term, and k-NN target sampling."""
        total = super().reduce_metrics(logging_outputs)
        if total.get("knn_batches"):
            batches, targets = total["knn_batches"], max(1, total["knn_targets"])
            for name in ("knn_vocabulary", "knn_looked_up", "knn_ms"):
                metrics.log_scalar(name, total[name] / batches, batches, priority=180, round=1)
            metrics.log_scalar("knn_age", total["knn_age"] / targets, targets, priority=181, round=1)
        return total

    def task_state(self) -> dict[str, Any]:
        """Return the neighbours that were looked up."""
        return {} if self.sampler is None else {"neighbours": self.sampler.state_dict()}

    def load_task_state(self, state: dict[str, Any]) -> None:
        """Take the neighbours over, unless they have another ``--knn-targets``."""
        neighbours = state.get("neighbours")
        if self.sampler is not None and neighbours and not self.sampler.load_state_dict(neighbours):
            logger.info("--knn-targets differs from the checkpoint's: all neighbours are looked up again")
