"""The places in a worker process where vLLM is watched: begin and end of each verb that its engine core asked for."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from elasticfsm.embed import Recorder
from elasticfsm.embed.recorder import process_instance
from elasticfsm.integrations import vllm as plugin
from elasticfsm.integrations.vllm.release import unfit, version

log = logging.getLogger("vllm.elasticfsm")

_MARK = "_elasticfsm"


def install(module: ModuleType) -> None:
    """Journals the verbs of vLLM's `elastic_execute`; once, only with a journal, only in a release that fits."""
    executor = module.ElasticEPScalingExecutor
    if hasattr(executor, _MARK) or not os.environ.get(plugin.JOURNAL):
        return
    reason = unfit(version(), [(executor, "execute")])
    if reason:
        log.warning("elasticfsm: the observer of workers stays off: %s", reason)
        return
    setattr(executor, _MARK, True)
    executor.execute = _execute(executor.execute)


def _execute(original: Any) -> Any:
    @functools.wraps(original)
    def execute(self: Any, execute_method: str, *args: Any, **kwargs: Any) -> Any:
        _note(self, "step.begin", execute_method, "")
        try:
            result = original(self, execute_method, *args, **kwargs)
        except BaseException as error:
            _note(self, "step.end", execute_method, repr(error))
            raise
        _note(self, "step.end", execute_method, "")
        return result

    return execute


def _note(executor: Any, event: str, verb: str, error: str) -> None:
    try:
        recorder = getattr(executor, "_elasticfsm_recorder", None)
        if recorder is None:
            recorder = executor._elasticfsm_recorder = _recorder(executor)
        request = executor.reconfig_request
        if request is not None:
            recorder.begin(f"{request.new_data_parallel_master_ip}:{request.coord_store_port}")
        else:
            recorder.begin("")
        recorder.note(event, "worker", state=verb, step=f"rpc.{verb}", **({"error": error} if error else {}))
    except Exception:  # whatever is wrong with us, the worker goes on
        log.exception("elasticfsm: the observer of this worker missed `%s`", verb)


def _recorder(executor: Any) -> Recorder:
    worker = executor.worker
    rank = worker.vllm_config.parallel_config.data_parallel_rank
    directory = Path(os.environ[plugin.JOURNAL]) / "workers"
    return Recorder(directory, f"engine{rank}.{worker.rank}", process_instance())
