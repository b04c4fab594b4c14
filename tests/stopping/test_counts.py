"""A thousand runs that are started and stopped leave nothing: tasks, threads, processes, files are as before (F135)."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stopping.play import descendants, tool_threads, until_gone

from heaveto import LlmAgent, MemoryStore, RunConfig, Runner, SqliteStore, ToolContext
from heaveto.core.request import ModelRequest
from heaveto.errors import RunCancelled
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, hang, settle
from heaveto.tools.command import run_command
from heaveto.tools.function import FunctionTool
from heaveto.tools.process.pool import end_idle_workers

pytestmark = pytest.mark.usefixtures("swept")

CONFIG = RunConfig(cancel_grace_seconds=20)
WARM_UP = 5


class Bell:
    """Rung by a tool when it has begun, from any thread."""

    def __init__(self) -> None:
        self._event, self._loop = asyncio.Event(), asyncio.get_running_loop()

    def ring(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)

    async def rung(self) -> None:
        await self._event.wait()
        self._event.clear()


def coroutine(bell: Bell) -> FunctionTool:
    async def work() -> None:
        bell.ring()
        await asyncio.Event().wait()

    return FunctionTool(work)


def thread(bell: Bell) -> FunctionTool:
    def work(ctx: ToolContext) -> None:
        told = threading.Event()
        ctx.on_cancel(told.set)
        bell.ring()
        assert told.wait(20)
        ctx.raise_if_cancelled()

    return FunctionTool(work)


def question(bell: Bell) -> FunctionTool:
    async def work(ctx: ToolContext) -> None:
        bell.ring()
        await ctx.ask("Well?")

    return FunctionTool(work)


def background(bell: Bell) -> FunctionTool:
    async def work(ctx: ToolContext) -> None:
        await ctx.detach()
        bell.ring()
        await asyncio.Event().wait()

    return FunctionTool(work)


def command(bell: Bell) -> FunctionTool:
    async def work(ctx: ToolContext) -> None:
        starting = asyncio.ensure_future(run_command(["sleep", "3600"], ctx=ctx))
        bell.ring()
        try:
            await starting
        except BaseException:
            starting.cancel()
            await asyncio.wait({starting})
            raise

    return FunctionTool(work)


def model() -> ScriptedModel:
    """Calls the tool, and is asked no more of that run."""

    def brain(request: ModelRequest) -> Any:
        return hang() if request.turns[-1].role == "tool" else call("work")

    return ScriptedModel(brain, strict=False, check=False, keep_requests=False)


Make = Callable[[Bell], FunctionTool]


def counts() -> dict[str, int]:
    """What this process has of everything that a run could leave."""
    gc.collect()
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "processes": len(descendants()),
        "files": len(os.listdir("/proc/self/fd")),
    }


async def start_and_stop(runner: Runner, bell: Bell, times: int, *, sessions: int) -> None:
    for number in range(times):
        run = await runner.start(user_id="ann", session_id=str(number % sessions), new_message="go", run_config=CONFIG)
        await bell.rung()
        report = await run.cancel(by="ann")
        assert [(one.kind, one.state) for one in report.operations if one.kind == "tool"] == [("tool", "stopped")]


async def leaves_nothing(store: Store, make: Make, times: int, *, sessions: int = 1000) -> None:
    """Start and stop runs on one runner, and compare what is there behind the first few and behind the last."""
    bell = Bell()
    scripted = model()
    before_all = counts()
    async with Runner(LlmAgent("a", scripted, tools=[make(bell)]), store=store) as runner:
        await start_and_stop(runner, bell, WARM_UP, sessions=sessions)
        await until_gone(tool_threads)
        before = counts()
        await start_and_stop(runner, bell, times, sessions=sessions)
        await until_gone(lambda: tool_threads() or len(asyncio.all_tasks()) > before["tasks"])
        assert counts() == before
        assert scripted.active == 0
    end_idle_workers()
    await asyncio.sleep(0)
    assert counts() == before_all


@pytest.mark.slow
@pytest.mark.parametrize("make", [coroutine, thread, question, background])
async def test_a_thousand_stops_in_memory(make: Make) -> None:
    """Whatever kind of tool it is that is stopped."""
    await leaves_nothing(MemoryStore(), make, 1000)


@pytest.mark.slow
async def test_a_thousand_stops_on_a_file(tmp_path: Path) -> None:
    """The store's connections, threads and locks included."""
    await leaves_nothing(SqliteStore(tmp_path / "heaveto.db"), coroutine, 1000)


async def test_a_hundred_stops_of_one_session() -> None:
    """A session that is used again and again, and its one lane."""
    await leaves_nothing(MemoryStore(), coroutine, 100, sessions=1)


async def test_fifty_stops_of_commands() -> None:
    """Pipes and processes are given back as well (F46)."""
    await leaves_nothing(MemoryStore(), command, 50)


async def test_what_a_stopped_run_held_is_freed() -> None:
    """The objects of stopped runs do not pile up: only their log does, in a store in memory."""
    bell = Bell()
    kept: dict[str, int] = {}
    async with Runner(LlmAgent("a", model(), tools=[coroutine(bell)])) as runner:
        for times in (WARM_UP, 100):
            await start_and_stop(runner, bell, times, sessions=1)
            gc.collect()
            live = [type(thing).__name__ for thing in gc.get_objects() if _belongs_to_a_run(thing)]
            kept[str(times)] = len(live)
    assert kept["100"] <= kept[str(WARM_UP)]


def _belongs_to_a_run(thing: Any) -> bool:
    module = type(thing).__module__
    return module in (
        "heaveto.runner.run.calls.open_call",
        "heaveto.runner.run.calls.operation",
        "heaveto.runner.run.calls.attempt",
        "heaveto.runner.run.host",
        "heaveto.tools.base",
    )


async def test_run_cancelled_is_not_kept_by_a_stopped_run() -> None:
    """The signal that travels through a tool's code, with its traceback and frames, ends with it."""
    bell = Bell()
    async with Runner(LlmAgent("a", model(), tools=[thread(bell)])) as runner:
        await start_and_stop(runner, bell, 20, sessions=20)
        await until_gone(tool_threads)
        await settle()
        gc.collect()
        assert [thing for thing in gc.get_objects() if isinstance(thing, RunCancelled)] == []
