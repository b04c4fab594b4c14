"""The tools of an MCP server, as a toolset of an agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from pathlib import Path
from typing import Any, Self, Unpack, cast
from urllib.parse import urlsplit

import httpx2
from mcp_types import JSONRPCError, JSONRPCResponse
from mcp_types import Tool as ServerTool

from heaveto.errors import ConfigError, ToolsetError
from heaveto.tools.base import Tool
from heaveto.tools.mcp.call import Call, read_result
from heaveto.tools.mcp.connection import Connection, ConnectionSettings
from heaveto.tools.mcp.http import ServerUrl, http_transport
from heaveto.tools.mcp.naming import provider_names
from heaveto.tools.mcp.options import LateReply, Options, Settings
from heaveto.tools.mcp.process import ServerCommand, ServerProcess
from heaveto.tools.mcp.results import Attachment, parts_of, response_of
from heaveto.tools.mcp.tool import MCPTool
from heaveto.tools.toolset import Toolset


class MCPToolset(Toolset):
    """The tools of one MCP server. Make it with `stdio` or `http`; many agents and runs may use it at once.

    It connects when it is first opened, and again when the connection was lost; after `aclose` it may be opened again.
    One toolset belongs to one event loop at a time.

    Args (of `stdio` and `http`, by keyword):
        name: what errors and the log call the server; ``heaveto.mcp.<name>`` is its logger.
        prefix: put before each tool's name.
        tool_filter: the server's names of the tools that are offered, or a function that tells of each whether it is.
        replay: whether a call in doubt may be executed again: for all tools, or by the server's name of a tool.
        trust_annotations: believe ``readOnlyHint`` (safe) and ``idempotentHint`` where `replay` does not say otherwise.
        on_cancel: what a stop does to a running call; for all, or by name.
        timeout_seconds: how long a call may take; for all, or by name.
        required: whether an agent that cannot reach the server fails; if not, it works without these tools meanwhile.
        protocol: ``legacy`` begins with the handshake of versions before 2026, for servers that cannot take the newer.
        connect_timeout_seconds: how long connecting, and listing the tools, may take, all attempts together.
        reconnect: how often a connection is tried, and the pauses between.
        cancel_wait_seconds: how long a stopped call waits for a real result that is on its way.
        log_level: from which severity on the server's log messages are wanted; None for none.
        on_late_reply: called with a result that comes later than that. Must not block.
    """

    def __init__(
        self,
        transport: Callable[[logging.Logger], AbstractAsyncContextManager[Any]],
        *,
        remote: bool,
        default_name: str,
        **options: Unpack[Options],
    ) -> None:
        self._settings = Settings(**cast("Any", {"name": default_name, **options}))
        self._log = logging.getLogger(f"heaveto.mcp.{self._settings.name}")
        self._transport, self._remote = transport, remote
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: set[Connection] = set()
        self._current: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._not_before = 0.0
        self._listed: list[dict[str, Any]] = []
        self._tools: tuple[Tool, ...] = ()

    @classmethod
    def stdio(
        cls,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        exit_grace_seconds: float = 2.0,
        **options: Unpack[Options],
    ) -> Self:
        """A server that is started as a process, and ended with its whole process group.

        It gets HOME, PATH and the like, and `env`, and nothing else of our environment. `exit_grace_seconds` is how
        long it may take to leave, first when its input was closed, then after SIGTERM.
        """
        server = ServerCommand(command, tuple(args), dict(env or {}), cwd, exit_grace_seconds)
        return cls(lambda log: ServerProcess(server, log), remote=False, default_name=Path(command).name, **options)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: httpx2.Auth | None = None,
        http_timeout_seconds: float = 30.0,
        read_timeout_seconds: float | None = 300.0,
        **options: Unpack[Options],
    ) -> Self:
        """A server at a URL (streamable HTTP).

        `headers` and `auth` go with each request. A response that is silent for `read_timeout_seconds` counts as lost.
        """
        server = ServerUrl(url, dict(headers or {}), auth, http_timeout_seconds, read_timeout_seconds)
        default_name = urlsplit(url).hostname or "http"
        return cls(lambda _: http_transport(server), remote=True, default_name=default_name, **options)

    # --- the toolset ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        current = self._current_here()
        if current is not None and not current.stale:
            return
        if not self._settings.required and asyncio.get_running_loop().time() < self._not_before:
            return
        try:
            await self._renewed()
        except ToolsetError as error:
            if self._settings.required:
                raise
            self._log.warning("the agent works without it: %s", error)

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self._tools

    async def aclose(self) -> None:
        self._current_here()
        opening, self._opening, self._current = self._opening, None, None
        if opening is not None:
            opening.cancel()
        closing = set(self._connections)  # one that was just being opened, too
        await asyncio.gather(*(connection.aclose() for connection in closing))
        self._connections -= closing
        if opening is not None:
            await asyncio.wait({opening})

    def __repr__(self) -> str:
        return f"MCPToolset({self._settings.name!r})"

    # --- connections ------------------------------------------------------------------------------------------------

    def _current_here(self) -> Connection | None:
        """Return the connection if it can be used on this event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed() and self._connections:
                raise ConfigError(f"toolset {self._settings.name}: it is used on another event loop, which still runs")
            self._loop, self._current, self._opening, self._not_before = loop, None, None, 0.0
            self._connections.clear()
        if self._current is not None and not self._current.usable:
            self._current = None
        return self._current

    async def _connection(self) -> Connection:
        """Return a connection for a call, a new one if need be."""
        return self._current_here() or await self._renewed()

    async def _renewed(self) -> Connection:
        """Wait for a connection whose tools are known. All who wait share one attempt, and none can cancel it."""
        opening = self._opening
        if opening is None or opening.done():
            opening = self._opening = asyncio.get_running_loop().create_task(
                self._renew(), name=f"heaveto MCP {self._settings.name} opens", context=Context()
            )
            opening.add_done_callback(_seen)
        await asyncio.wait({opening})
        if opening.cancelled():
            raise ToolsetError(self._settings.name, "it was closed")
        error = opening.exception()
        if isinstance(error, ToolsetError):
            raise type(error)(error.name, error.problem) from error
        return opening.result()

    async def _renew(self) -> Connection:
        """Connect, again if need be, within one time limit: a server that never answers costs it once."""
        loop, failures = asyncio.get_running_loop(), 0
        deadline = loop.time() + self._settings.connect_timeout_seconds
        while True:
            try:
                return await self._attempt(deadline)
            except ToolsetError as error:
                failures += 1
                pause = self._settings.reconnect.pause(failures, error) if error.retryable else None
                if pause is None or not self._settings.required or loop.time() + pause >= deadline:
                    self._not_before = loop.time() + self._settings.reconnect.max_backoff_seconds
                    raise
                self._log.info("another attempt in %g seconds: %s", pause, error)
                await asyncio.sleep(pause)

    async def _attempt(self, deadline: float) -> Connection:
        self._forget_ended()
        connection = self._current_here()
        if connection is None:
            connection = Connection(self._connection_settings(), deadline=deadline)
            self._connections.add(connection)
            await connection.ready()
        self._publish(await connection.list_tools(deadline=deadline))
        self._current = connection
        return connection

    def _forget_ended(self) -> None:
        self._connections = {connection for connection in self._connections if not connection.over}

    def _connection_settings(self) -> ConnectionSettings:
        return ConnectionSettings(
            server=self._settings.name,
            transport=lambda: self._transport(self._log),
            remote=self._remote,
            protocol=self._settings.protocol,
            connect_timeout_seconds=self._settings.connect_timeout_seconds,
            log_level=self._settings.log_level,
            log=self._log,
            on_late=self._came_late,
        )

    # --- tools ------------------------------------------------------------------------------------------------------

    def _publish(self, listed: Sequence[ServerTool]) -> None:
        offered = {tool.name: tool for tool in reversed(listed) if self._settings.wants(tool)}  # of two, the first
        described = [offered[name].model_dump(mode="json", by_alias=True) for name in sorted(offered)]
        if described == self._listed:
            return
        names = provider_names(offered, self._settings.prefix)
        self._listed = described
        self._tools = tuple(self._tool(names[name], offered[name]) for name in sorted(offered))

    def _tool(self, name: str, remote: ServerTool) -> MCPTool:
        return MCPTool(
            name,
            remote,
            self._settings.declared(remote),
            server=self._settings.name,
            connection=self._connection,
            log=self._log,
        )

    def _came_late(self, call: Call, reply: JSONRPCResponse | JSONRPCError) -> None:
        result = read_result(reply)
        if result is None:
            self._log.info("call %s of tool %r ended with an error after its stop", call.call_id, call.tool)
            return
        self._log.warning("call %s of tool %r had a result after its stop", call.call_id, call.tool)
        if self._settings.on_late_reply is not None:
            parts = [part.about if isinstance(part, Attachment) else part for part in parts_of(result)]
            self._settings.on_late_reply(LateReply(call.tool, call.call_id, response_of(result, parts)))


def _seen(task: asyncio.Task[Any]) -> None:
    """Take note of how a task ended, so that asyncio does not complain when all who waited for it have gone."""
    if not task.cancelled():
        task.exception()
