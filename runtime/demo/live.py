"""The live view: every engine's role, states, step rate and requests, and where the operation stands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..deployment import Deployment, Status

REFRESH = 0.25  # seconds

COLOURS = {"active": "green", "existing": "green", "remaining": "green", "new": "cyan", "removing": "yellow"}


class View:
    """A thread that draws until `close`; on a console that is no terminal it prints one line a phase instead."""

    def __init__(self, deployment: Deployment, console: Console, live: bool, headline: Callable[[], str]) -> None:
        self._deployment = deployment
        self._console = console
        self._live = live and console.is_terminal
        self._headline = headline
        self._rates: dict[str, tuple[float, int, float]] = {}
        self._said = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="view", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and leave the terminal as it was."""
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        if not self._live:
            while not self._stopping.wait(REFRESH):
                self._say()
            return
        with Live(self._draw(), console=self._console, auto_refresh=False, transient=True) as live:
            while not self._stopping.wait(REFRESH):
                live.update(self._draw(), refresh=True)

    def _say(self) -> None:
        text = self._headline()
        if text != self._said:
            self._said = text
            self._console.print(text, highlight=False)

    def _draw(self) -> Group:
        status = self._deployment.status()
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("engine", "role", "state", "experts", "steps/s", "running", "waiting"):
            table.add_column(name, justify="right" if name in ("steps/s", "running", "waiting") else "left")
        for engine in sorted(status.engines, key=lambda name: (len(name), name)):
            table.add_row(*self._row(engine, status))
        return Group(Text(self._headline(), style="bold"), table)

    def _row(self, engine: str, status: Status) -> list[str]:
        seen = status.engines[engine]
        own = [state for name, state in seen.states.items() if name.startswith("scale_")]
        colour = COLOURS.get(seen.role, "dim")
        return [
            engine,
            f"[{colour}]{seen.role}[/]",
            (own or [seen.states.get("serving.engine", "starting")])[0],
            seen.states.get("rebalance.main", ""),
            f"{self._rate(engine, seen.step):.0f}",
            str(seen.running),
            str(seen.waiting),
        ]

    def _rate(self, engine: str, step: int) -> float:
        """Steps a second over the last second or so."""
        now = time.monotonic()
        since, then, rate = self._rates.get(engine, (now, step, 0.0))
        if now - since >= 1.0 or engine not in self._rates:
            rate = (step - then) / max(now - since, 1e-6)
            self._rates[engine] = (now, step, rate)
        return rate
