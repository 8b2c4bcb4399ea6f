"""What clients may send: JSON objects, decoded into structs that say by field what was found and what was expected."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from fastapi import Request

from elasticfsm.errors import RequestRefused

T = TypeVar("T")
Positive = float | None

TOKENS = 1 << 31  # ids and counts of tokens are smaller
LIMIT = 8 * 1024 * 1024  # bytes of one body; no message to an engine may be larger either


class TooLarge(RequestRefused):
    """The body is larger than any that has a meaning."""


class UnknownModel(RequestRefused):
    """A request names a model that is not served here."""


class Scale(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /scale_elastic_ep`; `new_ep_size` is another name of the size."""

    new_data_parallel_size: int | None = None
    new_ep_size: int | None = None
    drain_timeout: float = 120.0
    drain: bool = False
    prepare_timeout: Positive = None
    commit_timeout: Positive = None
    operation_id: str = ""
    expected_instance_id: str = ""
    retire_ranks: list[int] = []
    retire_engines: list[str] = []
    add_engines: list[str] = []
    dry_run: bool = False
    wait: bool = True

    @property
    def size(self) -> int:
        """The size asked for; RequestRefused when there is none, or two different ones."""
        given = {size for size in (self.new_data_parallel_size, self.new_ep_size) if size is not None}
        if len(given) != 1:
            raise RequestRefused(
                f"new_data_parallel_size is {self.new_data_parallel_size} and new_ep_size is {self.new_ep_size}; "
                "expected one of them, or both alike"
            )
        return given.pop()

    def timeouts(self) -> dict[str, float]:
        """The deadlines that were given, in seconds."""
        given = {"prepare": self.prepare_timeout, "commit": self.commit_timeout, "drain": self.drain_timeout}
        found = {name: seconds for name, seconds in given.items() if seconds is not None}
        for name, seconds in found.items():
            if not 0 < seconds < float("inf"):
                raise RequestRefused(f"{name}_timeout is {seconds}; expected seconds, more than 0")
        return found

    def leaving(self, members: tuple[str, ...]) -> tuple[str, ...]:
        """The engines that shall leave, by id and by rank; RequestRefused for a rank that there is not."""
        wrong = [rank for rank in self.retire_ranks if not 0 <= rank < len(members)]
        if wrong:
            raise RequestRefused(f"retire_ranks has {wrong[0]}; the ranks are 0 to {len(members) - 1}")
        return tuple(dict.fromkeys([*self.retire_engines, *(members[rank] for rank in self.retire_ranks)]))


class Cancel(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /scale_elastic_ep/cancel`: the running operation, or the one of that id."""

    operation_id: str = ""
    wait: bool = True


class Completion(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/completions`, as much of it as a greedy engine has: a text or token ids in, text and token ids out.

    The other fields of that route are known: what changes nothing when the choice is greedy is let be (`seed`, `top_p`,
    `user`), and what would change the answer is refused by `refuse` instead of being passed over.
    """

    prompt: str | list[int]
    model: str = ""
    max_tokens: int = 16
    stream: bool = False
    stop_token_ids: list[int] = []
    temperature: float = 0.0
    n: int = 1
    queue: bool = True
    seed: int | None = None
    top_p: float | None = None
    user: str | None = None
    stop: Any = None
    suffix: Any = None
    echo: Any = None
    logprobs: Any = None
    best_of: Any = None
    logit_bias: Any = None
    frequency_penalty: Any = None
    presence_penalty: Any = None
    stream_options: Any = None

    def refuse(self, served: str) -> None:
        """UnknownModel for another model than `served`, RequestRefused for what the engine cannot do."""
        if self.model not in ("", served):
            raise UnknownModel(f"model {self.model!r} is not served here; expected {served!r}, or none")
        if self.temperature:
            raise RequestRefused(f"temperature is {self.temperature}; expected 0: sampling is greedy here")
        if self.n != 1:
            raise RequestRefused(f"n is {self.n}; expected 1")
        if not 1 <= self.max_tokens < TOKENS:
            raise RequestRefused(f"max_tokens is {self.max_tokens}; expected 1 or more, below {TOKENS}")
        wrong = [token for token in self.stop_token_ids if not 0 <= token < TOKENS]
        if wrong:
            raise RequestRefused(f"stop_token_ids has {wrong[0]}; expected token ids: 0 or more, below {TOKENS}")
        for name, hint in UNSERVED.items():
            value = getattr(self, name)
            if value and not (name == "best_of" and value == 1):  # null, false, 0 and empty ask for nothing
                raise RequestRefused(f"{name} is not served here; leave it out{hint}")


UNSERVED = {  # field -> what to do instead
    "stop": ", or give stop_token_ids",
    "suffix": "",
    "echo": "",
    "logprobs": "",
    "best_of": "",
    "logit_bias": "",
    "frequency_penalty": "",
    "presence_penalty": "",
    "stream_options": "",
}


async def read(request: Request, kind: type[T]) -> T:
    """The body of a request as a struct; TooLarge as soon as there are more than LIMIT bytes, before they are kept."""
    said = request.headers.get("content-length", "")
    found = bytearray()
    if said.isdecimal() and int(said) > LIMIT:
        raise TooLarge(f"the body has {said} bytes; at most {LIMIT} are read")
    async for chunk in request.stream():
        found += chunk
        if len(found) > LIMIT:
            raise TooLarge(f"the body has more than {LIMIT} bytes, which is all that is read")
    return decode(bytes(found), kind)


def decode(data: bytes, kind: type[T]) -> T:
    """The body as a struct, an empty one as an empty object; RequestRefused with the field that is wrong."""
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestRefused(f"the body is wrong: {error}") from None
