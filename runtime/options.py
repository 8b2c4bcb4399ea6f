"""How a deployment runs, and what one look at it shows."""

from __future__ import annotations

import msgspec

from elasticfsm.compile import program

from . import wire
from .experts.policy.settings import Policy
from .operation import Record


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """How a deployment runs.

    `slots`: expert slots per engine (0: enough for the model on the first size, and two). `directory`: for sockets and
    all that is temporary, made by a SocketDirectory whose owner removes it; by default the deployment's own, removed at
    its end. `journal`: where journals are kept; by default in that directory. `launch`: start engines as processes;
    else somebody else starts `elasticfsm engine --join ADDRESS --operation ID` for the ids that the record names.
    A rebalance is due every `eplb_interval` steps and looks at the loads of the last `eplb_window`. `eplb_step_bytes`
    bounds the bytes of expert rows that arrive beside one step, on all engines together; 0, the default: at most one
    layer. A row is never cut, nor are rows that change places torn apart. `policy` says where experts should be and how
    eagerly they move there. `verify_experts`:
    every slot is compared with the checkpoint after every rebalance and every switch. `device`: "cuda" puts engines on
    the machine's GPUs, fewest engines first, with bfloat16, NCCL and graphs. Every limit of time is multiplied by
    `timescale`, but not the `deadlines` given here: they replace the spec's.

    With `keep` the deployment survives its coordinator: `directory` is not temporary, only one coordinator may use it
    at a time, engines outlive that by so many seconds, and `Deployment.resume` takes them over. `keep_retired`: an
    engine that left stays up until it is told to end. `cooldown`: seconds between two operations. `drain_timeout`: for
    the requests of leaving engines, when they shall be finished instead of handed over. `boot_operation` and `engines`
    name the first operation and its engines for whoever starts them.
    """

    slots: int = 0
    kv_blocks: int = 512
    max_tokens: int = 64
    largest: int = 8
    transfer: wire.Transfer = "auto"
    eplb: wire.Pace = "async"
    eplb_interval: int = 200
    eplb_window: int = 200
    eplb_step_bytes: int = 0
    policy: Policy = Policy()
    verify_experts: bool = False
    address: str = ""
    directory: str = ""
    journal: str = ""
    launch: bool = True
    deadlines: dict[str, float] = {}
    faults: tuple[str, ...] = ()
    device: wire.Device = "cpu"
    dtype: wire.Dtype = "bfloat16"
    timescale: float = 1.0
    keep: float = 0.0
    keep_retired: bool = False
    cooldown: float = 0.0
    drain_timeout: float = 120.0
    boot_operation: str = ""
    engines: tuple[str, ...] = ()


class Status(msgspec.Struct, kw_only=True):
    """One look at everything: who serves, what every engine last said, and the operation under way."""

    instance: str
    generation: int
    members: tuple[str, ...]
    admitted: tuple[str, ...]
    engines: dict[str, wire.Status]
    pids: dict[str, int]
    operation: Record | None
    failed: str
    dropped: dict[str, int]


def durations(options: Options, protocol: str) -> dict[str, float]:
    """The deadlines of an operation in seconds: the spec's times `timescale`, or those that the options give."""
    scaled = {name: seconds * options.timescale for name, seconds in program(protocol).deadlines.items()}
    return scaled | options.deadlines


def default_slots(experts: int, size: int) -> int:
    """Slots per engine: the share of the first size, and two more for replicas."""
    return -(-experts // max(size, 1)) + 2
