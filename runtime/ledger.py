"""What a deployment must not forget, on disk: who serves, and where its last operation stands.

`deployment.json` and `operation.json` are replaced as a whole (written aside, synced, renamed, directory synced): a
reader finds the old or the new one. Operations that have ended are appended to `operations.jsonl`.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from elasticfsm.errors import RequestRefused

from .operation import ENDED, Record

FORMAT = 1
T = TypeVar("T")
REMEMBERED = 1000  # operations read back from the past


class Standing(msgspec.Struct, kw_only=True, frozen=True):
    """Who serves: what a new coordinator needs to find the engines of a former one. `processes`: engine id -> pid."""

    format: int = FORMAT
    instance: str
    generation: int
    members: tuple[str, ...]
    model: str
    address: str
    journal: str
    next_engine: int
    options: dict[str, Any]
    processes: dict[str, int] = {}
    retired: tuple[str, ...] = ()
    code: str = ""  # the fingerprint of what engines and coordinator run


class Ledger:
    """The files of one directory; whoever writes them holds the lock. Methods raise OSError when the disk refuses."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock: int | None = None

    def hold(self) -> None:
        """Take the lock of the directory until `close`; RequestRefused while another coordinator has it."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.directory / "coordinator.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "of unknown id"
            os.close(descriptor)
            raise RequestRefused(
                f"{self.directory}: process {owner} coordinates here; end it, or choose another directory"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor

    def close(self) -> None:
        """Give the lock back; idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def write(self, record: Record) -> None:
        """Keep an operation as it stands; one that has ended also among the past ones."""
        self._replace("operation.json", record)
        if record.phase in ENDED:
            with (self.directory / "operations.jsonl").open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")
                file.flush()
                os.fsync(file.fileno())

    def write_standing(self, standing: Standing) -> None:
        """Keep who serves."""
        self._replace("deployment.json", standing)

    def forget_standing(self) -> None:
        """The deployment has ended as it should: nobody is left to be taken over."""
        with suppress(FileNotFoundError):
            (self.directory / "deployment.json").unlink()

    def operation(self) -> Record | None:
        """The last operation; RequestRefused when the file is damaged."""
        return self._read("operation.json", Record)

    def standing(self) -> Standing | None:
        """Who serves; None when nobody does."""
        return self._read("deployment.json", Standing)

    def past(self) -> list[Record]:
        """Operations that have ended, oldest first; a line that was cut off by a crash is left out."""
        found = []
        with suppress(FileNotFoundError):
            for line in (self.directory / "operations.jsonl").read_bytes().splitlines()[-REMEMBERED:]:
                with suppress(msgspec.MsgspecError):
                    found.append(msgspec.json.decode(line, type=Record))
        return found

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = self.directory / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise RequestRefused(f"{path}: {error}; it was not written by this version of elasticfsm") from None

    def _replace(self, name: str, content: object) -> None:
        aside = self.directory / f".{name}.new"
        with aside.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.directory / name)
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
