"""The experts of a layer three ways, at the shape of Qwen3-30B-A3B: a grouped product, a loop, all for all."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import torch

from ...engine.grouped import run_dense_experts, run_grouped_experts
from ...engine.moe import run_local_experts
from .machine import event_ms, graph_ms

HIDDEN, WIDTH, EXPERTS, TOP_K = 2048, 768, 128, 8
ENDS = {  # of 1024 rows, the last rows of the groups
    "all groups empty": lambda: torch.zeros(EXPERTS, dtype=torch.int32),
    "all rows in the first group": lambda: torch.full((EXPERTS,), 1024, dtype=torch.int32),
    "one row in the last group": lambda: torch.eye(EXPERTS, dtype=torch.int32)[-1],
}
HANGS = 25.0  # seconds after which a process whose product has not come is ended


def compare(tokens: int = 64, experts: int = EXPERTS) -> dict[str, Any]:
    """Milliseconds of each way and how far the grouped one is from float32, relative."""
    try:
        return _compare(tokens, experts)
    finally:
        torch.cuda.empty_cache()  # what this process holds is not the engines'


def _compare(tokens: int, experts: int) -> dict[str, Any]:
    device = "cuda"
    hidden = torch.randn(tokens, HIDDEN, device=device, dtype=torch.bfloat16)
    gate_up = torch.randn(experts, 2 * WIDTH, HIDDEN, device=device, dtype=torch.bfloat16) * HIDDEN**-0.5
    down = torch.randn(experts, HIDDEN, WIDTH, device=device, dtype=torch.bfloat16) * WIDTH**-0.5
    slots = torch.stack([torch.randperm(experts, device=device)[:TOP_K] for _ in range(tokens)])
    weights = torch.softmax(torch.randn(tokens, TOP_K, device=device), dim=-1).to(torch.bfloat16)
    exact = run_local_experts(hidden.float(), weights.float(), slots, gate_up.float(), down.float())
    found = run_grouped_experts(hidden, weights, slots, gate_up, down).float()
    return {
        "tokens": tokens,
        "experts": experts,
        "grouped_ms": graph_ms(lambda: run_grouped_experts(hidden, weights, slots, gate_up, down)),
        "loop_ms": event_ms(lambda: run_local_experts(hidden, weights, slots, gate_up, down), repeats=5),
        "dense_ms": graph_ms(lambda: run_dense_experts(hidden, weights, slots, gate_up, down)),
        "relative_error": float((found - exact).norm() / exact.norm()),
        "bytes_ms_at_4TBs": (gate_up.nbytes + down.nbytes) / 4.3e12 * 1e3,
    }


def empty_groups() -> dict[str, str]:
    """What `torch._grouped_mm` makes of groups without rows, each case in a process of its own, which may not end."""
    command = [sys.executable, "-m", "elasticfsm.runtime.bench.gpu.experts"]
    running = {case: subprocess.Popen([*command, case], stderr=subprocess.PIPE, text=True) for case in ENDS}
    limit, found = time.monotonic() + HANGS, {}
    for case, process in running.items():
        try:
            _, said = process.communicate(timeout=max(0.1, limit - time.monotonic()))
            found[case] = "ends" if process.returncode == 0 else f"fails: {said[-200:]}"
        except subprocess.TimeoutExpired:
            found[case] = f"does not end within {HANGS:g} s"
        finally:
            process.kill()
            process.communicate()
    return found


def _product(case: str) -> None:
    rows = torch.randn(1024, HIDDEN, device="cuda", dtype=torch.bfloat16)
    weights = torch.randn(EXPERTS, 2 * WIDTH, HIDDEN, device="cuda", dtype=torch.bfloat16)
    ends = ENDS[case]().cuda()
    for _ in range(3):
        torch._grouped_mm(rows, weights.transpose(-2, -1), offs=ends)
    torch.cuda.synchronize()


if __name__ == "__main__":
    _product(sys.argv[1])
