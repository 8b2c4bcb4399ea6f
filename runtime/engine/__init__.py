"""The reference engine: a small Qwen3-MoE with data-parallel attention, expert-parallel MoE and continuous batching.

Read it in this order: `config`, `weights`, `checkpoint` (a directory becomes a model), `request`, `scheduler`,
`kv_cache`, `batch` (requests become a step), `layers`, `routing`, `moe`, `exchange`, `model` (a step becomes logits),
`step`, `core` (what one engine process holds).
It never imports transformers; only `reference`, the token check, does, inside a function.
"""

from .checkpoint import Checkpoint
from .config import ModelConfig
from .core import EngineCore
from .exchange import ExpertExchange, GroupExchange, LocalExchange
from .kv_cache import BLOCK_SIZE, BlockPool, KVCache, block_bytes
from .model import DEFAULT_MAX_TOKENS, Model
from .random_model import write_random_model
from .reference import Mismatch, check_tokens
from .request import Request, TokenEvent
from .routing import ExpertRouting
from .scheduler import Counters, Scheduler
from .step import StepResult, run_step

__all__ = [
    "BLOCK_SIZE",
    "DEFAULT_MAX_TOKENS",
    "BlockPool",
    "Checkpoint",
    "Counters",
    "EngineCore",
    "ExpertExchange",
    "ExpertRouting",
    "GroupExchange",
    "KVCache",
    "LocalExchange",
    "Mismatch",
    "Model",
    "ModelConfig",
    "Request",
    "Scheduler",
    "StepResult",
    "TokenEvent",
    "block_bytes",
    "check_tokens",
    "run_step",
    "write_random_model",
]
