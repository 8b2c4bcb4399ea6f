"""A company of engines in one process: real interpreters in threads, in-memory hands, and a coordinator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticfsm.board import Board
from elasticfsm.compile import program
from elasticfsm.journal import Journal
from elasticfsm.mailbox import Letter
from elasticfsm.monitor import Monitor
from elasticfsm.runtime.interpreter import Conductor, Interpreter, Operation
from elasticfsm.testing import Ground, Hands, hands

OPERATIONS = {"scale_up": program("scale_up"), "scale_down": program("scale_down")}
HOLDS = ("active exists", "active joined", "weights complete")


class Engine:
    """One interpreter with its main loop in a thread."""

    def __init__(self, company: Company, name: str, founder: bool) -> None:
        self.name = name
        self.work = 0
        self.due = threading.Event()
        self.error: BaseException | None = None
        self.ends: list[str] = []
        self.board = Board()
        self.journal = Journal(company.directory, name, "i")
        self.monitor = Monitor(name, self.journal)
        self.hands = Hands(
            name, company.ground, company.lock, self.board, self.monitor, lambda: self.work > 0, within=company.within
        )
        company.ground.join(name, ":1" if founder else "", HOLDS if founder else ())
        self.interpreter = Interpreter(
            name,
            program("rebalance"),
            OPERATIONS,
            hands(self.hands),
            lambda letter: company.post(name, letter),
            self.journal,
            board=self.board,
            monitor=self.monitor,
            environment={"request": lambda: self.work > 0, "due": self._due},
            ended=lambda operation, end, error: self.ends.append(end),
            generation=1 if founder else 0,
            members=company.ground.members.get(":1", ()) if founder else (),
        )
        if founder:
            self.interpreter.start()
        self.thread = threading.Thread(target=self._loop, name=f"main {name}", daemon=True)

    def _due(self) -> bool:
        due = self.due.is_set()
        self.due.clear()
        return due

    def _loop(self) -> None:
        try:
            while self.interpreter.alive:
                if not self.interpreter.turn():
                    self.interpreter.wait(1.0)
        except BaseException as error:
            self.error = error


class Company:
    """Engines that serve, and operations over them."""

    def __init__(self, directory: Path, founders: tuple[str, ...], within: float = 20.0) -> None:
        self.directory = directory
        self.within = within
        self.ground = Ground()
        self.lock = threading.Condition()
        self.ground.members[":1"] = founders
        self.engines = {name: Engine(self, name, True) for name in founders}
        self.journal = Journal(directory, "coordinator", "i")
        self.conductor: Conductor | None = None
        self.protocol = ""
        self.roles: dict[str, str] = {}
        for engine in self.engines.values():
            engine.thread.start()

    def add(self, *names: str) -> None:
        for name in names:
            self.engines[name] = Engine(self, name, False)
            self.engines[name].thread.start()

    def operate(self, protocol: str, operation: Operation, roles: dict[str, str]) -> Conductor:
        """Begins an operation everywhere and returns its coordinator, not yet turned."""
        self.protocol, self.roles = protocol, roles
        performer = Hands("coordinator", self.ground, self.lock)
        self.ground.names["coordinator"], self.ground.facts["coordinator"] = {}, set()
        with self.lock:
            self.ground.begin(f"{operation.id}:{operation.generation}", operation.members, roles)
        for name, role in roles.items():
            self.engines[name].interpreter.begin(protocol, role, operation)
        ids = {role: [name for name, each in roles.items() if each == role] for role in set(roles.values())}
        self.conductor = Conductor(
            OPERATIONS[protocol],
            operation,
            ids,
            hands(performer),
            lambda letter: self.post("coordinator", letter),
            self.journal,
        )
        self.conductor.begin()
        return self.conductor

    def post(self, source: str, letter: Letter) -> None:
        if self.conductor is not None and letter.receiver == self.conductor.program.coordinator:
            self.conductor.deliver(letter)
            return
        for name, engine in self.engines.items():
            if name != source and letter.receiver in ("serving.engine", f"{self.protocol}.{self.roles.get(name)}"):
                engine.interpreter.deliver(letter)

    def run(self, until: Callable[[Conductor], bool] | None = None, seconds: float = 30.0) -> str:
        """Turns the coordinator until the operation has ended there (or `until` holds); returns its state."""
        conductor = self.conductor
        if conductor is None:
            raise RuntimeError("no operation")
        end = time.monotonic() + seconds
        while not conductor.ended and not (until and until(conductor)):
            if time.monotonic() > end:
                raise TimeoutError(
                    f"coordinator in {conductor.state}, waits for {conductor.waits_for()}: {self.states()}"
                )
            if not conductor.turn():
                conductor.wait(0.2)
        return conductor.state

    def states(self) -> dict[str, dict[str, str]]:
        return {name: engine.interpreter.status() for name, engine in self.engines.items()}

    def close(self) -> None:
        for engine in self.engines.values():
            engine.interpreter.close(0)  # ask all of them first: their lists wait for each other
        for engine in self.engines.values():
            engine.interpreter.close(10)
            with self.lock:
                for name in ("active", "standby", "retired"):
                    self.ground.close(engine.name, name)
                self.lock.notify_all()
        for engine in self.engines.values():
            engine.thread.join(10)
            engine.journal.close()
        self.journal.close()


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Callable[..., Company]]:
    made: list[Company] = []

    def make(*founders: str, within: float = 20.0) -> Company:
        made.append(Company(tmp_path / "journals", founders, within))
        return made[-1]

    yield make
    for each in made:
        each.close()
    left = [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("main ", "background ", "journal "))
    ]
    assert left == []
