"""`elasticfsm.embed.Machine` in the place of vLLM's state machine: the table decides, vLLM's own helpers act."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from vllm.distributed.elastic_ep import elastic_state
from vllm.distributed.utils import get_cached_tcp_store_client
from vllm.v1.engine import EEPNotificationType

from elasticfsm.embed import Machine, Op, Program
from elasticfsm.integrations.vllm.watch import ROLES

Real = elastic_state.ElasticEPScalingState
STARTS = {"new": "pre_kv_init", "removing": "prepare"}  # by then the rest has happened
ENDLESS = torch.iinfo(torch.int64).max


class Posted:
    """A collective that was issued and is waited for."""

    def __init__(self, work: Any, then: Any) -> None:
        self.work, self.then = work, then

    def done(self) -> bool:
        return bool(self.work.is_completed())

    def result(self) -> str:
        self.work.wait()
        self.then()
        return ""


class Driven:
    """The call shape of vLLM's class, a machine of ours inside, and vLLM's own object for everything that is done."""

    def __init__(self, model_executor: Any, engine_core: Any, *args: Any, **kwargs: Any) -> None:
        self.real = Real(model_executor, engine_core, *args, **kwargs)
        self.core = engine_core
        self.worker_type, self.scale_type = self.real.worker_type, self.real.scale_type
        self.pool = ThreadPoolExecutor(1)
        self.posted: Posted | None = None
        role = ROLES[self.scale_type, self.worker_type]
        new = self.real.new_parallel_config
        op = Op(str(new._coord_store_port), 0, new.data_parallel_size)
        program = Program.load(f"vllm-0.33/{self.scale_type}")
        self.machine = Machine(program, role, self, op, clock=time.monotonic, start=STARTS.get(role, ""))
        for known in ("pause", "held", "resume"):  # vLLM asks for the commit only when all have paused
            self.machine.decide(known)
        self._commit_requested = False

    @property
    def commit_requested(self) -> bool:
        return self._commit_requested

    @commit_requested.setter
    def commit_requested(self, value: bool) -> None:
        self._commit_requested = value
        self.machine.decide("commit")

    @property
    def ready_key(self) -> str:
        return str(self.real.ready_key)

    def progress(self) -> bool:
        return self.machine.progress()

    def is_ready_for_switch(self) -> bool:
        return self.machine.is_ready_for_switch()

    def is_complete(self) -> bool:
        return self.machine.is_complete()

    def run_pre_kv_init_states(self) -> None:
        while self.machine.state == "pre_kv_init":
            self.machine.progress()

    def start(self, step: str, op: Op) -> Any:
        name, _, argument = step.partition(": ")
        if name.startswith("send "):
            self._send(name[5:])
        elif name.startswith("rpc."):
            return self._rpc(name[4:])
        elif name == "groups.create":
            return self.pool.submit(self._create)
        elif name == "cache.post":
            self._post(argument)
        elif name == "cache.wait":
            return self.posted
        elif name == "dp.join":
            self._join()
        return _done()

    def _create(self) -> None:
        self.real.new_dp_group, self.real.new_dp_store = self.real._init_new_dp_group()

    def _rpc(self, verb: str) -> Any:
        request, existing = self.real.reconfig_request, self.worker_type != "new"
        call = self.real._collective_rpc
        if verb == "prepare_reconfiguration":
            args = ("start_async", verb, request, self.real.new_parallel_config.use_all2all)
            keys = call("elastic_ep_execute", args=args)
            store = get_cached_tcp_store_client(request.new_data_parallel_master_ip, request.coord_store_port)
            return self.pool.submit(store.wait, keys)
        if verb == "commit_scale_down":
            self.real._commit_scale_down(self.worker_type == "removing")
        elif verb == "commit_scale_up":
            call("elastic_ep_execute", args=(verb, existing))
        else:
            call("elastic_ep_execute", args=(verb,))
        return _done()

    def _post(self, argument: str) -> None:
        mine = self.core.available_gpu_memory_for_kv_cache if argument == "standby" else ENDLESS
        tensor = torch.tensor([mine], dtype=torch.int64)
        least = torch.distributed.ReduceOp.MIN
        work = torch.distributed.all_reduce(tensor, op=least, group=self.real.new_dp_group, async_op=True)

        def adopt() -> None:
            if argument == "active":
                self.core.available_gpu_memory_for_kv_cache = int(tensor.item())

        self.posted = Posted(work, adopt)

    def _join(self) -> None:
        if self.worker_type != "new":
            self.real._commit_new_dp_group()
            return
        tensor = torch.zeros(3, dtype=torch.int32)
        torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MAX, group=self.real.new_dp_group)
        running, self.core.current_wave, self.core.step_counter = tensor.tolist()
        self.core.engines_running = bool(running)

    def _send(self, message: str) -> None:
        if message == "ready":
            self.real._mark_ready_for_switch()
        elif message == "finished":
            self.real._update_parallel_config()
            self.real._send_reconfigure_finished()
        elif message == "shutdown":
            self.core._eep_send_engine_core_notification(EEPNotificationType.SHUTDOWN_COMPLETE)


def _done() -> Future[str]:
    future: Future[str] = Future()
    future.set_result("")
    return future
