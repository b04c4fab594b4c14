"""What the tests of tools that run outside need: a run that listens, and looks at the process table."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heaveto.events.contents import ArtifactInfo, Blob, Json
from heaveto.events.records import Cause, SessionKey
from heaveto.tools.base import Reply, ToolContext
from heaveto.tools.process_table import process_table


class Listener:
    """The run's side of a call: it keeps what is put out, and can be asked to stop."""

    def __init__(self) -> None:
        self.cancelled: Cause | None = None
        self.pieces: list[Json] = []
        self.values: list[Json] = []
        self.changed = asyncio.Event()
        self.hooks: list[Callable[[], None]] = []
        self.artifacts: dict[str, Blob] = {}

    def stop(self, cause: Cause = "user") -> None:
        self.cancelled = cause
        for hook in self.hooks:
            hook()

    async def heard(self, text: str) -> None:
        """Wait until this was put out."""
        while text not in self.text:
            self.changed.clear()
            await self.changed.wait()

    @property
    def text(self) -> str:
        return "".join(map(str, self.pieces))

    def on_cancel(self, hook: Callable[[], None]) -> None:
        if self.cancelled is None:
            self.hooks.append(hook)
        else:
            hook()

    def output(self, piece: Json) -> None:
        self.pieces.append(piece)
        self.changed.set()

    async def progress(self, value: Json) -> None:
        self.values.append(value)

    def progress_from_thread(self, value: Json) -> None:
        self.values.append(value)

    async def ask(self, hint: str, schema: dict[str, Json] | None) -> Reply:
        return Reply(accepted=True, value=hint.upper(), by="ann")

    async def detach(self, response: dict[str, Json] | None) -> None:
        self.values.append(response)

    async def save_artifact(self, name: str, content: Blob) -> int:
        self.artifacts[name] = content
        return 0

    async def load_artifact(self, name: str, version: int | None) -> Blob | None:
        return self.artifacts.get(name)

    async def list_artifacts(self) -> list[ArtifactInfo]:
        return []

    async def cancel_run(self, by: str, reason: str) -> None:
        self.values.append([by, reason])

    async def run_agent(self, agent: Any, task: str) -> str:
        raise AssertionError

    async def run_in_background(self, agent: Any, task: str) -> None:
        raise AssertionError


def context(host: Listener, **state: Json) -> ToolContext:
    return ToolContext(
        host=host,
        call_id="c1",
        idempotency_key="r1:c1",
        attempt=2,
        state=state,
        agent="clerk",
        branch="b",
        run_id="r1",
        session=SessionKey("app", "ann", "s1"),
        last_progress={"row": 7},
    )


def living_with(text: str) -> list[str]:
    """Return the names of the living processes that were started with this text in their environment."""
    names: list[str] = []
    for process in process_table().values():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if text.encode() in environment and not process.is_dead and process.pid != os.getpid():
            names.append(process.name)
    return names


def zombies() -> list[int]:
    return [row.pid for row in process_table().values() if row.is_dead and row.parent == os.getpid()]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def cancel_again_and_again(task: asyncio.Task[Any]) -> None:
    """Cancel a task each time that the loop turns, until it has ended."""
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
