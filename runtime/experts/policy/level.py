"""Even out the ranks by few moves: swap an expert of the busiest rank, or replicate one in place of a redundant one.

What is lowered is excess + price x rows moved, where the excess is the load above (1 + tolerance) x mean summed over
ranks: unlike the peak alone it falls also while several ranks are equally busy. A row counts as moved when its rank did
not hold the expert before the plan: rows that have to be copied anyway are exchanged among new slots for nothing. All
layers take one step at a time together; each keeps going until no candidate pays. Stopping at a price follows the
utilisation thresholds of SGLang and vllm-ascend.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..placement import EMPTY
from .settings import Policy
from .tally import NEVER, Bools, Ints, Small, Tally

# Multiples of the price at which a row must pay, in turn: what costs nothing or little is done before what costs more.
_PRICES = (16, 4, 1)
_WIDTH = 160  # slots of partner ranks that are looked at in one step
_HOT = 4  # experts of the busiest rank that may be replicated elsewhere


@dataclass
class _Best:
    """The best candidate of each layer: value int32 [n], and what it changes."""

    value: Small
    mine: Ints  # slot of the busiest rank; -1: that rank is left as it is
    partner: Ints
    theirs: Ints  # slot of the partner
    came: Ints  # expert that the partner gets
    went: Ints  # expert that it gives


def level(tally: Tally, policy: Policy, known: Bools) -> None:
    """Change the tally in place, only in layers where `known` [layers] is true."""
    limit = np.minimum(tally.mean * (1 + policy.tolerance), float(NEVER // 4)).astype(np.int32)
    price = np.minimum(tally.mean * policy.min_gain, float(NEVER // 128)).astype(np.int32)
    for times in _PRICES:
        _until_none_pays(tally, np.flatnonzero(known), limit, price * times)


def _until_none_pays(tally: Tally, layers: Ints, limit: Small, price: Small) -> None:
    """Take steps, first with few partners, then, where none of them helps, with all."""
    usable = int(tally.usable.sum())
    partners = min(max(2, _WIDTH // tally.slots), usable - 1)
    stuck: list[int] = []
    for _ in range(8 * tally.ranks * tally.slots if usable > 1 else 0):
        layers = layers[tally.by_rank[layers].max(axis=1, initial=0) > limit[layers]]
        if not len(layers):
            if not stuck:
                return
            layers, stuck, partners = np.array(stuck), [], usable - 1
            continue
        paid = _step(tally, layers, limit[layers], price[layers], partners)
        if partners < usable - 1:
            stuck += [int(layer) for layer in layers[~paid]]
        layers = layers[paid]


def _step(tally: Tally, layers: Ints, limit: Small, price: Small, partners: int) -> Bools:
    """Make the best change in each of the layers; return where there was one that pays."""
    view = _View(tally, layers, limit, price, partners)
    swap, copy = view.swap(), view.replicate()
    better = copy.value > swap.value
    best = _Best(*(np.where(better, getattr(copy, name), getattr(swap, name)) for name in swap.__dict__))
    paid: Bools = best.value > 0
    at = np.flatnonzero(paid)
    tally.put(layers[at], best.partner[at], best.theirs[at], best.came[at])
    back = at[best.mine[at] >= 0]
    tally.put(layers[back], view.busiest[back], best.mine[back], best.went[back])
    # A swap keeps all counts, so no layer's shares change but by replicas.
    tally.reload(layers[at])
    return paid


class _View:
    """The busiest rank of each layer and its least loaded partners, valued together.

    Shapes: n layers, S slots, K partners; `mine` [n, S] and `theirs` [n, K, S] are experts.
    """

    def __init__(self, tally: Tally, layers: Ints, limit: Small, price: Small, partners: int) -> None:
        self.tally, self.layers, self.limit, self.price = tally, layers, limit, price
        by_rank = tally.by_rank[layers]
        self.at = at = np.arange(len(layers))
        self.busiest = by_rank.argmax(axis=1)
        self.top = by_rank[at, self.busiest]
        by_rank = np.where(tally.usable, by_rank, NEVER)
        by_rank[at, self.busiest] = NEVER
        self.partner = np.argsort(by_rank, axis=1, kind="stable")[:, :partners]
        self.their_load = np.take_along_axis(by_rank, self.partner, axis=1)
        self.mine = tally.rows[layers, self.busiest]
        self.theirs = tally.rows[layers[:, None], self.partner]

    def swap(self) -> _Best:
        """Value every exchange of one of mine [S] for one of theirs [K, S]."""
        tally, row, limit, top = self.tally, self.layers, self._wide(self.limit), self._wide(self.top)
        one, two = row[:, None], row[:, None, None]
        mine, theirs, partner = self.mine[:, :, None], self.theirs, self.partner[:, None, :]
        busiest = self.busiest[:, None, None]
        given = tally.share[one, self.mine][:, :, None, None] - tally.share[two, theirs][:, None]
        theirs_after = self.their_load[:, None, :, None] + given
        gain = top - limit + np.maximum(self.their_load[:, None, :, None] - limit, 0)
        gain = gain - np.maximum(top - limit - given, 0)
        gain -= np.maximum(theirs_after - limit, 0)
        # Rows that this adds to what must be copied: two parts, (mine, partner) and (theirs, busiest).
        before = tally.held_before
        out = before[one, self.busiest[:, None], self.mine][:, :, None].astype(np.int32) - before[two, partner, mine]
        back = before[two, self.partner[:, :, None], theirs].astype(np.int32) - before[two, busiest, theirs]
        price = self.price[:, None, None]
        gain -= (out * price)[:, :, :, None]
        gain -= (back * price)[:, None]
        illegal = tally.holds[two, partner, mine] | (mine == EMPTY)
        other = tally.holds[two, busiest, theirs] | (theirs == EMPTY)
        gain[(given <= 0) | (theirs_after >= top) | illegal[:, :, :, None] | other[:, None]] = -1
        return self._best_swap(gain)

    def _best_swap(self, gain: Small) -> _Best:
        shape = gain.shape[1:]
        flat = gain.reshape(len(gain), -1)
        found = flat.argmax(axis=1)
        slot, rank, theirs = np.unravel_index(found, shape)
        at = self.at
        came, went = self.mine[at, slot], self.theirs[at, rank, theirs]
        return _Best(flat[at, found], slot, self.partner[at, rank], theirs, came, went)

    def replicate(self) -> _Best:
        """Value one more replica of a hot expert [H] of mine on each partner, in place of a redundant one [K, S].

        The load that the others lose and gain is taken separately: where a rank holds both, it ends lower than that.
        """
        tally, at, limit = self.tally, self.at, self.limit
        counts = np.append(tally.counts[self.layers], np.ones((len(at), 1), dtype=np.int64), axis=1).astype(np.int32)
        load, share = tally.load[self.layers], tally.share[self.layers]
        fall = share - load // (counts + 1)
        rise = load // np.maximum(counts - 1, 1) - share
        hot = np.argsort(-np.take_along_axis(fall, self.mine, axis=1), axis=1, kind="stable")[:, :_HOT]
        came = np.take_along_axis(self.mine, hot, axis=1)
        gain = self._relief(came, fall)[:, :, None, None] - self._burden(rise)[:, None]
        room = np.maximum(self.their_load - limit[:, None], 0)[:, None, :, None]
        gained = np.take_along_axis(share - fall, came, axis=1)[:, :, None] + self.their_load[:, None]
        lost = share[at[:, None, None], self.theirs]
        after = gained[:, :, :, None] - lost[:, None]
        gain += room - np.maximum(after - limit[:, None, None, None], 0)
        gain -= self._rows_copied(came) * self._wide(self.price)
        row = self.layers[:, None, None]
        held = tally.holds[row, self.partner[:, None], came[:, :, None]] | (came == EMPTY)[:, :, None]
        single = counts[at[:, None, None], self.theirs] < 2
        gain[held[..., None] | single[:, None] | (after >= self._wide(self.top))] = -1
        found = gain.reshape(len(at), -1).argmax(axis=1)
        which, rank, slot = np.unravel_index(found, gain.shape[1:])
        value = gain.reshape(len(at), -1)[at, found]
        theirs = self.theirs[at, rank, slot]
        return _Best(value, np.full(len(at), -1), self.partner[at, rank], slot, came[at, which], theirs)

    def _relief(self, came: Ints, fall: Small) -> Small:
        """Return how far the excess of all holders falls with one more replica of each hot expert, int32 [n, H]."""
        loads, limit = self.tally.by_rank[self.layers][:, None], self.limit[:, None, None]
        held = self.tally.holds[self.layers[:, None], :, came]
        less = np.maximum(loads - np.take_along_axis(fall, came, axis=1)[:, :, None], limit)
        relief: Small = ((np.maximum(loads, limit) - less) * held).sum(axis=2, dtype=np.int32)
        return relief

    def _burden(self, rise: Small) -> Small:
        """Return how far the excess of the other holders rises without each of their replicas, int32 [n, K, S].

        NEVER // 2 where one of them would become busier than the busiest.
        """
        rows, loads = self.tally.rows[self.layers], self.tally.by_rank[self.layers][:, :, None]
        at = self.at[:, None, None]
        more = loads + rise[at, rows]
        limit = self.limit[:, None, None]
        excess = np.maximum(more, limit) - np.maximum(loads, limit)
        excess[more > self.top[:, None, None]] = NEVER // 2
        # Whole numbers below 2**53 are exact in the float64 sums of bincount.
        width = self.tally.experts + 1
        total = np.bincount((at * width + rows % width).ravel(), weights=excess.ravel(), minlength=len(self.at) * width)
        total = total.reshape(len(self.at), width)
        others = total[at, self.theirs] - excess[at, self.partner[:, :, None], np.arange(self.tally.slots)]
        burden: Small = np.minimum(others, NEVER // 2).astype(np.int32)
        return burden

    def _rows_copied(self, came: Ints) -> Small:
        """Return how many rows more must be copied for each candidate, int32 [n, H, K, S]."""
        before, row = self.tally.held_before, self.layers[:, None, None]
        new = ~before[row, self.partner[:, None], came[:, :, None]]
        old = ~before[row, self.partner[:, :, None], self.theirs]
        copied: Small = new[..., None].astype(np.int32) - old[:, None]
        return copied

    @staticmethod
    def _wide(values: Small) -> Small:
        wide: Small = values[:, None, None, None]
        return wide
