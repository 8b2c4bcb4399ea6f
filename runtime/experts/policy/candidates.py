"""Candidates of the levelling step: what can be taken from a busy rank, given to which partner, and what that is worth.

A candidate's value is the fall of the excess less the price of the rows that it adds to what must be copied. Rows that
have to be copied anyway are exchanged for nothing.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from math import prod

import numpy as np

from .tally import NEVER, Bools, Ints, Small, Tally

_ILLEGAL = -(1 << 29)


@dataclass
class Best:
    """The best candidate of each busy rank: value int32 [n], and what it changes."""

    value: Small
    mine: Ints  # slot of the busy rank; -1: that rank is left as it is
    partner: Ints
    theirs: Ints  # slot of the partner
    came: Ints  # expert that the partner gets
    went: Ints  # expert that it gives


@dataclass
class Sizes:
    """What a layer is measured by, int32 [layers]: the load a rank may have, the price of a row, the least gain."""

    limit: Small
    price: Small
    least: Small


class Candidates:
    """Busy ranks with their partners, all valued together.

    Shapes: n busy ranks (`layers` and `busiest`, both [n]; a layer may come several times), K partners each (`partner`
    [n, K]), S of their slots looked at (`slots`); `mine` [n, S] and `theirs` [n, K, S] are experts.
    """

    def __init__(self, tally: Tally, layers: Ints, busiest: Ints, partner: Ints, slots: Ints, sizes: Sizes) -> None:
        self.tally, self.layers, self.busiest, self.partner, self.slots = tally, layers, busiest, partner, slots
        self.limit, self.price = sizes.limit[layers], sizes.price[layers]
        self.at = np.arange(len(layers))
        self.top = tally.by_rank[layers, busiest]
        self.their_load = tally.by_rank[layers[:, None], partner]
        width = tally.experts + 1
        # Where the line of a rank begins in a flattened [layers, ranks, experts + 1], and that of a layer in a
        # flattened [layers, experts + 1]: one index looks up several times faster than three.
        busy, partners = layers * tally.ranks + busiest, layers[:, None] * tally.ranks + partner
        self.mine = tally.rows.ravel().take(busy[:, None] * tally.slots + slots)
        self.theirs = tally.rows.ravel().take(partners[:, :, None] * tally.slots + slots)
        if tally.gaps:  # the last number stands for empty
            self.mine, self.theirs = self.mine % width, self.theirs % width
        self._busy_line, self._partner_line = busy[:, None] * width, partners * width
        self._layer_line = layers[:, None] * width

    def only(self, rows: Ints) -> Candidates:
        """Return the same for some of the busy ranks."""
        some = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and name not in ("slots", "at"):
                setattr(some, name, value[rows])
        some.at = np.arange(len(rows))
        return some

    def swap(self) -> Best:
        """Value every exchange of one of mine [S] for one of theirs [K, S]; what is illegal is worth less than 0."""
        tally, mine, theirs = self.tally, self.mine, self.theirs
        over, room = self.top - self.limit, self.limit[:, None] - self.their_load
        mine_here, mine_there = self._busy_line + mine, self._partner_line[:, None, :] + mine[:, :, None]
        theirs_here, theirs_there = self._busy_line[:, :, None] + theirs, self._partner_line[:, :, None] + theirs
        # Rows that this adds to what must be copied, in two parts; one that is given back is not counted as a gain, so
        # that what pays always lowers the excess.
        before, holds, price = tally.held_before.ravel(), tally.holds.ravel(), self.price[:, None, None]
        out = before.take(mine_here)[:, :, None] & ~before.take(mine_there)
        back = before.take(theirs_there) & ~before.take(theirs_here)
        first = np.maximum(room, 0)[:, None, :] - out * price
        second = -(back * price)
        first[holds.take(mine_there) | (mine == tally.experts)[:, :, None]] = _ILLEGAL
        second[holds.take(theirs_here) | (theirs == tally.experts)] = _ILLEGAL
        share = tally.share.ravel()
        given = share.take(self._layer_line + mine)[:, :, None, None]
        given = given - share.take(self._layer_line[:, :, None] + theirs)[:, None]
        gain: Small = np.minimum(given, self._wide(over))
        gain -= np.maximum(given, room[:, None, :, None])
        gain += first[:, :, :, None]
        gain += second[:, None]
        return self._best_swap(gain)

    def _best_swap(self, gain: Small) -> Best:
        value, (slot, rank, theirs) = _largest(gain)
        at = self.at
        came, went = self.mine[at, slot], self.theirs[at, rank, theirs]
        return Best(value, self.slots[slot], self.partner[at, rank], self.slots[theirs], came, went)

    def replicate(self, hottest: int) -> Best:
        """Value one more replica of each of the `hottest` [H] of mine, in place of a redundant one of theirs [K, S]."""
        tally, at = self.tally, self.at
        load, share, counts = tally.load.ravel(), tally.share.ravel(), tally.replicas.ravel()
        line = self._layer_line + self.mine
        less = load.take(line) // (counts.take(line) + 1)  # load of each replica when there is one more
        fall = share.take(line) - less
        hot = np.argsort(-fall, axis=1, kind="stable")[:, :hottest]
        came, less, fall = (np.take_along_axis(each, hot, axis=1) for each in (self.mine, less, fall))
        less_loaded = self._held(came) * fall[:, :, None]
        over = np.maximum(tally.by_rank[self.layers] - self.limit[:, None], 0)[:, None]
        relief = np.minimum(over, less_loaded).sum(axis=2, dtype=np.int32)
        gain = relief[:, :, None, None] - self._burden(less_loaded[:, 0])[:, None]
        limit = self._wide(self.limit)
        lost = share.take(self._layer_line[:, :, None] + self.theirs)
        after = (less[:, :, None] + self.their_load[:, None])[:, :, :, None] - lost[:, None]
        gain += np.maximum(self.their_load[:, None, :, None] - limit, 0)
        gain -= np.maximum(after, limit) - limit
        gain -= self._rows_copied(came) * self._wide(self.price)
        held = tally.holds.ravel().take(self._partner_line[:, None] + came[:, :, None])
        held |= (came == tally.experts)[:, :, None]
        single = counts.take(self._layer_line[:, :, None] + self.theirs) < 2
        gain[held[..., None] | single[:, None] | (after >= self._wide(self.top))] = -1
        value, (which, rank, slot) = _largest(gain)
        theirs = self.theirs[at, rank, slot]
        return Best(value, np.full(len(at), -1), self.partner[at, rank], self.slots[slot], came[at, which], theirs)

    def _held(self, came: Ints) -> Bools:
        """Return which ranks hold the experts [n, H], bool [n, H, R]."""
        width = self.tally.experts + 1
        begin = self.layers[:, None] * self.tally.ranks + np.arange(self.tally.ranks)
        held: Bools = self.tally.holds.ravel().take(begin[:, None] * width + came[:, :, None])
        return held

    def _burden(self, relieved: Small) -> Small:
        """Return how far the excess of the other holders rises without each of theirs, int32 [n, K, S].

        What a new replica relieves them of is left out, so that the burden is the same for each of the hot ones, and
        never too small. NEVER // 2 where a holder would be busier than the busiest by more than the hottest one's
        replica takes from it, `relieved` [n, R].
        """
        tally, width = self.tally, self.tally.experts + 1
        size = tally.ranks * tally.slots
        counts, load = tally.replicas[self.layers], tally.load[self.layers]
        rise = load // np.maximum(counts - 1, 1) - tally.share[self.layers]
        held = tally.rows[self.layers].reshape(-1, size)
        held += (self.at * width)[:, None]
        found = np.flatnonzero((counts > 1).ravel().take(held))
        line, row, rank = held.ravel()[found], found // size, found // tally.slots % tally.ranks
        most = self.top[:, None] + relieved
        before, top = tally.by_rank[self.layers].ravel().take(found // tally.slots), most[row, rank]
        excess = self._rise(before, rise.ravel().take(line), self.limit[row], top)
        # Whole numbers below 2**53 are exact in the float64 sums of bincount.
        total = np.bincount(line, weights=excess, minlength=len(counts) * width)
        line = (self.at * width)[:, None, None] + self.theirs
        limit, top = self.limit[:, None, None], most[self.at[:, None], self.partner][:, :, None]
        others = total.take(line) - self._rise(self.their_load[:, :, None], rise.ravel().take(line), limit, top)
        burden: Small = np.minimum(others, NEVER // 2).astype(np.int32)
        return burden

    @staticmethod
    def _rise(before: Small, rise: Small, limit: Small, top: Small) -> Small:
        """Return how far the excess of ranks rises with their load; NEVER // 2 where it would be above `top`."""
        more = before + rise
        excess: Small = np.where(more > top, NEVER // 2, np.maximum(more, limit) - np.maximum(before, limit))
        return excess

    def _rows_copied(self, came: Ints) -> Small:
        """Return how many rows more must be copied for each candidate, int32 [n, H, K, S]."""
        before = self.tally.held_before.ravel()
        new = ~before.take(self._partner_line[:, None] + came[:, :, None])
        old = ~before.take(self._partner_line[:, :, None] + self.theirs)
        copied: Small = new[..., None].astype(np.int32) - old[:, None]
        return copied

    @staticmethod
    def _wide(values: Small) -> Small:
        wide: Small = values[:, None, None, None]
        return wide


def _largest(gain: Small) -> tuple[Small, tuple[Ints, ...]]:
    """Return for each row of [n, ...] its largest value, int32 [n], and where it is; the first of equals."""
    flat = gain.reshape(len(gain), prod(gain.shape[1:]))
    found = flat.argmax(axis=1)
    return flat[np.arange(len(flat)), found], np.unravel_index(found, gain.shape[1:])
