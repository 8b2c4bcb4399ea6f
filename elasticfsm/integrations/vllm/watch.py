"""The watch of one engine core process: which operation runs, what the groups are called now, and who is told.

Everything that may go wrong here ends here: the first fault switches the watch off, is logged once, and vLLM goes on as
if it were not there. The only thing that gets out is `Refused`, in mode `guard`.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticfsm.embed import Mode, Monitor, Op, Program, Recorder, Refused
from elasticfsm.embed.recorder import process_instance
from elasticfsm.integrations.vllm.release import TABLES

log = logging.getLogger("vllm.elasticfsm")

# What the seams of core.py report; every other guard may be taken unseen.
HEARS = frozenset(
    {
        "received reconfigure",
        "received launched",
        "received remove",
        "received pause",
        "received commit",
        "received resume",
        "agreed pause",
        "answer work",
        "answer empty",
    }
)
ROLES = {
    ("scale_up", "existing"): "existing",
    ("scale_up", "new"): "new",
    ("scale_down", "existing"): "remaining",
    ("scale_down", "removing"): "removing",
}
# What an engine in that role has heard by the time vLLM makes the state object.
BEFORE = {
    "existing": ("received reconfigure",),
    "new": ("received launched",),
    "remaining": ("received reconfigure",),
    "removing": ("received pause", "received remove"),
}
AT_START = "start"  # the generation that was not made by an operation


class Watch:
    """One engine core; `before`, `after`, `enter`, `told` and `note` never raise anything but `Refused`."""

    def __init__(
        self, core: object, rank: int, size: int, mode: Mode, journal: str, generation: str = "", new: bool = False
    ) -> None:
        self.rank = rank
        self.off = False
        self.state: Any = None  # the ElasticEPScalingState that is under way
        self.resuming = False
        self._core = weakref.ref(core)
        self._mode: Mode = mode
        self._size = size
        self._active = generation or AT_START
        self._pending: tuple[str, str, str] | None = None
        self.recorder = Recorder(Path(journal), f"engine{rank}", process_instance()) if journal else None
        program, role = ("scale_up", "new") if new else ("busy_loop", "engine")
        self.monitor = self._monitor(program, role, Op("", size, size), None)
        if not new:
            self._name({"active": self._active}, size)

    # -- an operation -------------------------------------------------------------------------------------------

    def begin(self, state: Any) -> None:
        """vLLM has made the state object of an operation: from here on its events belong to that."""
        self._shielded(self._begin, state)

    def changed(self, state: Any) -> None:
        """vLLM's state object is in this state now, a member of one of its enumerations."""
        self._shielded(lambda: self._changed(state.name.lower()))

    def switch(self) -> None:
        """From here on `active` means the new group, and the old one is `retired`."""
        standby = self.monitor.op.id
        self._shielded(lambda: self._name({"active": standby, "retired": self._active}, self.monitor.op.new_size))

    def resumed(self) -> None:
        """The engine is open again; the operation, if there was one, is over."""
        self._shielded(self._end)

    # -- what happens -------------------------------------------------------------------------------------------

    def before(self, kind: str, group: str = "", verb: str = "") -> None:
        """This is about to be issued; raises `Refused` in mode `guard`."""
        if self.off:
            return
        try:
            self.monitor.before(kind, group, verb)
            if self._mode == "observe":
                self._report()
        except Refused as refused:
            self._flush()
            log.error("elasticfsm: %s; refused before it was issued", refused)
            raise
        except Exception as error:
            self._fault(error)

    def after(self, kind: str, group: str = "", verb: str = "", error: BaseException | None = None) -> None:
        """The same has ended, with that error if it failed."""
        self._shielded(self.monitor.after, kind, group, verb, None if error is None else repr(error))

    def told(self, guard: str) -> None:
        """The engine heard this."""
        self._shielded(self.monitor.told, guard)

    def note(self, event: str, **fields: Any) -> None:
        """Something that is in the journal only."""
        recorder = self.recorder
        if recorder is not None:
            self._shielded(lambda: recorder.note(event, self._machine(), **fields))

    def agreed(self, result: Any, pausing: Any) -> None:
        """What vLLM's step sync gave, (unfinished, pause consensus), and whether this engine had asked for a pause."""
        self._shielded(self._agreed, result, pausing)

    def group(self, group: object) -> str:
        """What the spec calls this process group now."""
        try:
            return self._group(group)
        except Exception as error:
            self._fault(error)
            return ""

    def _group(self, group: object) -> str:
        core = self._core()
        if core is not None and getattr(core, "dp_group", None) is group:
            return "dp.active"
        if self.state is not None and getattr(self.state, "new_dp_group", None) is group:
            return "dp.standby"
        if self.state is not None and getattr(self.state, "old_dp_group", None) is group:
            return "dp.retired"
        return "dp.unknown"

    # -- inside -------------------------------------------------------------------------------------------------

    def _monitor(self, program: str, role: str, op: Op, previous: Monitor | None) -> Monitor:
        return Monitor(
            Program.load(f"{TABLES}/{program}"),
            role,
            "core",
            self.rank,
            op,
            mode=self._mode,
            sink=self.recorder.put if self.recorder is not None else None,
            hears=HEARS,
            previous=previous,
        )

    def _begin(self, state: Any) -> None:
        self.state = state
        role = ROLES[state.scale_type, state.worker_type]
        new = state.new_parallel_config
        op_id = f"{new.data_parallel_master_ip}:{new._coord_store_port}"
        old_size = 0 if role == "new" else self._size
        op = Op(op_id, old_size, new.data_parallel_size)
        self.resuming = False
        if self.recorder is not None:
            self.recorder.begin(op_id)
        self.monitor = self._monitor(state.scale_type, role, op, None if role == "new" else self.monitor)
        if role == "new":
            self._active = op_id
            self._name({"active": op_id}, op.new_size)
        else:
            self._name({"active": self._active, "standby": op_id}, op.new_size)
        table = f"{TABLES}/{state.scale_type}"
        self.note("operation.begin", protocol=table, role=role, digest=self.monitor.program.digest)
        for guard in BEFORE[role]:
            self.monitor.told(guard)
        if role == "new":  # its group was made before vLLM loads plugins
            self.monitor.before("groups", "standby", "create")
            self.monitor.after("groups", "standby", "create")
        self._changed(state.state.name.lower())

    def _agreed(self, result: tuple[bool, bool], pausing: object) -> None:
        unfinished, agreed = result
        votes, cast = ["pause"] if agreed else [], ["pause"] if pausing else []
        answer = "work" if unfinished else "empty"
        core: Any = self._core()
        if self.recorder is not None and core is not None:
            number = f"{core.current_wave}.{core.step_counter}"
            fields = {"of": self._active, "number": number, "votes": votes, "cast": cast, "answer": answer}
            self.recorder.note("agreed", "busy_loop.engine", **fields)
        for vote in votes:
            self.monitor.told(f"agreed {vote}")
        self.monitor.told(f"answer {answer}")

    def _changed(self, name: str) -> None:
        if not self.monitor.enter(name):
            self._report()
        self._end()

    def _end(self) -> None:
        if self.state is not None and self.monitor.ended:
            self.note("operation.end", end=self.monitor.state)
            self.state = None
            if self.recorder is not None:
                self.recorder.end()

    def _name(self, names: dict[str, str], size: int) -> None:
        """What the names of groups mean from here on; a generation that is new in this process is said once."""
        newest = names.get("standby", names["active"])
        if "retired" in names:
            self._active, self._size = names["active"], size
        if self.recorder is not None:
            self.recorder.names = names
            members = [f"engine{rank}" for rank in range(size)]
            line = ("generation", "", {"of": newest, "members": members})
            if "retired" not in names:
                self.recorder.put((line,))
            if "standby" not in names:
                self.recorder.again = (line,)

    def _machine(self) -> str:
        return self.monitor.program.roles[self.monitor.role][0]

    def _report(self) -> None:
        """In mode `observe`: says once what would have been refused."""
        for refusal in self.monitor.refusals:
            log.warning("elasticfsm: %s (observed, not refused)", refusal)
            self._flush()
        self.monitor.refusals.clear()

    def _flush(self) -> None:
        if self.recorder is not None:
            self.recorder.flush()

    def _shielded(self, call: Callable[..., Any], *arguments: Any) -> None:
        if self.off:
            return
        try:
            call(*arguments)
        except Exception as error:
            self._fault(error)

    def _fault(self, error: Exception) -> None:
        self.off = True
        log.error("elasticfsm: the observer of this engine is off after a fault of its own: %r", error, exc_info=error)
        try:
            if self.recorder is not None:
                self.recorder.note("fault", "", error=repr(error))
                self.recorder.flush()
        except Exception:  # logged above already
            return
