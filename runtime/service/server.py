"""The HTTP server: uvicorn in a thread of its own, on this machine only."""

from __future__ import annotations

import ipaddress
import socket
import threading
from typing import Any

import uvicorn

from elasticfsm.errors import DeadlineExpired, RequestRefused

START_SECONDS = 10.0
CLOSE_SECONDS = 5


class Server:
    """Serves `app` from construction to `close`; `url` is where."""

    def __init__(self, app: Any, address: str) -> None:
        """Listen on HOST:PORT (port 0: any free one); RequestRefused when that is not possible, or not loopback."""
        self._socket = _listen(address)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
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
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()
        self._await_start()

    def close(self) -> None:
        """Finish what is being answered, for a few seconds, and stop; idempotent."""
        self._server.should_exit = True
        self._thread.join(CLOSE_SECONDS + 5)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def _await_start(self) -> None:
        waited = threading.Event()
        for _ in range(int(START_SECONDS / 0.01)):
            if self._server.started or not self._thread.is_alive():
                break
            waited.wait(0.01)
        if not self._server.started:
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
        raise RequestRefused(f"cannot listen on {address}: {error.strerror}; choose another port") from None
