"""One micro-step in words: who, which machine, what it does; the lines of traces and of interaction scripts."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

from elasticfsm.errors import ElasticError

Verb = Literal["takes", "enters", "leaves", "does", "fails", "dies", "restarts", "loses", "repeats"]
VERBS = ("takes", "enters", "leaves", "does", "fails", "dies", "restarts", "loses", "repeats")
LINKS = {"takes": " from ", "loses": " from ", "repeats": " from ", "fails": ", "}
COORDINATOR = "coordinator"
PROCESS = "process"  # in the place of the machine, where the environment does something


class Unreadable(ElasticError):
    """A line that is no micro-step."""


class Act(NamedTuple):
    """`existing0 scale_up.existing takes received prepare from coordinator`, or `... enters groups.create: standby`.

    `takes` a guard (`more`: from whom a message came, if that matters), `enters` and `leaves` a collective, `does` a
    step that is no collective (`more`: the answer that it gives, or that the collective gives when it is released),
    `fails` in a step (`more`: `closing`, if this side of the group is closed by it). What the environment does is said
    of the process: `existing0 process dies here`, `coordinator process restarts asking`, `coordinator process loses
    built from new0` (which was on its way to it), `... repeats built from new0` (it arrived, and comes once more).
    """

    who: str
    machine: str
    verb: Verb
    what: str
    more: str = ""

    def __str__(self) -> str:
        link = LINKS.get(self.verb, " = ") if self.more else ""
        return f"{self.who} {self.machine} {self.verb} {self.what}{link}{self.more}"


def read(line: str) -> Act:
    """The micro-step of a line; raises `Unreadable`."""
    words = line.split(" ", 3)
    if len(words) != 4 or words[2] not in VERBS:
        raise Unreadable(f"`{line}`: expected WHO MACHINE {'|'.join(VERBS)} WHAT")
    who, machine, verb, rest = words
    link = LINKS.get(cast(Verb, verb), " = ")
    what, _, more = rest.partition(link)
    return Act(who, machine, cast(Verb, verb), what, more)
