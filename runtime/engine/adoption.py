"""What lets an engine outlive its coordinator: whom it belongs to, and what it had said to a former one."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from .. import wire
from ..adopted import Watched

if TYPE_CHECKING:
    from ..elastic import Elastic

OPERATIONS = 2  # whose messages are remembered: the running one, and the last one


class Owner:
    """The coordinator process; an engine ends `keep` seconds after it, unless another one has adopted the engine.

    Without `keep` or without a process nothing is ever lost here: the parent is then watched by other means, if at all.
    """

    def __init__(self, pid: int, keep: float) -> None:
        self._keep = keep
        self._since = 0.0
        self._process = self._watched(pid)

    def adopted_by(self, pid: int) -> None:
        """Another coordinator has come."""
        before, self._process, self._since = self._process, self._watched(pid), 0.0
        if before is not None:
            before.close()

    def lost(self) -> bool:
        """Whether the coordinator has been gone for so long that nobody will come any more."""
        process = self._process
        if process is not None and not process.gone():
            return False
        self._since = self._since or time.monotonic()
        return self._keep > 0 and time.monotonic() - self._since > self._keep

    def _watched(self, pid: int) -> Watched | None:
        try:
            return Watched(pid) if pid and self._keep else None
        except OSError:  # it is gone already
            return None


class Memory:
    """The messages to the coordinator of the last operations: a new one asks what the engines had answered."""

    def __init__(self) -> None:
        self._said: OrderedDict[str, list[wire.Protocol]] = OrderedDict()

    def note(self, message: wire.Protocol) -> None:
        """Keep a message that is sent now."""
        self._said.setdefault(message.operation, []).append(message)
        while len(self._said) > OPERATIONS:
            self._said.popitem(last=False)

    def said(self) -> list[wire.Protocol]:
        """All of them, oldest first."""
        return [message for messages in self._said.values() for message in messages]


def world_size(elastic: Elastic) -> int:
    """How many engines this one serves with; 0 when it does not serve."""
    active = elastic.groups.active
    return len(active.members) if active is not None else 0


def here(elastic: Elastic, role: str, wake: str, lost: int) -> wire.Here:
    """What an engine answers to a coordinator that was started anew."""
    active, operation = elastic.groups.active, elastic.machines.operation
    return wire.Here(
        operation=operation.id if operation is not None else "",
        generation=elastic.board.generation,
        pid=os.getpid(),
        wake=wake,
        role=role,
        members=tuple(active.members) if active is not None else (),
        lost=lost,
    )
