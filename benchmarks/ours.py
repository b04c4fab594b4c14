"""Every use of heaveto's public API that these benchmarks make, in one place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes import f

from heaveto import LlmAgent, MemoryStore, Runner, SqliteStore
from heaveto.events.records import Delta, Record, SessionKey
from heaveto.models.base import Model
from heaveto.stores.base import Store
from heaveto.tools.base import Tool
from heaveto.tools.toolset import Toolset

APP, USER = "bench", "u"


def make_store(name: str, directory: str) -> Store:
    return MemoryStore() if name == "memory" else SqliteStore(Path(directory) / "heaveto.db")


@asynccontextmanager
async def open_runner(model: Model, store: Store) -> AsyncIterator[Runner]:
    """A runner for one agent with one tool; closing it closes the store."""
    async with open_runner_for(f, model, store) as runner:
        yield runner


@asynccontextmanager
async def open_runner_for(
    tool: Tool | Toolset | Callable[..., Any], model: Model, store: Store
) -> AsyncIterator[Runner]:
    """The same for a tool of one's own."""
    async with Runner(agent=LlmAgent(name="a", model=model, tools=[tool]), app_name=APP, store=store) as runner:
        yield runner


async def take_turn(runner: Runner, session: str) -> None:
    """Run one message to its end, reading everything."""
    async for _ in runner.run_async(user_id=USER, session_id=session, new_message="hi"):
        pass


async def count_records(store: Store, session: str) -> int:
    return len(await store.read(SessionKey(APP, USER, session)))


def is_delta(item: Record | Delta) -> bool:
    """Whether a streamed item is text in the making, not a record of the log."""
    return isinstance(item, Delta)
