"""The shape of a Qwen3-MoE model, read from a Hugging Face style `config.json` and checked before it is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec

from elasticfsm.errors import ModelError

ARCHITECTURE = "Qwen3MoeForCausalLM"

Positive = Annotated[int, msgspec.Meta(gt=0)]


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine needs to know of a model; names are those of `config.json`."""

    vocab_size: Positive
    hidden_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    num_key_value_heads: Positive
    head_dim: Positive
    moe_intermediate_size: Positive
    num_experts: Positive
    num_experts_per_tok: Positive
    max_position_embeddings: Positive
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    norm_topk_prob: bool = False
    tie_word_embeddings: bool = False
    eos_token_ids: tuple[int, ...] = ()

    @property
    def query_size(self) -> int:
        """Width of all query heads of one token."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """Width of all key (or value) heads of one token."""
        return self.num_key_value_heads * self.head_dim

    @classmethod
    def read(cls, directory: Path | str) -> ModelConfig:
        """Read and check DIRECTORY/config.json.

        Raises ModelError when the directory or file is missing, is no JSON, describes another architecture or a
        feature that this engine lacks, or when a field is missing or out of range.
        """
        directory = Path(directory)
        if not directory.is_dir():
            raise ModelError(
                f"model directory {directory} does not exist; give a directory with config.json and weights"
            )
        return cls.from_fields(directory, _read_json(directory / "config.json"))

    @classmethod
    def from_fields(cls, directory: Path, fields: dict[str, Any]) -> ModelConfig:
        """Check FIELDS, the content of DIRECTORY/config.json; raises ModelError as `read` does."""
        _check_architecture(directory, fields)
        _check_features(directory, fields)
        return _convert(directory, fields)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ModelError(f"{path} does not exist; a model directory holds config.json beside its *.safetensors")
    try:
        fields = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ModelError(f"{path} holds a JSON {type(fields).__name__}, expected an object")
    return fields


def _check_architecture(directory: Path, fields: dict[str, Any]) -> None:
    found = fields.get("architectures")
    if found != [ARCHITECTURE]:
        raise ModelError(
            f"{directory / 'config.json'}: architectures is {found!r}, expected {[ARCHITECTURE]!r}; "
            "this engine serves Qwen3-MoE models only"
        )


def _check_features(directory: Path, fields: dict[str, Any]) -> None:
    """Refuse what would silently give other tokens than the reference."""
    rope = _rope_fields(fields)
    unsupported = {
        "hidden_act": fields.get("hidden_act", "silu") != "silu",
        "attention_bias": bool(fields.get("attention_bias")),
        "use_sliding_window": bool(fields.get("use_sliding_window")),
        "mlp_only_layers": bool(fields.get("mlp_only_layers")),
        "decoder_sparse_step": fields.get("decoder_sparse_step", 1) != 1,
        "quantization_config": fields.get("quantization_config") is not None,
        "rope_parameters": rope.get("rope_type", rope.get("type", "default")) != "default",
    }
    names = [name for name, bad in unsupported.items() if bad]
    if names:
        found = ", ".join(f"{name}={fields.get(name)!r}" for name in names)
        raise ModelError(
            f"{directory / 'config.json'}: {found} is not supported; this engine serves unquantised models with "
            "silu experts in every layer, plain rotary embedding, no attention bias and no sliding window"
        )


def _rope_fields(fields: dict[str, Any]) -> dict[str, Any]:
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    return rope if isinstance(rope, dict) else {"rope_type": repr(rope)}


def _convert(directory: Path, fields: dict[str, Any]) -> ModelConfig:
    path = directory / "config.json"
    try:
        config = msgspec.convert(_normalised(directory, fields), ModelConfig)
    except msgspec.ValidationError as error:
        raise ModelError(f"{path}: {error}") from error
    _check_relations(path, config)
    return config


def _normalised(directory: Path, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields under one spelling each; what is null counts as absent."""
    known = {name: fields[name] for name in ModelConfig.__struct_fields__ if fields.get(name) is not None}
    experts = fields.get("num_experts", fields.get("num_local_experts"))
    if experts is not None:
        known["num_experts"] = experts
    hidden, heads = known.get("hidden_size"), known.get("num_attention_heads")
    if "head_dim" not in known and isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        known["head_dim"] = hidden // heads
    theta = _rope_fields(fields).get("rope_theta", fields.get("rope_theta"))
    if theta is not None:
        known["rope_theta"] = theta
    known["eos_token_ids"] = _end_tokens(directory, fields)
    return known


def _end_tokens(directory: Path, fields: dict[str, Any]) -> list[Any]:
    """Ids that end a text: generation_config.json wins over config.json, as in transformers."""
    generation = directory / "generation_config.json"
    found = _read_json(generation).get("eos_token_id") if generation.is_file() else None
    if found is None:
        found = fields.get("eos_token_id")
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


def _check_relations(path: Path, config: ModelConfig) -> None:
    if config.num_attention_heads % config.num_key_value_heads:
        raise ModelError(
            f"{path}: {config.num_attention_heads} attention heads cannot share {config.num_key_value_heads} "
            "key-value heads; expected a multiple"
        )
    if config.num_experts_per_tok > config.num_experts:
        raise ModelError(
            f"{path}: num_experts_per_tok={config.num_experts_per_tok} exceeds num_experts={config.num_experts}"
        )
    if config.head_dim % 2:
        raise ModelError(f"{path}: head_dim={config.head_dim} is odd; rotary embedding needs an even one")
