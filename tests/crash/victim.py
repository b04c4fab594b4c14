"""A process to be killed: it carries one run on a SQLite file, and tells what its reader sees."""

from __future__ import annotations

import asyncio
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from heaveto import App, LlmAgent, Runner, ToolContext
from heaveto.core.request import ModelRequest
from heaveto.events.contents import text_of
from heaveto.events.records import SessionKey
from heaveto.runner.application.config import OnCrash
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing import ScriptedModel, call, delay, say, usage

HERE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("victim", "u", "s")
GO, NEXT = "go ahead", "and the next thing?"
SENTENCE = "The quick brown fox jumps over the lazy dog. " * 4
TTL_SECONDS = 0.4


def make_tools(effects: Path) -> list[Any]:
    def leave_mark(ctx: ToolContext) -> None:
        with effects.open("a") as file:
            file.write(f"{ctx.call_id}\n")
            file.flush()
            os.fsync(file.fileno())

    async def mark(ctx: ToolContext) -> str:
        """Leave a mark that outlives the process."""
        leave_mark(ctx)
        await asyncio.sleep(0.1)
        return "marked"

    def mark_slowly(ctx: ToolContext) -> str:
        """Leave a mark, in a thread."""
        leave_mark(ctx)
        time.sleep(0.15)
        return "marked slowly"

    return [mark, mark_slowly]


def brain(request: ModelRequest) -> Any:
    """Talk and call in turns; afterwards, in whatever process, just answer."""
    last, spent = request.turns[-1], usage(10, 5)
    if last.role == "user":
        if NEXT in text_of(last.parts):
            return (say("fine"), spent)
        return (*_slowly(6), call("mark"), call("mark"), call("mark_slowly"), spent)
    rounds = sum(turn.role == "tool" for turn in request.turns)
    if rounds == 1:
        return (*_slowly(60), call("mark"), spent)
    return (*_slowly(8), spent)


def _slowly(pieces: int) -> list[Any]:
    return [piece for _ in range(pieces) for piece in (say(SENTENCE), delay(0.015))]


def make_runner(place: Path, on_crash: OnCrash = "resume") -> Runner:
    store = SqliteStore(place / "store.db", ttl_seconds=TTL_SECONDS)
    agent = LlmAgent("worker", ScriptedModel(brain, strict=False), tools=make_tools(place / "effects"))
    return Runner(app=App(KEY.app, agent, on_crash=on_crash), store=store)


def carry_a_run(place: Path, pipe: Connection) -> None:
    """Carry one run; send each item that its reader gets, and the ending of the run as this process knows it."""
    asyncio.run(_carry(make_runner(place), pipe))


async def _carry(runner: Runner, pipe: Connection) -> None:
    async with runner:
        await runner.store.get_session(KEY)
        pipe.send("ready")
        run = await runner.start(new_message=GO, **HERE)
        async for item in run.stream():
            pipe.send((time.monotonic(), item))
        pipe.send((await run.wait()).outcome)
