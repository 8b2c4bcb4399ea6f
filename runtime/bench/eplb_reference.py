"""Runs other projects' policies, in their own interpreter and process: it imports nothing of elasticfsm.

The directory given as argument holds `deepseek.py` and the package `vllm` with `default.py` (tools/eplb-venv). Each
line of stdin is a request, each line of stdout the answer: {"which": "deepseek", "loads": FILE, "ranks": n, "slots": n,
"old": FILE or "", "out": FILE} gives {"ms": t}, the CPU time of one call; arrays are .npy files.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

import numpy as np
import torch


def main() -> None:
    """Serve until stdin ends; one thread."""
    torch.set_num_threads(1)
    sys.path.insert(0, sys.argv[1])
    deepseek = importlib.import_module("deepseek").rebalance_experts
    vllm = importlib.import_module("vllm.default").DefaultEplbPolicy.rebalance_experts
    for line in sys.stdin:
        request = json.loads(line)
        loads = torch.from_numpy(np.load(request["loads"]))
        replicas, ranks = request["ranks"] * request["slots"], request["ranks"]
        old = torch.from_numpy(np.load(request["old"])) if request["old"] else None
        begin = time.thread_time()
        if request["which"] == "deepseek":
            found = deepseek(loads, replicas, 1, 1, ranks, False)[0]
        else:
            found = vllm(loads, replicas, 1, 1, ranks, old)
        elapsed = time.thread_time() - begin
        np.save(request["out"], found.numpy())
        print(json.dumps({"ms": elapsed * 1e3}), flush=True)


if __name__ == "__main__":
    main()
