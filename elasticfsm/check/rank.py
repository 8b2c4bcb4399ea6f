"""An order of local states that does not depend on when they were found: so that every explorer sorts engines alike."""

from __future__ import annotations

from hashlib import blake2b

from elasticfsm.check.world import ANSWERED, RELEASED, Stand, World


class Ranks(dict[int, int]):
    """For the number of a local state 62 bits that follow from what it is; equal only by a chance of 2**-62 a pair."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def __missing__(self, number: int) -> int:
        local = self._world.locals[number]
        stands = [self._named(stand) for stand in local.stands]
        digest = blake2b(repr((*local._replace(stands=()), stands)).encode(), digest_size=8).digest()
        rank = self[number] = int.from_bytes(digest, "big") >> 2
        return rank

    def _named(self, stand: Stand | None) -> object:
        """A stand with results and answers as such: their numbers tell when they were found."""
        if stand is None:
            return None
        inside = self._world.results[stand.inside - RELEASED] if stand.inside >= RELEASED else stand.inside
        said = self._world.answers[stand.outcome - ANSWERED] if stand.outcome >= ANSWERED else stand.outcome
        return (stand.state, stand.step, inside, said)
