"""A thousand calls that are started and stopped leave nothing behind: no task, thread, file or place (F135)."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.runner.desk import SESSION, USER, Desk, Held, HeldThread

from heaveto import RunConfig, ToolContext
from heaveto.events.records import SessionKey
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, say, settle
from heaveto.tools.function import FunctionTool
from heaveto.tools.retry import Retry

pytestmark = pytest.mark.usefixtures("swept")

MakeDesk = Callable[..., Desk]
SHORT = RunConfig(cancel_grace_seconds=0.5)
ROUNDS, WIDTH = 50, 20
"""Runs, and calls of each: a thousand of them in all."""


def counts(at: Desk) -> dict[str, int]:
    """What there is now, of all that a call may leave behind."""
    gc.collect()
    services = at.runner._services  # pyright: ignore[reportPrivateUsage]
    lane = at.runner._lanes.at(SessionKey("desk", USER, SESSION))  # pyright: ignore[reportPrivateUsage]
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": sum(thread.name.startswith("heaveto tool") for thread in threading.enumerate()),
        "files": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        "background calls": len(services.background_calls),
        "background tasks": len(services.background),
        "places": len(at.runner.concurrency()),
        "watchers": len(lane.log._watchers),  # pyright: ignore[reportPrivateUsage]
    }


class Waiting:
    """A coroutine tool that waits for ever, and knows when all calls of a step have begun."""

    def __init__(self) -> None:
        self.count, self.all_began = 0, asyncio.Event()

    async def __call__(self, ctx: ToolContext) -> str:
        """Wait."""
        self.began()
        await asyncio.Event().wait()
        return "never"

    def began(self) -> None:
        self.count += 1
        if self.count % WIDTH == 0:
            self.all_began.set()


class WaitingThread(Waiting):
    """The same as a blocking function that looks for its stop."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()

    def __call__(self, ctx: ToolContext) -> str:  # type: ignore[override]
        """Wait."""
        stop = threading.Event()
        ctx.on_cancel(stop.set)
        self._loop.call_soon_threadsafe(self.began)
        assert stop.wait(20)
        ctx.raise_if_cancelled()
        return "never"


class Retrying(Waiting):
    """The same as a tool that fails, and waits for its next attempt."""

    async def __call__(self, ctx: ToolContext) -> str:
        """Fail."""
        self.began()
        raise ConnectionError("not now")


class Detached(Waiting):
    """The same in the background."""

    async def __call__(self, ctx: ToolContext) -> str:
        """Wait."""
        await ctx.detach()
        return await super().__call__(ctx)


KINDS: dict[str, tuple[type[Waiting], dict[str, Any]]] = {
    "coroutine": (Waiting, {}),
    "thread": (WaitingThread, {}),
    "retrying": (Retrying, {"replay": "safe", "retry": Retry(3, 60, 60)}),
    "detached": (Detached, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["run", "calls"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_thousand_stopped_calls_leave_nothing(desk: MakeDesk, kind: str, whom: str) -> None:
    """However they were stopped, all counts are where they were after the first step."""
    make, options = KINDS[kind]
    waiting = make()
    tool = FunctionTool(waiting, name="work", max_concurrency=WIDTH, **options)
    mode = RunConfig(cancel_grace_seconds=0.5, tool_execution_mode="PARALLEL_SUBSCRIBE")

    def answer(request: Any) -> Any:
        return tuple(call("work") for _ in range(WIDTH)) if request.turns[-1].role == "user" else say("ok")

    at = desk(model=ScriptedModel(answer, strict=False), tools=[tool])
    before: dict[str, int] = {}
    for number in range(ROUNDS + 1):
        waiting.all_began.clear()
        run = await at.start("go", mode)
        await waiting.all_began.wait()
        if whom == "run":
            await run.cancel()
        else:
            calls = [known.call.call_id for known in run.state.calls.values() if known.run_id == run.run_id]
            await asyncio.gather(*(at.runner.cancel_call(run.run_id, call_id) for call_id in calls))
            await run.wait()
        if number == 0:
            await settle()
            before = counts(at)
    await settle()
    after = counts(at)
    assert waiting.count == (ROUNDS + 1) * WIDTH
    assert {name: after[name] - before[name] for name in after if after[name] > before[name]} == {}


async def test_calls_that_are_left_behind_leave_nothing_once_they_have_ended(desk: MakeDesk, store: Store) -> None:
    """A deaf thread and a coroutine that swallows everything, let go after their run: all counts are as before."""
    threads = [HeldThread() for _ in range(5)]
    stubborn = [Held(swallow=10**9) for _ in range(5)]
    held = [*threads, *stubborn]
    tools = [one.tool(f"work{number}", timeout_seconds=0.02) for number, one in enumerate(held)]
    model = ScriptedModel(say("warm"), tuple(call(tool.name) for tool in tools), say("ok"))
    at = desk(model=model, store=store, tools=tools)
    config = RunConfig(cancel_grace_seconds=0.02, tool_execution_mode="PARALLEL_SUBSCRIBE")
    await at.ask("warm up", config)
    await asyncio.to_thread(int)  # the thread that this takes is not the calls'
    await settle()
    before = counts(at)
    ended = await at.ask("go", config)
    assert ended.report is not None
    assert len(ended.report.still_running) == 10
    for one in held:
        one.may_end.set()
    for tool in tools:
        await at.until_settled(tool.name, late=True)
    for thread in threading.enumerate():
        if thread.name.startswith("heaveto tool"):
            await asyncio.to_thread(thread.join, 10)
    await settle()
    after = counts(at)
    assert {name: after[name] - before[name] for name in after if after[name] > before[name]} == {}
