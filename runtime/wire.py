"""What travels between coordinator and engines: typed MessagePack structs that name operation, generation and sender.

Nothing here is pickled, every message is bounded, and a message that does not decode is a `WireError`, never a crash.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from elasticfsm.errors import ElasticError

from .experts.placement import PlacementWire
from .experts.policy.settings import Policy

LIMIT = 8 * 1024 * 1024  # bytes of one message
COORDINATOR = "coordinator"

Transfer = Literal["auto", "nixl", "p2p"]
Pace = Literal["async", "sync", "off"]
Device = Literal["cpu", "cuda"]
Dtype = Literal["bfloat16", "float32"]  # on a GPU; engines on a CPU compute in float32


class WireError(ElasticError):
    """A message is too large, is no MessagePack, or does not have the shape of its kind."""

    exit_code = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=str.lower, forbid_unknown_fields=True):
    """What every message carries: whose it is. `sender` is an engine id, or `coordinator`."""

    operation: str = ""
    generation: int = 0
    instance: str = ""
    sender: str = ""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an engine must know before it can take part; the same on all engines of a deployment."""

    model: str
    slots: int
    kv_blocks: int
    max_tokens: int
    store: str
    transfer: Transfer = "auto"
    eplb: Pace = "async"
    eplb_interval: int = 200
    eplb_window: int = 200
    eplb_step_bytes: int = 0
    policy: Policy = Policy()
    expert_sums: tuple[int, ...] = ()
    journal: str = ""
    faults: tuple[str, ...] = ()
    device: Device = "cpu"
    dtype: Dtype = "bfloat16"
    timescale: float = 1.0  # every limit of the engine is multiplied by it


class Hello(Message, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """An engine announces itself; `operation` is what it was started for, `wake` where its peers may wake it.

    `code` is the fingerprint of what it runs. This message is understood between all versions, so that an engine of
    another one is told so.
    """

    pid: int
    wake: str
    code: str = ""


class Welcome(Message, frozen=True, kw_only=True):
    """The engine is expected: it may load what `settings` names and wait for its plan."""

    settings: Settings


class Turned(Message, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The engine is not expected (`final`) or not yet (it asks again); the reason says why.

    `code`: what the coordinator runs, if that is the reason. Understood between all versions.
    """

    reason: str
    final: bool
    code: str = ""


class Plan(Message, frozen=True, kw_only=True):
    """One operation, before its first protocol message: who is in it, in which role, in which rank order.

    `members` is the new generation in rank order, `previous` the one that serves now. `protocol` is empty for the
    bootstrap of the first generation, and `operation` then names the bootstrap.
    """

    protocol: str
    members: tuple[str, ...]
    previous: tuple[str, ...]
    roles: dict[str, str]
    store: str
    deadlines: dict[str, float] = {}


class Peers(Message, frozen=True, kw_only=True):
    """Where every known engine may be woken: engine id -> address. Sent again when one joins."""

    wakes: dict[str, str]


class Dead(Message, frozen=True, kw_only=True):
    """An engine is declared dead: its process was killed, and groups that contain it can be cut."""

    engine: str


class Booted(Message, frozen=True, kw_only=True):
    """The engine serves in its first generation."""


class Protocol(Message, frozen=True, kw_only=True):
    """A message of the spec, from one machine (`scale_up.existing`) to all machines of a name."""

    name: str
    machine: str
    receiver: str
    wave: int = 0


class Wake(Message, frozen=True, kw_only=True):
    """Engine to engine: a wave of forward steps begins; an older wave than the receiver's is void."""

    name: str
    machine: str
    receiver: str
    wave: int


class Status(Message, frozen=True, kw_only=True):
    """The heartbeat: where the engine stands. `states` is machine -> state, `counters` are totals since start.

    `placement` comes from rank 0 when it has changed: the map of the experts that is in force.
    """

    role: str
    states: dict[str, str]
    step: int
    running: int
    waiting: int
    counters: dict[str, int] = {}
    placement: PlacementWire | None = None


class Failure(Message, frozen=True, kw_only=True):
    """Why something failed on the engine, in words; `fatal`: the engine ends."""

    text: str
    fatal: bool = False


class Submit(Message, frozen=True, kw_only=True):
    """A request for the engine that owns it from `epoch` on; `generated` are the tokens that were delivered already."""

    request: str
    epoch: int
    prompt: tuple[int, ...]
    max_new_tokens: int
    stop_tokens: tuple[int, ...] = ()
    generated: tuple[int, ...] = ()


class Token(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One generated token; `index` counts from 0 over all owners of the request; `done` is "stop" or "length"."""

    request: str
    epoch: int
    index: int
    token: int
    done: str = ""


class Tokens(Message, frozen=True, kw_only=True):
    """The tokens of one forward step."""

    step: int
    tokens: tuple[Token, ...]


class Stopped(Message, frozen=True, kw_only=True):
    """The engine runs these requests no more: (request, epoch, tokens generated so far, reason)."""

    requests: tuple[tuple[str, int, int, str], ...]


class Retire(Message, frozen=True, kw_only=True):
    """The engine was asked to end and wants to be removed first, within so many seconds."""

    within: float


class Adopt(Message, frozen=True, kw_only=True):
    """A coordinator that was started anew asks the engine what it is; `instance` is its own, `pid` its process."""

    pid: int
    store: str


class Here(Message, frozen=True, kw_only=True):
    """The answer: who the engine is, in which generation with which members it serves, and what runs on it.

    What it had said in its last operations it says again after this. `lost` requests of the former router were given
    up: nobody can receive their tokens any more.
    """

    pid: int
    wake: str
    role: str
    members: tuple[str, ...]
    lost: int = 0


class Exit(Message, frozen=True, kw_only=True):
    """The engine shall end now."""


Mail = (  # any message
    Hello
    | Welcome
    | Turned
    | Plan
    | Peers
    | Dead
    | Booted
    | Protocol
    | Wake
    | Status
    | Failure
    | Submit
    | Tokens
    | Stopped
    | Retire
    | Adopt
    | Here
    | Exit
)

LOSSY = (Hello, Turned, Status, Wake)  # said again by themselves: the wire may lose them

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Mail] = msgspec.msgpack.Decoder(Mail)


def encode(message: Mail) -> bytes:
    """The bytes of a message; WireError when there are more than LIMIT."""
    data = _encoder.encode(message)
    if len(data) > LIMIT:
        raise WireError(f"a {type(message).__name__} of {len(data)} bytes was not sent: the limit is {LIMIT}")
    return data


def decode(data: bytes) -> Mail:
    """The message in some bytes; WireError when they are too many, no MessagePack, or of another shape."""
    if len(data) > LIMIT:
        raise WireError(f"a message of {len(data)} bytes was dropped: the limit is {LIMIT}")
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"a message of {len(data)} bytes was dropped: {error}") from error
