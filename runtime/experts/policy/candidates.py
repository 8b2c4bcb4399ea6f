"""Candidates of the levelling step: what can be taken from a busy rank, given to which partner, and what that is worth.

A candidate's value is the fall of the excess less the price of the rows that it adds to what must be copied. Rows that
have to be copied anyway are exchanged for nothing.
"""

from __future__ import annotations

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
        self.mine = tally.rows[layers[:, None], busiest[:, None], slots] % width  # the last number stands for empty
        self.theirs = tally.rows[layers[:, None, None], partner[:, :, None], slots] % width
        # Where the line of a rank begins in a flattened [layers, ranks, experts + 1], and that of a layer in a
        # flattened [layers, experts + 1]: one index looks up several times faster than three.
        self._busy_line = (layers * tally.ranks + busiest)[:, None] * width
        self._partner_line = (layers[:, None] * tally.ranks + partner) * width
        self._layer_line = layers[:, None] * width

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
        counts = np.append(tally.counts[self.layers], np.ones((len(at), 1), dtype=np.int64), axis=1).astype(np.int32)
        load, share = tally.load[self.layers], tally.share[self.layers]
        fall = share - load // (counts + 1)
        rise = load // np.maximum(counts - 1, 1) - share
        hot = np.argsort(-np.take_along_axis(fall, self.mine, axis=1), axis=1, kind="stable")[:, :hottest]
        came = np.take_along_axis(self.mine, hot, axis=1)
        loads, relief = self._relieved(came, np.take_along_axis(fall, came, axis=1))
        gain = relief[:, :, None, None] - self._burden(loads, rise, counts > 1)
        gained = np.take_along_axis(share - fall, came, axis=1)[:, :, None] + self.their_load[:, None]
        lost = share.ravel().take(at[:, None, None] * share.shape[1] + self.theirs)
        after, limit = gained[:, :, :, None] - lost[:, None], self._wide(self.limit)
        gain += np.maximum(self.their_load[:, None, :, None] - limit, 0) - np.maximum(after - limit, 0)
        gain -= self._rows_copied(came) * self._wide(self.price)
        held = tally.holds.ravel().take(self._partner_line[:, None] + came[:, :, None])
        held |= (came == tally.experts)[:, :, None]
        single = counts.ravel().take(at[:, None, None] * counts.shape[1] + self.theirs) < 2
        gain[held[..., None] | single[:, None] | (after >= self._wide(self.top))] = -1
        value, (which, rank, slot) = _largest(gain)
        theirs = self.theirs[at, rank, slot]
        return Best(value, np.full(len(at), -1), self.partner[at, rank], self.slots[slot], came[at, which], theirs)

    def _relieved(self, came: Ints, fall: Small) -> tuple[Small, Small]:
        """Return rank loads with one more replica of each hot expert, int32 [n, H, R], and the fall of the excess."""
        loads, limit = self.tally.by_rank[self.layers][:, None], self.limit[:, None, None]
        held = self.tally.holds[self.layers[:, None], :, came]
        less = loads - held * fall[:, :, None]
        relief: Small = (np.maximum(loads, limit) - np.maximum(less, limit)).sum(axis=2, dtype=np.int32)
        return less, relief

    def _burden(self, loads: Small, rise: Small, redundant: Bools) -> Small:
        """Return how far the excess of the other holders rises without each of theirs, int32 [n, H, K, S].

        `loads` are those with the new replica, [n, H, R]; NEVER // 2 where a holder would be busier than the busiest.
        """
        tally, width, hots = self.tally, self.tally.experts + 1, loads.shape[1]
        rows = tally.rows[self.layers]
        row, rank, slot = np.nonzero(redundant[self.at[:, None, None], rows])
        expert, limit = rows[row, rank, slot], self.limit[row, None]
        before = loads[row, :, rank]
        more = before + rise[row, expert][:, None]
        excess = np.maximum(more, limit) - np.maximum(before, limit)
        excess[more > self.top[row, None]] = NEVER // 2
        # Whole numbers below 2**53 are exact in the float64 sums of bincount.
        line = ((row * hots)[:, None] + np.arange(hots)) * width + expert[:, None]
        total = np.bincount(line.ravel(), weights=excess.ravel(), minlength=len(rows) * hots * width)
        own = np.zeros((*rows.shape, hots), dtype=np.int32)
        own[row, rank, slot] = excess
        theirs = np.moveaxis(own[self.at[:, None, None], self.partner[:, :, None], self.slots], 3, 1)
        begin = (self.at[:, None] * hots + np.arange(hots))[:, :, None, None] * width
        others = total.take(begin + self.theirs[:, None]) - theirs
        burden: Small = np.minimum(others, NEVER // 2).astype(np.int32)
        return burden

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
