"""A server that is a process of ours: its pipes as a transport of the SDK, its stderr in the log, its group ended.

The SDK's own stdio transport ends the group only if the server does not leave by itself, and inherits our stderr.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_LONGEST_MESSAGE = 64 * 1024 * 1024
_LONGEST_LOG_LINE = 8192
_REAP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How a server is started, and how long it may take to leave after its input was closed, and after SIGTERM."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | Path | None = None
    exit_grace_seconds: float = 2.0


class Lines:
    """Bytes as they come in, lines as they are complete. A line longer than `longest` raises `ValueError`."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, without their ends."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > self._longest:
            self._rest.clear()
            raise ValueError(f"a line is longer than {self._longest} bytes")
        return lines

    def rest(self) -> bytes:
        """Return what came after the last line end."""
        return bytes(self._rest)


class _Pipes(asyncio.SubprocessProtocol):
    """The three pipes of a server. Its callbacks run on the event loop's thread."""

    def __init__(self, incoming: MemoryObjectSendStream[SessionMessage | Exception], log: logging.Logger) -> None:
        self._incoming, self._log = incoming, log
        self._messages, self._errors = Lines(_LONGEST_MESSAGE), Lines(_LONGEST_LOG_LINE)
        self._writable = asyncio.Event()
        self._writable.set()
        self.broken = False
        self.exited, self.closed = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDOUT:
            self._take_messages(data)
        else:
            self._take_errors(data)

    def _take_messages(self, data: bytes) -> None:
        try:
            for line in self._messages.feed(data):
                if line.strip():
                    self._incoming.send_nowait(self._parsed(line))
        except ValueError as error:
            self._log.error("the server is given up: %s", error)
            self._incoming.close()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # nobody reads any more: it goes on until the pipe is closed, so that the server can write and leave

    def _parsed(self, line: bytes) -> SessionMessage | Exception:
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            self._log.warning("the server wrote something that is no message to its stdout: %.200r", line)
            return error

    def _take_errors(self, data: bytes) -> None:
        try:
            lines = self._errors.feed(data)
        except ValueError:
            lines = [b"(a very long line)"]
        for line in lines:
            self._log.info("stderr: %s", line.decode("utf-8", "replace").rstrip())

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _STDIN:
            self.broken = True
            self._writable.set()
        elif fd == _STDOUT:
            self._incoming.close()
        elif rest := self._errors.rest():
            self._log.info("stderr: %s", rest.decode("utf-8", "replace").rstrip())

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    async def drained(self) -> None:
        """Wait until the server takes more."""
        await self._writable.wait()


class _Outgoing:
    """The server's stdin as the stream that the SDK writes to."""

    def __init__(self, stdin: asyncio.WriteTransport, pipes: _Pipes) -> None:
        self._stdin, self._pipes = stdin, pipes

    async def send(self, item: SessionMessage, /) -> None:
        if self._pipes.broken or self._stdin.is_closing():
            raise anyio.BrokenResourceError
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._stdin.write(text.encode() + b"\n")
        await self._pipes.drained()

    async def aclose(self) -> None:
        """Leave stdin open: the transport closes it, when everything is written."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self.aclose()
        return None


_Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]


class ServerProcess(AbstractAsyncContextManager[tuple[_Incoming, _Outgoing]]):
    """A running server. Leaving closes its input, waits, then ends what is left of its process group.

    Cancelled while it waits, it kills the group at once. Should this process die, the server sees the end of its input.
    """

    def __init__(self, command: ServerCommand, log: logging.Logger) -> None:
        self._command, self._log = command, log

    async def __aenter__(self) -> tuple[_Incoming, _Outgoing]:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        outlet, self._inlet = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
        try:
            transport, self._pipes = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Pipes(outlet, self._log),
                self._command.command,
                *self._command.args,
                env={**get_default_environment(), **self._command.env},
                cwd=self._command.cwd,
                start_new_session=True,
            )
        except BaseException:
            outlet.close()
            self._inlet.close()
            raise
        self._outlet, self._transport = outlet, transport
        self._stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(_STDIN))
        return self._inlet, _Outgoing(self._stdin, self._pipes)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inlet.close()
        self._outlet.close()
        self._stdin.close()
        try:
            await self._leave()
        finally:
            self._end_group(at_once=True)  # what the server started and left behind, too
            self._transport.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_REAP_SECONDS):
                await self._pipes.exited.wait()
                await self._pipes.closed.wait()

    async def _leave(self) -> None:
        """Wait until the server has left by itself, or on SIGTERM."""
        if await self._has_exited():
            return
        self._end_group(at_once=False)
        await self._has_exited()

    async def _has_exited(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._command.exit_grace_seconds):
                await self._pipes.exited.wait()
        return self._pipes.exited.is_set()

    def _end_group(self, *, at_once: bool) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self._transport.get_pid(), signal.SIGKILL if at_once else signal.SIGTERM)
            elif not self._pipes.exited.is_set():
                self._transport.kill()  # elsewhere there is no group to reach
