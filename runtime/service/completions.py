"""`POST /v1/completions`: a minimal route for requests, whole or as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import JSONResponse, Response, StreamingResponse

from elasticfsm.errors import RequestRefused

from ..deployment import Deployment
from ..engine import tokenizer
from ..router import Stream
from .answers import error
from .bodies import Completion

BYTES = 256  # the vocabulary of byte-level models, whose texts can be read without another tokenizer
RETRY_SECONDS = 1.0


class Feed:
    """The tokens of a stream as they come, for one asyncio task."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        stream.listen(self._ring)

    def _ring(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def tokens(self) -> AsyncIterator[list[int]]:
        """Yield what came since; ends with the request."""
        seen = 0
        while True:
            self._news.clear()
            ended = bool(self.stream.outcome)  # before the tokens: what came with the end is not missed
            fresh = self.stream.tokens[seen:]
            if fresh:
                seen += len(fresh)
                yield fresh
            if ended:
                return
            if not fresh:
                await self._news.wait()


class Completions:
    """Requests of HTTP clients."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._texts = deployment.config.vocab_size <= BYTES
        self.model = deployment.model.name

    async def answer(self, body: Completion) -> Response:
        """Queue the request and answer; 503 with Retry-After when the client does not want to wait for the switch."""
        body.refuse(self.model)
        if not body.queue and self._paused():
            return error("the size is being changed; ask again, or let the request wait", 503, None, RETRY_SECONDS)
        prompt = self._encode(body.prompt)
        stops = tuple(body.stop_token_ids) or ((tokenizer.END,) if self._texts else ())
        stream = self._deployment.submit(prompt, body.max_tokens, stops)
        feed = Feed(stream)
        if body.stream:
            return StreamingResponse(self._events(feed), media_type="text/event-stream")
        async for _ in feed.tokens():
            pass
        if stream.outcome != "finished":
            return error(_failure(stream), 503 if self._deployment.failed else 400)
        usage = {"prompt_tokens": len(stream.prompt), "completion_tokens": len(stream.tokens)}
        usage["total_tokens"] = sum(usage.values())
        return JSONResponse(self._piece(stream, list(stream.tokens), stream.reason) | {"usage": usage})

    def _paused(self) -> bool:
        running = self._deployment.operations.running
        committing = running is not None and running.record.phase == "committing"
        return committing or not self._deployment.router.admitted

    def _encode(self, prompt: str | list[int]) -> list[int]:
        if not isinstance(prompt, str):
            return prompt
        if not self._texts:
            raise RequestRefused("this model has no byte-level tokenizer; give the prompt as a list of token ids")
        return tokenizer.encode(prompt)

    def _piece(self, stream: Stream, tokens: list[int], finish: str | None) -> dict[str, Any]:
        choice = {
            "index": 0,
            "text": tokenizer.decode(tokens) if self._texts else "",
            "token_ids": tokens,
            "finish_reason": finish,
        }
        return {
            "id": stream.id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": [choice],
        }

    async def _events(self, feed: Feed) -> AsyncIterator[str]:
        stream = feed.stream
        async for tokens in feed.tokens():
            yield _event(self._piece(stream, tokens, None))
        if stream.outcome == "finished":
            yield _event(self._piece(stream, [], stream.reason))
        else:
            yield _event(
                {"error": {"message": _failure(stream), "type": "Service Unavailable", "param": None, "code": 503}}
            )
        yield "data: [DONE]\n\n"


def _failure(stream: Stream) -> str:
    """Why a request failed; an engine that refused it has named it already."""
    named = f"request {stream.id}: "
    return named + stream.reason.removeprefix(named)


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
