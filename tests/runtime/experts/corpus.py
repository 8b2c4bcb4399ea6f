"""A fixed corpus of plans; prints one hash of all results. Run as a program, under whatever CPU features."""

from hashlib import blake2b

import numpy as np

from elasticfsm.runtime.experts.placement import Placement
from elasticfsm.runtime.experts.plan import moves, plan
from elasticfsm.runtime.experts.policy.removal import choose_leaving
from elasticfsm.runtime.experts.policy.settings import Policy

SHAPES = ((4, 64, 16, 8), (3, 256, 9, 32), (5, 16, 10, 2), (2, 128, 72, 4), (2, 60, 5, 16))


def main() -> None:
    digest = blake2b(digest_size=16)
    for seed, (layers, experts, slots, size) in enumerate(SHAPES):
        rng = np.random.default_rng(seed)
        # Integers from a bit generator: the loads themselves must not depend on how exp() is computed.
        loads = rng.integers(0, 1000, (layers, experts)) ** 2 // (1 + rng.integers(0, 50, (layers, experts)))
        loads[:, : experts // 4] = loads[:, :1]  # equal loads: only the order decides
        at = Placement.initial(layers, experts, size, slots)
        for policy in (Policy(kind="balanced"), Policy(), Policy(budget_rows=7)):
            at = plan(at, loads, policy=policy)
            grown = plan(at.grow(size + 2), loads, policy=policy)
            gone = choose_leaving(grown, 2)
            shrunk = plan(grown, np.roll(loads, 1, axis=1), set(range(size + 2)) - set(gone), policy)
            for placement in (at, grown, shrunk):
                digest.update(placement.hash().to_bytes(8, "little"))
            digest.update(repr([moves(layer, grown, shrunk) for layer in range(layers)]).encode())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
