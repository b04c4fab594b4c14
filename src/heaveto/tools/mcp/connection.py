"""A connection to a server: one task owns it, enters and leaves all that belongs to it, and ends it (F132)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, Final, Literal, TypeAlias

from mcp import Client
from mcp.client import ClientRequestContext, ClientSession, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    JSONRPCError,
    JSONRPCResponse,
    LoggingLevel,
    LoggingMessageNotificationParams,
    ToolListChangedNotification,
)
from mcp_types import Tool as ServerTool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from heaveto.errors import ToolsetError
from heaveto.events.contents import Json
from heaveto.tools.mcp.call import CURRENT, Call, Caller
from heaveto.tools.mcp.exchange import exchange, put
from heaveto.tools.mcp.failures import connect_failure, leaves, needs_new_connection, summary
from heaveto.tools.mcp.listing import all_tools, listen_for_changes
from heaveto.tools.mcp.tap import CallTable, Tap

Protocol: TypeAlias = Literal["auto", "legacy"]

_END_CALLS_SECONDS = 1.0
_CLOSE_SECONDS = 15.0
_MAY_STILL_ASK_SECONDS = 5.0
"""For so long after its stop a question may belong to a call that the server has not given up yet."""
_SEVERITY: Final[dict[LoggingLevel, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """What a connection is made with.

    Attributes:
        server: its name, in errors and in the log.
        transport: gives new streams to the server each time.
        remote: whether it is reached over HTTP, where an answer may be lost and the connection seem alive.
        protocol: ``auto``, or ``legacy`` to begin with the handshake of versions before 2026.
        connect_timeout_seconds: how long connecting, and listing the tools, may take with all its attempts.
        log_level: from which severity on the server is asked to send log messages; None for none.
        on_late: told of a real result that comes when its call was given up.
    """

    server: str
    transport: Callable[[], AbstractAsyncContextManager[Any]]
    remote: bool
    protocol: Protocol
    connect_timeout_seconds: float
    log_level: LoggingLevel | None
    log: logging.Logger
    on_late: Callable[[Call, JSONRPCResponse | JSONRPCError], None]


class Connection:
    """One connection, shared by all calls. Its owner is nobody's child, and sees no context variable of who opened it.

    Attributes:
        stale: whether the server said that its tools have changed since they were listed.
    """

    def __init__(self, settings: ConnectionSettings, *, deadline: float) -> None:
        """Begin to connect. `deadline` is the loop time at which that is given up."""
        self._settings, self._log, self._deadline = settings, settings.log, deadline
        self.stale = True
        self._client: Client | None = None
        self._problem: ToolsetError | None = None
        self._settled, self._wake = asyncio.Event(), asyncio.Event()
        self._closing = self._retired = self._ended = False
        self._calls: set[Call] = set()
        self._table = CallTable()
        self._owner = asyncio.get_running_loop().create_task(
            self._own(), name=f"heaveto MCP {settings.server}", context=Context()
        )

    # --- for everyone -----------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether new calls may be made on it."""
        return self._client is not None and not (self._closing or self._retired or self._ended)

    @property
    def over(self) -> bool:
        """Whether all that belonged to it has ended."""
        return self._owner.done()

    async def ready(self) -> None:
        """Wait until it can be used. Cancelling the caller ends its wait and nothing else.

        Raises:
            ToolsetError: it did not come about.
        """
        await self._settled.wait()
        if self._client is None:
            raise self._problem or ToolsetError(self._settings.server, "it was closed")

    async def list_tools(self, *, deadline: float) -> list[ServerTool]:
        """Return all tools of the server, from as many pages as there are, before a loop time.

        Raises:
            ToolsetError: it did not tell them.
        """
        self.stale = False  # first, so that a change that is told meanwhile is not lost
        try:
            async with asyncio.timeout_at(deadline):
                return await all_tools(self._session, self._settings.server)
        except TimeoutError:
            problem = f"its tools were not listed within {self._settings.connect_timeout_seconds:g} seconds"
        except (MCPError, ValidationError) as error:
            problem = f"its tools cannot be listed: {summary(error)}"
            if needs_new_connection(error):
                self.retire()
        self.stale = True
        raise ToolsetError(self._settings.server, problem)

    def begin(self, tool: str, args: dict[str, Json], call_id: str, caller: Caller) -> Call:
        """Start a call. It goes on when its caller is cancelled, until it is stopped."""
        call = Call(tool, call_id, caller)
        context = copy_context()
        context.run(CURRENT.set, call)
        call.task = asyncio.get_running_loop().create_task(exchange(self._session, call, args), context=context)
        self._calls.add(call)
        call.task.add_done_callback(partial(self._call_ended, call))
        return call

    def give_up(self, call: Call) -> None:
        """Have the server told to stop a call. Returns at once; the message is under way whatever its caller does."""
        call.give_up(asyncio.get_running_loop().time())

    async def last_result(self, call: Call, wait_seconds: float) -> CallToolResult | None:
        """Return the real result of a call that was given up, if it is there or comes within the time.

        One that comes later, or after the wait was cancelled, is told to `on_late`.
        """
        result: CallToolResult | None = None
        try:
            if self._may_answer_late:
                await asyncio.wait({call.reply}, timeout=wait_seconds)
            result = call.result()
        finally:
            if result is None:
                call.reply.add_done_callback(partial(self._came_late, call))
        return result

    def may_answer(self, call: Call) -> bool:
        """Whether a call that was given up has no answer, and one may still come."""
        return self._may_answer_late and call.sent and not call.reply.done()

    def has_lost(self, call: Call) -> bool:
        """Whether a call that failed got no answer of its server, or over HTTP perhaps one that only stands for it."""
        return self._settings.remote or not call.reply.done()

    def retire(self) -> None:
        """Take no new calls, and end with the last one that is on its way."""
        self._retired = True
        self._wake.set()

    async def aclose(self) -> None:
        """End it: calls on their way are stopped, the server's process too. Idempotent, from any task, bounded."""
        self._closing = True
        self._wake.set()
        if not self._settled.is_set():
            self._owner.cancel()
        done, _ = await asyncio.wait({self._owner}, timeout=_CLOSE_SECONDS)
        if not done:
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=_CLOSE_SECONDS)

    # --- the owner --------------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        seconds = self._settings.connect_timeout_seconds
        try:
            async with asyncio.timeout_at(self._deadline) as limit, self._new_client() as client:
                limit.reschedule(None)
                await self._serve(client)
        except TimeoutError:
            self._problem = ToolsetError(self._settings.server, f"no connection within {seconds:g} seconds")
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - whatever the SDK's tasks ended with is told here
            self._fail(error)
        finally:
            self._ended = True
            self._settled.set()
            self._table.clear()
            await self._end_calls()

    def _new_client(self) -> Client:
        return Client(
            Tap(self._settings.transport(), self._table, self._stream_ended),
            elicitation_callback=self._elicit,
            logging_callback=self._logged,
            log_level=self._settings.log_level,
            message_handler=self._told,
            client_info=Implementation(name="heaveto", version=version("heaveto")),
            mode=self._settings.protocol,
            cache=None,
        )

    @property
    def _session(self) -> ClientSession:
        assert self._client is not None
        return self._client.session

    async def _serve(self, client: Client) -> None:
        self._client = client
        self._settled.set()
        listener = asyncio.create_task(listen_for_changes(client, self._tools_changed))
        try:
            while not (self._closing or self._ended or (self._retired and not self._calls)):
                self._wake.clear()
                await self._wake.wait()
            await self._end_calls()
        finally:
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener

    def _fail(self, error: BaseException) -> None:
        if any(not isinstance(leaf, Exception | asyncio.CancelledError) for leaf in leaves(error)):
            raise error  # a signal for the whole program
        if self._client is None:
            self._problem = connect_failure(self._settings.server, error)
        else:
            self._log.warning("the connection was lost: %s", summary(next(leaves(error))))

    async def _end_calls(self) -> None:
        """Stop what is on its way, so that the server hears of it while it can."""
        tasks = {call.task for call in self._calls}
        if tasks and self._ended:
            _, tasks = await asyncio.wait(tasks, timeout=_END_CALLS_SECONDS)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_CALLS_SECONDS)

    def _stream_ended(self) -> None:
        if not self._closing and not self._retired:
            self._log.warning("the server ended the connection")
        self._ended = True
        self._wake.set()

    def _call_ended(self, call: Call, task: asyncio.Task[CallToolResult]) -> None:
        self._calls.discard(call)
        self._wake.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and needs_new_connection(error) and self.has_lost(call):
            self.retire()

    # --- calls ------------------------------------------------------------------------------------------------------

    def _came_late(self, call: Call, reply: asyncio.Future[JSONRPCResponse | JSONRPCError]) -> None:
        if not reply.cancelled():
            self._settings.on_late(call, reply.result())

    @property
    def _may_answer_late(self) -> bool:
        """Not where a stop closes the way on which the answer would come."""
        client = self._client
        modern = client is not None and client.protocol_version in MODERN_PROTOCOL_VERSIONS
        return not (self._ended or (self._settings.remote and modern))

    # --- what the server asks and tells -----------------------------------------------------------------------------

    async def _elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        call = self._asking()
        if call is None:
            self._log.warning("a question of the server was declined: it is not known which call it belongs to")
            return ElicitResult(action="decline")
        return await put(call, params)

    def _asking(self) -> Call | None:
        """Return the call that a question belongs to: told by the transport, or the only one that there is."""
        call = CURRENT.get()
        if call is not None:
            return call
        horizon = asyncio.get_running_loop().time() - _MAY_STILL_ASK_SECONDS
        asking = [call for call in self._table.calls() if call.stopped_at is None or call.stopped_at > horizon]
        return asking[0] if len(asking) == 1 else None

    async def _logged(self, params: LoggingMessageNotificationParams) -> None:
        logger = f"{params.logger}: " if params.logger else ""
        self._log.log(_SEVERITY[params.level], "%s%s", logger, params.data)

    async def _told(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._tools_changed()

    def _tools_changed(self) -> None:
        self.stale = True
