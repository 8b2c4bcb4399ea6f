"""The places in an engine core process where vLLM is watched. Each passes on exactly what vLLM would have done."""

from __future__ import annotations

import functools
import logging
import os
from typing import Any

from elasticfsm.integrations import vllm as plugin
from elasticfsm.integrations.vllm.collectives import watched_torch
from elasticfsm.integrations.vllm.release import unfit, version
from elasticfsm.integrations.vllm.watch import Watch

log = logging.getLogger("vllm.elasticfsm")

_MARK = "_elasticfsm"
_here: Watch | None = None  # one engine core in a process


def install(module: Any) -> None:
    """Puts the watch into vLLM's `elastic_state` and into the engine core; once, and only into a release that fits."""
    state, core, config = module.ElasticEPScalingState, module.DPEngineCoreProc, module.ParallelConfig
    if hasattr(core, _MARK):
        return
    reason = unfit(version(), _seams(module))
    if reason:
        log.warning("elasticfsm: the observer stays off: %s", reason)
        return
    setattr(core, _MARK, True)
    module.ElasticEPScalingState = _observed(state)
    module.torch = watched_torch(module.torch, current)
    module.stateless_destroy_torch_distributed_process_group = _destroy(
        module.stateless_destroy_torch_distributed_process_group
    )
    core.run_busy_loop = _busy_loop(core.run_busy_loop)
    core._pause_complete = _pause(core._pause_complete)
    core.resume_scheduler = _resume(core.resume_scheduler)
    core._eep_send_engine_core_notification = _notify(core._eep_send_engine_core_notification)
    _wrap_reduction(config, "sync_dp_state", "sum", _synced)
    _wrap_reduction(config, "has_unfinished_dp", "max", _reopened)
    _wrap_reduction(config, "sync_kv_cache_memory_size", "min", None)
    log.info("elasticfsm: watching elastic expert parallelism, mode %s", plugin.mode())


def _seams(module: Any) -> list[tuple[object, str]]:
    state, core, config = module.ElasticEPScalingState, module.DPEngineCoreProc, module.ParallelConfig
    places: dict[Any, str] = {
        state: "_collective_rpc _init_new_dp_group _commit_new_dp_group _mark_ready_for_switch progress",
        core: "run_busy_loop _pause_complete resume_scheduler _eep_send_engine_core_notification",
        config: "sync_dp_state has_unfinished_dp sync_kv_cache_memory_size",
        module: "torch stateless_destroy_torch_distributed_process_group",
    }
    return [(owner, name) for owner, names in places.items() for name in names.split()]


def current() -> Watch | None:
    """The watch of this process, once there is an engine core with elastic expert parallelism."""
    return _here


def watch_of(core: Any, new: bool = False) -> Watch | None:
    """The watch of this engine core, made now if it is elastic; None if it is not, or if that failed."""
    global _here  # noqa: PLW0603 - one engine core in a process
    if _here is not None:
        return _here
    try:
        config = core.vllm_config.parallel_config
        if not getattr(config, "enable_elastic_ep", False):
            return None
        port = getattr(config, "_coord_store_port", 0)
        generation = f"{config.data_parallel_master_ip}:{port}" if port else ""
        mode: Any = plugin.mode()
        journal = os.environ.get(plugin.JOURNAL, "")
        _here = Watch(core, config.data_parallel_rank, config.data_parallel_size, mode, journal, generation, new)
    except Exception:  # whatever is wrong with us, vLLM goes on
        log.exception("elasticfsm: the observer of this engine stays off")
    return _here


def _observed(state: type) -> type:
    class Observed(state):  # type: ignore[misc]
        """vLLM's state machine, which says what it does."""

        _watch: Watch | None = None
        _in_background = ""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            watch = watch_of(self.engine_core, self.worker_type == "new")
            if watch is not None:
                watch.begin(self)
                self._watch = watch

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            watch = self._watch
            if watch is not None:
                if name == "state":
                    watch.changed(value)
                elif name == "commit_requested" and value:
                    watch.told("received commit")

        def _collective_rpc(self, *args: Any, **kwargs: Any) -> Any:
            watch = self._watch
            verb, starts = _verb(args, kwargs)
            if watch is None or not verb:
                return super()._collective_rpc(*args, **kwargs)
            if verb == "clear_async" and self._in_background:
                watch.after("rpc", "", self._in_background)  # vLLM asks for it when its workers have said so
                super().__setattr__("_in_background", "")
            watch.before("rpc", "", verb)
            try:
                result = super()._collective_rpc(*args, **kwargs)
            except BaseException as error:
                watch.after("rpc", "", verb, error)
                raise
            if starts:
                super().__setattr__("_in_background", verb)
            else:
                watch.after("rpc", "", verb)
            return result

        def _init_new_dp_group(self) -> Any:
            return _around(self._watch, ("groups", "standby", "create"), super()._init_new_dp_group)

        def _commit_new_dp_group(self) -> Any:
            if self._watch is not None:
                self._watch.switch()
            return super()._commit_new_dp_group()

        def _mark_ready_for_switch(self) -> None:
            super()._mark_ready_for_switch()
            if self._watch is not None:
                self._watch.note("notified", message="ready")

    Observed.__name__, Observed.__qualname__ = state.__name__, state.__qualname__
    Observed.__module__ = state.__module__
    return Observed


def _verb(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, bool]:
    """The verb of an RPC, and whether it only starts it; empty for another RPC."""
    try:
        told = kwargs.get("args", args[1] if len(args) > 1 else ())
        if args[0] != "elastic_ep_execute" or not told:
            return "", False
        return (str(told[1]), True) if told[0] == "start_async" else (str(told[0]), False)
    except Exception:  # called in a way that we do not know: not ours to judge
        return "", False


def _around(watch: Watch | None, event: tuple[str, str, str], call: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls with the watch told before and after; a refusal keeps it from being called."""
    if watch is None:
        return call(*args, **kwargs)
    watch.before(*event)
    try:
        result = call(*args, **kwargs)
    except BaseException as error:
        watch.after(*event, error=error)
        raise
    watch.after(*event)
    return result


def _destroy(original: Any) -> Any:
    @functools.wraps(original)
    def destroy(group: Any) -> Any:
        return _around(current(), ("groups", "retired", "destroy"), original, group)

    return destroy


def _busy_loop(original: Any) -> Any:
    @functools.wraps(original)
    def run_busy_loop(self: Any) -> Any:
        watch_of(self)
        return original(self)

    return run_busy_loop


def _pause(original: Any) -> Any:
    @functools.wraps(original)
    def pause_complete(self: Any) -> Any:
        watch = current()
        if watch is not None:
            watch.told("received pause")
        return original(self)

    return pause_complete


def _resume(original: Any) -> Any:
    @functools.wraps(original)
    def resume_scheduler(self: Any) -> Any:
        watch = current()
        if watch is None:
            return original(self)
        watch.resuming = True
        try:
            result = original(self)
        finally:
            watch.resuming = False
        watch.resumed()
        return result

    return resume_scheduler


def _notify(original: Any) -> Any:
    messages = {"RECONFIGURE_FINISHED": "finished", "SHUTDOWN_COMPLETE": "shutdown"}

    @functools.wraps(original)
    def send_notification(self: Any, notification_type: Any) -> Any:
        watch = current()
        if watch is not None:
            name = getattr(notification_type, "name", "")
            watch.note("notified", message=messages.get(name, name))
        return original(self, notification_type)

    return send_notification


def _wrap_reduction(config: Any, name: str, verb: str, then: Any) -> None:
    """Wraps a reduction of ParallelConfig, which is a static method in some releases and a method in others."""
    static = isinstance(config.__dict__.get(name), staticmethod)
    first = 0 if static else 1
    original = getattr(config, name)

    @functools.wraps(original)
    def reduction(*args: Any, **kwargs: Any) -> Any:
        watch = current()
        if watch is None:
            return original(*args, **kwargs)
        group = watch.group(kwargs.get("dp_group", args[first] if len(args) > first else None))
        if then is _reopened:
            if not watch.resuming:
                return original(*args, **kwargs)
            watch.told("received resume")
        result = _around(watch, ("all_reduce", group, verb), original, *args, **kwargs)
        if then is not None:
            then(watch, result, kwargs.get("pending_pause", args[-1] if args else False))
        return result

    setattr(config, name, staticmethod(reduction) if static else reduction)


def _synced(watch: Watch, result: Any, pausing: Any) -> None:
    watch.agreed(result, pausing)


def _reopened(watch: Watch, result: Any, _: Any) -> None:
    watch.told("answer work" if result else "answer empty")
