"""The set of states seen so far: packed into few words each, in a hash table; what is found is compared as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elasticfsm.check.vector.kinds import Column

Words = NDArray[np.uint64]  # one row for each word
EMPTY = -1
FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)


class Packing:
    """How many bits each number of a state takes, and in which word it lies."""

    def __init__(self, bits: Sequence[int]) -> None:
        self.bits = list(bits)
        self.places: list[tuple[int, int]] = []
        word = shift = 0
        for width in bits:
            if shift + width > 64:
                word, shift = word + 1, 0
            self.places.append((word, shift))
            shift += width
        self.words = word + 1

    def pack(self, columns: Sequence[Column]) -> Words:
        """Words of the rows of these columns."""
        words = np.zeros((self.words, len(columns[0])), np.uint64)
        for column, (word, shift) in zip(columns, self.places, strict=True):
            words[word] |= column.view(np.uint64) << np.uint64(shift)
        return words

    def unpack(self, words: Words) -> list[Column]:
        """The columns of packed rows."""
        masks = [np.uint64((1 << width) - 1) for width in self.bits]
        return [
            ((words[word] >> np.uint64(shift)) & mask).view(np.intp)
            for (word, shift), mask in zip(self.places, masks, strict=True)
        ]


class Visited:
    """States in the order in which they were added."""

    def __init__(self, width: int) -> None:
        self.packing = Packing([4] * width)
        self._words: Words = np.zeros((1, 1 << 12), np.uint64)
        self._table: NDArray[np.int32] = np.full(1 << 13, EMPTY, np.int32)
        self.count = 0

    def columns(self, start: int, stop: int) -> list[Column]:
        """The states from one number to another."""
        return self.packing.unpack(np.ascontiguousarray(self._words[:, start:stop]))

    def add(self, columns: Sequence[Column]) -> tuple[Column, Column]:
        """The number of each row's state, and the rows that brought a new one, in the order of their numbers."""
        self._fit(columns)
        words = self.packing.pack(columns)
        size = words.shape[1]
        self._reserve(size)
        numbers, fresh = self._insert(words)
        self._words[:, self.count : self.count + len(fresh)] = words[:, fresh]
        self.count += len(fresh)
        return numbers, fresh

    def _fit(self, columns: Sequence[Column]) -> None:
        """Packs all states anew if a number has outgrown its bits."""
        needed = [max(int(column.max(initial=0)).bit_length(), 1) for column in columns]
        if all(have >= need for have, need in zip(self.packing.bits, needed, strict=True)):
            return
        roomy = [max(have, need + 1) for have, need in zip(self.packing.bits, needed, strict=True)]
        packing = Packing(roomy)
        words: Words = np.zeros((packing.words, self._words.shape[1]), np.uint64)
        for start in range(0, self.count, 1 << 20):
            stop = min(start + (1 << 20), self.count)
            words[:, start:stop] = packing.pack(self.columns(start, stop))
        self.packing, self._words = packing, words
        self._rehash(len(self._table))

    def _reserve(self, more: int) -> None:
        """Makes room for so many new states."""
        needed = self.count + more
        if needed > self._words.shape[1]:
            size = max(needed, self._words.shape[1] + (self._words.shape[1] >> 1))
            words: Words = np.zeros((self.packing.words, size), np.uint64)
            words[:, : self.count] = self._words[:, : self.count]
            self._words = words
        if needed * 2 > len(self._table):
            size = len(self._table)
            while needed * 2 > size:
                size *= 2
            self._rehash(size)

    def _rehash(self, size: int) -> None:
        self._table = np.full(size, EMPTY, np.int32)
        for start in range(0, self.count, 1 << 20):
            stop = min(start + (1 << 20), self.count)
            self._settle(self._words[:, start:stop], np.arange(start, stop, dtype=np.int32))

    def _slots(self, words: Words) -> Column:
        mixed = words[0] * np.uint64(FACTORS[0])
        for word, factor in zip(words[1:], FACTORS[1:], strict=False):
            mixed = (mixed ^ (mixed >> np.uint64(29)) ^ word) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(FACTORS[3])
        mixed ^= mixed >> np.uint64(29)
        slots: Column = (mixed & np.uint64(len(self._table) - 1)).view(np.intp)
        return slots

    def _settle(self, words: Words, numbers: NDArray[np.int32]) -> None:
        """Puts states into the table that are known to be new and different from each other."""
        table, slots = self._table, self._slots(words)
        mask = len(table) - 1
        while len(numbers):
            free = table.take(slots) == EMPTY
            table[slots[free]] = numbers[free]
            left = np.flatnonzero(table.take(slots) != numbers)
            numbers, slots = numbers[left], (slots[left] + 1) & mask

    def _insert(self, words: Words) -> tuple[Column, Column]:
        """Finds every row, or claims a free slot for it."""
        numbers, rows, slots = self._find(words)
        if not rows.size:
            return numbers, rows
        owner, claims = self._claim(words, rows, slots)
        return self._number(numbers, owner, claims)

    def _find(self, words: Words) -> tuple[Column, Column, Column]:
        """The numbers of the rows that are known, and the other rows with the free slots at which they ended."""
        table, slots, size = self._table, self._slots(words), words.shape[1]
        mask = len(table) - 1
        numbers = np.full(size, EMPTY, np.intp)
        rows = np.arange(size)
        new_rows, new_slots = [rows[:0]], [slots[:0]]
        while rows.size:
            seen = table.take(slots).astype(np.intp)
            free = np.flatnonzero(seen == EMPTY)
            new_rows.append(rows.take(free))
            new_slots.append(slots.take(free))
            same = seen != EMPTY
            for known, asked in zip(self._words, words, strict=True):
                same &= known.take(seen, mode="clip") == asked.take(rows)
            at = np.flatnonzero(same)
            numbers[rows.take(at)] = seen.take(at)
            left = np.flatnonzero(~same & (seen != EMPTY))
            rows, slots = rows.take(left), (slots.take(left) + 1) & mask
        found = np.concatenate(new_rows)
        order = np.argsort(found)
        return numbers, found.take(order), np.concatenate(new_slots).take(order)

    def _claim(self, words: Words, rows: Column, slots: Column) -> tuple[Column, list[tuple[Column, Column]]]:
        """Of equal rows that are new one claims a slot, the others find its claim: for each row the one it equals."""
        table, mask = self._table, len(self._table) - 1
        owner = np.arange(words.shape[1])
        claims: list[tuple[Column, Column]] = []
        while rows.size:
            free = np.flatnonzero(table.take(slots) == EMPTY)
            if free.size:
                mine = -2 - rows.take(free)
                table[slots.take(free)] = mine
                won = free[table.take(slots.take(free)) == mine]
                claims.append((rows.take(won), slots.take(won)))
            claimed = -2 - table.take(slots).astype(np.intp)  # negative where a state stands that was known before
            same = claimed >= 0
            for word in words:
                same &= word.take(claimed, mode="clip") == word.take(rows)
            at = np.flatnonzero(same)
            owner[rows.take(at)] = claimed.take(at)
            left = np.flatnonzero(~same)
            rows, slots = rows.take(left), (slots.take(left) + 1) & mask
        return owner, claims

    def _number(self, numbers: Column, owner: Column, claims: list[tuple[Column, Column]]) -> tuple[Column, Column]:
        """Numbers the states that were claimed, in the order of their rows."""
        rows = np.concatenate([claimed for claimed, _ in claims])
        slots = np.concatenate([slot for _, slot in claims])
        order = np.argsort(rows)
        fresh = rows.take(order)
        given = np.arange(self.count, self.count + len(fresh))
        numbers[fresh] = given
        self._table[slots.take(order)] = given
        left = np.flatnonzero(numbers == EMPTY)
        numbers[left] = numbers.take(owner.take(left))
        return numbers, fresh
