"""A stage: the real interpreters, machines and monitors of all engines in one process, moved one micro-step at a time.

Real are the machines, the step interpreter with its threads, the conductor, mailboxes and monitors. Virtual are groups,
store and weights (`Laws`), the network, the clock, and who goes next: threads stand at gates until they are let go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from elasticfsm.compile import Program
from elasticfsm.errors import ElasticError
from elasticfsm.mailbox import Letter
from elasticfsm.seat import Cancel, Job, Seat
from elasticfsm.steps import COLLECTIVE
from elasticfsm.testing.stage.act import COORDINATOR, PROCESS, Act
from elasticfsm.testing.stage.actors import Boss, Engine, Heard, base_of
from elasticfsm.testing.stage.asked import Asked
from elasticfsm.testing.stage.gates import Gates, Standing
from elasticfsm.testing.stage.held import Held
from elasticfsm.testing.stage.laws import NEW, OLD, Laws
from elasticfsm.testing.stage.network import Network
from elasticfsm.testing.stage.performer import CLOSING, FAIL


class Impossible(ElasticError):
    """The real objects cannot do the micro-step that they were told to do."""


class Stage(Asked):
    """One operation over engines that serve already; `counts` says how many engines there are of each role.

    `act` does one micro-step and raises `Impossible` if the real objects cannot do it; `actions` lists what they would
    do by themselves. `laws.refuted` has the properties that were seen broken. Close it: it has threads.
    """

    def __init__(
        self,
        program: Program,
        counts: Mapping[str, int],
        merge: bool = True,
        deadlines: Mapping[str, float] | None = None,
        asked: bool = True,
        repeats: bool = False,
        heard: Heard = lambda who, event: None,
    ) -> None:
        self.heard = heard
        self.repeats = repeats  # whether an engine that has ended says so again when it hears of the coordinator
        self.program, self.base = program, base_of(program)
        self.deadlines = dict(deadlines or {})
        self.now = 0.0
        self.gates = Gates()
        self.laws = Laws(program.facts)
        self.network = Network(self, merge)
        self.roles = {f"{role}{index}": role for role in program.roles for index in range(counts[role])}
        self.environment = {route.message for route in program.routes if route.sender == "environment"}
        self.vocabularies = {
            step.name: step.vocabulary
            for machine in program.machines.values()
            for state in machine.states.values()
            for step in state.steps
        }
        self.launches = any(meaning.means == "launch" for meaning in program.steps.values())
        self.engines: dict[str, Engine] = {}
        self.boss: Boss | None = None
        self._cast()
        if asked:
            self.begin()

    def _cast(self) -> None:
        old, new = (tuple(self._members(name)) for name in ("active", "standby"))
        laws = self.laws
        laws.members = {OLD: old, NEW: new}
        laws.roles = dict(self.roles)
        for engine, role in self.roles.items():
            holds = [fact for name in self.program.started[role] for fact in self.program.machines[name].holds]
            laws.join(engine, OLD if engine in old else "", tuple(holds))
            laws.pending[engine] = []
            if engine in new and self.program.coordinator:
                laws.names[engine]["standby"] = NEW
        for engine, role in self.roles.items():
            self.engines[engine] = Engine(self, engine, role, engine in old)
        if self.program.coordinator:
            laws.facts[COORDINATOR], laws.names[COORDINATOR] = set(), {}
            self._ids = {role: [name for name, own in self.roles.items() if own == role] for role in self.program.roles}
            self.boss = Boss(self, self._ids)

    def begin(self) -> None:
        """The operator asks for the operation, and the coordinator begins."""
        if self.boss is not None:
            self.boss.conductor.begin()
            message = next(iter(self.boss.seat.machine.spec.starts))
            self.act(Act(COORDINATOR, self.boss.seat.name, "takes", f"received {message}"))

    def restart(self, state: str, said: list[Letter]) -> None:
        """A new coordinator goes on in that state; engines have repeated to it what they said to the old one."""
        old = self.boss
        if old is None or old.alive:
            raise Impossible("the coordinator is not dead")
        self.network.letters[:] = [sent for sent in self.network.letters if sent.to != COORDINATOR]
        self.boss = Boss(self, self._ids)
        for letter in said:
            self.boss.deliver(letter)
        gone = [engine.name for engine in self.engines.values() if not engine.alive]
        launched = [engine.name for engine in self.engines.values() if engine.present and not engine.founder]
        old.close()
        self.boss.conductor.resume(state, launched, gone)
        self._settle()

    def _members(self, group: str) -> Iterator[str]:
        named = self.program.groups.get(group, ())
        for engine, role in self.roles.items():
            if role in named or named == ("engine",):
                yield engine

    # -- looked at by others -----------------------------------------------------------------------------------

    def clock(self) -> float:
        """The virtual time in seconds."""
        return self.now

    def nanoseconds(self) -> int:
        """The virtual time for monitors."""
        return int(self.now * 1e9)

    def journals(self, directory: Path) -> None:
        """Writes the journals of all actors as a run of the runtime leaves them, for `elasticfsm.trace`."""
        directory.mkdir(parents=True, exist_ok=True)
        for actor in self.actors():
            lines = [msgspec.json.encode({"wall": 0.0, "instance": "stage", **event}) for event in actor.journal.events]
            (directory / f"{actor.name}.jsonl").write_bytes(b"\n".join([*lines, b""]))

    def actor(self, who: str) -> Engine | Boss:
        """An engine by its name, or the coordinator."""
        if who == COORDINATOR and self.boss is not None:
            return self.boss
        if who not in self.engines:
            raise Impossible(f"nobody is called {who}; there are {', '.join([*self.engines, COORDINATOR])}")
        return self.engines[who]

    def actors(self) -> list[Engine | Boss]:
        """Everybody, the coordinator first."""
        return [*([self.boss] if self.boss is not None else []), *self.engines.values()]

    def launch(self, role: str) -> None:
        """Processes of a role start."""
        for engine in self.engines.values():
            engine.present |= engine.role == role

    def close(self) -> None:
        """Ends all threads."""
        for actor in reversed(self.actors()):
            actor.close()

    def wake(self) -> None:
        """Threads whose list was withdrawn leave their gate."""
        for cancel in list(self.gates.standing):
            if cancel.is_set():
                self.gates.open(cancel)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- micro-steps -------------------------------------------------------------------------------------------

    def act(self, act: Act) -> None:
        """Does one micro-step; raises `Impossible` and changes nothing of the machines if it is not possible now."""
        actor = self.actor(act.who)
        if act.machine == PROCESS:
            return self._befall(actor, act)
        if act.machine not in actor.held:
            raise Impossible(f"{act}: {act.who} has no machine {act.machine}; there are {', '.join(actor.held)}")
        held = actor.held[act.machine]
        if not actor.alive or (isinstance(actor, Engine) and not actor.present):
            raise Impossible(f"{act}: {act.who} does not run")
        if act.verb == "takes":
            return self._take(actor, held, act)
        return self._go(actor, held, act)

    def _befall(self, actor: Engine | Boss, act: Act) -> None:
        """What the environment does to a process, or to a letter on its way to it."""
        if act.verb == "dies":
            return self.die(act.who)
        if act.verb == "restarts":
            return self.restart(act.what, self._remembered())
        found = [
            sent
            for sent in (self.network.letters if act.verb == "loses" else reversed(self.network.taken))
            if (sent.to, sent.letter.message) == (act.who, act.what) and act.more in ("", sent.letter.engine)
        ]
        if not found:
            raise Impossible(f"{act}: no such letter")
        if act.verb == "loses":
            self.network.letters.remove(found[0])
        else:
            self.network.letters.append(found[0])
        return None

    def _remembered(self) -> list[Letter]:
        """What a restarted coordinator hears again: all that was said to the old one, and who died."""
        if self.boss is None:
            return []
        return [sent.letter for sent in self.network.letters if sent.to == COORDINATOR] + self.boss.inbox()

    def die(self, who: str) -> None:
        """A process ends: connections to it break, letters to it are lost, and the watchdog tells the coordinator."""
        actor = self.actor(who)
        actor.alive = False
        self.network.letters[:] = [sent for sent in self.network.letters if sent.to != who or who == COORDINATOR]
        if isinstance(actor, Engine):
            self.laws.bury(who)
            if self.boss is not None and not self.boss.seat.machine.ended:
                self.boss.conductor.died(who)

    def actions(self) -> list[Act]:
        """What the real objects would do by themselves, one micro-step for each thread that is not waiting.

        Letters on their way arrive first; a guard is the one that the interpreter would take, with its own precedence.
        """
        return [act for actor in self.actors() for act in self.possible(actor)]

    def possible(self, actor: Engine | Boss) -> list[Act]:
        """The same for one actor."""
        for sent in list(self.network.letters):
            if self.network.flows(sent):
                self.network.deliver(sent)
        return list(self._possible(actor))

    def _possible(self, actor: Engine | Boss) -> Iterator[Act]:
        if not actor.alive or (isinstance(actor, Engine) and not actor.present):
            return
        actor.sort()
        broken = next((one.seat for one in actor.held.values() if _broken(one.seat)), None)
        for name, held in actor.held.items():
            seat, free = held.seat, actor.main.idle or held.seat.threaded
            if broken not in (None, seat) and not seat.threaded and free:
                continue
            if isinstance(actor, Engine) and name == actor.own and actor.ended():
                continue
            if free and (guard := held.way(actor.wanted) or actor.outside(seat)):
                yield Act(actor.name, name, "takes", guard)
            elif free and isinstance(actor, Engine) and held.would_begin() and self.at(seat) is None:
                if not actor.blocked(seat) and seat.job is not None:
                    yield from self._first(actor, name, seat.job)
            elif (standing := self.at(seat)) is not None and seat.job is not None:
                yield from self._on(actor, name, seat.job.cancel, standing)

    def _first(self, actor: Engine, machine: str, job: Job) -> Iterator[Act]:
        """The begin of a foreground list, unless its first step would wait."""
        step = job.steps[0]
        if step.meaning.means != "await" or not self.laws.missing(actor.name, step, "awaits"):
            yield Act(actor.name, machine, "enters" if step.meaning.means in COLLECTIVE else "does", str(step))

    def _on(self, actor: Engine | Boss, machine: str, cancel: Cancel, standing: Standing) -> Iterator[Act]:
        step, meeting = standing.step, actor.performer.inside.get(cancel)
        if step.meaning.means == "wait":
            meeting = actor.performer.posted.get(step.argument)
        if meeting is not None and self.laws.broken(meeting):
            yield Act(actor.name, machine, "fails", str(step), "closing")
        elif not self.waits(actor.name, cancel, standing):
            enters = step.meaning.means in COLLECTIVE
            yield Act(actor.name, machine, "leaves" if standing.inside else "enters" if enters else "does", str(step))

    def _take(self, actor: Engine | Boss, held: Held, act: Act) -> None:
        if not actor.main.idle and not held.seat.threaded:
            raise Impossible(f"{act}: the main loop of {act.who} is inside a list of steps")
        self._bring(act)
        held.granted, held.sender = act.what, act.more
        if act.what == "expired":
            held.expire()
        joined = self.laws.holds(act.who, "standby joined") if isinstance(actor, Engine) else False
        actor.look(held, act)
        self._settle()
        if held.granted:
            held.granted = ""
            raise Impossible(f"{act}: {_why(held)}")
        if joined and act.what == "expired" and act.machine == self.engines[act.who].own and _undoes(held.seat):
            self.laws.note("in_doubt", f"{act.who} has joined, knows no decision, and gives up by its own deadline")

    def _bring(self, act: Act) -> None:
        """Letters that a guard looks at arrive, if they are on their way."""
        kind, _, message = act.what.rpartition(" ")
        if kind in ("received", "any", "all", "all alive"):
            found = self.network.matching(act.who, act.machine, message, act.more)
            one = (
                kind == "received" and message not in self.program.waves
            )  # old wakes are void: the mailroom drops them
            for sent in found[:1] if one else found:
                self.network.deliver(sent)

    def _go(self, actor: Engine | Boss, held: Held, act: Act) -> None:
        """A list goes on by one step, or into or out of a collective; a foreground list may have to begin first."""
        seat = held.seat
        if isinstance(actor, Engine) and held.would_begin() and self.at(seat) is None:
            self._begin(actor, held, act)
        standing = self.at(seat)
        if standing is None or seat.job is None:
            raise Impossible(f"{act}: {seat.name} stands in `{seat.state}` and runs no list of steps")
        cancel, inside = seat.job.cancel, act.verb == "leaves"
        if str(standing.step) != act.what or (act.verb != "fails" and standing.inside != inside):
            raise Impossible(f"{act}: its list stands {'inside' if standing.inside else 'before'} {standing.step}")
        if act.verb != "fails" and (waits := self.waits(act.who, cancel, standing)):
            raise Impossible(f"{act}: {waits}")
        if inside and standing.step.meaning.means == "agree":  # the way out is part of the same micro-step
            held.granted = f"answer {actor.performer.inside[cancel].answer}"
        order = {"closing": CLOSING}.get(act.more, FAIL) if act.verb == "fails" else act.more
        self.gates.open(cancel, order)
        self._settle()
        held.granted = ""

    def _begin(self, actor: Engine, held: Held, act: Act) -> None:
        if not actor.main.idle or actor.blocked(held.seat):
            raise Impossible(f"{act}: the main loop of {act.who} is held up")
        held.may_begin, actor.runs = True, held.seat
        actor.main.ask(actor.interpreter.turn)
        self._settle()
        held.may_begin = False
        if actor.main.error is not None:
            raise Impossible(f"{act}: the main loop of {act.who} has ended: {actor.main.error}")

    def waits(self, who: str, cancel: Cancel, standing: Standing) -> str:
        """What a thread at a gate waits for, in words; empty if it may go on."""
        step, laws, performer = standing.step, self.laws, self.actor(who).performer
        if standing.inside:
            return "" if laws.released(performer.inside[cancel]) else f"waits in {performer.inside[cancel]}"
        if step.meaning.means == "await" and (missing := laws.missing(who, step, "awaits")):
            return f"awaits `{missing[0]}`"
        if step.meaning.means == "wait" and not laws.released(performer.posted[step.argument]):
            return f"waits for {performer.posted[step.argument]}"
        return ""

    def _settle(self) -> None:
        """Waits until every thread that has something to do stands at a gate, and withdrawn ones have left theirs."""
        self.wake()
        self.gates.until(lambda: all(actor.quiet(self.at) for actor in self.actors()), "settling")


def _broken(seat: Seat) -> bool:
    """Whether a forward step has failed: that is told before any message or deadline is obeyed."""
    steps = seat.at.steps if seat.at is not None else ()
    failed = seat.result is not None and seat.result.outcome == "failed"
    return failed and any(step.meaning.means == "agree" for step in steps)


def _undoes(seat: Seat) -> bool:
    """Whether only the end `aborted` is left for a machine."""
    states = seat.machine.spec.states
    seen, queue = {seat.state}, [seat.state]
    while queue:
        for way in states[queue.pop()].leave:
            if way.target not in seen:
                seen.add(way.target)
                queue.append(way.target)
    return {"done", "aborted"} & seen == {"aborted"}


def _why(held: Held) -> str:
    seat = held.seat
    ways = ", ".join(f"{way.guard} -> {way.target}" for way in seat.at.leave) if seat.at is not None else "not started"
    letters = ", ".join(sorted({letter.message for letter in seat.mail._letters.values()})) or "nothing"
    return f"{seat.name} stands in `{seat.state}` ({ways}; in its mail {letters}), and this is not enabled there"
