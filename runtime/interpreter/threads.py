"""The threads beside the main loop: one for background lists, one for each machine that moves by itself."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from elasticfsm.seat import Job, Result, Seat


class Background:
    """One thread that runs one list at a time; a list that is withdrawn has to return before the next one begins."""

    def __init__(self, name: str, run: Callable[[Job], Result], finished: Callable[[Job, Result], None]) -> None:
        self._run = run
        self._finished = finished
        self._jobs: deque[Job] = deque()
        self._current: Job | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def begin(self, job: Job) -> None:
        """Queues a list behind the running one; does not block."""
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    def close(self, within: float) -> bool:
        """Withdraws everything and waits for the thread; False if it did not stand within that time (seconds)."""
        with self._changed:
            self._closing = True
            for job in [*self._jobs, *([self._current] if self._current else [])]:
                job.cancel.set()
            self._changed.notify()
        self._thread.join(within)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            self._finished(job, self._run(job))

    def _next(self) -> Job | None:
        with self._changed:
            self._current = None
            while not self._jobs and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            self._current = self._jobs.popleft()
            return self._current


class Walker:
    """The thread of one machine that lives inside an engine and moves independently of its main loop."""

    def __init__(self, seat: Seat, lock: threading.Condition, run: Callable[[Job], Result]) -> None:
        self.seat = seat
        self._changed = lock
        self._run = run
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=seat.name, daemon=True)

    def start(self) -> None:
        """Begins to move the machine."""
        self._thread.start()

    def close(self, within: float) -> bool:
        """Withdraws its list and waits for the thread; False if it did not stand within that time (seconds)."""
        with self._changed:
            self._closing = True
            if self.seat.job is not None:
                self.seat.job.cancel.set()
            self._changed.notify_all()
        self._thread.join(within)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                result = self._run(job)
            except BaseException as error:  # the thread must not end silently: its machine would wait for ever
                result = Result("failed", error=error, step="thread")
            with self._changed:
                self.seat.finish(job, result)
                self._changed.notify_all()

    def _next(self) -> Job | None:
        """Moves until there is a list to run; None when closing."""
        seat = self.seat
        with self._changed:
            while not self._closing:
                if seat.look():
                    self._changed.notify_all()
                elif seat.machine.ended:
                    seat.forget()
                elif seat.job is not None:
                    return seat.job
                else:
                    left = seat.left()
                    self._changed.wait(None if left == float("inf") else max(left, 0.01))
        return None
