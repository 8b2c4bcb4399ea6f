"""The NIXL bindings: exactly one of the two CUDA flavours, since a process cannot hold both."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

import torch

from elasticfsm.errors import TransferError

FLAVOURS = ("nixl_cu12", "nixl_cu13")


def bindings() -> ModuleType:
    """Return the `_api` module of the loaded flavour, else of the one that fits torch, else of the one installed."""
    os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")  # it prints a line to stdout for every agent otherwise
    loaded = [name for name in FLAVOURS if f"{name}._bindings" in sys.modules]
    cuda = torch.version.cuda or "12"
    fitting = sorted(FLAVOURS, key=lambda name: not name.endswith(cuda.split(".", maxsplit=1)[0]))
    for name in loaded or fitting:
        try:
            return importlib.import_module(f"{name}._api")
        except ModuleNotFoundError as missing:
            if not (missing.name or "").startswith(name):
                raise
        except ImportError as error:
            raise TransferError(f"{name} is installed but cannot be loaded ({error}); use the transfer p2p") from error
    raise TransferError("NIXL is not installed: pip install 'elasticfsm[runtime]', or use the transfer p2p")


def error_types(api: ModuleType) -> tuple[type[Exception], ...]:
    """Return the typed exceptions of NIXL: statuses below zero arrive as these, never as "ERR"."""
    bound: Any = api.nixlBind
    named = [value for name, value in vars(bound).items() if name.startswith("nixl") and name.endswith("Error")]
    return tuple(value for value in named if isinstance(value, type) and issubclass(value, Exception))
