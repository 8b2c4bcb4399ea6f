"""Offers of all ranks in one all-reduce: MAX over tensors in which every rank fills a place of its own."""

from __future__ import annotations

from collections.abc import Sequence

PER_WORD = 7  # bytes in an int64 that stays positive, so that the MAX with zero is the word itself
LENGTH = 4  # bytes before an offer that hold its length


def words(nbytes: int) -> int:
    """Return how many int64 the place of one rank takes for offers of at most `nbytes`."""
    return -(-(LENGTH + nbytes) // PER_WORD)


def packed(offer: bytes, rank: int, world_size: int, place: int) -> list[int]:
    """Return int64 [world_size * place] with this rank's offer in its place and zeros elsewhere."""
    data = (len(offer).to_bytes(LENGTH, "big") + offer).ljust(place * PER_WORD, b"\0")
    own = [int.from_bytes(data[at : at + PER_WORD], "big") for at in range(0, len(data), PER_WORD)]
    return [0] * (rank * place) + own + [0] * ((world_size - rank - 1) * place)


def unpacked(values: Sequence[int], place: int) -> list[bytes]:
    """Return the offers of all ranks from the reduced int64 [world_size * place]."""
    offers = []
    for start in range(0, len(values), place):
        data = b"".join(word.to_bytes(PER_WORD, "big") for word in values[start : start + place])
        offers.append(data[LENGTH : LENGTH + int.from_bytes(data[:LENGTH], "big")])
    return offers
