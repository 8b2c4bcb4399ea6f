"""Which engines the coordinator expects, knows and has heard of lately; what they are sent too early waits here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from elasticfsm.errors import RequestRefused

from . import wire
from .fingerprint import CODE

Send = Callable[[str, wire.Mail], None]


@dataclass(eq=False)
class Member:
    """One engine: what it was started for, where it is, when it was heard of last (monotonic seconds; 0: never)."""

    engine: str
    operation: str
    pid: int = 0
    wake: str = ""
    heard: float = 0.0
    expected: float = 0.0
    dead: str = ""
    stopped: bool = False
    retired: bool = False
    asked: float = 0.0
    status: wire.Status | None = None
    waiting: list[wire.Mail] = field(default_factory=list)

    @property
    def here(self) -> bool:
        """Whether it has announced itself and may be sent messages."""
        return self.pid != 0


class Roster:
    """All engines by id; ids are given once and never used again. Any thread."""

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._members: dict[str, Member] = {}
        self._next = 0
        self._lock = threading.RLock()

    def new_ids(self, count: int) -> list[str]:
        """Fresh engine ids: e0, e1, ..."""
        with self._lock:
            found: list[str] = []
            while len(found) < count:
                engine, self._next = f"e{self._next}", self._next + 1
                if engine not in self._members:  # somebody else may have given it
                    found.append(engine)
        return found

    def free(self, engines: Iterable[str]) -> None:
        """RequestRefused for an id, given by somebody else, under which an engine lives."""
        with self._lock:
            for engine in engines:
                known = self._members.get(engine)
                if known is not None and not known.dead and not known.stopped:
                    raise RequestRefused(f"engine {engine} is here already; ids are unique")

    @property
    def next_id(self) -> int:
        """The number of the next engine id."""
        return self._next

    def go_on(self, next_id: int) -> None:
        """Continue the engine ids of a former coordinator."""
        with self._lock:
            self._next = max(self._next, next_id)

    def expect(self, engines: Iterable[str], operation: str) -> None:
        """These engines will announce themselves, each with this operation id."""
        with self._lock:
            for engine in engines:
                self._members[engine] = Member(engine, operation, expected=self._clock())

    def unknown(self, engine: str, every: float = 1.0) -> bool:
        """Whether to ask an engine that we expect what it is: it spoke, but never said hello to us."""
        with self._lock:
            member = self._members.get(engine)
            if member is None or member.here or member.dead or self._clock() - member.asked < every:
                return False
            member.asked = self._clock()
        return True

    def adopt(self, message: wire.Here) -> bool:
        """An engine of a former coordinator said what it is; send what waited for it. False if it is not expected."""
        with self._lock:
            member = self._members.get(message.sender)
            if member is None or member.dead:
                return False
            if member.here:
                return True
            member.pid, member.wake, member.heard = message.pid, message.wake, self._clock()
            member.retired = message.role == "retired"
            self._welcomed(member)
        return True

    def _welcomed(self, member: Member) -> None:
        waiting, member.waiting = member.waiting, []
        self._tell_wakes()
        for each in waiting:
            self._send(member.engine, each)

    def hello(self, message: wire.Hello, welcome: wire.Welcome) -> wire.Turned | None:
        """Let an engine in, welcome it and send what waited for it; or return why not."""
        with self._lock:
            member = self._members.get(message.sender)
            reason, final = self._refusal(member, message)
            if member is None or reason:
                return wire.Turned(reason=reason, final=final)
            if message.code != CODE:
                return wire.Turned(reason=_other_code(message), final=True, code=CODE)
            member.pid, member.wake, member.heard = message.pid, message.wake, self._clock()
            self._send(member.engine, welcome)
            self._welcomed(member)
        return None

    @staticmethod
    def _refusal(member: Member | None, message: wire.Hello) -> tuple[str, bool]:
        if member is None:
            return "no operation expects an engine of this id; start it for a running one", bool(message.operation)
        if member.operation != message.operation:
            found = message.operation or "none"
            return f"it came for operation {found}, expected {member.operation}", True
        if member.dead or member.stopped:
            return "this id has ended before; start it under a fresh one", True
        if member.here and member.pid != message.pid:
            return f"this id is here already as process {member.pid}; ids are unique", True
        return "", False

    def _tell_wakes(self) -> None:
        """Who may be woken, to all of them; to whoever is not named any more each closes its socket."""
        wakes = {each.engine: each.wake for each in self.living() if each.here and not each.retired}
        for engine in wakes:
            self._send(engine, wire.Peers(sender=wire.COORDINATOR, wakes=wakes))

    def send(self, engine: str, message: wire.Mail) -> None:
        """Send, or keep it until the engine announces itself."""
        with self._lock:
            member = self._members.get(engine)
            if member is None or member.dead or member.stopped:
                return
            if member.here:
                self._send(engine, message)
            else:
                member.waiting.append(message)

    def heard(self, engine: str, status: wire.Status | None = None) -> bool:
        """Note that an engine spoke; False when it is not one of ours (any more)."""
        with self._lock:
            member = self._members.get(engine)
            if member is None or not member.here or member.dead:
                return False
            member.heard = self._clock()
            member.status = status or member.status
        return True

    def silent(self, longer_than: float) -> list[str]:
        """Engines that announced themselves and were not heard of for so many seconds."""
        limit = self._clock() - longer_than
        with self._lock:
            return [each.engine for each in self._members.values() if each.here and self._lives(each, limit)]

    def late(self, longer_than: float) -> list[str]:
        """Engines that were expected so many seconds ago and have not announced themselves."""
        limit = self._clock() - longer_than
        with self._lock:
            waited = [each for each in self._members.values() if not each.here and each.expected < limit]
            return [each.engine for each in waited if not each.dead and not each.stopped]

    @staticmethod
    def _lives(member: Member, limit: float) -> bool:
        return not member.dead and not member.stopped and member.heard < limit

    def bury(self, engine: str, reason: str) -> bool:
        """Declare an engine dead; False when it was stopped on purpose, or is dead already."""
        with self._lock:
            member = self._members.get(engine)
            if member is None or member.dead or member.stopped:
                return False
            member.dead = reason
        return True

    def stop(self, engines: Iterable[str]) -> None:
        """These engines end because they were told to: their silence means nothing."""
        with self._lock:
            for engine in engines:
                if engine in self._members:
                    self._members[engine].stopped = True

    def retire(self, engines: Iterable[str]) -> None:
        """These engines stay up, but nobody needs them: whoever started them ends them."""
        with self._lock:
            for engine in engines:
                if engine in self._members:
                    self._members[engine].retired = True

    def get(self, engine: str) -> Member | None:
        """What is known of one engine."""
        return self._members.get(engine)

    def all(self) -> list[Member]:
        """Every engine that was ever expected, the dead and stopped ones too."""
        with self._lock:
            return list(self._members.values())

    def lives(self, engines: Iterable[str]) -> bool:
        """Whether any of these engines is neither dead nor stopped."""
        return bool({each.engine for each in self.living()} & set(engines))

    def living(self) -> list[Member]:
        """Engines that were expected and are neither dead nor stopped."""
        with self._lock:
            return [each for each in self._members.values() if not each.dead and not each.stopped]


def _other_code(message: wire.Hello) -> str:
    return (
        f"it runs elasticfsm {message.code or 'of an older version'}, this deployment {CODE}: all "
        "must run the same code and spec; install that version for the engine and ask again, or start the deployment "
        "again with the other one"
    )
