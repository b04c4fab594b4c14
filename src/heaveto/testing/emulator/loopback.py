"""A uvicorn server on loopback that shows when its sockets close, and that can break them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

Address = tuple[str, int]


class Connections:
    """The open sockets by the address of their client, and who wants to know when one closes."""

    def __init__(self) -> None:
        self._open: dict[Address, asyncio.Transport] = {}
        self._watchers: dict[Address, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, client: Address, transport: asyncio.Transport) -> None:
        """Note a new socket."""
        self._open[client] = transport

    def lost(self, client: Address) -> None:
        """Note that a socket closed, whoever closed it, and tell who watches it."""
        self._open.pop(client, None)
        watcher = self._watchers.pop(client, None)
        if watcher is not None:
            watcher()

    @contextlib.contextmanager
    def watched(self, client: Address, callback: Callable[[], None]) -> Generator[None, None, None]:
        """Call back if the socket closes while this context is open, or has closed before."""
        self._watchers[client] = callback
        if client not in self._open:
            self.lost(client)
        try:
            yield
        finally:
            self._watchers.pop(client, None)

    def close(self, client: Address) -> None:
        """Send what is written, then close the socket in the middle of the answer."""
        transport = self._open.get(client)
        if transport is not None:
            transport.close()

    def write(self, client: Address, raw: bytes) -> None:
        """Write bytes past HTTP, for an answer whose head is broken."""
        transport = self._open.get(client)
        if transport is not None:
            transport.write(raw)

    def abort_all(self) -> None:
        """Break all sockets at once."""
        for transport in list(self._open.values()):
            transport.abort()


class LoopbackServer(uvicorn.Server):
    """Serves an ASGI app on 127.0.0.1, in the running loop; port 0 is a free one. Takes no signals, stops at once."""

    def __init__(self, app: Any, port: int = 0) -> None:
        self.connections = Connections()
        super().__init__(
            uvicorn.Config(
                app,
                http=_protocol_for(self.connections),
                ws="none",
                lifespan="off",
                interface="asgi3",
                proxy_headers=False,
                log_config=None,
                access_log=False,
            )
        )
        # With the protocol named, asyncio sets TCP_NODELAY; else Nagle holds small frames back for 40 ms.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if port:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen()
        self._stop = asyncio.Event()

    @property
    def port(self) -> int:
        """The port; connections to it are taken as soon as the server was made."""
        return int(self._socket.getsockname()[1])

    async def run_until_stopped(self) -> None:
        """Serve until `stop`."""
        await self.serve([self._socket])

    def stop(self) -> None:
        """Break all connections and stop serving."""
        self._stop.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to whoever runs the loop."""
        yield

    async def main_loop(self) -> None:
        """Wait for `stop`, without ticking."""
        await self.on_tick(0)
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close without a grace: a test has nothing to wait for."""
        for server in self.servers:
            server.close()
        self.connections.abort_all()


def _protocol_for(connections: Connections) -> type[asyncio.Protocol]:
    class WatchedProtocol(H11Protocol):
        """uvicorn's HTTP protocol, telling of the life of its socket."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if self.client is not None:
                connections.opened(self.client, transport)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self.client is not None:
                connections.lost(self.client)

    return WatchedProtocol
