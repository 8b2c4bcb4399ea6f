"""Rescales in a row along a random path, with experts on the move all the time: everything must stay right."""

from __future__ import annotations

import random


def path(count: int, seed: int, smallest: int = 1, largest: int = 4) -> tuple[int, ...]:
    """Return `count` + 1 sizes from `smallest` to `largest`, no two neighbours alike; the same seed, the same path."""
    chosen = random.Random(seed)
    sizes = [chosen.randint(smallest, largest)]
    while len(sizes) <= count:
        sizes.append(chosen.choice([size for size in range(smallest, largest + 1) if size != sizes[-1]]))
    return tuple(sizes)
