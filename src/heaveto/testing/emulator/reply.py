"""The answer to one request, as it is written to its socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from heaveto.testing.emulator.exchange import Exchange
from heaveto.testing.script import Cut

if TYPE_CHECKING:
    from heaveto.testing.emulator.loopback import Address, LoopbackServer

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


class Reply:
    """Writes an answer, and breaks it off where the script says so."""

    def __init__(self, exchange: Exchange, send: Send, client: Address, server: LoopbackServer) -> None:
        self._exchange, self._send, self._client, self._server = exchange, send, client, server
        self._cut = Cut()
        self.headers: dict[str, str] = {}
        """Headers that every answer to this request carries."""
        self.is_started = self.is_broken = False

    def limit(self, cut: Cut) -> None:
        """Break off at a byte, whatever the answer is."""
        self._cut = cut

    async def json(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole answer."""
        await self.start(status, "application/json", headers)
        await self.write(msgspec.json.encode(body))
        await self.end()

    async def start(self, status: int, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """Send the head of an answer."""
        self.is_started, self._exchange.status = True, status
        head = {"content-type": content_type, **self.headers, **(headers or {})}
        if self._cut.after_head_bytes is not None:
            self._server.connections.write(self._client, _raw_head(status, head)[: self._cut.after_head_bytes])
            self.break_off()
            return
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in head.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def write(self, frame: bytes) -> None:
        """Send a piece of the body."""
        limit = self._cut.after_bytes
        if limit is not None:
            frame = frame[: limit - self._exchange.bytes_sent]
        if self.is_broken:
            return
        if frame:
            self._exchange.bytes_sent += len(frame)
            await self._send({"type": "http.response.body", "body": frame, "more_body": True})
        if limit is not None and self._exchange.bytes_sent >= limit:
            self.break_off()

    async def end(self) -> None:
        """Close the answer as HTTP does; one that is to be cut has no end."""
        if self._cut.counts_bytes:
            self.break_off()
        if not self.is_broken:
            await self._send({"type": "http.response.body", "body": b""})

    def break_off(self) -> None:
        """Close the socket in the middle of the answer."""
        self.is_broken = True
        self._server.connections.close(self._client)


def _raw_head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase if status in set(HTTPStatus) else ''}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode("latin-1")
