"""A tool of a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mcp_types import CallToolResult
from mcp_types import Tool as ServerTool

from heaveto.core.request import ToolDeclaration
from heaveto.errors import InDoubtError
from heaveto.events.contents import Blob, Json
from heaveto.events.records import Replay
from heaveto.tools.base import OnCancel, Tool, ToolContext
from heaveto.tools.mcp.arguments import Arguments
from heaveto.tools.mcp.call import Call
from heaveto.tools.mcp.connection import Connection
from heaveto.tools.mcp.failures import MCPToolError, call_failure
from heaveto.tools.mcp.following import Follower
from heaveto.tools.mcp.results import Attachment, error_text, parts_of, response_of


@dataclass(frozen=True, slots=True)
class Declared:
    """What the user of a toolset says about a tool, since its server cannot be relied on to."""

    replay: Replay
    on_cancel: OnCancel
    timeout_seconds: float | None
    cancel_wait_seconds: float


class MCPTool(Tool):
    """A server's tool, under a name that providers accept. It outlives connections: a call uses the one that is there.

    Attributes:
        remote: the tool as its server describes it.
    """

    def __init__(
        self,
        name: str,
        remote: ServerTool,
        declared: Declared,
        *,
        server: str,
        connection: Callable[[], Awaitable[Connection]],
        log: logging.Logger,
    ) -> None:
        self.name, self.remote, self._declared = name, remote, declared
        self.description = remote.description or remote.title or ""
        self.replay, self.on_cancel = declared.replay, declared.on_cancel
        self.timeout_seconds = declared.timeout_seconds
        self._server, self._connection, self._log = server, connection, log
        self._declaration = ToolDeclaration(name, self.description, remote.input_schema)
        self._arguments = Arguments(name, remote.input_schema, log)

    def declaration(self) -> ToolDeclaration:
        return self._declaration

    def bind(self, args: dict[str, Json]) -> dict[str, Any]:
        return self._arguments.bind(args)

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        """Call the server.

        Cancelled, it has the server told, waits a short time for a real result, and returns that if it comes. If
        nothing comes, nobody knows whether the server has stopped: the call is in doubt until a late reply comes.

        Raises:
            InDoubtError: that, or the connection was lost with the call on its way. It is never sent again by itself.
            MCPToolError: the tool, or the server, says that it failed.
            ToolsetError: the server cannot be reached; nothing was sent.
        """
        connection = await self._connection()
        follower = Follower(ctx, self._log)
        call = connection.begin(self.remote.name, args, ctx.call_id, follower)
        try:
            await asyncio.wait({call.task})
            await follower.finish()
        except asyncio.CancelledError:
            follower.drop()
            connection.give_up(call)
            try:
                result = await connection.last_result(call, self._declared.cancel_wait_seconds)
                await follower.dropped()
            except asyncio.CancelledError:  # asked again: no more waiting
                result = call.result()
            if result is None and connection.may_answer(call):
                stopped = f"server {self._server!r} was told to stop, and did not say whether it has"
                raise InDoubtError(stopped, outcome=partial(self._late, call)) from None
            if result is None:
                raise
            return await self._response(result, ctx)
        return await self._response(self._outcome(connection, call), ctx)

    async def _late(self, call: Call) -> dict[str, Json]:
        """Return the result that comes late. It may never come: whoever awaits this gives up in time."""
        await asyncio.wait({call.reply})
        result = call.result()
        if result is None:
            raise MCPToolError(f"tool {self.remote.name!r} ended without a result after it was told to stop")
        return response_of(result, [part.about if isinstance(part, Attachment) else part for part in parts_of(result)])

    def _outcome(self, connection: Connection, call: Call) -> CallToolResult:
        if call.task.cancelled():
            raise InDoubtError(
                f"tool {self.remote.name!r} of server {self._server!r} may or may not have taken effect: "
                "the connection was closed before an answer came"
            )
        error = call.task.exception()
        if error is None:
            return call.task.result()
        if isinstance(error, MCPToolError):
            raise error
        lost = connection.has_lost(call)
        raise call_failure(self._server, self.remote.name, error, sent=call.sent, lost=lost) from error

    async def _response(self, result: CallToolResult, ctx: ToolContext) -> dict[str, Json]:
        if result.is_error:
            raise MCPToolError(error_text(result))
        kept: list[dict[str, Json]] = []
        for number, part in enumerate(parts_of(result), start=1):
            kept.append(await self._kept(part, number, ctx) if isinstance(part, Attachment) else part)
        return response_of(result, kept)

    async def _kept(self, part: Attachment, number: int, ctx: ToolContext) -> dict[str, Json]:
        """Store an attachment as an artifact and return what the model is told of it."""
        name = f"{self.name}-{ctx.call_id}-{number}{part.extension}"
        try:
            stored = await ctx.save_artifact(name, Blob(mime_type=part.mime_type, content=part.content))
        except Exception as error:  # noqa: BLE001 - the tool did run: the rest of its result must not be lost
            self._log.exception("what tool %r returned was not stored", self.remote.name)
            return {**part.about, "problem": f"it could not be stored: {type(error).__name__}"}
        return {**part.about, "artifact": name, "version": stored}

    def __repr__(self) -> str:
        return f"MCPTool({self.name!r}, server={self._server!r})"
