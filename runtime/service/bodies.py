"""What clients may send: JSON objects, decoded into structs that say by field what was found and what was expected."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from elasticfsm.errors import RequestRefused

T = TypeVar("T")
Positive = float | None


class Scale(msgspec.Struct, kw_only=True):
    """`POST /scale_elastic_ep`; `new_ep_size` is another name of the size. Unknown fields are let be."""

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


class Cancel(msgspec.Struct, kw_only=True):
    """`POST /scale_elastic_ep/cancel`: the running operation, or the one of that id."""

    operation_id: str = ""
    wait: bool = True


class Completion(msgspec.Struct, kw_only=True):
    """`POST /v1/completions`, as much of it as a greedy engine has: a text or token ids in, text and token ids out."""

    prompt: str | list[int]
    model: str = ""
    max_tokens: int = 16
    stream: bool = False
    stop_token_ids: list[int] = []
    temperature: float = 0.0
    n: int = 1
    queue: bool = True

    def refuse(self) -> None:
        """RequestRefused for what the engine cannot do."""
        if self.temperature:
            raise RequestRefused(f"temperature is {self.temperature}; expected 0: sampling is greedy here")
        if self.n != 1:
            raise RequestRefused(f"n is {self.n}; expected 1")


def decode(data: bytes, kind: type[T]) -> T:
    """The body as a struct, an empty one as an empty object; RequestRefused with the field that is wrong."""
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestRefused(f"the body is wrong: {error}") from None
