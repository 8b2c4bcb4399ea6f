"""The HTTP routes of a deployment: control in the words of other engines' clients, probes, metrics, and requests.

Status, probes and metrics answer whatever the deployment is doing: nothing of them waits for an operation. The server
is for this machine only: a request that names another host, or comes from a page of another origin, is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from elasticfsm.errors import ElasticError

from ..deployment import Deployment
from ..operation import Operation
from . import answers, bodies
from .completions import Completions
from .dry_run import foretold
from .metrics import Metrics

LOOK = 0.05  # seconds between two looks at an operation that a client waits for
LOCAL = {"localhost", "127.0.0.1", "::1"}

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]


class LocalOnly:
    """Refuses what a browser could be made to send: a host that is not this machine, or a foreign origin."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            host = _host("//" + headers.get(b"host", b"localhost").decode("latin-1"))
            origin = headers.get(b"origin", b"").decode("latin-1")
            if host not in LOCAL or (origin and _host(origin) not in LOCAL):
                refused = answers.error(f"host {host} or origin {origin or 'none'} is not this machine", 403)
                await refused(scope, receive, send)  # type: ignore[arg-type]
                return
        await self._app(scope, receive, send)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def make(deployment: Deployment, metrics: Metrics) -> FastAPI:
    """The application for one deployment."""
    app = FastAPI(title="elasticfsm", openapi_url=None)
    app.add_middleware(LocalOnly)
    _control(app, deployment)
    _probes(app, deployment)
    _requests(app, deployment)

    @app.get("/metrics")
    async def exposition() -> Response:
        return Response(metrics.text(), media_type=metrics.content_type)

    @app.exception_handler(ElasticError)
    async def refused(request: Request, refusal: ElasticError) -> JSONResponse:
        return answers.refusal(deployment, refusal)

    @app.exception_handler(404)
    async def unknown(request: Request, exception: Exception) -> JSONResponse:
        return answers.error(f"there is no route {request.url.path}", 404)

    @app.exception_handler(405)
    async def misused(request: Request, exception: Exception) -> JSONResponse:
        return answers.error(f"{request.url.path} does not take {request.method}", 405)

    return app


def _control(app: FastAPI, deployment: Deployment) -> None:
    async def scale(request: Request) -> JSONResponse:
        body = await bodies.read(request, bodies.Scale)
        remove = body.leaving(deployment.members)
        if body.dry_run:
            return JSONResponse(await asyncio.to_thread(foretold, deployment, body.size, remove))
        operation = deployment.scale(
            body.size,
            remove,
            body.operation_id,
            drain=body.drain,
            add=body.add_engines,
            timeouts=body.timeouts(),
            expected_instance=body.expected_instance_id,
        )
        if body.wait:
            await _ended(operation)
        return answers.outcome(deployment, operation)

    async def status() -> JSONResponse:
        return JSONResponse(answers.status(deployment))

    async def cancel(request: Request) -> JSONResponse:
        body = await bodies.read(request, bodies.Cancel)
        running = deployment.operations.running
        if running is None or (body.operation_id and body.operation_id != running.id):
            text = f"operation {body.operation_id} is not running" if body.operation_id else "no operation runs"
            return answers.error(text, 409)
        running.cancel()
        if not body.wait:
            return JSONResponse({"message": "asked", "operation": answers.plain(running.status())}, 202)
        await _ended(running)
        record = running.status()
        if record.phase == "aborted":
            return JSONResponse({"message": "aborted", "operation": answers.plain(record)})
        return answers.error(f"too late: operation {record.operation_id} is {record.phase}", 409, record)

    async def capacity() -> JSONResponse:
        return JSONResponse(answers.capacity(deployment))

    for prefix in ("", "/engine/control"):
        app.add_api_route(f"{prefix}/scale_elastic_ep", scale, methods=["POST"])
        app.add_api_route(f"{prefix}/scale_elastic_ep/cancel", cancel, methods=["POST"])
        app.add_api_route(f"{prefix}/is_scaling_elastic_ep", status, methods=["GET", "POST"])
        app.add_api_route(f"{prefix}/ep_capacity", capacity, methods=["GET", "POST"])


def _probes(app: FastAPI, deployment: Deployment) -> None:
    async def health() -> Response:
        failed = deployment.failed
        return PlainTextResponse(failed or "ok\n", 503 if failed else 200)

    async def ready() -> Response:
        serves = not deployment.router.closed and bool(deployment.router.admitted)
        return PlainTextResponse("ok\n" if serves else "no engine takes requests\n", 200 if serves else 503)

    async def engine_health(engine: str) -> Response:
        member = deployment.roster.get(engine)
        if member is None:
            return answers.error(f"there is no engine {engine}", 404)
        gone = member.dead or ("told to end" if member.stopped else "")
        return PlainTextResponse(gone or "ok\n", 503 if gone else 200)

    async def engine_ready(engine: str) -> Response:
        member = deployment.roster.get(engine)
        if member is None:
            return answers.error(f"there is no engine {engine}", 404)
        state = answers.engine_state(deployment, member, answers.running_record(deployment))
        return PlainTextResponse(f"{state}\n", 200 if answers.ready(deployment, member) else 503)

    async def end(engine: str) -> Response:
        if deployment.roster.get(engine) is None:
            return answers.error(f"there is no engine {engine}", 404)
        if not deployment.dismiss(engine):
            return answers.error(f"engine {engine} is not retired; only a retired one may be told to end", 409)
        return JSONResponse({"message": f"engine {engine} was told to end"}, 202)

    app.add_api_route("/health", health, methods=["GET"])
    for path in ("/ready", "/readyz"):
        app.add_api_route(path, ready, methods=["GET"])
    app.add_api_route("/engines/{engine}/health", engine_health, methods=["GET"])
    app.add_api_route("/engines/{engine}/ready", engine_ready, methods=["GET"])
    app.add_api_route("/engines/{engine}/exit", end, methods=["POST"])


def _requests(app: FastAPI, deployment: Deployment) -> None:
    completions = Completions(deployment)

    async def complete(request: Request) -> Response:
        return await completions.answer(await bodies.read(request, bodies.Completion))

    async def models() -> JSONResponse:
        entry = {"id": completions.model, "object": "model", "owned_by": "elasticfsm", "root": str(deployment.model)}
        return JSONResponse({"object": "list", "data": [entry]})

    app.add_api_route("/v1/completions", complete, methods=["POST"])
    app.add_api_route("/v1/models", models, methods=["GET"])


async def _ended(operation: Operation) -> None:
    while not operation.ended:
        await asyncio.sleep(LOOK)
