"""What an id may look like: it names files, sockets, keys of the store and metrics, and stands in lines of a log."""

from __future__ import annotations

import re

from elasticfsm.errors import RequestRefused

from . import wire

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def refuse_id(what: str, found: str) -> None:
    """RequestRefused for a text that cannot be the id of an engine or an operation; `what` says whose it is."""
    if not _ID.fullmatch(found):
        raise RequestRefused(
            f"{what} {found[:80]!r}: expected 1 to 63 letters, digits, '.', '_' or '-', a letter or digit first"
        )
    if found == wire.COORDINATOR:
        raise RequestRefused(f"{what} {found!r}: the coordinator itself has this name; choose another")
