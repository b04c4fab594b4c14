"""A request by httpx whose socket is closed on every way out.

httpcore 1.0 loses a connection whose request is cancelled in the step between the end of connecting and its first byte:
the socket stays open, nobody can use it, and it holds its place in the pool for good. So a request is sent in a task of
its own, and a stop that comes in that step is carried out in the next one. Where that is, httpcore tells its tracer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

_CONNECTED = ("connection.connect_tcp.complete", "connection.connect_unix_socket.complete")
_ENCRYPTED = "connection.start_tls.complete"
_BEGUN = ("http11.send_request_headers.started", "http2.send_connection_init.started")


@asynccontextmanager
async def opened(http: httpx.AsyncClient, request: httpx.Request) -> AsyncGenerator[httpx.Response, None]:
    """Send a request and give its response, not read yet. The socket is closed at the end, and by a cancellation."""
    response = await _Sending(http, request).response()
    try:
        yield response
    finally:
        await response.aclose()


class _Sending:
    """One request on its way to the head of its response."""

    def __init__(self, http: httpx.AsyncClient, request: httpx.Request) -> None:
        self._stream: Any = None
        """The connection's stream, while httpcore would not close it."""
        self._waits = self._is_given_up = False
        request.extensions = {**request.extensions, "trace": self._trace}
        self._task = asyncio.create_task(http.send(request, stream=True), name="heaveto request")

    async def response(self) -> httpx.Response:
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            ending = asyncio.ensure_future(self._give_up())
            while not ending.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({ending})
            ending.result()
            raise

    async def _give_up(self) -> None:
        self._is_given_up = True
        if not self._waits:
            self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled() and self._task.exception() is None:
            await self._task.result().aclose()
        if self._stream is not None:
            await self._stream.aclose()

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event in _CONNECTED:
            self._stream = info["return_value"]
        elif event in _BEGUN:
            self._stream = None
        was_waiting, self._waits = self._waits, event in _CONNECTED or event == _ENCRYPTED
        if self._is_given_up and was_waiting and not self._waits:
            raise asyncio.CancelledError
