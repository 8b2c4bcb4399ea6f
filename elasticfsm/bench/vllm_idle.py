"""Run by the interpreter that has vLLM: what a poll of its elastic state machine costs that waits for the commit.

Prints one line of JSON: microseconds of CPU time per `progress()`, milliseconds of the import, the release.
"""

from __future__ import annotations

import importlib
import json
import statistics
import time
from types import SimpleNamespace
from typing import Any


def main() -> None:
    """Measures with or without the observer, as ELASTICFSM_VLLM says."""
    began = time.perf_counter()
    module: Any = importlib.import_module("vllm.distributed.elastic_ep.elastic_state")
    took = (time.perf_counter() - began) * 1000
    importlib.import_module("elasticfsm.integrations.vllm").register()
    core, state = _state(module)
    times = []
    for _ in range(7):
        start = time.thread_time()
        for _ in range(50_000):
            state.progress()
        times.append((time.thread_time() - start) / 50_000 * 1e6)
    version = importlib.import_module("vllm").__version__
    observed = getattr(state, "_watch", None)
    said = {"progress": statistics.median(times), "import": took, "version": version}
    print(json.dumps({**said, "observed": observed is not None and not observed.off, "wave": core.current_wave}))


def _state(module: Any) -> tuple[Any, Any]:
    """An existing engine that is prepared and waits: the state in which vLLM polls without end."""
    config = SimpleNamespace(
        enable_elastic_ep=True,
        data_parallel_master_ip="127.0.0.1",
        data_parallel_rank=0,
        data_parallel_size=2,
        _coord_store_port=1,
    )
    whole = SimpleNamespace(parallel_config=config)
    core = _Core(whole)
    executor = _Executor()
    state = module.ElasticEPScalingState(executor, core, whole, config, "existing", "scale_up", None)
    state.state = module.ScaleUpExistingEngineState.COMMIT_SCALE_UP
    core.executor = executor  # vLLM's object holds it weakly
    return core, state


class _Executor:
    def collective_rpc(self, *_: object, **__: object) -> list[object]:
        return []


class _Core:
    def __init__(self, config: Any) -> None:
        self.vllm_config = config
        self.dp_group: Any = object()
        self.current_wave = self.step_counter = 0
        self.executor: Any = None


if __name__ == "__main__":
    main()
