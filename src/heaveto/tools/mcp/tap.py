"""Between the SDK and its transport: which request belongs to which call, what came in late, and when the stream ended.

The SDK drops an answer to a request that was given up, and does not tell the id of a request. Both are read off here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

from heaveto.tools.mcp.call import CURRENT, Call

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream

S = TypeVar("S", bound="ReadStream[Any] | WriteStream[Any]")

REASON: Final = "The result is no longer needed."
"""All that a server is told about why a call was stopped: the real reason is nobody's business there (F50)."""
_KEPT = 1024
"""So many calls that were stopped and never answered are remembered."""


class CallTable:
    """Which call each request that was not answered yet belongs to."""

    def __init__(self) -> None:
        self._calls: dict[RequestId, Call] = {}

    def add(self, request_id: RequestId, call: Call) -> None:
        while len(self._calls) >= _KEPT and (oldest := self._oldest_stopped()) is not None:
            del self._calls[oldest]
        self._calls[request_id] = call

    def _oldest_stopped(self) -> RequestId | None:
        return next((key for key, call in self._calls.items() if call.stopped_at is not None), None)

    def calls(self) -> list[Call]:
        """Return the calls that the server may be working on."""
        return list(self._calls.values())

    def take(self, request_id: RequestId | None) -> Call | None:
        return None if request_id is None else self._calls.pop(request_id, None)

    def clear(self) -> None:
        """Nothing comes in any more."""
        self._calls.clear()


class Tap(AbstractAsyncContextManager["TransportStreams"]):
    """A transport that keeps a `CallTable` and calls `on_end` once when its incoming stream has ended."""

    def __init__(
        self, transport: AbstractAsyncContextManager[Any], calls: CallTable, on_end: Callable[[], None]
    ) -> None:
        self._transport, self._calls, self._on_end = transport, calls, on_end

    async def __aenter__(self) -> TransportStreams:
        reading, writing = await self._transport.__aenter__()
        return cast("TransportStreams", (_Reading(reading, self._calls, self._on_end), _Writing(writing, self._calls)))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


class _Stream(Generic[S]):
    """A stream of a transport, entered and closed with the one inside."""

    def __init__(self, inner: S, calls: CallTable) -> None:
        self._inner, self._calls = inner, calls

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


class _Reading(_Stream["ReadStream[SessionMessage | Exception]"]):
    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], calls: CallTable, on_end: Callable[[], None]
    ) -> None:
        super().__init__(inner, calls)
        self._on_end = on_end

    @property
    def last_context(self) -> Context | None:
        """The context in which the last message was received; the SDK looks for it under this name."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._seen(await self._inner.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return self._seen(await self._inner.__anext__())
        except StopAsyncIteration:
            self._on_end()
            raise

    def _seen(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse | JSONRPCError):
            call = self._calls.take(item.message.id)
            if call is not None:
                call.came_in(item.message)
        return item


class _Writing(_Stream["WriteStream[SessionMessage]"]):
    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        call = CURRENT.get()
        if call is not None and isinstance(message, JSONRPCRequest) and message.method == "tools/call":
            await self._send_call(item, message.id, call)
            return
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            item = replace(item, message=_neutral(message))
        await self._inner.send(item)

    async def _send_call(self, item: SessionMessage, request_id: RequestId, call: Call) -> None:
        before = call.sent
        call.went_out()
        self._calls.add(request_id, call)
        try:
            await self._inner.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            call.sent = before  # nothing was taken
            self._calls.take(request_id)
            raise


def _neutral(message: JSONRPCNotification) -> JSONRPCNotification:
    """Return a cancel notification with our fixed reason in place of whatever there was."""
    return message.model_copy(update={"params": {**(message.params or {}), "reason": REASON}})
