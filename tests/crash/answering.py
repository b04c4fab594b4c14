"""A process that answers, or stops, many waiting calls at once with another one: `race` is its work."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from heaveto import App, FunctionTool, LlmAgent, Runner, ToolContext
from heaveto.core.request import ModelRequest
from heaveto.errors import AnswerConflictError, AnswerError, UnknownCallError
from heaveto.events.records import SessionKey
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing import ScriptedModel, call, say

HERE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("answering", "u", "s")


def make_runner(place: Path, calls: int) -> Runner:
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        with (place / "effects").open("a") as file:
            file.write(f"{ctx.call_id}\n")
        return "paid"

    def brain(request: ModelRequest) -> Any:
        return say("done") if request.turns[-1].role == "tool" else [call("pay") for _ in range(calls)]

    agent = LlmAgent("clerk", ScriptedModel(brain, strict=False), tools=[FunctionTool(pay, require_confirmation=True)])
    return Runner(app=App(KEY.app, agent), store=SqliteStore(place / "store.db"))


def race(place: Path, pipe: Connection, name: str, stops: bool) -> None:
    """Wait for each call's turn, and answer it by this name, or stop it; say what counts."""
    asyncio.run(_race(place, pipe, name, stops))


async def _race(place: Path, pipe: Connection, name: str, stops: bool) -> None:
    async with make_runner(place, 1) as runner:
        await runner.questions(**HERE)
        pipe.send("ready")
        run_id, call_ids = pipe.recv()
        for call_id in call_ids:
            pipe.send(await _decide(runner, run_id, call_id, name, stops))
        pipe.send("done")
        await (await runner.attach(run_id)).wait()  # whoever carries it does not close before


async def _decide(runner: Runner, run_id: str, call_id: str, name: str, stops: bool) -> tuple[str, str]:
    if stops:
        settled = await runner.cancel_call(run_id, call_id, by=name)
        return ("stopped", settled.status if settled is not None else "")
    try:
        return ("counts", (await runner.answer(run_id, call_id, name, by=name)).by)
    except AnswerConflictError as conflict:
        return ("conflict", conflict.first.by)
    except (AnswerError, UnknownCallError) as refused:
        return ("refused", type(refused).__name__)
