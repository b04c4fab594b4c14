"""A server that answers with given bytes and sees when its clients go away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

Step: TypeAlias = bytes | Literal["hang", "break"]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def events(*bodies: object) -> list[Step]:
    """A whole stream of these events."""
    return [HEAD, *(event(body) for body in bodies), b"0\r\n\r\n"]


def event(body: object) -> bytes:
    """One event, as one chunk."""
    return chunk(b"data: " + msgspec.json.encode(body) + b"\r\n\r\n")


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def whole(body: object, *, status: int = 200, headers: str = "") -> list[Step]:
    """A whole answer in JSON."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return [f"HTTP/1.1 {status} X\r\n{headers}content-length: {len(content)}\r\n\r\n".encode() + content]


class RawServer:
    """Plays one answer for each request. An answer that hangs ends when the client goes away; `closed` notes when."""

    def __init__(self, *answers: Sequence[Step]) -> None:
        self._answers = list(answers)
        self.requests: list[Request] = []
        self.closed: asyncio.Queue[float] = asyncio.Queue()
        self.arrived = asyncio.Event()
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Request(head[0].split()[1], headers, msgspec.json.decode(body)))
        self.arrived.set()
        for step in self._answers.pop(0):
            if step == "hang":
                assert await reader.read(1) == b""
                self.closed.put_nowait(time.monotonic())
                return False
            if step == "break":
                writer.transport.abort()
                return False
            assert isinstance(step, bytes)
            writer.write(step)
            await writer.drain()
        return True
