"""Which explorer runs: the plain one, the vectorised one (numpy), or the one that is faster at this size."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from elasticfsm.check.explore import Graph, explore
from elasticfsm.check.world import World
from elasticfsm.errors import SpecError

ENGINES = ("auto", "plain", "vector")
SMALL = 20_000  # up to so many states the plain explorer is not slower


def explored(
    world: World,
    reduced: bool = True,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
    engine: str = "auto",
    enough: int | None = None,
) -> Graph:
    """Explores a world; `auto` begins plainly and starts anew with numpy when there are more than `SMALL` states.

    `enough` ends the search after so many states if something is refuted by then. Both explorers reach the same states.
    Perfect deadlines depend on what can be reached, so only the plain one knows them. Raises `SpecError` for an unknown
    engine, if numpy is missing, or if `vector` is asked for what it cannot do.
    """
    if engine not in ENGINES:
        raise SpecError(f"engine `{engine}`: expected one of {', '.join(ENGINES)}")
    numpy = find_spec("numpy") is not None
    if engine == "vector" and not numpy:
        raise SpecError("the vectorised explorer needs numpy: install it, or use --engine plain")
    if world.regime.expiry == "perfect":
        if engine == "vector":
            raise SpecError("the vectorised explorer knows no perfect deadlines: use --engine plain")
        from elasticfsm.check.patience import patient

        return patient(world, reduced, limit, progress)
    if engine == "plain" or not numpy:
        return explore(world, reduced, limit, progress, enough=enough)
    if engine == "auto":
        fresh = World(world.program, world.sizes, world.regime)
        graph = explore(world, reduced, SMALL if limit is None else min(limit, SMALL), progress, enough=enough)
        over = enough is not None and graph.refuted and len(graph.states) > enough
        if graph.complete or (limit is not None and limit <= SMALL) or over:
            return graph
        world = fresh
    from elasticfsm.check.vector.explore import explore as by_levels

    return by_levels(world, reduced, limit, progress, enough=enough)
