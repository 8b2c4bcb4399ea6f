"""The model of one rank: all non-expert weights, slots for experts, and the forward pass over one step's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from elasticfsm.errors import PlacementError

from .batch import StepBatch
from .checkpoint import Checkpoint
from .config import ModelConfig
from .exchange import ExpertExchange
from .generated import Source
from .grouped import run_fixed_experts
from .kv_cache import KVCache
from .layers import paged_attention, rotary_table, rotate
from .moe import pack, route, run_local_experts, unpack
from .routing import ExpertRouting
from .weights import allocate_flat, non_expert_specs

DEFAULT_MAX_TOKENS = 64


class LayerWeights(NamedTuple):
    """Views of one layer's weights in the order of `weights`; GATE_UP and DOWN are its expert slots."""

    input_norm: Tensor
    qkv: Tensor
    query_norm: Tensor
    key_norm: Tensor
    output: Tensor
    expert_norm: Tensor
    router: Tensor
    gate_up: Tensor
    down: Tensor


class ForwardResult(NamedTuple):
    """LOGITS float32 [samples, vocab]; EXPERT_LOAD int64 [layers, experts]: own tokens sent to each logical expert."""

    logits: Tensor
    expert_load: Tensor


class _Step(NamedTuple):
    """What all layers of one forward share; ROTARY: cosines and sines float32 [tokens, 1, head_dim]."""

    batch: StepBatch
    cache: KVCache
    routing: ExpertRouting
    exchange: ExpertExchange
    rotary: tuple[Tensor, Tensor]
    load: Tensor


class Model:
    """Weights in memory whose addresses never change, so that it can be registered for one-sided transfers.

    `storage` is one flat buffer with all non-expert weights, laid out alike on all ranks of one config; `gate_up` and
    `down` hold the expert slots, a contiguous tensor per layer.
    """

    def __init__(
        self, config: ModelConfig, slots_per_rank: int, max_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.config, self.slots_per_rank, self.max_tokens = config, slots_per_rank, max_tokens
        self.dtype, self.device = dtype, device
        self.storage, self._weights = allocate_flat(non_expert_specs(config), dtype, device)
        hidden, width = config.hidden_size, config.moe_intermediate_size
        layers = range(config.num_hidden_layers)
        self.gate_up = [torch.empty(slots_per_rank, 2 * width, hidden, dtype=dtype, device=device) for _ in layers]
        self.down = [torch.empty(slots_per_rank, hidden, width, dtype=dtype, device=device) for _ in layers]
        self.layers = [self._layer(layer) for layer in layers]
        self._cosines, self._sines = (table.to(dtype) for table in rotary_table(config, device))

    @classmethod
    def allocate(
        cls,
        config: ModelConfig,
        slots_per_rank: int,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Model:
        """A model without content: weights come from a checkpoint or from a peer, experts one slot at a time."""
        return cls(config, slots_per_rank, max_tokens, dtype, torch.device(device))

    @classmethod
    def load(cls, directory: Path | str, max_tokens: int = DEFAULT_MAX_TOKENS) -> Model:
        """A complete model on one rank, expert e in slot e of every layer."""
        checkpoint = Checkpoint(directory)
        model = cls.allocate(checkpoint.config, checkpoint.config.num_experts, max_tokens)
        model.load_non_experts(checkpoint)
        model.load_experts([range(checkpoint.config.num_experts)] * checkpoint.config.num_hidden_layers, checkpoint)
        return model

    def load_non_experts(self, checkpoint: Source) -> None:
        """Fill all weights but the experts."""
        for spec in non_expert_specs(self.config):
            checkpoint.read_into(spec, self._weights[spec.name])

    def load_expert(self, layer: int, slot: int, expert: int, checkpoint: Source) -> None:
        """Fill local SLOT of LAYER with logical EXPERT."""
        gate_up, down = self.expert_slot(layer, slot)
        checkpoint.read_expert_into(layer, expert, gate_up, down)

    def load_experts(self, experts_of: Sequence[Sequence[int]], checkpoint: Source) -> None:
        """Fill this rank's slots: EXPERTS_OF [layers][slots_per_rank] logical experts, -1 leaves a slot as it is."""
        for layer, experts in enumerate(experts_of):
            for slot, expert in enumerate(experts):
                if expert >= 0:
                    self.load_expert(layer, slot, int(expert), checkpoint)

    def non_expert_tensors(self) -> dict[str, Tensor]:
        """Views of `storage` by name, in an order that depends on the config alone; writing to one fills the model."""
        return dict(self._weights)

    def weight(self, name: str) -> Tensor:
        """One non-expert weight."""
        return self._weights[name]

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of POSITIONS int64 [tokens], [tokens, 1, head_dim] each."""
        return self._cosines[positions], self._sines[positions]

    def expert_slot(self, layer: int, slot: int) -> list[Tensor]:
        """The memory of one expert slot: [gate_up [2 * width, hidden], down [hidden, width]], each contiguous."""
        return [self.gate_up[layer][slot], self.down[layer][slot]]

    @torch.no_grad()
    def forward(
        self, batch: StepBatch, cache: KVCache, routing: ExpertRouting, exchange: ExpertExchange
    ) -> ForwardResult:
        """One step over this rank's tokens; entered by all ranks of the exchange together, also with an empty batch.

        Per layer one dispatch of [max_tokens, hidden + 2 * top_k] and one combine of [world_size * max_tokens,
        hidden], whatever the batch holds. Raises PlacementError, before the first of them, when the routing is for
        another number of slots or ranks.
        """
        self._check(routing, exchange)
        hidden = self._weights["model.embed_tokens.weight"][batch.tokens]
        rotary = self.rotary(batch.positions)
        load = torch.zeros(len(self.layers), self.config.num_experts, dtype=torch.int64, device=self.device)
        step = _Step(batch, cache, routing, exchange, rotary, load)
        for number, layer in enumerate(self.layers):
            if len(batch.tokens):
                hidden = hidden + self._attention(number, layer, hidden, step)
            hidden = hidden + self._experts(number, layer, hidden, step)
        return ForwardResult(self.logits(hidden[batch.sampled]), load)

    def _check(self, routing: ExpertRouting, exchange: ExpertExchange) -> None:
        if routing.slots_per_rank != self.slots_per_rank:
            raise PlacementError(
                f"routing has {routing.slots_per_rank} slots per rank, this model holds {self.slots_per_rank}"
            )
        for layer in range(len(self.layers)):
            if routing.world_size(layer) != exchange.world_size:
                raise PlacementError(
                    f"layer {layer} is placed on {routing.world_size(layer)} ranks, the group has "
                    f"{exchange.world_size}; install the placement of this generation first"
                )

    def _attention(self, number: int, layer: LayerWeights, hidden: Tensor, step: _Step) -> Tensor:
        cache = step.cache
        query, key, value = self.project(layer, hidden, step.rotary)
        cache.write(number, step.batch.slots, key, value)
        attended = []
        for group in step.batch.groups:
            rows = query[group.start : group.start + group.sequences * group.tokens]
            rows = rows.view(group.sequences, group.tokens, *rows.shape[1:])
            rows = paged_attention(rows, cache.keys[number], cache.values[number], group.tables, group.mask)
            attended.append(rows.flatten(0, 1))
        return F.linear(torch.cat(attended).flatten(1), layer.output)

    def _experts(self, number: int, layer: LayerWeights, hidden: Tensor, step: _Step) -> Tensor:
        config = self.config
        normed = self.norm(hidden, layer.expert_norm)
        weights, experts = route(normed, layer.router, config.num_experts_per_tok, config.norm_topk_prob)
        step.load[number].scatter_add_(0, experts.flatten(), torch.ones_like(experts.flatten()))
        gathered = step.exchange.dispatch(pack(normed, weights, experts, self.max_tokens))
        rows, weights, experts = unpack(gathered, config.hidden_size)
        slots = step.routing.local_slots(number, experts, step.exchange.rank)
        run = run_fixed_experts if rows.is_cuda else run_local_experts
        partial = run(rows, weights, slots, layer.gate_up, layer.down)
        return step.exchange.combine(partial)[: len(hidden)]

    def project(
        self, layer: LayerWeights, hidden: Tensor, rotary: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of HIDDEN [tokens, hidden], each [tokens, heads, head_dim], normed and rotated."""
        config = self.config
        rows = F.linear(self.norm(hidden, layer.input_norm), layer.qkv).view(len(hidden), -1, config.head_dim)
        parts = [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads]
        query, key, value = torch.split(rows, parts, dim=1)
        query = rotate(self.norm(query, layer.query_norm), *rotary)
        return query, rotate(self.norm(key, layer.key_norm), *rotary), value

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores float32 [tokens, vocab] of the last layer's HIDDEN."""
        tied = self.config.tie_word_embeddings
        head = self._weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
        return F.linear(self.norm(hidden, self._weights["model.norm.weight"]), head).float()

    def norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        """RMS norm of the last dimension."""
        return F.rms_norm(rows, weight.shape, weight, self.config.rms_norm_eps)

    def _layer(self, number: int) -> LayerWeights:
        prefix = f"model.layers.{number}."
        views = [view for name, view in self._weights.items() if name.startswith(prefix)]
        return LayerWeights._make([*views, self.gate_up[number], self.down[number]])
