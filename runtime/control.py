"""The control thread of an engine: mail, heartbeats, wakes. It never waits for the main loop, a group or a peer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from . import wire
from .transport import Mailbox

HEARTBEAT = 0.2  # seconds
ORPHAN_GRACE = 3.0  # seconds that an engine gets to end by itself after its parent died

LAST_SECONDS = 0.5  # for what was left to be acknowledged

Receive = Callable[[wire.Mail], None]


class Control(threading.Thread):
    """Owns the engine's sockets. `receive` gets every message, in this thread, and must not block.

    `status` makes the heartbeat. If the coordinator falls silent nothing happens: serving goes on. If the parent
    process is gone, `orphaned` is called, and the process ends for certain a few seconds later.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        receive: Receive,
        status: Callable[[], wire.Mail | None],
        orphaned: Callable[[], None],
        parent: int = 0,
    ) -> None:
        super().__init__(name="control", daemon=True)
        self.mailbox = mailbox
        self.error: BaseException | None = None
        self._receive = receive
        self._status = status
        self._orphaned = orphaned
        self._parent = parent
        self._orphan_since = 0.0
        self._stopping = threading.Event()

    def run(self) -> None:
        """The loop; an error in it ends the engine, because nobody could reach the engine any more."""
        try:
            with self.mailbox:
                beat = 0.0
                while not self._stopping.is_set():
                    now = time.monotonic()
                    if now >= beat:
                        beat = now + HEARTBEAT
                        self._beat(now)
                    for message in self.mailbox.poll(max(0.0, beat - now)):
                        self._receive(message)
                self.mailbox.settle(LAST_SECONDS)
        except BaseException as error:  # whatever it was: the owner must hear of it, the thread is gone
            self.error = error
            self._orphaned()
            raise

    def stop(self, within: float = 2.0) -> None:
        """Send what was left and end the thread."""
        self._stopping.set()
        self.mailbox.ring()
        self.join(within)

    def _beat(self, now: float) -> None:
        message = self._status()
        if message is not None:
            self.mailbox.send(message)
        if self._parent and os.getppid() != self._parent:
            self._orphan_since = self._orphan_since or now
            self._orphaned()
            if now - self._orphan_since > ORPHAN_GRACE:
                os._exit(1)  # the main loop did not end: it hangs in something that only a process's end can free


def remove_socket_directory(address: str) -> None:
    """Remove the ipc directory of an orphaned deployment: its owner cannot do it any more."""
    import shutil

    if address.startswith("ipc://"):
        directory = Path(address.removeprefix("ipc://")).parent
        if directory.name.startswith("elasticfsm-"):
            shutil.rmtree(directory, ignore_errors=True)
