"""Runs one list of steps to its end on the calling thread, and says how it ended."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

from elasticfsm.errors import ElasticError
from elasticfsm.monitor import Monitor, Record
from elasticfsm.protocol import Step
from elasticfsm.seat import Job, Result

from .adapters import Adapters, Cancelled, answer_of

log = logging.getLogger(__name__)


def run_list(
    job: Job,
    adapters: Adapters,
    journal: Record,
    monitor: Monitor | None = None,
    before: Callable[[Step], None] = lambda step: None,
    after: Callable[[Step], None] = lambda step: None,
) -> Result:
    """Performs the steps in order; blocks until the last has ended, the first has failed, or the list is withdrawn.

    `before` and `after` are called around each step that succeeds, on the same thread.
    """
    answer, agreed = "", frozenset[str]()
    for index, step in enumerate(job.steps):
        try:
            if job.cancel.is_set():
                raise Cancelled(f"withdrawn before {step}")
            before(step)
            value = _perform(job, index, adapters, journal, monitor)
            after(step)
            answer = answer_of(step, value) or answer
        except Exception as error:  # every error of a hand is an outcome of the machine, never the end of its thread
            return _failure(job, step, error, journal)
        if step.meaning.means == "agree":
            agreed = frozenset(getattr(value, "votes", ()))
    return Result("done", answer, agreed)


def _perform(job: Job, index: int, adapters: Adapters, journal: Record, monitor: Monitor | None) -> Any:
    step = job.steps[index]
    where: dict[str, Any] = {"state": job.state, "step": str(step), "index": index}
    journal.put("step.begin", job.machine, **where)
    if monitor is not None:
        monitor.begin_step(job.machine, job.state, step)
    try:
        value = adapters.perform(step, job.cancel)
    except BaseException as error:
        if monitor is not None:
            monitor.end_step(False)
        journal.put("step.end", job.machine, **where, error=_said(error))
        raise
    if monitor is not None:
        monitor.end_step()
    answer = getattr(value, "answer", value)
    journal.put("step.end", job.machine, **where, answer=answer if isinstance(answer, str) else "")
    return value


def _failure(job: Job, step: Step, error: Exception, journal: Record) -> Result:
    if job.cancel.is_set():
        return Result("cancelled", error=error, step=str(step))
    known = isinstance(error, ElasticError)
    text = str(error) if known else "".join(traceback.format_exception(error))
    journal.put("failed", job.machine, state=job.state, step=str(step), error=text)
    (log.warning if known else log.error)("%s in `%s`: step `%s` failed: %s", job.machine, job.state, step, text)
    return Result("failed", error=error, step=str(step))


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
