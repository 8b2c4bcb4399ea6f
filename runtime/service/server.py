"""The HTTP server: uvicorn in a thread of its own, on this machine only."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from typing import Any

import uvicorn

from elasticfsm.errors import DeadlineExpired, RequestRefused

START_SECONDS = 10.0
CLOSE_SECONDS = 5


class Server:
    """Serves from `start` to `close`; `url` is where. The port is taken at once: who connects early waits."""

    def __init__(self, address: str) -> None:
        """Listen on HOST:PORT (port 0: any free one); RequestRefused when that is not possible, or not loopback."""
        self._socket = _listen(address)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, app: Any) -> None:
        """Answer with `app` from now on; DeadlineExpired when the server does not come up."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=CLOSE_SECONDS,
        )
        server = self._server = uvicorn.Server(config)
        thread = self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [self._socket]}, name="http", daemon=True
        )
        thread.start()
        self._await_start(server, thread)

    def close(self) -> None:
        """Finish what is being answered, for a few seconds, and stop; idempotent."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(CLOSE_SECONDS + 5)
        self._socket.close()

    def _await_start(self, server: uvicorn.Server, thread: threading.Thread) -> None:
        waited = threading.Event()
        for _ in range(int(START_SECONDS / 0.01)):
            if server.started or not thread.is_alive():
                break
            waited.wait(0.01)
        if not server.started:
            self.close()
            raise DeadlineExpired(f"the HTTP server on {self.url} did not start within {START_SECONDS:g} s")


def _listen(address: str) -> socket.socket:
    host, colon, port = address.rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise RequestRefused(f"--http {address}: expected HOST:PORT, such as 127.0.0.1:8000")
    try:
        local = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise RequestRefused(f"--http {address}: expected an address of this machine, such as 127.0.0.1") from None
    if not local.is_loopback:
        raise RequestRefused(
            f"--http {address} is beyond this machine, and these routes are not authenticated; use 127.0.0.1 and put "
            "a proxy that authenticates in front"
        )
    family = socket.AF_INET6 if local.version == 6 else socket.AF_INET
    try:
        return socket.create_server((str(local), int(port)), family=family)
    except OSError as error:
        raise RequestRefused(
            f"cannot listen on {address}: {os.strerror(error.errno or 0)}; choose another port"
        ) from None
