"""One engine core for the rig: vLLM's own `DPEngineCoreProc` and state machine, with a toy scheduler and toy workers.

Real: the busy loop, the DP group, pause consensus, commit and resume, utilities by name, notifications. Not real: the
model, the sockets (a pipe instead) and what workers do, of which one thing is left: a blocking all-reduce of their own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import time
import traceback
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import ParallelConfig
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.engine import EngineCoreRequestType, ReconfigureDistributedRequest
from vllm.v1.engine.core import DPEngineCoreProc, EngineShutdownState

HOST = "127.0.0.1"
KV_BYTES = 999


class ToyScheduler:
    """Requests are counters; every step moves each of them by one token."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.tokens: dict[str, list[int]] = {}
        self.pause_state = PauseState.UNPAUSED

    def add(self, request: str, tokens: int) -> None:
        self.left[request] = tokens
        self.tokens[request] = []

    def step(self) -> bool:
        if self.pause_state != PauseState.UNPAUSED or not self.left:
            return False
        for request in list(self.left):
            self.tokens[request].append(len(self.tokens[request]))
            self.left[request] -= 1
            if not self.left[request]:
                del self.left[request]
        return True

    def has_unfinished_requests(self) -> bool:
        return self.pause_state == PauseState.UNPAUSED and bool(self.left)

    def has_requests(self) -> bool:
        return self.has_unfinished_requests()

    def get_num_unfinished_requests(self) -> int:
        return len(self.left)

    def set_pause_state(self, state: PauseState) -> None:
        self.pause_state = state

    def finish_requests(self, *_: object) -> list[object]:
        self.left.clear()
        return []


class ToyWorkers:
    """What the workers of an engine do with those of others: they make a group, and meet in it when asked to commit."""

    is_sleeping = False

    def __init__(self, rank: int, timeout: float) -> None:
        self.rank, self.timeout = rank, timeout
        self.verbs: list[str] = []
        self.active: Any = None
        self.standby: Any = None
        self._preparing: threading.Thread | None = None

    def boot(self, port: int, size: int) -> None:
        self.active = self._group(port, size, "boot")

    def collective_rpc(self, method: str, args: tuple[Any, ...] = (), **_: object) -> list[Any]:
        if method != "elastic_ep_execute":
            return [None]
        verb, *rest = args
        self.verbs.append(verb)
        return [getattr(self, verb)(*rest)]

    def start_async(self, verb: str, request: ReconfigureDistributedRequest, _: bool) -> str:
        key = f"done/{verb}/{self.rank}"

        def prepare() -> None:
            port = request.coord_store_port
            self.standby = self._group(port, request.new_data_parallel_size, "workers")
            # A client of its own: the engine core waits for this key on the cached one, and a wait blocks every `set`.
            torch.distributed.TCPStore(HOST, port, is_master=False, wait_for_workers=False).set(key, b"1")

        self._preparing = threading.Thread(target=prepare, daemon=True)
        self._preparing.start()
        return key

    def clear_async(self) -> None:
        assert self._preparing is not None
        self._preparing.join()

    def prepare_new_worker(self) -> None:
        self.active = self._group(self.port, self.size, "workers")

    def warmup_new_worker(self) -> None:
        time.sleep(0.01)

    def commit_scale_up(self, existing: bool) -> None:
        self._meet(self.standby if existing else self.active)
        if existing:
            self.active, self.standby = self.standby, None

    def commit_scale_down(self, _: int, removing: bool) -> None:
        self._meet(self.active)
        if not removing:
            self.active, self.standby = self.standby, None

    def execute_dummy_batch(self) -> None:
        time.sleep(0.0005)

    def _meet(self, group: Any) -> None:
        torch.distributed.all_reduce(torch.ones(1), group=group)

    def _group(self, port: int, size: int, name: str) -> Any:
        store = torch.distributed.TCPStore(HOST, port, is_master=False, wait_for_workers=False)
        prefix = torch.distributed.PrefixStore(name, store)
        return _gloo(prefix, self.rank, size, self.timeout)


def _gloo(store: Any, rank: int, size: int, timeout: float) -> Any:
    """A group that only this rig uses: vLLM makes those of its workers in another way, on GPUs."""
    group = torch.distributed.ProcessGroup(store, rank, size)
    backend = torch.distributed.ProcessGroupGloo(store, rank, size, timedelta(seconds=timeout))
    group._register_backend(torch.device("cpu"), torch.distributed.ProcessGroup.BackendType.GLOO, backend)
    group._set_default_backend(torch.distributed.ProcessGroup.BackendType.GLOO)
    return group


class Engine(DPEngineCoreProc):
    """The real engine core without its constructor."""

    def __init__(self, rank: int, size: int, port: int, timeout: float) -> None:
        config = ParallelConfig(data_parallel_size=size, data_parallel_rank=rank, data_parallel_rank_local=rank)
        config.data_parallel_master_ip = HOST
        config._coord_store_port = port
        config.enable_elastic_ep = True
        config.cpu_distributed_timeout_seconds = int(timeout)
        self.vllm_config = SimpleNamespace(
            parallel_config=config,
            observability_config=SimpleNamespace(enable_logging_iteration_details=False),
            shutdown_timeout=0,
        )
        self.model_executor = ToyWorkers(rank, timeout)
        self.model_executor.port, self.model_executor.size = port, size
        self.scheduler = ToyScheduler()
        self.input_queue, self.output_queue, self.aborts_queue = queue.Queue(), queue.Queue(), queue.Queue()
        self.output_thread = threading.current_thread()
        self.process_input_queue_block = True
        self.step_counter = self.current_wave = 0
        self.dp_sync_interval = getattr(config, "dp_sync_interval", 16)
        self.prefill_schedule_interval = 1
        self.pending_pause = self.ignore_start_dp_wave = self.engines_running = False
        self.publish_dp_lb_stats = self.log_stats = self.enable_fault_tolerance = self.reject_new_requests = False
        self.has_coordinator = True
        self.eep_scaling_state = self.batch_queue = None
        self.shutdown_state = EngineShutdownState.RUNNING
        self.engine_index = rank
        self.available_gpu_memory_for_kv_cache = KV_BYTES + rank
        self._idle_state_callbacks: list[Any] = []
        self.committed_at = 0.0

    def step_fn(self) -> tuple[dict[int, Any], bool]:
        stepped = self.scheduler.step()
        if stepped:
            time.sleep(0.0005)
        return {}, stepped

    def post_step(self, _: bool) -> None:
        return

    def submit(self, request: str, tokens: int) -> None:
        """The rig's add_request: wakes the others as vLLM does, through the coordinator."""
        self.scheduler.add(request, tokens)
        if not self.engines_running and self.scheduler.pause_state == PauseState.UNPAUSED:
            self.engines_running = True
            self.output_queue.put_nowait((-1, SimpleNamespace(start_wave=self.current_wave, utility_output=None)))

    def finished(self) -> bool:
        return not self.scheduler.left

    def idle(self) -> bool:
        return not self.engines_running

    def commit_prepared_elastic_ep(self) -> None:
        self.committed_at, self.worked_until = time.monotonic(), time.thread_time()
        super().commit_prepared_elastic_ep()

    def leave(self) -> None:
        self.shutdown_state = EngineShutdownState.REQUESTED
        self.engines_running = False


def invert_commit() -> None:
    """The order mistake KB39: the workers are asked to share the experts' map before the engine joins the new group."""
    from vllm.distributed.elastic_ep import elastic_state

    right = elastic_state.ElasticEPScalingState._progress_existing_engine
    states = elastic_state.ScaleUpExistingEngineState

    def wrong(self: Any) -> bool:
        if self.state is not states.COMMIT_SCALE_UP or not self.commit_requested:
            return right(self)
        self._collective_rpc("elastic_ep_execute", args=("commit_scale_up", True))
        self._commit_new_dp_group()
        self.state = states.COMPLETE
        self._update_parallel_config()
        self._send_reconfigure_finished()
        return True

    elastic_state.ElasticEPScalingState._progress_existing_engine = wrong


def sabotage(what: str) -> None:
    """A fault of the observer's own, at every place that vLLM calls."""
    from elasticfsm.embed import Monitor, Recorder
    from elasticfsm.integrations.vllm.watch import Watch

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError(f"sabotage of {what}")

    owner, names = {
        "monitor": (Monitor, ("before", "after", "told", "enter")),
        "after": (Monitor, ("after",)),
        "recorder": (Recorder, ("put", "note", "flush", "begin", "end")),
        "begin": (Watch, ("_begin",)),
        "group": (Watch, ("_group", "_agreed", "_changed")),
        "watch": (Watch, ("__init__",)),
    }[what]
    for name in names:
        setattr(owner, name, broken)


def run(pipe: Any, rank: int, order: dict[str, Any]) -> None:
    """The process of one engine: waits until it is launched, lives its life, and says at the end how it was."""
    os.environ["ELASTICFSM_VLLM"] = order["mode"]
    os.environ["ELASTICFSM_JOURNAL"] = order["journal"]
    if rank in order.get("inverted", ()):
        invert_commit()
    size, port = pipe.recv()
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    if rank in order.get("driven", ()):
        from driven import Driven
        from vllm.distributed.elastic_ep import elastic_state

        elastic_state.ElasticEPScalingState = Driven
    if order.get("sabotage"):
        sabotage(order["sabotage"])
    engine = Engine(rank, size, port, order["timeout"])
    said = {"rank": rank, "end": "", "error": "", "seconds": 0.0}
    lock = threading.Lock()
    threading.Thread(target=_outputs, args=(engine, pipe, lock), daemon=True).start()
    try:
        engine._init_data_parallel(engine.vllm_config)
        if order["new"] == rank:
            engine._eep_scale_up_before_kv_init()
        else:
            engine.model_executor.boot(port, size)
        threading.Thread(target=_inputs, args=(engine, pipe), daemon=True).start()
        engine.run_busy_loop()
    except SystemExit:
        said["end"] = "exit"
    except BaseException as error:
        said["end"], said["error"] = type(error).__name__, str(error)
        said["trace"] = traceback.format_exc()[-3000:]
        if engine.committed_at:
            said["seconds"] = time.monotonic() - engine.committed_at
            said["cpu"] = time.thread_time() - engine.worked_until  # what a busy machine does not stretch
    said |= {
        "tokens": engine.scheduler.tokens,
        "verbs": engine.model_executor.verbs,
        "kv": engine.available_gpu_memory_for_kv_cache,
        "size": engine.vllm_config.parallel_config.data_parallel_size,
        "dp": [engine.dp_rank, engine.dp_group.size()],
    }
    with lock, contextlib.suppress(OSError):
        pipe.send(("end", said))
    atexit._run_exitfuncs()  # a forked child of multiprocessing does not run them
    os._exit(0)


def _inputs(engine: Engine, pipe: Any) -> None:
    while True:
        try:
            kind, body = pipe.recv()
        except (EOFError, OSError):
            return
        if kind == "wave":
            engine.input_queue.put_nowait((EngineCoreRequestType.START_DP_WAVE, body))
        else:
            engine.input_queue.put_nowait((EngineCoreRequestType.UTILITY, body))


def _outputs(engine: Engine, pipe: Any, lock: Any) -> None:
    while True:
        _, outputs = engine.output_queue.get()
        utility = outputs.utility_output
        with lock, contextlib.suppress(OSError):
            if utility is not None:
                result = utility.result.result if utility.result is not None else None
                pipe.send(("utility", (utility.call_id, result, utility.failure_message)))
            elif outputs.start_wave is not None:
                pipe.send(("wave", outputs.start_wave))
