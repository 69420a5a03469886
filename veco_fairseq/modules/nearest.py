# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""The tokens whose embeddings have the largest inner products with a token's own (VoCap, equation 6)."""

import torch
from torch import Tensor

from veco_fairseq.modules.embedding import TokenEmbedding
from veco_fairseq.modules.masked_loss import LOGITS_A_CHUNK

# Candidates for each neighbour whose products are computed again without rounding.
CANDIDATES = 4
# Rows of the table that are rounded at a time: on a CPU those that its cache holds, on a GPU enough for one kernel.
ROWS_A_BLOCK = {"cpu": 2048, "cuda": 65536}


@torch.no_grad()
def nearest(tokens: Tensor, embeddings: TokenEmbedding, k: int) -> Tensor:
    """Return for each token the ``k`` tokens whose embeddings have the largest inner product with its own (equation 6).

    The result is exact. :data:`~veco_fairseq.modules.masked_loss.LOGITS_A_CHUNK` products are computed at a time. Under
    autocast most products are computed in its precision, and those that decide in fp32.

    Args:
        tokens: (n).
        embeddings: of all tokens; with a projection, the projected rows of the table count.

    Returns:
        (n, k), int32.
    """
    table = embeddings.weight.float()
    device = table.device.type
    precision = torch.float32
    if torch.is_autocast_enabled(device) and CANDIDATES * k < len(table):
        precision = torch.get_autocast_dtype(device)
    found = [torch.empty(0, k, dtype=torch.int32, device=table.device)]
    with torch.autocast(device, enabled=False):
        for chunk in tokens.split(max(1, LOGITS_A_CHUNK // len(table))):
            queries = embeddings.project_out(embeddings.project_in(embeddings.weight[chunk])).float()
            if precision == torch.float32:
                found.append(_by_products(queries, table, k))
            else:
                found.append(_by_rounded_products(queries, table, k, precision))
    return torch.cat(found)


def _by_products(queries: Tensor, table: Tensor, k: int) -> Tensor:
    return (queries @ table.t()).topk(k, dim=1, sorted=False).indices.int()


def _by_rounded_products(queries: Tensor, table: Tensor, k: int, precision: torch.dtype) -> Tensor:
    """Find candidates by the products of rounded numbers, and compare these again without rounding.

    A token that is no candidate has at most the rounded product of the last candidate. So its product is at most this
    plus the error of rounding. With u the largest relative error of a number, the error is 2u |q| |e| (and u^2) for the
    factors, and u of the product itself. Queries whose k-th neighbour is not above this bound are compared with the whole
    table. The table is rounded block by block: on a CPU, a rounded copy of all of it costs more than the products.

    Args:
        queries, table: (n, dim) and (vocabulary, dim), fp32.
        precision: the type to round to.
    """
    rounded = queries.to(precision)
    products = rounded.new_empty(len(queries), len(table))
    longest = table.new_zeros(())
    rows = ROWS_A_BLOCK.get(table.device.type, len(table))
    for block, of_block in zip(table.split(rows), products.split(rows, dim=1)):
        of_block.copy_(rounded @ block.to(precision).t())
        longest = torch.maximum(longest, block.norm(dim=1).max())
    products, candidates = products.topk(CANDIDATES * k, dim=1)
    last = products[:, -1].float()
    products, order = torch.einsum("nd,ncd->nc", queries, table[candidates]).topk(k, dim=1)
    found = candidates.gather(1, order).int()
    u = torch.finfo(precision).eps / 2
    error = (2 + 2 * u) * u * queries.norm(dim=1) * longest + (1 + 2 * u) * u * last.abs()
    unsure = products[:, -1] <= last + error
    if unsure.any():
        found[unsure] = _by_products(queries[unsure], table, k)
    return found
