"""The tokenizer of byte-level models such as psalter: a token is a byte, 0 ends a text."""

from __future__ import annotations

from collections.abc import Iterable

END = 0


def encode(text: str) -> list[int]:
    """The UTF-8 bytes of TEXT; a NUL in it, which would end the text, is left out."""
    return [byte for byte in text.encode() if byte != END]


def decode(tokens: Iterable[int]) -> str:
    """The text of TOKENS up to the first 0; bytes that are no UTF-8 become U+FFFD."""
    return bytes(tokens).partition(bytes([END]))[0].decode(errors="replace")
