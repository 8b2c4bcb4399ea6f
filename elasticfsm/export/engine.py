"""What an engine can do next, as one Promela process per engine: a loop over atomic moves of the machines inside."""

from __future__ import annotations

from collections.abc import Iterator

from elasticfsm.errors import SpecError
from elasticfsm.export.conditions import JOINED, Conditions, both, either, is_worker, place_of
from elasticfsm.export.layout import Layout, box
from elasticfsm.protocol import Leave, Machine, State, Step
from elasticfsm.steps import COLLECTIVE

Move = tuple[str, list[str]]  # guard, statements


def d_step(guard: str, body: list[str]) -> str:
    """One atomic move."""
    return f"    :: d_step {{ {guard} ->\n" + ";\n".join(f"        {line}" for line in body or ["skip"]) + " }"


class Engine:
    """Writes the process of one role; `move` fills in guards and statements for each thing that a machine may do."""

    def __init__(self, layout: Layout, role: str) -> None:
        self.layout = layout
        self.role = role
        self.say = Conditions(layout)

    def process(self, first: int) -> str:
        """The proctype of this role; its first instance has this process number."""
        place = self.layout.where[self.role][0] - first
        lines = [f"/* Any engine of the role {self.role}. */"]
        lines.append(f"active [{len(self.layout.where[self.role])}] proctype engine_{self.role}() {{")
        lines.append(f"#define me (_pid + {place})" if place >= 0 else f"#define me (_pid - {-place})")
        lines.append("    do")
        for slot, name, machine in self.layout.lives(self.role):
            lines += [f"    /* {name} */", *self._machine(slot, name, machine)]
        return "\n".join([*lines, "    od", "#undef me", "}"])

    def _judge(self, facts: int) -> list[str]:
        """What must be true of an engine in every state, as far as it depends on these facts."""
        body = []
        for fact, bit in self.layout.facts.items():
            needed = self.say.needed(self.role, bit) if facts & bit else "0"
            if needed != "0":
                wrong = f"MISS(me, {bit}) && ({needed})"
                body += [f"refute({name}, {wrong})" for name in self._properties([fact])]
        return body

    def _properties(self, facts: list[str]) -> list[str]:
        return sorted({"contracts", *(self.layout.property_of(fact) for fact in facts)})

    def _machine(self, slot: int, name: str, machine: Machine) -> Iterator[str]:
        free = "1" if is_worker(machine) else "BOUNDARY(me)"
        present = f"present[me] && AT(me, {slot}) == 0"
        for message, target in machine.starts.items():
            for bit in self._inbox(name, message):
                body = [f"inbox[me] = inbox[me] & ~{bit}", *self._enter(slot, name, machine, machine.states[target])]
                yield d_step(
                    both([present, f"inbox[me] & {bit}", free]), [*body, *self._judge(self.layout.mask(machine.holds))]
                )
        for state in machine.states.values():
            here = self.say.at(slot, name, state)
            for guard, body in self._guards(slot, name, machine, state):
                yield d_step(both([here, guard, free]), body)
            for index, step in enumerate(state.steps):
                running = f"{here} && STEP(me, {slot}) == {index} && SAID(me, {slot}) != 1"
                for guard, body in self._step(slot, name, machine, state, index, step):
                    yield d_step(both([running, guard]), [*body, *self._hold(slot, state)])

    def _hold(self, slot: int, state: State) -> list[str]:
        """Whether the main loop is inside this list after a move of its step; a state that was left holds nothing."""
        if state.thread != "foreground":
            return []
        running = f"SAID(me, {slot}) != 1 && STEP(me, {slot}) < {len(state.steps)}"
        return [f"held[me] = ({self.say.begun(slot)}) && {running}"]

    def _inbox(self, name: str, message: str) -> list[int]:
        return [bit for (sent, _, to), bit in self.layout.inbox.items() if (sent, to) == (message, name)]

    def _enter(self, slot: int, name: str, machine: Machine, target: State, source: State | None = None) -> list[str]:
        """Enters a state: cancels what runs, sends. An end is absence, except of the operation's own machine."""
        own = self.layout.operation and slot == 0
        stays = not target.end or own
        body = self._abandon(slot, source)
        body.append(f"stand(me, {slot}, {self.layout.constant(name, target.name) if stays else 0})")
        inbox = outbox = 0
        for message in target.sends:
            for route in self.layout.program.routes_from(name, message):
                if route.peers:
                    body.append(f"tell_peers(me, {box(message, name)})")
                elif route.local:
                    inbox |= self.layout.inbox[message, name, route.receiver]
                elif (message, name) in self.layout.outbox:
                    outbox |= self.layout.outbox[message, name]
        body += [f"inbox[me] = inbox[me] | {inbox}"] if inbox else []
        body += [f"outbox[me] = outbox[me] | {outbox}"] if outbox else []
        if target.end and own:
            body += ["refute(agreement, SOMEBODY_DONE && SOMEBODY_ABORTED)"]
            body += [] if target.name in ("done", "aborted") else ["refute(good_end, true)"]
        return body

    def _abandon(self, slot: int, source: State | None) -> list[str]:
        """A background list that is cancelled inside a collective closes its side of the group."""
        if source is None or source.thread != "background":
            return []
        cases = []
        for index, step in enumerate(source.steps):
            group = self.layout.resolve(self.role, step)
            if step.meaning.means in ("rendezvous", "agree") and group:
                inside = f"INSIDE(me, {slot}) == 1 && STEP(me, {slot}) == {index} && SAID(me, {slot}) != 1"
                cases.append(f":: {both([inside, group[0]])} -> close_side(me, {group[1]})")
        return [" ".join(["if", *cases, ":: else fi"])] if cases else []

    def _guards(self, slot: int, name: str, machine: Machine, state: State) -> Iterator[Move]:
        for way in state.leave:
            body = self._enter(slot, name, machine, machine.states[way.target], state)
            kind = way.guard.kind
            if kind in ("done", "failed", "answer"):
                yield both([self._concluded(slot, state, way)]), body
            elif kind in ("wanted", "unwanted"):
                yield f"{'' if kind == 'wanted' else '!'}WANTS_{self.role}(me)", body
            elif kind not in ("agreed", "expired"):
                yield from self._mail(name, way, body)

    def _concluded(self, slot: int, state: State, way: Leave) -> str:
        """Whether a list that has ended so is left this way; the guard of an answer wins over `done`."""
        if way.guard.kind == "failed":
            return f"SAID(me, {slot}) == 1"
        ended = f"STEP(me, {slot}) == {len(state.steps)} && SAID(me, {slot}) != 1"
        if way.guard.kind == "answer":
            return f"{ended} && SAID(me, {slot}) == {1 + self.layout.answers[way.guard.name]}"
        listed = [1 + self.layout.answers[w.guard.name] for w in state.leave if w.guard.kind == "answer"]
        return " && ".join([ended, *(f"SAID(me, {slot}) != {said}" for said in listed)])

    def _mail(self, name: str, way: Leave, body: list[str]) -> Iterator[Move]:
        message = way.guard.name
        if "environment" in self.layout.program.senders(name, message):
            yield "ENVIRONMENT", body
        for bit in self._inbox(name, message):
            if way.guard.kind != "received" and len(self._inbox(name, message)) > 1:
                raise SpecError(f"{name}: `{way.guard}` of several senders inside an engine cannot be exported")
            taken = [f"inbox[me] = inbox[me] & ~{bit}"] if way.guard.kind == "received" else []
            yield f"inbox[me] & {bit}", [*taken, *body]
        if (message, name) in self.layout.peer_mail:
            mail = box(message, name)
            for sender in range(len(self.layout.engines)):
                yield f"({mail}[me] >> {sender}) & 1", [f"{mail}[me] = {mail}[me] & ~{1 << sender}", *body]

    def _step(self, slot: int, name: str, machine: Machine, state: State, index: int, step: Step) -> Iterator[Move]:
        group = self.layout.resolve(self.role, step)
        means = step.meaning.means
        out = f"INSIDE(me, {slot}) == 0"
        begins = both([out, self._may_begin(slot, machine, state, index)])
        if means in COLLECTIVE:
            yield from self._collective(slot, step, begins, group)
            if means != "post":
                yield from self._leaves(slot, name, machine, state, step, group)
        elif group is None and step.meaning.kind:
            yield begins, [f"fail(me, {slot})", "refute(membership, true)"]
        elif means == "wait":
            yield from self._waits(slot, step, begins, group or ("1", "0"))
        elif means == "await":
            mine = self.layout.mask(step.facts("awaits"))
            met = both([begins, f"!MISS(me, {mine})" if mine else "1", self.say.hold(step.facts("awaits"))])
            yield met, [*self._requires(step), *self._finish(slot, step)]
        else:
            yield from self._local(slot, name, step, begins, group)

    def _may_begin(self, slot: int, machine: Machine, state: State, index: int) -> str:
        """A foreground list waits for the main loop; a forward step also for every other foreground list."""
        if state.thread != "foreground" or index:
            return "1"
        serving = any(step.meaning.means == "agree" for s in machine.states.values() for step in s.steps)
        free = ["BOUNDARY(me)", *([self.say.unhindered(self.role, slot)] if serving else [])]
        return either([self.say.begun(slot), both(free)])

    def _requires(self, step: Step) -> list[str]:
        """Refutes the properties of facts that are missing when a step begins."""
        facts = [fact for fact in step.facts("requires") if not fact.startswith("all ")]
        body = []
        for name in self._properties(facts) if facts else ():
            own = [fact for fact in facts if name in ("contracts", self.layout.property_of(fact))]
            body.append(f"refute({name}, MISS(me, {self.layout.mask(tuple(own))}))")
        if self.layout.elsewhere(step.facts("requires")):
            body.append(f"refute(contracts, !({self.say.hold(step.facts('requires'))}))")
        return body

    def _finish(self, slot: int, step: Step) -> list[str]:
        ends, gives = self.layout.mask(step.facts("ends")), self.layout.mask(step.facts("provides"))
        return [f"finish(me, {slot}, {ends}, {gives})", *self._judge(ends)]

    def _collective(self, slot: int, step: Step, begins: str, group: tuple[str, str] | None) -> Iterator[Move]:
        """Enters; whoever enters last releases all, with every result that is possible then."""
        lost = [f"fail(me, {slot})", "refute(membership, true)"]
        if group is None:
            yield begins, lost
            return
        valid, generation = group
        if valid != "1":
            yield both([begins, f"!({valid})"]), lost
        place, operation = place_of(step, generation), self.layout.collectives[step.name]
        posted = step.meaning.means == "post"
        body = [*self._requires(step), *self._membership(step, generation)]
        standby = int(step.argument == "standby")
        body.append(f"judge_order(me, {generation}, {place}, {operation}, {standby})")
        body.append(f"enter(me, {generation}, {place}, {operation}, {0 if posted else slot + 1})")
        body += self._finish(slot, step) if posted else [f"INSIDE(me, {slot}) = 1"]
        body = [f"meet(me, {generation}, {place}, {operation})", *body]
        for number, (chance, result, more) in enumerate(self._results(step, generation)):
            last = [f"result_ = {result}", f"release({generation}, {place})", *more]
            told = "; ".join(last)
            met = f"MEETS(me, {generation}, {place}, {operation})"
            allowed = "1" if chance == "1" and not number else f"({met} -> {chance} : {int(not number)})"
            yield both([begins, valid, allowed]), [*body, f"if :: met_ -> {told} :: else fi"]

    def _membership(self, step: Step, generation: str) -> list[str]:
        """No other member may wait in the same step on the other generation, nor have switched to it before."""
        if step.argument != "active":
            return []
        wrong = []
        for who, role in enumerate(self.layout.engines):
            for mine in (0, 1):
                if role in self.layout.members(mine) and (not generation.isdigit() or int(generation) == mine):
                    waits = self.say.inside(who, 1 - mine, step.name, released=False)
                    elsewhere = waits if mine else either([waits, f"switched[{who}]"])
                    wrong.append(f"{who} != me && {generation} == {mine} && ({elsewhere})")
        return [f"refute(membership, {either(wrong)})"] if wrong else []

    def _results(self, step: Step, generation: str) -> Iterator[tuple[str, str, list[str]]]:
        """When each result is possible, its number, and what else happens at the release."""
        answers = [str(self.layout.answers[answer]) for answer in step.meaning.answers]
        if step.meaning.means == "agree":
            for answer, text in zip(step.meaning.answers, answers, strict=True):
                waves = [wake for wake, end in self.layout.program.waves.items() if end == answer]
                boxes = [box(*peer) for peer in self.layout.peer_mail if peer[0] in waves]
                nobody = "1" if text == answers[0] else f"!ANYBODY_WANTS({generation})"
                yield nobody, f"{text} + 16 * FULL({generation})", [f"void_mail({generation}, {b})" for b in boxes]
        elif step.meaning.asks:
            held = f"HELD_BY_ALL({generation}, {self.layout.facts[step.meaning.asks]})"
            yield "1", f"({held} -> {answers[0]} : {answers[1]})", []
        else:
            for text in answers or ["0"]:
                yield "1", text, []

    def _leaves(
        self, slot: int, name: str, machine: Machine, state: State, step: Step, group: tuple[str, str] | None
    ) -> Iterator[Move]:
        """Leaves a released collective, with the votes that are full; or fails in one whose member closed its side."""
        result = [f"answer_ = (INSIDE(me, {slot}) - 2) % 16", f"votes_ = (INSIDE(me, {slot}) - 2) / 16"]
        body = [*result, *self._finish(slot, step)]
        if step.meaning.answers:
            body.append(f"SAID(me, {slot}) = 1 + answer_")
        if step.meaning.means == "agree":
            body += self._act(slot, name, machine, state, step)
        yield f"INSIDE(me, {slot}) > 1", body
        if group:
            yield both([f"INSIDE(me, {slot}) == 1", f"SOMEBODY_CLOSED({group[1]})"]), self._cut(slot, group[1])

    def _cut(self, slot: int, generation: str) -> list[str]:
        broken = f"closed[me] = closed[me] | (1 << (({generation}) + 2))"
        return [f"fail(me, {slot})", f"close_side(me, {generation})", broken]

    def _act(self, slot: int, name: str, machine: Machine, state: State, step: Step) -> list[str]:
        """Every machine that waits for a full vote moves; then serving takes its answer. All in the same moment."""
        body = []
        for other, other_name, other_machine in self.layout.lives(self.role):
            cases = []
            if other == slot:
                if step is state.steps[-1]:
                    for way in state.leave:
                        if way.guard.kind == "answer":
                            said = f"answer_ == {self.layout.answers[way.guard.name]}"
                            cases.append((said, self._enter(slot, name, machine, machine.states[way.target])))
            else:
                cases = self._agreed(other, other_name, other_machine)
            if cases:
                texts = [f":: {guard} -> {'; '.join(statements)}" for guard, statements in cases]
                body.append("\n            ".join(["if", *texts, ":: else fi"]))
        return body

    def _agreed(self, slot: int, name: str, machine: Machine) -> list[Move]:
        cases: list[Move] = []
        for state in machine.states.values():
            before = 0
            for way in state.leave:
                if way.guard.kind == "agreed":
                    vote = self.layout.votes[way.guard.name]
                    guard = f"{self.say.at(slot, name, state)} && (votes_ & {vote})"
                    guard += f" && !(votes_ & {before})" if before else ""
                    cases.append((guard, self._enter(slot, name, machine, machine.states[way.target], state)))
                    before |= vote
        return cases

    def _waits(self, slot: int, step: Step, begins: str, group: tuple[str, str]) -> Iterator[Move]:
        valid, generation = group
        posted = f"POSTED(me, {place_of(step, generation)})"
        if valid != "1":
            yield both([begins, f"!({valid})"]), [f"fail(me, {slot})", "refute(membership, true)"]
        cut = both([f"({posted} || CLOSED(me, {generation}))", f"SOMEBODY_CLOSED({generation})"])
        yield both([begins, valid, cut]), self._cut(slot, generation)
        yield both([begins, valid, f"!{posted}"]), [*self._requires(step), *self._finish(slot, step)]

    def _local(self, slot: int, name: str, step: Step, begins: str, group: tuple[str, str] | None) -> Iterator[Move]:
        body = self._requires(step)
        closes = any(fact.endswith(" *") for fact in step.facts("ends"))
        if step.meaning.means == "rename":
            body += [f"refute(no_transfer_at_switch, {self._in_flight(slot)})", "SWITCH_FACTS(me)", "switched[me] = 1"]
            yield begins, [*body, *self._finish(slot, step), *self._judge(sum(self.layout.facts.values()))]
        elif closes and group:
            valid, generation = group
            used = [] if step.argument == "standby" else self._in_use(generation)
            yield both([begins, valid]), [*body, *used, *self._finish(slot, step), f"close_side(me, {generation})"]
            if valid != "1":
                yield both([begins, f"!({valid})"]), [*body, *self._finish(slot, step)]
        else:
            for answer in step.meaning.answers or [""]:
                said = [f"SAID(me, {slot}) = {1 + self.layout.answers[answer]}"] if answer else []
                yield begins, [*body, *self._finish(slot, step), *said]

    def _in_flight(self, slot: int) -> str:
        """Whether another thread of this engine is inside a list of steps."""
        busy = []
        for other, name, machine in self.layout.lives(self.role):
            for state in machine.states.values() if other != slot else ():
                if state.thread == "background":
                    busy.append(f"{self.say.at(other, name, state)} && !({self.say.ended(other, state)})")
        return either(busy)

    def _in_use(self, generation: str) -> list[str]:
        """A group of serving engines must not be destroyed with work pending, or while a peer may still use it."""
        joined = self.layout.facts.get(JOINED, 0)
        pending = either([f"PENDING(me, {k}) && GENERATION(PLACE(PENDING(me, {k}))) == {generation}" for k in range(4)])
        users = []
        for who, role in enumerate(self.layout.engines):
            for mine in (0, 1):
                if role in self.layout.members(mine) and (not generation.isdigit() or int(generation) == mine):
                    current = f"switched[{who}] == {mine} && !MISS({who}, {joined})"
                    uses = either([self.say.inside(who, mine), *([current] if joined else [])])
                    users.append(f"{who} != me && {generation} == {mine} && ({uses})")
        intact = f"!BROKEN(me, {generation})"
        return [
            f"refute(no_use_after_destroy, {pending})",
            f"refute(no_use_after_destroy, {both([intact, either(users)])})",
        ]
