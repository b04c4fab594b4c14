"""Every use of heaveto's public API that these benchmarks make, in one place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes import f

from heaveto import ClientTool, LlmAgent, MemoryStore, Paused, Run, Runner, SqliteStore
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


def waiting_tool() -> Tool:
    """A tool whose call waits until somebody answers it."""
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    return ClientTool("f", "Return x.", schema)


async def start_run(runner: Runner, session: str) -> Run:
    return await runner.start(user_id=USER, session_id=session, new_message="hi")


async def wait_for_question(runner: Runner, session: str) -> tuple[Run, str]:
    """Start a run whose model calls a tool that waits; return it, and the call, when it is paused."""
    run = await start_run(runner, session)
    paused = await run.ending_or_pause()
    if not isinstance(paused, Paused):
        raise RuntimeError(f"the run has ended: {paused}")
    return run, paused.waiting[0].call_id


async def answer(runner: Runner, run: Run, call_id: str) -> None:
    await runner.answer(run.run_id, call_id, {"x": 1})
