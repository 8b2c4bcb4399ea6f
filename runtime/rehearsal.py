"""A rehearsal: the collectives of one dummy step on a generation that does not serve yet.

The first use of a new group can fail where its creation did not; it shall fail before anybody votes for the switch.
"""

from __future__ import annotations

import torch

from elasticfsm.errors import GroupError

from .deadline import Cancelled, Deadline
from .group import Pending
from .groups import Generation, Groups
from .nccl import NcclPending


class Rehearsal:
    """The adapter behind the steps `rehearsal.*`: post a dummy step, then wait for it."""

    def __init__(self, groups: Groups, width: int = 8, within: float = 10.0) -> None:
        self._groups = groups
        self._width = width
        self._within = within
        self._posted: dict[str, list[Pending | NcclPending]] = {}

    def post(self, name: str = "standby") -> None:
        """Issue dispatch and combine on the generation `name`; every member calls it, it does not block."""
        generation = self._groups.need(name)
        row, rows, mine, all_ = self._rows(generation)
        self._posted[name] = [
            generation.ep.post_all_gather(rows, row),
            generation.ep.post_reduce_scatter(mine, all_),
        ]

    def _rows(self, generation: Generation) -> list[torch.Tensor]:
        """All memory that is needed, before anything is posted.

        Between a posted collective and the word to the peers that it is posted nothing may be allocated, loaded or
        connected: a device that waits for peers may keep such a call waiting, and the peers wait for the word.
        """
        device, size = generation.ep.device, generation.world_size
        made = [torch.zeros(count, self._width, device=device) for count in (1, size, 1, size)]
        if device != "cpu":
            torch.cuda.current_stream().synchronize()
        return made

    def wait(self, name: str = "standby", within: float | None = None, cancelled: Cancelled = None) -> None:
        """Wait for what `post` issued; GroupError, DeadlineExpired or GroupCut when it failed or was cancelled."""
        posted = self._posted.pop(name, None)
        if posted is None:
            raise GroupError(f"nothing was posted on {name}: call post() before wait()")
        seconds = self._within if within is None else within
        deadline = Deadline(seconds, f"rehearsal on {name}", cancelled)
        for pending in posted:
            pending.wait(deadline.left(), cancelled)
