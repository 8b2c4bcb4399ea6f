"""The experts of a rank as products of fixed shapes, which depend on nothing that only the device knows."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

DENSE = 8192  # rows x slots up to which, on an H200, all experts for all rows are faster than sorting rows by expert


def run_fixed_experts(hidden: Tensor, weights: Tensor, slots: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """As `run_local_experts`, whichever way is faster for so many rows."""
    few = len(hidden) * len(gate_up) <= DENSE or hidden.dtype != torch.bfloat16  # the grouped product knows no other
    run = run_dense_experts if few else run_grouped_experts
    return run(hidden, weights, slots, gate_up, down)


def run_dense_experts(hidden: Tensor, weights: Tensor, slots: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """As `run_local_experts`: every slot computes every row; what nobody chose is left out of the sum (float32).

    With few rows a step reads all weights anyway, and reading them is what it takes. An empty slot may hold anything.
    """
    here = gate_up.shape[0]
    mine = (slots >= 0) & (slots < here)
    share = torch.zeros(len(hidden), here + 1, dtype=weights.dtype, device=hidden.device)
    share.scatter_(1, torch.where(mine, slots, here), weights)
    share = share[:, :here].t()[:, :, None]
    gate, up = torch.matmul(hidden[None], gate_up.transpose(1, 2)).chunk(2, dim=-1)
    out = torch.matmul(F.silu(gate) * up, down.transpose(1, 2))
    return torch.where(share != 0, out * share, 0.0).sum(dim=0, dtype=torch.float32).to(hidden.dtype)


def run_grouped_experts(hidden: Tensor, weights: Tensor, slots: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """As `run_local_experts`, without a look at the data from the host, so that it can be captured.

    Every choice takes part, [tokens * top_k] rows sorted by slot; those that live elsewhere come last and are left out
    of the products. The sum over a token's choices is in float32 and in a fixed order.
    """
    here, top_k = gate_up.shape[0], slots.shape[1]
    flat = slots.flatten()
    mine = (flat >= 0) & (flat < here)
    keys, order = torch.sort(torch.where(mine, flat, here), stable=True)
    ends = torch.searchsorted(keys, torch.arange(here, device=keys.device), right=True).to(torch.int32)
    rows = hidden[order // top_k]
    gate, up = grouped_mm(rows, gate_up, ends).chunk(2, dim=-1)
    out = grouped_mm(F.silu(gate) * up, down, ends).float()
    out = torch.where((keys < here)[:, None], out * weights.flatten()[order, None], 0.0)  # rows left out hold anything
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    return out[back].view(len(hidden), top_k, -1).sum(dim=1).to(hidden.dtype)


def grouped_mm(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Multiply rows up to ENDS[g] (from ENDS[g - 1] on) by WEIGHTS[g] [out, in] transposed; the rest is undefined.

    ROWS [n, in], ENDS int32 [groups]. On a GPU one kernel (torch._grouped_mm, bf16), else a loop.
    """
    if rows.is_cuda:
        return torch._grouped_mm(rows, weights.transpose(-2, -1), offs=ends)
    out = rows.new_zeros(len(rows), weights.shape[1])
    begin = 0
    for group, end in enumerate(ends.tolist()):
        out[begin:end] = F.linear(rows[begin:end], weights[group])
        begin = end
    return out
