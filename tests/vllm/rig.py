"""Drives three of vLLM's engine cores through 2 -> 3 -> 2, as its client does; run by the interpreter that has vLLM.

    python tests/vllm/rig.py ORDERS.json        one JSON line per order: its results

vLLM is imported once; each order forks its own client, and that its engines. Every process of an order is gone when its
line is printed.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

KEEP, SHUTDOWN = -1, -2
FORK = multiprocessing.get_context("fork")


class Client:
    """The client and the DP coordinator of one deployment, in one process."""

    def __init__(self, order: dict[str, Any]) -> None:
        import torch
        from engine import HOST, run

        self.order = order
        self.host = HOST
        self.stores: list[Any] = []
        self.torch = torch
        self.calls = 0
        self.answers: dict[tuple[int, int], tuple[Any, str | None]] = {}
        self.notifications: list[tuple[str, int]] = []
        self.ends: dict[int, dict[str, Any]] = {}
        self.pipes: dict[int, Any] = {}
        self.processes: dict[int, Any] = {}
        for rank in range(3):  # all of them now: a process with threads must not be forked
            mine, theirs = FORK.Pipe()
            process = FORK.Process(target=run, args=(theirs, rank, order), daemon=True)
            process.start()
            theirs.close()
            self.pipes[rank], self.processes[rank] = mine, process

    def store(self) -> int:
        store = self.torch.distributed.TCPStore(self.host, 0, is_master=True, wait_for_workers=False)
        self.stores.append(store)
        return int(store.port)

    def call(self, ranks: list[int], method: str, *args: Any) -> list[Any]:
        return self.await_calls([(rank, self.post(rank, method, *args)) for rank in ranks])

    def post(self, rank: int, method: str, *args: Any) -> int:
        self.calls += 1
        self.pipes[rank].send(("utility", (0, self.calls, method, args)))
        return self.calls

    def await_calls(self, calls: list[tuple[int, int]]) -> list[Any]:
        self.until(lambda: all(call in self.answers for call in calls), f"answers of {calls}")
        for call in calls:
            if self.answers[call][1]:
                raise RuntimeError(self.answers[call][1])
        return [self.answers[call][0] for call in calls]

    def until(self, condition: Any, what: str, seconds: float | None = None) -> None:
        deadline = time.monotonic() + (seconds or self.order.get("patience", 60))
        while not condition():
            dead = [rank for rank, end in self.ends.items() if end["end"] != "exit"]
            if dead:
                raise RuntimeError(f"engine {dead[0]} ended: {self.ends[dead[0]]['end']}")
            if time.monotonic() > deadline:
                raise TimeoutError(what)
            self.pump(0.02)

    def pump(self, seconds: float) -> None:
        for pipe in multiprocessing.connection.wait(list(self.pipes.values()), seconds):
            rank = next(rank for rank, one in self.pipes.items() if one is pipe)
            try:
                kind, body = pipe.recv()
            except (EOFError, OSError):
                del self.pipes[rank]
                self.ends.setdefault(rank, {"rank": rank, "end": "lost", "error": ""})
                continue
            if kind == "end":
                self.ends[rank] = body
            elif kind == "wave":
                for other, there in self.pipes.items():
                    if other in self.members and other != rank:
                        there.send(("wave", (body, rank)))
            elif body[0] == -1:
                self.notifications.append(tuple(body[1]))
            else:
                self.answers[rank, body[0]] = (body[1], body[2])

    def serve(self, ranks: list[int], name: str) -> None:
        for rank in ranks:
            self.call([rank], "submit", f"{name}-{rank}", 5 + 3 * rank)
        self.until(lambda: all(self.call(ranks, "finished")), f"requests of {name}")

    def ready(self, size: int) -> None:
        keys = [f"eep_ready/{rank}" for rank in range(size)]
        self.until(lambda: self.stores[-1].check(keys), "eep_ready of all")

    def request(self, size: int, port: int, rank: int = KEEP) -> Any:
        from vllm.v1.engine import ReconfigureDistributedRequest

        return ReconfigureDistributedRequest(size, rank, KEEP, self.host, 0, [], port)

    def start(self) -> None:
        port = self.store()
        self.members = [0, 1]
        for rank in (0, 1):
            self.pipes[rank].send((2, port))

    def scale_up(self) -> None:
        port = self.store()
        for rank in (0, 1):
            self.post(rank, "reinitialize_distributed", self.request(3, port))
        self.pipes[2].send((3, port))
        self.post(0, "submit", "during-prepare", 40)
        self.ready(3)
        self.call([0, 1], "pause_scheduler", "keep", False)
        if self.order.get("stop") is not None:
            self.stall(self.order["stop"])
        self.call([0, 1], "commit_prepared_elastic_ep")
        self.until(lambda: ("RECONFIGURE_FINISHED", 0) in self.notifications, "RECONFIGURE_FINISHED")
        self.members = [0, 1, 2]
        self.call([0, 1, 2], "resume_scheduler")

    def stall(self, rank: int) -> None:
        """One engine is stopped and the others commit: leaves them waiting, for `explain`."""
        time.sleep(0.2)  # what it has journalled until now is on disk
        os.kill(self.processes[rank].pid, signal.SIGSTOP)
        for other in {0, 1} - {rank}:
            self.post(other, "commit_prepared_elastic_ep")
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            self.pump(0.1)
        raise StalledError

    def scale_down(self) -> None:
        port = self.store()
        for rank in (0, 1):
            self.post(rank, "reinitialize_distributed", self.request(2, port))
        self.ready(2)
        self.members = [0, 1]
        calls = [(rank, self.post(rank, "pause_scheduler", "keep", False)) for rank in (0, 1)]
        calls.append((2, self.post(2, "pause_scheduler", "abort", False)))
        self.await_calls(calls)
        self.notifications_before = len(self.notifications)
        calls = [(rank, self.post(rank, "commit_prepared_elastic_ep")) for rank in (0, 1)]
        calls.append((2, self.post(2, "reinitialize_distributed", self.request(2, port, SHUTDOWN))))
        self.await_calls(calls[:2])
        self.until(lambda: len(self.notifications) >= self.notifications_before + 2, "both notifications")
        self.call([0, 1], "resume_scheduler")

    def go(self) -> dict[str, Any]:
        said: dict[str, Any] = {"name": self.order["name"], "error": ""}
        began = time.monotonic()
        try:
            self.start()
            self.serve([0, 1], "before")
            self.scale_up()
            self.serve([0, 1, 2], "between")
            self.scale_down()
            self.serve([0, 1], "after")
            self.until(lambda: all(self.call([0, 1], "idle")), "the end of the wave")
            for rank in (0, 1):
                self.post(rank, "leave")
            self.until(lambda: len(self.ends) == 3, "the end of all engines", 20)
        except StalledError:
            said["error"] = "stalled"
        except (RuntimeError, TimeoutError, OSError) as error:
            said["error"] = f"{type(error).__name__}: {error}"
            with contextlib.suppress(RuntimeError, TimeoutError):
                self.ends_within(self.order["timeout"] + 5)
        finally:
            self.close()
        said["seconds"] = time.monotonic() - began
        said["notifications"] = sorted(self.notifications)
        said["engines"] = {str(rank): end for rank, end in sorted(self.ends.items())}
        return said

    def ends_within(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self.ends) < 3 and time.monotonic() < deadline:
            self.pump(0.05)

    def close(self) -> None:
        for process in self.processes.values():
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join(10)


class StalledError(Exception):
    """The others wait for a stopped engine."""


def main(path: str) -> None:
    import engine  # noqa: F401 - vLLM is imported here, once for all orders
    import vllm
    from vllm.distributed.elastic_ep import elastic_state  # noqa: F401

    print(f"vllm {vllm.__version__}", flush=True)
    for order in json.loads(Path(path).read_text()):
        mine, theirs = FORK.Pipe()
        process = FORK.Process(target=lambda order=order, theirs=theirs: theirs.send(Client(order).go()))
        process.start()
        theirs.close()
        try:
            result = mine.recv()
        except EOFError:
            result = {"name": order["name"], "error": "the client died", "engines": {}, "notifications": []}
        process.join(20)
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
