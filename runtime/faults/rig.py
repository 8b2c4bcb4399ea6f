"""One deployment for many cells, and what must hold after each of them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from elasticfsm.errors import ElasticError

from ..deployment import Deployment, Options, Status
from ..models import PSALTER
from ..router import Stream
from ..store import StoreServer
from . import holdings
from .fault import Post
from .feeder import LENGTH, Feeder, questions
from .pace import Pace, crowded
from .trigger import PLAN, HearingJournal, Trigger
from .zygote import ForkingLauncher, Zygote

ANSWERS_FILE = Path(__file__).with_name("answers.json")
SETTLE = 3.0  # seconds for heartbeats, reapers and ended processes to catch up
ANSWERS = 20.0
SMALL, LARGE = 2, 3  # sizes between which operations lead
DEADLINES = {"prepare": 15.0, "finish": 12.0}  # the others are scaled; these would make hopeless cells a minute long


class Rigged(Deployment):
    """A deployment whose engines are forked from a zygote and whose coordinator has a trigger."""

    journals_as = HearingJournal
    post = Path()

    def _open(self, *standing: Any) -> None:
        super()._open(*standing)
        journal = self._journal
        trigger = Trigger(self.post, "coordinator", self._lose_store, self._fill_disk)
        trigger.journal = journal
        journal.trigger = trigger  # type: ignore[attr-defined]
        self._hub.tap = trigger.tap

    def _lose_store(self) -> None:
        self._store.close()

    def _fill_disk(self) -> None:
        """From here on the ledger, too, finds no space."""

        def full(name: str, content: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

        self.ledger._replace = full  # type: ignore[method-assign]


class Rig:
    """Opens deployments, looks at them, closes them. `close` ends everything."""

    def __init__(self, timescale: float) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="faults-")
        self.scratch = Path(self._scratch.name)
        self.timescale = self._timescale = timescale
        self.deadlines = DEADLINES
        self.pace = Pace(crowded())
        self.zygote = Zygote()
        self.post = Post(self.scratch)
        self.questions = questions()
        self.answers: dict[tuple[int, ...], list[int]] = {}
        self.deployment: Rigged | None = None
        with contextlib.closing(StoreServer()) as first:
            first.answers()  # what the first one opens for all stays open
        self._before = holdings.of_process()
        self._open: list[str] = []
        self._memory = holdings.shared_memory()
        self._opened = 0

    # -- a deployment ------------------------------------------------------------------------------------------

    def open(self, size: int, **options: Any) -> Rigged:
        """Start a deployment."""
        kind: type[Rigged] = type("Rigged", (Rigged,), {"post": self.scratch, "launchers": self._launcher()})
        self._before, self._open = holdings.of_process(), holdings.descriptors()
        self.deployment = kind.start(PSALTER, size, self.options(**options))
        return self.deployment

    def options(self, **options: Any) -> Options:
        """Of every deployment here; each has journals of its own, and limits that suit the pace of the run."""
        self._opened += 1
        factor = self.pace.factor
        self.timescale = self._timescale * factor
        self.deadlines = {name: seconds * factor for name, seconds in DEADLINES.items()}
        given: dict[str, Any] = {
            "slots": 10,
            "eplb_interval": 25,
            "eplb_window": 25,
            "kv_blocks": 128,
            "deadlines": self.deadlines,
        }
        given |= {"journal": str(self.scratch / f"journal-{self._opened}"), "faults": (f"{PLAN}{self.scratch}",)}
        return Options(timescale=self.timescale, **(given | options))

    def _launcher(self) -> type[ForkingLauncher]:
        return type("Launcher", (ForkingLauncher,), {"zygote": self.zygote})

    def shut(self) -> list[str]:
        """Close the deployment; returns what it left behind."""
        deployment, self.deployment = self.deployment, None
        if deployment is None:
            return []
        deployment.close()
        return self.until_clean(lambda: self._left(deployment.address))

    def _left(self, address: str) -> list[str]:
        before, now = self._before, holdings.of_process()
        left = [f"engine process {pid} still runs" for pid in sorted(self.zygote.living(address))]
        sockets = Path(address.removeprefix("ipc://")).parent
        left += [f"{sockets} still exists"] if sockets.exists() else []
        left += [f"shared memory {name}" for name in sorted(holdings.shared_memory() - self._memory)]
        if now.descriptors > before.descriptors:
            more = sorted(set(holdings.descriptors()) - set(self._open))
            left.append(f"{now.descriptors} descriptors here, {before.descriptors} before: {', '.join(more)}")
        if now.threads > before.threads:
            names = ", ".join(thread.name for thread in threading.enumerate())
            left.append(f"{now.threads} threads here, {before.threads} before: {names}")
        return left

    def close(self) -> None:
        """End everything."""
        if self.deployment is not None:
            self.deployment.close()
        self.zygote.close()
        self._scratch.cleanup()

    # -- answers -----------------------------------------------------------------------------------------------

    def learn_answers(self) -> None:
        """Read the answers of this model from the file beside; else one engine gives them, and they are judged once."""
        key = hashlib.sha256((PSALTER / "model.safetensors").read_bytes()).hexdigest()
        kept = msgspec.json.decode(ANSWERS_FILE.read_bytes(), type=dict[str, list[list[int]]])
        answers = kept.get(key) or self._answers()
        if len(answers) != len(self.questions):
            raise ElasticError(f"{ANSWERS_FILE}: {len(answers)} answers for {len(self.questions)} questions; remove it")
        self.answers = dict(zip(self.questions, answers, strict=True))
        if key not in kept:
            with contextlib.suppress(OSError):  # then the next run learns them again
                fresh = ANSWERS_FILE.with_suffix(f".{os.getpid()}")
                fresh.write_bytes(msgspec.json.encode({key: answers}) + b"\n")
                fresh.replace(ANSWERS_FILE)

    def _answers(self) -> list[list[int]]:
        from ..demo.tokens import check

        deployment = self.open(1, slots=16)
        feeder = Feeder(deployment, self.questions, 0)
        streams = [feeder.ask(number) for number in range(len(self.questions))]
        for stream in streams:
            stream.wait(60)
        wrong = check(PSALTER, [(s.prompt, tuple(s.tokens)) for s in streams], self.scratch, lambda done, total: None)
        if wrong:
            raise ElasticError(f"one engine alone already answers {len(wrong)} tokens wrongly: {wrong[0]}")
        self.shut()
        return [list(stream.tokens) for stream in streams]

    def judge(self, streams: Sequence[Stream], may_fail: bool) -> list[str]:
        """Each request has one outcome; finished ones have the right tokens; none fails while the deployment lives."""
        self.pace.saw(streams)
        found = []
        unsure = []
        for stream in streams:
            expected = self.answers[stream.prompt]
            if stream.outcome == "failed" and not may_fail:
                found.append(f"request {stream.id} failed: {stream.reason}")
            if stream.outcome == "finished" and len(stream.tokens) != LENGTH:
                found.append(f"request {stream.id} finished with {len(stream.tokens)} tokens of {LENGTH}")
            if stream.tokens != expected[: len(stream.tokens)]:
                unsure.append(stream)
        return found + self._judge_again(unsure)

    def _judge_again(self, streams: Sequence[Stream]) -> list[str]:
        """Another answer than before is wrong unless the reference finds both as good: sums in another order."""
        if not streams:
            return []
        from ..demo.tokens import check

        pairs = [(stream.prompt, tuple(stream.tokens)) for stream in streams]
        wrong = check(PSALTER, pairs, self.scratch, lambda done, total: None)
        return [f"wrong token {each.position} of request {streams[each.request].id}" for each in wrong]

    # -- after a cell ------------------------------------------------------------------------------------------

    def agree(self, deployment: Rigged, members: tuple[str, ...]) -> list[str]:
        """Whatever knows a size says the same one, every engine rests, and nobody else runs."""
        return self.until_clean(lambda: self.disagreements(deployment.status(), members, deployment.address))

    def disagreements(self, status: Status, members: tuple[str, ...], address: str) -> list[str]:
        """What is not as it must be when `members` serve and no operation runs."""
        found = []
        if status.members != members:
            found.append(f"members are {status.members}, expected {members}")
        if set(status.admitted) != set(members):
            found.append(f"requests go to {status.admitted}, expected {members}")
        if set(status.engines) != set(members):
            found.append(f"heartbeats come from {sorted(status.engines)}, expected {sorted(members)}")
        for engine, said in status.engines.items():
            busy = {name: at for name, at in said.states.items() if name.startswith("scale_")}
            if said.generation != status.generation or said.role != "active" or busy:
                found.append(f"{engine} is {said.role} in generation {said.generation} of {status.generation}: {busy}")
            if (held := said.counters.get("generations", 1)) != 1:
                found.append(f"{engine} holds the groups of {held} generations")
        extra = self.zygote.living(address) ^ set(status.pids.values())
        found += [f"process {pid} runs and should not, or the reverse" for pid in sorted(extra)]
        sockets = Path(address.removeprefix("ipc://")).parent
        strange = {each.stem for each in sockets.glob("*.sock")} - {"hub", *members}
        found += [f"socket of {name} is left" for name in sorted(strange)]
        found += [f"shared memory {name} is left" for name in sorted(holdings.shared_memory() - self._memory)]
        return found

    @staticmethod
    def until_clean(ask: Callable[[], list[str]], within: float = SETTLE) -> list[str]:
        """What is left to complain about when nothing is, or after some seconds."""
        end = time.monotonic() + within
        while (found := ask()) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def limit(self) -> float:
        """Seconds within which an operation must have ended: all its deadlines, and one question more."""
        return sum(self.deadlines.values()) + (30 + 3 * 30) * self.timescale + 5
