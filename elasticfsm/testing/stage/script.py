"""Interaction scripts: commands and, below each, the transcript of what the real objects did; read like documentation.

A script is a text file. Lines that begin with `#` explain. A command stands on a line of its own, `----` below it, and
then what happened, up to the next empty line. `play` runs the commands and returns the file as it should be.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticfsm.compile import program
from elasticfsm.errors import ElasticError
from elasticfsm.mailbox import Letter
from elasticfsm.steps import COLLECTIVE
from elasticfsm.testing.stage.act import COORDINATOR, Act
from elasticfsm.testing.stage.actors import OPERATION, Boss, Engine
from elasticfsm.testing.stage.network import Sent
from elasticfsm.testing.stage.stage import Impossible, Stage
from elasticfsm.testing.stage.transcript import STEPS, Transcript

RULE = "----"
ROUNDS, CALM = 3_000, 60  # rounds of a run at most, and rounds with nothing but forward steps after which it is over
ANSWERS = {"experts.settle": "last", "placement.plan": "nothing"}  # unless a script says otherwise


class Wrong(ElasticError):
    """A command that does not exist, or that is not possible now."""


def play(text: str, journals: Path | None = None) -> str:
    """Runs a script and returns it with the transcripts that it gave now; blocks, and leaves no thread behind.

    `journals` is a folder for the journals of all actors at the end.
    """
    player = Player()
    told: list[str] = []
    try:
        skipping = False
        for line in text.splitlines():
            if skipping and line.strip():
                continue  # an old transcript
            skipping = line.strip() == RULE
            if skipping:
                continue
            told.append(line.rstrip())
            if line.strip() and not line.startswith("#"):
                told += [RULE, *(player.do(line.strip()) or ["nothing happens"])]
                skipping = True
        if journals is not None:
            player.stage.journals(journals)
        return "\n".join(told).rstrip() + "\n"
    finally:
        player.close()


def _urgency(act: Act) -> int:
    """As the main loop does it: guards, then lists, and a forward step last."""
    return 0 if act.verb == "takes" else 2 if act.what.startswith(STEPS) else 1


class Player:
    """Plays the commands of one script."""

    def __init__(self) -> None:
        self._stage: Stage | None = None
        self._heard: list[tuple[str, dict[str, Any]]] = []
        self._sent: list[Sent] = []
        self._hung: set[str] = set()
        self._failing: dict[tuple[str, str], int] = {}
        self._answers = dict(ANSWERS)
        self._refuted: set[str] = set()

    @property
    def stage(self) -> Stage:
        """The stage of the script."""
        if self._stage is None:
            raise Wrong("the first command of a script is `engines PROTOCOL ROLE=NUMBER ...`")
        return self._stage

    def close(self) -> None:
        """Ends all threads."""
        if self._stage is not None:
            self._stage.close()

    def do(self, command: str) -> list[str]:
        """Runs one command; the lines of its transcript."""
        name, *words = command.split()
        method: Callable[..., list[str] | None] | None = getattr(self, f"do_{name}", None)
        if method is None:
            known = ", ".join(sorted(each.removeprefix("do_") for each in dir(self) if each.startswith("do_")))
            raise Wrong(f"no command `{name}`; there are {known}")
        said = method(*words)
        events, self._heard[:] = list(self._heard), []
        told = Transcript(self.stage.program).lines(events)
        return [*(said or []), *told, *self._broken()]

    def _broken(self) -> list[str]:
        laws = self.stage.laws
        self.stage.look_at_facts()
        new = {name: text for name, text in laws.refuted.items() if name not in self._refuted}
        self._refuted |= set(new)
        return [f"REFUTED {name}: {text}" for name, text in new.items()]

    # -- commands ----------------------------------------------------------------------------------------------

    def do_engines(self, protocol: str, *words: str) -> list[str]:
        """`engines scale_up existing=2 new=1 [prepare=300]`: engines that serve, and new ones not yet launched."""
        compiled = program(protocol)
        numbers = dict(word.split("=") for word in words)
        counts = {role: int(numbers.pop(role)) for role in compiled.roles}
        limits = {name: float(seconds) for name, seconds in numbers.items()}
        self._stage = Stage(compiled, counts, merge=False, deadlines=limits, asked=False, heard=self._hear)
        self._stage.network.heard = self._carried
        self._heard.clear()
        return [
            f"{engine.name}: {'serves' if engine.founder else 'not launched'}" for engine in self.stage.engines.values()
        ]

    def do_scale(self, how: str = "") -> list[str] | None:
        """`scale`: the operator asks. `scale again`, `scale ID`: every engine hears of the same, or of another one."""
        from elasticfsm.runtime.interpreter import Operation

        if not how:
            self.stage.begin()
            return None
        told = []
        number = OPERATION if how == "again" else how
        for engine in self.stage.engines.values():
            try:
                engine.interpreter.begin(self.stage.program.name, engine.role, Operation(number, 1))
                told.append(f"{engine.name}: knows it already, nothing changes")
            except ElasticError as error:
                told.append(f"{engine.name}: refused: {error}")
        return told

    def do_run(self, *words: str) -> None:
        """`run`: until nothing moves but forward steps. `run until WHO STATE`: until a machine of WHO stands there."""
        if words[:1] == ("until",):
            who, state = words[1], words[2]
            self._run(lambda: state in self._states(who))
            if state not in self._states(who):
                raise Wrong(f"run until {who} {state}: it stands in {', '.join(sorted(self._states(who)))}")
            return
        self._run(lambda: False)

    def do_step(self, who: str, number: str = "1") -> None:
        """`step WHO [NUMBER]`: only WHO moves, so many micro-steps."""
        for _ in range(int(number)):
            if not self._move(self.stage.actor(who)):
                break

    def do_request(self, who: str) -> list[str]:
        """`request WHO`: a request arrives; one forward step serves it."""
        self.stage.engines[who].performer.requests += 1
        return [f"{who}: a request has come"]

    def do_due(self) -> list[str]:
        """`due`: the step counter reached the interval; a rebalance is due on every engine that serves."""
        due = [engine for engine in self.stage.engines.values() if engine.present and engine.founder]
        for engine in due:
            engine.due = True
        return [f"{', '.join(engine.name for engine in due)}: a rebalance is due"]

    def do_cancel(self) -> list[str]:
        """`cancel`: the operator wants the operation undone."""
        if self.stage.boss is not None:
            self.stage.boss.conductor.cancel()
        return ["operator: cancel is on its way"]

    def do_crash(self, who: str) -> list[str]:
        """`crash WHO`: a process ends. An engine's death is told by the watchdog; connections to it break."""
        self.stage.die(who)
        return [f"{who}: dead"]

    def do_restart(self, who: str, word: str, state: str) -> list[str] | None:
        """`restart coordinator at STATE`: a new process with the old journal; engines repeat what they have said."""
        if (who, word) != (COORDINATOR, "at"):
            raise Wrong("expected `restart coordinator at STATE`")
        self.stage.restart(state, [sent.letter for sent in self._sent if sent.to == COORDINATOR])
        return None

    def do_hang(self, who: str) -> list[str]:
        """`hang WHO`: a process stands still; nothing is known of it."""
        self._hung.add(who)
        return [f"{who}: stands still"]

    def do_wake(self, who: str) -> list[str]:
        """`wake WHO`: it goes on where it stood."""
        self._hung.discard(who)
        return [f"{who}: goes on"]

    def do_expire(self, who: str) -> list[str]:
        """`expire WHO`: the deadline of the phase in which the operation's machine of WHO stands passes there."""
        held = next(iter(self.stage.actor(who).held.values()))
        held.expire()
        within = held.seat.at.within if held.seat.at is not None else ""
        return [f"{who}: the deadline `{within}` has passed"]

    def do_advance(self, seconds: str) -> list[str]:
        """`advance SECONDS`: time passes for everybody."""
        self.stage.now += float(seconds)
        return [f"{seconds} seconds pass"]

    def do_fail(self, step: str, word: str, who: str) -> list[str]:
        """`fail STEP at WHO`: the next time that WHO performs this step, it fails."""
        if word != "at":
            raise Wrong("expected `fail STEP at WHO`")
        self._failing[who, step] = 1
        return [f"{who}: {step} will fail"]

    def do_answer(self, step: str, answer: str) -> list[str]:
        """`answer STEP ANSWER`: what a step answers from here on."""
        self._answers[step] = answer
        return [f"{step} will answer {answer}"]

    def do_hold(self, message: str, *words: str) -> list[str]:
        """`hold MESSAGE [from WHO] [to WHO]`: it is on its way and does not arrive."""
        named = dict(zip(words[::2], words[1::2], strict=True))

        def held(sent: Sent) -> bool:
            source, to = named.get("from", sent.letter.engine), named.get("to", sent.to)
            return (sent.letter.message, sent.letter.engine, sent.to) == (message, source, to)

        self.stage.network.holds[message] = held
        return [f"{message} {' '.join(words)}".strip() + " is held back"]

    def do_release(self, message: str) -> list[str]:
        """`release MESSAGE`: what was held back arrives."""
        late = [sent.to for sent in self.stage.network.letters if sent.letter.message == message]
        del self.stage.network.holds[message]
        self._arrive()
        return [f"{to}: {message} has arrived" for to in late]

    def do_lose(self, message: str) -> list[str]:
        """`lose MESSAGE`: what is held back of it is lost."""
        network = self.stage.network
        lost = [sent for sent in network.letters if sent.letter.message == message]
        network.letters[:] = [sent for sent in network.letters if sent not in lost]
        del network.holds[message]
        return [f"lost: {message} from {sent.letter.engine} to {sent.to}" for sent in lost]

    def do_repeat(self, message: str, word: str, who: str) -> list[str]:
        """`repeat MESSAGE to WHO`: a letter that was sent arrives once more."""
        found = next((sent for sent in self._sent if (sent.letter.message, sent.to) == (message, who)), None)
        if found is None or word != "to":
            raise Wrong(f"no {message} was sent to {who}; expected `repeat MESSAGE to WHO`")
        return self._again(found)

    def do_send(self, message: str, word: str, who: str, operation: str = OPERATION) -> list[str]:
        """`send MESSAGE to WHO [OPERATION]`: a letter of the coordinator, of a former operation if one is named."""
        engine, name = self.stage.engines[who], self.stage.program.name
        letter = Letter(message, f"{name}.coordinator", COORDINATOR, engine.own, operation, 1)
        return self._again(Sent(who, letter)) if word == "to" else []

    def do_status(self) -> list[str]:
        """`status`: where everybody stands."""
        told = []
        for actor in self.stage.actors():
            states = [f"{name} {held.seat.state}" for name, held in actor.held.items() if held.seat.state != "absent"]
            if isinstance(actor, Engine) and actor.ended():
                states = [f"{actor.own} {actor.ended()}", *[s for s in states if not s.startswith(f"{actor.own} ")]]
            dead = "dead; stood in " if not actor.alive else ""
            told.append(f"{actor.name}: {dead}{', '.join(states) or 'nothing runs'}{self._generation(actor)}")
        return told

    # -- how it goes on ----------------------------------------------------------------------------------------

    def _generation(self, actor: Engine | Boss) -> str:
        if not isinstance(actor, Engine) or actor.interpreter.state_of("serving.engine") in ("absent", "broken"):
            return ""
        return f" (generation {actor.board.generation})"

    def _run(self, over: Callable[[], bool]) -> None:
        """Everybody moves in turn, one micro-step each."""
        calm = 0
        for _ in range(ROUNDS):
            if over():
                return
            moved = [self._move(actor) for actor in self.stage.actors() if not over()]
            if not any(moved):
                return
            calm = calm + 1 if all(act is None or act.what.startswith(STEPS) for act in moved) else 0
            if calm > CALM:
                self._hear(COORDINATOR, {"event": "said", "machine": "", "text": "waits; forward steps go on"})
                return
        raise Wrong(f"no end after {ROUNDS} rounds")

    def _move(self, actor: Engine | Boss) -> Act | None:
        """The next micro-step of one actor: of the operation first, of the forward steps last."""
        if actor.name in self._hung:
            return None
        acts = sorted(self.stage.possible(actor), key=_urgency)
        if not acts:
            return None
        act = acts[0]
        name = act.what.partition(":")[0]
        if act.verb in ("enters", "does") and name in self._answers:
            act = act._replace(more=self._answers[name])
        if act.verb in ("enters", "does", "leaves") and self._failing.pop((act.who, name), 0):
            meets = (
                self.stage.program.steps[name].means in COLLECTIVE
            )  # who gets an error there closes its side at once
            act = act._replace(verb="fails", more="closing" if meets else "")
        self.stage.act(act)
        if isinstance(actor, Engine) and act.what == "received due":
            actor.due = False
        return act

    def _states(self, who: str) -> set[str]:
        actor = self.stage.actor(who)
        found = {held.seat.state for held in actor.held.values()}
        return found | ({actor.ended()} if isinstance(actor, Engine) else set())

    def _again(self, sent: Sent) -> list[str]:
        actor = self.stage.actor(sent.to)
        before = len(actor.journal.events)
        actor.deliver(sent.letter)
        actor.sort()
        dropped = any(event["event"] == "letter.dropped" for event in actor.journal.events[before:])
        return [] if dropped else [f"{sent.to}: {sent.letter.message} lies in its mail"]

    def _arrive(self) -> None:
        try:
            self.stage.actions()
        except Impossible as error:
            raise Wrong(str(error)) from error
        for actor in self.stage.actors():
            actor.sort()

    def _hear(self, who: str, event: dict[str, Any]) -> None:
        self._heard.append((who, event))

    def _carried(self, what: str, sent: Sent) -> None:
        if what == "sent":
            self._sent.append(sent)
