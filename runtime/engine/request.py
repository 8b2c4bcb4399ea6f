"""A request as an engine sees it: what was asked for, what was generated so far, and who owns it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Request:
    """One text to continue.

    PROMPT and GENERATED are token ids; EPOCH is the owner epoch that the router gave with this assignment; BLOCKS and
    COMPUTED (tokens whose keys are cached) belong to the engine that runs it and are empty in a hand-over.
    """

    id: str
    prompt: list[int]
    max_new_tokens: int
    stop_tokens: tuple[int, ...] = ()
    epoch: int = 0
    generated: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list, repr=False)
    computed: int = 0

    @property
    def tokens(self) -> list[int]:
        """Prompt and generated tokens, all of which must be cached before the next one can be sampled."""
        return self.prompt + self.generated

    @property
    def length(self) -> int:
        """Number of tokens so far."""
        return len(self.prompt) + len(self.generated)

    @property
    def longest(self) -> int:
        """Number of tokens if generation runs to its limit."""
        return len(self.prompt) + self.max_new_tokens

    @property
    def finished(self) -> str | None:
        """Why no further token follows: "stop", "length", or None while it goes on."""
        if self.generated and self.generated[-1] in self.stop_tokens:
            return "stop"
        return "length" if len(self.generated) >= self.max_new_tokens else None


@dataclass(frozen=True)
class TokenEvent:
    """One generated token: INDEX counts from 0 over all owners; FINISHED is "stop" or "length" on the last one."""

    request_id: str
    epoch: int
    index: int
    token: int
    finished: str | None
