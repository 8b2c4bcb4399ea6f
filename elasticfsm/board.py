"""What the hands of a forward step may read about the machines, at the moment at which the step agrees."""

from __future__ import annotations


class Board:
    """Given to the adapter of `step` at its construction, and filled by the interpreter just before `step.agree`.

    `votes`: what this engine casts. `wanted`: some machine waits for a vote, which counts as work. `names`: every vote
    that may be cast, in the order of the reduced tensor, alike on all engines. `operation` is empty unless a vote of
    that operation is cast, because engines learn of it at different steps. `step` counts agreements since the switch.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.votes: frozenset[str] = frozenset()
        self.wanted = False
        self.operation = ""
        self.generation = 0
        self.wave = 0
        self.step = 0
