"""Which transfer a generation uses: NIXL if every member can, else p2p; agreed by all members, never local."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Literal

from elasticfsm.errors import TransferError

from .by_nixl import NixlTransfer
from .by_p2p import P2pTransfer
from .transfer import Kind, Transfer

Wish = Literal["auto", "nixl", "p2p"]
Say = Callable[[str], None]


class Transfers:
    """The transfers that one engine has, the one in force, and the one that the coming generation agreed on.

    A generation agrees by one bit, the minimum over its members of `bid`. With `nixl` an engine that cannot use NIXL
    raises TransferError at once; with `auto` it bids 0 and says why, and all members use p2p.
    """

    def __init__(self, engine: str, wish: Wish = "auto", say: Say = lambda text: None) -> None:
        self.engine = engine
        self.reason = ""
        self.say = say
        self._have: dict[Kind, Transfer] = {"p2p": P2pTransfer(engine)}
        if wish != "p2p":
            try:
                self._have["nixl"] = NixlTransfer(engine)
            except TransferError as error:
                if wish == "nixl":
                    raise
                self.reason = str(error)
                say(f"NIXL cannot be used here: {error}")
        self.active = self.coming = self._have.get("nixl", self._have["p2p"])
        self._beside: list[Transfers] = []

    @classmethod
    def only(cls, transfer: Transfer) -> Transfers:
        """Return a choice of one."""
        made = cls.__new__(cls)
        made.engine, made.reason, made.say = transfer.engine, "", lambda text: None
        made._have = {transfer.kind: transfer}
        made.active = made.coming = transfer
        made._beside = []
        return made

    def beside(self) -> Transfers:
        """Return transfers of the same kinds with agents of their own, which follow every decision of these.

        What goes on through them is not disturbed when the agents here renew their names after an error.
        """
        other = Transfers(self.engine, "auto" if "nixl" in self._have else "p2p", self.say)
        self._beside.append(other)
        return other

    def bid(self) -> int:
        """Whether this engine can use NIXL, as 0 or 1; the minimum over all members is what `agreed` takes."""
        return int("nixl" in self._have)

    def agreed(self, everyone: int) -> None:
        """Take the members' decision for the coming generation; the one in force stays until `switch`."""
        kind: Kind = "nixl" if everyone and "nixl" in self._have else "p2p"
        if kind not in self._have:
            raise TransferError(f"engine {self.engine} has only {', '.join(self._have)}, but the members use {kind}")
        if kind == "p2p" and "nixl" in self._have:
            self.say("some member cannot use NIXL: all use p2p")
        self.coming = self._have[kind]
        for other in self._beside:
            other.coming = other._have[kind]

    def switch(self) -> Transfer:
        """Put what was agreed in force, with the groups."""
        for each in [self, *self._beside]:
            each.active = each.coming
        return self.active

    def keep(self, members: Collection[str]) -> None:
        """Forget every peer but these; see Transfer.keep."""
        for each in self.all:
            each.keep(members)

    @property
    def all(self) -> list[Transfer]:
        """Every transfer that this engine has."""
        return list(self._have.values())

    @property
    def moved(self) -> dict[str, int]:
        """Bytes received, by path."""
        return dict(sum((Counter(each.moved) for each in self._every()), Counter()))

    def pump(self) -> None:
        """See Transfer.pump."""
        for each in self._every():
            each.pump()

    def settle(self, peer: str) -> None:
        """See Transfer.settle."""
        for each in self._every():
            each.settle(peer)

    def close(self) -> None:
        """See Transfer.close."""
        for each in self._every():
            each.close()

    def _every(self) -> list[Transfer]:
        return [transfer for each in [self, *self._beside] for transfer in each.all]
