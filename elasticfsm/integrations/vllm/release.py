"""Which releases of vLLM the table fits, and whether all the places that the observer needs are there."""

from __future__ import annotations

import sys
from collections.abc import Iterable

TABLES = "vllm-0.33"
FITS = ("0.32", "0.33")  # the protocol is the same in both; tests/vllm drive both


def version() -> str:
    """The version of the vLLM in this process, or an empty string."""
    for name in ("vllm.version", "vllm"):
        module = sys.modules.get(name)
        found = getattr(module, "__version__", None)
        if isinstance(found, str):
            return found
    return ""


def fits(found: str) -> bool:
    """Whether the table describes that release."""
    return ".".join(found.split(".")[:2]) in FITS


def unfit(found: str, seams: Iterable[tuple[object, str]]) -> str:
    """Why the observer must stay off, or an empty string: an unknown release, or a place that is not there."""
    if not fits(found):
        return f"it fits {' and '.join(FITS)}, this is {found or 'an unknown version'}"
    missing = [f"{getattr(owner, '__name__', owner)}.{name}" for owner, name in seams if not hasattr(owner, name)]
    return f"not found in vLLM {found}: {', '.join(missing)}" if missing else ""
