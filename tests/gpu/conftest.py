"""GPU tests run where torch sees a GPU and are skipped, with the reason, everywhere else."""

from __future__ import annotations

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where there is none."""
    if torch.cuda.is_available():
        return
    reason = f"needs an NVIDIA GPU; torch {torch.__version__} sees none"
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
