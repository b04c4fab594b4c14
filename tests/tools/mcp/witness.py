"""What a server of a test tells about itself, over a loopback connection: no files to watch, no time to guess."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from heaveto.events.contents import Blob, Json
from heaveto.events.records import Cause, SessionKey
from heaveto.tools.base import ArtifactInfo, Reply, ToolContext


class Witness:
    """Hears what servers tell: one JSON object a line."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self._news = asyncio.Condition()
        self._servers = 0

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._hear, "127.0.0.1", 0, limit=2**24)
        return int(self._server.sockets[0].getsockname()[1])

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._servers += 1
        try:
            while line := await reader.readline():
                self.heard.append(json.loads(line))
                await self._tell()
        except ConnectionError:
            pass
        finally:
            writer.close()
            self._servers -= 1
            await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a message."""
        async with self._news:
            await self._news.wait_for(lambda: any(map(wanted, self.heard)))
        return next(filter(wanted, self.heard))

    async def called(self, tool: str) -> dict[str, Any]:
        """Wait until a tool was called."""
        return await self.until(lambda message: message.get("params", {}).get("name") == tool)

    async def got(self, method: str) -> dict[str, Any]:
        """Wait for a message of a method."""
        return await self.until(lambda message: message.get("method") == method)

    def count(self, method: str) -> int:
        return sum(message.get("method") == method for message in self.heard)

    async def gone(self) -> None:
        """Wait until no server is there any more."""
        async with self._news:
            await self._news.wait_for(lambda: self._servers == 0)

    async def aclose(self) -> None:
        self._server.close()
        await self.gone()
        await self._server.wait_closed()


class Host:
    """A run that a call works for, as far as a call can see."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.recorded: list[Json] = []
        self.put_out: list[Json] = []
        self.artifacts: dict[str, Blob] = {}
        self.asked: list[tuple[str, dict[str, Json] | None]] = []
        self.asking = asyncio.Event()
        self.unanswered = 0

    @property
    def cancelled(self) -> Cause | None:
        return None

    def on_cancel(self, hook: Callable[[], None]) -> None:
        raise NotImplementedError

    async def progress(self, value: Json) -> None:
        self.recorded.append(value)

    def progress_from_thread(self, value: Json) -> None:
        raise NotImplementedError

    def output(self, piece: Json) -> None:
        self.put_out.append(piece)

    async def ask(self, hint: str, schema: dict[str, Json] | None) -> Reply:
        self.asked.append((hint, schema))
        self.asking.set()
        if self.replies:
            return self.replies.pop(0)
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            self.unanswered += 1

    async def save_artifact(self, name: str, content: Blob) -> int:
        self.artifacts[name] = content
        return 0

    async def load_artifact(self, name: str, version: int | None) -> Blob | None:
        raise NotImplementedError

    async def list_artifacts(self) -> list[ArtifactInfo]:
        raise NotImplementedError

    async def cancel_run(self, by: str, reason: str) -> None:
        raise NotImplementedError

    async def run_agent(self, agent: Any, task: str) -> str:
        raise NotImplementedError

    def context(self, call_id: str = "call-1") -> ToolContext:
        return ToolContext(
            host=self,
            call_id=call_id,
            idempotency_key=f"run:{call_id}",
            attempt=1,
            state={},
            agent="agent",
            branch="",
            run_id="run",
            session=SessionKey("app", "ann", "s"),
        )
