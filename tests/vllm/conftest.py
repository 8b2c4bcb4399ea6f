"""Where the interpreter with vLLM is; tests that need it are skipped elsewhere, with the command that makes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VENV = "ELASTICFSM_VLLM_VENV"


@pytest.fixture(scope="session")
def vllm_venv() -> Path:
    """The virtual environment of `make vllm`."""
    venv = os.environ.get(VENV, "")
    if not venv:
        pytest.skip("drives vLLM itself; run by `make vllm`, which makes the environment for it")
    path = ROOT / venv
    if not (path / "installed").exists():
        pytest.skip(f"{path} is not made yet: tools/vllm-venv {venv}")
    return path
