"""`torch` as vLLM's `elastic_state` sees it: the same, but all-reduces are announced. torch itself is not touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticfsm.integrations.vllm.watch import Watch

Event = tuple[str, str, str]


def watched_torch(torch: Any, current: Callable[[], Watch | None]) -> Any:
    """A stand-in for the name `torch` in one module."""
    return _Torch(torch, _Distributed(torch.distributed, current))


class _Torch:
    def __init__(self, torch: Any, distributed: _Distributed) -> None:
        self._torch = torch
        self.distributed = distributed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


class _Distributed:
    def __init__(self, distributed: Any, current: Callable[[], Watch | None]) -> None:
        self._distributed = distributed
        self._current = current

    def __getattr__(self, name: str) -> Any:
        return getattr(self._distributed, name)

    def all_reduce(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        watch = self._current()
        event = None if watch is None else _event(watch, args, kwargs)
        if watch is None or event is None:
            return self._distributed.all_reduce(tensor, *args, **kwargs)
        watch.before(*event)
        try:
            work = self._distributed.all_reduce(tensor, *args, **kwargs)
        except BaseException as error:
            watch.after(*event, error=error)
            raise
        if work is not None:
            return _Work(work, watch, event)
        watch.after(*event)
        return None


def _event(watch: Watch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Event | None:
    """What the spec calls this all-reduce; None if it is called in a way that we do not know."""
    try:
        op = kwargs.get("op", args[0] if args else None)
        group = kwargs.get("group", args[1] if len(args) > 1 else None)
        return ("all_reduce", watch.group(group), str(op).rpartition(".")[2].lower())
    except Exception:  # not ours to judge
        return None


class _Work:
    """A pending all-reduce: everything is asked of torch's own object; seen to be complete once."""

    def __init__(self, work: Any, watch: Watch, event: Event) -> None:
        self._work = work
        self._watch = watch
        self._event: Event | None = event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def is_completed(self) -> bool:
        done: bool = self._work.is_completed()
        if done:
            self._seen()
        return done

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        result = self._work.wait(*args, **kwargs)
        self._seen()
        return result

    def _seen(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            self._watch.after(*event)
