"""Which code a process runs: the engines of a deployment and its coordinator must run the same.

Two versions may enter different collectives, or understand a message differently, and notice it only in the middle of a
switch. So an engine of another version is turned away before it has a part in anything.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import elasticfsm

BESIDE = ("bench", "demo", "deployment", "forecast", "service")  # parts of the runtime that no engine imports


def sources() -> list[Path]:
    """Every file that decides what an engine does: core, runtime, and the shipped protocols."""
    root = Path(elasticfsm.__file__).parent
    runtime = root / "runtime"
    inside = [path for path in runtime.rglob("*.py") if path.relative_to(runtime).parts[0] not in BESIDE]
    return sorted([*root.glob("*.py"), *inside, *(root / "spec").glob("*.yaml")])


def fingerprint() -> str:
    """The version of the package, and a hash of these files as they are now."""
    root, digest = Path(elasticfsm.__file__).parent, hashlib.sha256()
    for path in sources():
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return f"{elasticfsm.__version__}+{digest.hexdigest()[:12]}"


CODE = fingerprint()  # what this process runs, however the files change later
