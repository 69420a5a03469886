# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Exact search for nearest neighbours, and their scores."""

from typing import NamedTuple

import torch
from torch import Tensor

from veco_fairseq.errors import UserError

SCORES = ("cosine", "csls", "ratio")
QUERIES_A_CHUNK, KEYS_A_CHUNK = 1024, 65536  # similarities at a time: 256 MiB


def nearest(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the ``k`` keys with the largest inner product with each query, exactly; by FAISS if it is installed.

    Args:
        queries: (n, dim), on any device.
        keys: (m, dim), there too.

    Returns:
        Similarities, best first, fp32, and indices of keys, both (n, min(k, m)).
    """
    k = min(k, len(keys))
    queries, keys = queries.float(), keys.float()  # in 16 bits, several keys have the same similarity
    try:
        import faiss
    except ImportError:
        return _nearest_by_chunks(queries, keys, k)
    sides = (side.detach().cpu().numpy() for side in (queries, keys))
    similarities, places = map(torch.from_numpy, faiss.knn(*sides, k, metric=faiss.METRIC_INNER_PRODUCT))
    return similarities.to(queries.device), places.to(queries.device)


def _nearest_by_chunks(queries: Tensor, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Compute :func:`nearest` without FAISS, with at most one chunk of similarities at a time."""
    results = []
    for chunk in queries.split(QUERIES_A_CHUNK):
        best, indices = chunk.new_empty(len(chunk), 0), chunk.new_empty(len(chunk), 0, dtype=torch.long)
        for start in range(0, len(keys), KEYS_A_CHUNK):
            similarities = chunk @ keys[start : start + KEYS_A_CHUNK].t()
            here, places = similarities.topk(min(k, similarities.size(1)))
            best, order = torch.cat([best, here], 1).topk(min(k, best.size(1) + here.size(1)))
            indices = torch.cat([indices, places + start], 1).gather(1, order)
        results.append((best, indices))
    return torch.cat([best for best, _ in results]), torch.cat([indices for _, indices in results])


class Candidates(NamedTuple):
    """Each sentence's candidates on the other side: scores and indices, both (sentences, k)."""

    scores: Tensor
    indices: Tensor

    def best(self) -> tuple[Tensor, Tensor]:
        """Return the best candidate's score and index, both (sentences)."""
        places = self.scores.argmax(1, keepdim=True)
        return self.scores.gather(1, places).squeeze(1), self.indices.gather(1, places).squeeze(1)


def candidates(x: Tensor, y: Tensor, score: str = "csls", k: int = 10) -> tuple[Candidates, Candidates]:
    """Return the ``k`` nearest neighbours of each x in y and of each y in x, with scores.

    r(x) is the mean cosine of x and its k neighbours, which is high for a hub that is near to everything:

    - "cosine": cos(x, y)
    - "csls": 2 cos(x, y) - r(x) - r(y) (Conneau et al. 2018, section 2.3)
    - "ratio": cos(x, y) / ((r(x) + r(y)) / 2) (Artetxe and Schwenk 2019)

    Args:
        x, y: (n, dim) and (m, dim), of length 1.

    Raises:
        UserError: there is no such score.
    """
    if score not in SCORES:
        raise UserError(f"--score {score}: there is {', '.join(SCORES)}")
    (of_x, in_y), (of_y, in_x) = nearest(x, y, k), nearest(y, x, k)
    mean_x, mean_y = of_x.mean(1), of_y.mean(1)

    def scored(similarity: Tensor, own: Tensor, theirs: Tensor) -> Tensor:
        both = own.unsqueeze(1) + theirs
        return {"cosine": similarity, "csls": 2 * similarity - both, "ratio": similarity / (both / 2)}[score]

    forward = Candidates(scored(of_x, mean_x, mean_y[in_y]), in_y)
    backward = Candidates(scored(of_y, mean_y, mean_x[in_x]), in_x)
    return forward, backward


def accuracy(found: Candidates) -> float:
    """Return the share of sentences whose best candidate has the same number (Tatoeba)."""
    _, best = found.best()
    return best.eq(torch.arange(len(best), device=best.device)).float().mean().item()
