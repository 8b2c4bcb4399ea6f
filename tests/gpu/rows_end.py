"""One of two engines whose group for rows breaks: `python -m tests.gpu.rows_end RANK STORE OUT`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from elasticfsm.errors import GroupError
from elasticfsm.runtime.creation import Limits
from elasticfsm.runtime.groups import Groups
from elasticfsm.runtime.streams import own_stream

ROWS, NBYTES = 8, 1 << 20


class End:
    """A rank, its groups, and rows that say whose they are."""

    def __init__(self, rank: int, store: str) -> None:
        torch.cuda.init()
        torch.cuda.set_stream(own_stream())
        self.rank, self.peer = rank, 1 - rank
        self.groups = Groups(store, limits=Limits(connect=60.0), backend="nccl")
        self.groups.plan("rows", 1, ["e0", "e1"], f"e{rank}")
        self.groups.create("active")
        self.mine = torch.full((ROWS, NBYTES), rank + 1, dtype=torch.uint8, device="cuda")
        self.theirs = torch.zeros_like(self.mine)

    @property
    def active(self):
        return self.groups.need("active")

    def post(self):
        """All rows to the other one, all rows from it."""
        incoming, outgoing = ([(row, self.peer) for row in rows] for rows in (self.theirs, self.mine))
        return self.active.rows.timed_rows(incoming, outgoing)

    def exchanged(self) -> bool:
        """Whether rows come, whole."""
        self.theirs.zero_()
        pending, note = self.post()
        pending.wait(30.0)
        note()
        return bool(self.theirs.eq(self.peer + 1).all())

    def stepped(self) -> bool:
        """Whether the group of the forward step goes on, within seconds."""
        out = torch.zeros(2, 4, device="cuda")
        self.active.ep.post_all_gather(out, torch.full((1, 4), self.rank + 1.0, device="cuda")).wait(10.0)
        return out[:, 0].tolist() == [1.0, 2.0]

    def broken(self) -> str:
        """Rank 0 posts rows that rank 1 never takes; what it hears of them."""
        if self.rank == 1:
            self.active.rows.cut("injected")
            return ""
        pending, _ = self.post()
        try:
            pending.wait(1.0)
        except GroupError as error:
            return str(error)
        return "nothing"


def main(rank: int, store: str, out: str) -> None:
    """Exchange, break, go on stepping, make the group anew, exchange."""
    end = End(rank, store)
    found = {"before": end.exchanged(), "stepped": end.stepped()}
    end.active.dp.barrier()
    found["error"] = end.broken()
    found["closed"] = not end.active.rows.alive
    end.active.dp.barrier()
    begin = time.monotonic()
    found["stepped_after"] = end.stepped()
    found["step_s"] = time.monotonic() - begin
    begin = time.monotonic()
    end.groups.renew("active", "rows", 1, 30.0)
    found["renew_s"] = time.monotonic() - begin
    found["after"] = end.exchanged() and end.stepped()
    Path(out).write_text(json.dumps(found))
    end.active.dp.barrier()
    end.groups.close_all(10)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:4])
