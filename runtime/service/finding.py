"""Where a deployment of this machine is found: a directory of this user's, and the file in it that names the URL.

Standard library and msgspec only: commands that ask a running deployment import nothing heavy.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from elasticfsm.errors import RequestRefused

SERVICE = "service.json"


class Service(msgspec.Struct, frozen=True):
    """Where a coordinator answers."""

    url: str
    pid: int
    instance: str


def default_directory() -> Path:
    """The directory of a deployment for which none was named: one for each user."""
    named = os.environ.get("ELASTICFSM_DIRECTORY")
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "elasticfsm" if runtime else Path(tempfile.gettempdir()) / f"elasticfsm-of-{os.getuid()}"


def private(directory: Path) -> Path:
    """Make the directory, for this user only; RequestRefused when it is somebody else's, or open to others."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError as error:
        raise RequestRefused(f"cannot use the directory {directory}: {error.strerror}; choose another") from None
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise RequestRefused(
            f"the directory {directory} is another user's, or others may write to it; choose another, or chmod 700"
        )
    return directory.resolve()


def announce(directory: Path, service: Service) -> None:
    """Say where the coordinator answers."""
    aside = directory / f".{SERVICE}.new"
    aside.write_bytes(msgspec.json.encode(service))
    aside.replace(directory / SERVICE)


def withdraw(directory: Path) -> None:
    """Say so no more."""
    with suppress(FileNotFoundError):
        (directory / SERVICE).unlink()


def find(directory: Path | None, url: str) -> str:
    """The URL that was given, or the one that the directory names; RequestRefused when there is none."""
    if url:
        return url.rstrip("/")
    place = directory or default_directory()
    try:
        return msgspec.json.decode((place / SERVICE).read_bytes(), type=Service).url
    except (OSError, msgspec.MsgspecError):
        raise RequestRefused(
            f"no deployment is served from {place}; start one with `elasticfsm serve`, or give --directory or --url"
        ) from None
