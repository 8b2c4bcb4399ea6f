"""The MoE part of a layer: the router, the packing for one all-gather, and the experts that this rank holds."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def route(hidden: Tensor, gate: Tensor, top_k: int, normalise: bool) -> tuple[Tensor, Tensor]:
    """Router weights float32 and logical expert ids int64, each [tokens, top_k], best first.

    HIDDEN [tokens, hidden], GATE [experts, hidden]. Softmax over all experts in float32, then the best TOP_K, then
    optionally scaled to sum 1: the order of transformers' Qwen3MoeTopKRouter, on which near-ties depend.
    """
    probabilities = F.softmax(F.linear(hidden, gate), dim=-1, dtype=torch.float32)
    weights, experts = torch.topk(probabilities, top_k, dim=-1)
    if normalise:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights, experts


def pack(hidden: Tensor, weights: Tensor, experts: Tensor, max_tokens: int) -> Tensor:
    """One float tensor [max_tokens, hidden + 2 * top_k] of a rank's tokens; rows beyond them have expert id -1.

    Expert ids travel as floats, exact below 2**24, so that a layer takes one all-gather. A fresh tensor each time:
    a collective that was cut may still read its buffer while the next one is being packed.
    """
    tokens, width = hidden.shape
    packed = hidden.new_zeros(max_tokens, width + 2 * weights.shape[1])
    packed[:, width + weights.shape[1] :] = -1
    packed[:tokens, :width] = hidden
    packed[:tokens, width : width + weights.shape[1]] = weights
    packed[:tokens, width + weights.shape[1] :] = experts
    return packed


def unpack(gathered: Tensor, hidden_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The inverse of pack: hidden states, router weights, expert ids int64 (-1: padding)."""
    top_k = (gathered.shape[1] - hidden_size) // 2
    hidden, weights, experts = torch.split(gathered, [hidden_size, top_k, top_k], dim=1)
    return hidden, weights, experts.long()


def run_local_experts(hidden: Tensor, weights: Tensor, slots: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """This rank's share of the layer's result, [tokens, hidden]; zero where none of a token's experts is here.

    HIDDEN [tokens, hidden]; WEIGHTS, SLOTS [tokens, top_k], a slot outside 0..slots-1 lives elsewhere; GATE_UP [slots,
    2 * width, hidden]; DOWN [slots, hidden, width]. The loop over slots that got tokens is the CPU's grouped GEMM.
    """
    partial = torch.zeros(hidden.shape, dtype=hidden.dtype, device=hidden.device)
    flat = slots.flatten()
    mine = ((flat >= 0) & (flat < gate_up.shape[0])).nonzero().flatten()
    if not len(mine):
        return partial
    slot_of, order = torch.sort(flat[mine], stable=True)
    chosen = mine[order]
    tokens = chosen // slots.shape[1]
    inputs = torch.split(hidden[tokens], torch.bincount(slot_of, minlength=gate_up.shape[0]).tolist())
    outputs = [_expert(rows, gate_up[slot], down[slot]) for slot, rows in enumerate(inputs) if len(rows)]
    scaled = torch.cat(outputs) * weights.flatten()[chosen, None]
    return partial.index_add_(0, tokens, scaled)


def _expert(rows: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    gate, up = F.linear(rows, gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)
