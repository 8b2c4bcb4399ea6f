"""Even out the ranks by few moves: swap an expert of a busy rank, or replicate one in place of a redundant one.

What is lowered is excess + price x rows moved, where the excess is the load above (1 + tolerance) x mean summed over
ranks: unlike the peak alone it falls also while several ranks are equally busy. A row counts as moved when its rank did
not hold the expert before the plan. All layers take one step at a time together; each goes on until no candidate pays.
Stopping at a price follows the utilisation thresholds of SGLang and vllm-ascend.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..placement import EMPTY
from .candidates import Best, Candidates, Sizes
from .settings import Policy
from .tally import NEVER, Bools, Ints, Small, Tally

_DEAR = 16  # times the price that a row must pay at first: what costs nothing or little is done before what costs more
_WIDTH = 96  # slots of partners that one step looks at, for each layer
_SLOTS = 24  # slots of one rank that one step looks at; the next step looks at others
_HOT = 2  # experts of the busiest rank that a step may replicate
_BUSY, _PAIR = 4, 2  # ranks of a layer that take a quick, and a thorough step at once


@dataclass
class _Look:
    """How closely a step looks: busy ranks, partners for each of them, and whether at every slot."""

    busy: int
    partners: int
    every_slot: bool


def level(tally: Tally, policy: Policy, known: Bools) -> None:
    """Change the tally in place, only in layers where `known` [layers] is true."""
    usable = int(tally.usable.sum())
    if usable < 2:
        return
    limit = np.minimum(tally.mean * (1 + policy.tolerance), float(NEVER // 4)).astype(np.int32)
    price = np.minimum(tally.mean * policy.min_gain, float(NEVER // 128)).astype(np.int32)
    fresh = np.asarray((tally.holds & ~tally.held_before).any(axis=2))
    layers = np.flatnonzero(known)
    busy = max(1, min(_BUSY, usable // 6))
    partners = min(max(2, _WIDTH // min(_SLOTS, tally.slots) // busy), usable - busy)
    quick = _Look(busy, partners, every_slot=False)
    pair = min(_PAIR, busy)
    thorough = _Look(pair, (usable - pair) // pair, every_slot=True)
    tally.gaps = bool((tally.rows[:, tally.usable] == EMPTY).any())
    _until_none_pays(tally, layers, Sizes(limit, _DEAR * price, price // 8), fresh, quick, len(layers) // 8)
    sizes = Sizes(limit, price, price // 8)
    stuck = _until_none_pays(tally, layers, sizes, fresh, quick, len(layers) // 8)
    _until_none_pays(tally, stuck, sizes, fresh, thorough)


def _until_none_pays(tally: Tally, layers: Ints, sizes: Sizes, fresh: Bools, look: _Look, few: int = 0) -> Ints:
    """Take steps until at most `few` layers go on; return the layers that stopped with a rank above the limit."""
    stuck: list[Ints] = [layers[:0]]
    for number in range(8 * tally.ranks * tally.slots):  # every step lowers the excess, so this ends; usually in few
        excess = np.maximum(tally.by_rank[layers] - sizes.limit[layers][:, None], 0).sum(axis=1)
        layers = layers[excess > (sizes.price if look.every_slot else sizes.least)[layers]]
        if len(layers) <= few:
            break
        paid = _step(tally, layers, sizes, fresh, look, number)
        stuck.append(layers[~paid])
        layers = layers[paid]
    return np.sort(np.concatenate([*stuck, layers]))


def _step(tally: Tally, layers: Ints, sizes: Sizes, fresh: Bools, look: _Look, number: int) -> Bools:
    """Make the best changes in each of the layers; return where there was one that pays."""
    busiest, partner = _pairs(tally, layers, sizes.price, fresh, look)
    stride = 1 if look.every_slot else -(-tally.slots // _SLOTS)
    slots = np.arange(number % stride, tally.slots, stride)
    over = tally.by_rank[layers[:, None], busiest] > sizes.limit[layers][:, None]
    row, which = np.nonzero(over)  # the busiest of a layer is over, so every layer is there, its busiest first
    view = Candidates(tally, layers[row], busiest[row, which], partner[row, which], slots, sizes)
    best = view.swap()
    least, value = sizes.least[layers], best.value[which == 0]
    copy = view.only(np.flatnonzero(which == 0)).replicate(_HOT)
    # A replica changes the load of many ranks, so it is the only change of its layer; swaps concern two ranks each.
    paid: Bools = (copy.value > value) & (copy.value > least)
    copies = np.flatnonzero(paid)
    swaps = np.flatnonzero((best.value > least[row]) & ~paid[row])
    paid[row[swaps]] = True
    _swap(tally, layers[row], view.busiest, best, swaps)
    tally.put(layers[copies], copy.partner[copies], copy.theirs[copies], copy.came[copies])
    tally.reload(layers[copies])
    return paid


def _swap(tally: Tally, layers: Ints, busiest: Ints, best: Best, at: Ints) -> None:
    """Make the exchanges `at`; they change no replica count, so of the loads only those of the two ranks."""
    layer, rank, partner, came, went = layers[at], busiest[at], best.partner[at], best.came[at], best.went[at]
    tally.put(layer, partner, best.theirs[at], came)
    tally.put(layer, rank, best.mine[at], went)
    given = tally.share[layer, came] - tally.share[layer, went]
    tally.by_rank[layer, rank] -= given
    tally.by_rank[layer, partner] += given


def _pairs(tally: Tally, layers: Ints, price: Small, fresh: Bools, look: _Look) -> tuple[Ints, Ints]:
    """Return the busiest ranks of each layer, int64 [n, busy], and for each other partners, int64 [n, busy, K]."""
    by_rank = np.where(tally.usable, tally.by_rank[layers], -1)
    busiest = _ascending(-by_rank)[:, : look.busy]
    # A rank whose rows have to be copied anyway is as good as one that is less loaded by what they cost elsewhere.
    appeal = by_rank - 2 * fresh[layers] * price[layers][:, None]
    appeal[:, ~tally.usable] = NEVER
    appeal[np.arange(len(layers))[:, None], busiest] = NEVER
    order = _ascending(appeal)[:, : look.busy * look.partners]
    count = min(order.shape[1], int(tally.usable.sum()) - look.busy) // look.busy
    dealt = order[:, : count * look.busy].reshape(len(layers), count, look.busy)
    return busiest, dealt.transpose(0, 2, 1)


def _ascending(values: Small) -> Ints:
    """Return the stable order of each row of int32 [n, m]: values and places in one number sort faster than by key."""
    places = values.shape[1]
    order: Ints = np.sort(values.astype(np.int64) * places + np.arange(places), axis=1) % places
    return order
