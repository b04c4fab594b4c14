"""A call on its way: what the connection and the run that made it know of each other."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from mcp_types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCResponse,
)
from pydantic import TypeAdapter, ValidationError

CallAnswer = CallToolResult | InputRequiredResult
ANSWERS: TypeAdapter[CallAnswer] = TypeAdapter(CallToolResult | InputRequiredResult)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call is, as its server tells."""

    progress: float
    total: float | None
    message: str | None


class Question:
    """Something that a server wants to know from people. Whoever asks them sets `answer`. Cancelled: withdrawn."""

    def __init__(self, params: ElicitRequestParams) -> None:
        self.params = params
        self.answer: asyncio.Future[ElicitResult] = asyncio.get_running_loop().create_future()

    def settle(self, result: ElicitResult) -> None:
        """Answer it, unless that was done or it was withdrawn."""
        if not self.answer.done():
            self.answer.set_result(result)


class Caller(Protocol):
    """The run's side of a call. Called on the event loop; must not block."""

    def progressed(self, progress: Progress) -> None: ...
    def asked(self, question: Question) -> None: ...


class Call:
    """One call of a server's tool.

    Attributes:
        tool: the server's name of the tool.
        call_id: the runtime's id of the call; it is not sent.
        sent: whether a request of it may have reached the server.
        stopped_at: when its caller gave it up, on the event loop's clock; None if it did not.
        caller: None once it was given up.
        reply: the server's answer to the latest request, as it was read from the wire.
        task: the work; it belongs to the connection, not to the run.
    """

    task: asyncio.Task[CallToolResult]

    def __init__(self, tool: str, call_id: str, caller: Caller) -> None:
        self.tool, self.call_id = tool, call_id
        self.caller: Caller | None = caller
        self.sent = False
        self.stopped_at: float | None = None
        self.reply = self._awaited()

    def give_up(self, now: float) -> None:
        """Stop the work; the SDK tells the server."""
        self.stopped_at, self.caller = now, None
        self.task.cancel()

    def _awaited(self) -> asyncio.Future[JSONRPCResponse | JSONRPCError]:
        return asyncio.get_running_loop().create_future()

    def went_out(self) -> None:
        """A request of this call is about to be written."""
        self.sent = True
        if self.reply.done():
            self.reply = self._awaited()

    def came_in(self, message: JSONRPCResponse | JSONRPCError) -> None:
        """The answer to its request was read."""
        if not self.reply.done():
            self.reply.set_result(message)

    def result(self) -> CallToolResult | None:
        """Return the real result that came in, if one did; an error or a further question is none."""
        if not self.reply.done() or self.reply.cancelled():
            return None
        return read_result(self.reply.result())


def read_result(message: JSONRPCResponse | JSONRPCError) -> CallToolResult | None:
    """Return the result of a call that a message holds, unless it says that the call failed."""
    if isinstance(message, JSONRPCError):
        return None
    try:
        answer = ANSWERS.validate_python(message.result, by_name=False)
    except ValidationError:
        return None
    return answer if isinstance(answer, CallToolResult) and not answer.is_error else None


CURRENT: ContextVar[Call | None] = ContextVar("heaveto_mcp_call", default=None)
"""The call that the running code works for. Over HTTP the SDK hands it on to what came in answer to its request."""
