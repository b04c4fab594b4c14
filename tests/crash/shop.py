"""A process whose tools can be killed at a named moment of their work, and the tools of all replay policies."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.crash.payments import pay_at, payment_at

from heaveto import App, FunctionTool, LlmAgent, RunConfig, Runner, ToolContext
from heaveto.core.request import ModelRequest
from heaveto.events.records import Record, SessionKey
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing import ScriptedModel, call, say, usage

HERE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("shop", "u", "s")
GO = "do it"
TTL_SECONDS = 0.4
CHUNKS = [f"chunk {number};" for number in range(5)]
OUTPUT = "a line of output\n" * 100


@dataclass(frozen=True)
class Place:
    """Where a process works, and the moment at which it stands still until it is killed.

    A moment is a name, and how often it is passed before.
    """

    path: Path
    payments: str = ""
    die_at: str = ""
    pipe: Connection | None = None

    @property
    def effects(self) -> Path:
        return self.path / "effects"

    def leave_mark(self, text: str) -> None:
        with self.effects.open("a") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())

    @property
    def marks(self) -> list[str]:
        return self.effects.read_text().split() if self.effects.exists() else []

    def pass_by(self, moment: str) -> None:
        """Go on; or, where this is the moment of death, say so and wait for it."""
        if moment == self.die_at:
            assert self.pipe is not None
            self.pipe.send(moment)
            threading.Event().wait()


def make_tools(place: Place) -> dict[str, Callable[..., Any]]:
    def act(ctx: ToolContext) -> str:
        """Leave a mark outside."""
        place.pass_by("before")
        place.leave_mark(ctx.idempotency_key)
        place.pass_by("behind")
        return "acted"

    def pay(ctx: ToolContext, amount: int = 10) -> dict[str, Any]:
        """Pay."""
        place.pass_by("before")
        receipt = pay_at(place.payments, ctx.idempotency_key, amount)
        place.pass_by("behind")
        return receipt

    async def export(ctx: ToolContext) -> dict[str, int]:
        """Write all chunks to a file, in order: what is behind the recorded position was not finished."""
        chunks, size = ctx.last_progress or (0, 0)  # type: ignore[misc]
        target = place.path / "export"
        target.touch()
        os.truncate(target, size)  # type: ignore[arg-type]
        for number in range(chunks, len(CHUNKS)):  # type: ignore[arg-type]
            with target.open("a") as file:
                file.write(CHUNKS[number])
            place.leave_mark(str(number))
            place.pass_by(f"written {number}")
            await ctx.progress([number + 1, target.stat().st_size])
            place.pass_by(f"noted {number}")
        return {"chunks": len(CHUNKS), "from": chunks}  # type: ignore[dict-item]

    async def talk(ctx: ToolContext) -> str:
        """Put something out, and wait until that is kept."""
        ctx.output(OUTPUT)
        store = SqliteStore(place.path / "store.db", ttl_seconds=TTL_SECONDS)
        while not await store.drafts(KEY, ctx.run_id):  # noqa: ASYNC110 - nobody is told when a draft is saved
            await asyncio.sleep(0)
        await store.aclose()
        place.pass_by("behind")
        return "never"

    return {"act": act, "pay": pay, "export": export, "talk": talk}


def probe_payment(place: Place) -> Callable[..., Any]:
    def probe(ctx: ToolContext, amount: int = 10) -> dict[str, Any] | None:
        return payment_at(place.payments, ctx.idempotency_key)

    return probe


def make_tool(place: Place, name: str, replay: str) -> FunctionTool:
    function = make_tools(place)[name]
    if replay == "probe":
        return FunctionTool(function, probe=probe_payment(place))
    return FunctionTool(function, replay=replay)  # type: ignore[arg-type]


def brain(name: str) -> Callable[[ModelRequest], Any]:
    """Call the tool, and then say what came of it."""

    def answer(request: ModelRequest) -> Any:
        spent = usage(10, 5)
        return (call(name), spent) if request.turns[-1].role == "user" else (say("That is it."), spent)

    return answer


def make_runner(place: Place, name: str, tools: Sequence[FunctionTool]) -> Runner:
    model = ScriptedModel(brain(name), strict=False)
    store = SqliteStore(place.path / "store.db", ttl_seconds=TTL_SECONDS)
    # A run whose tool is gone goes on without it.
    app = App(KEY.app, LlmAgent("clerk", model, tools=tools), on_tree_change="close")
    return Runner(app=app, store=store)


def carry(place: Place, name: str, replay: str, config: RunConfig | None) -> None:
    """Carry one run, or go on with the one that is there. The work of the process that is killed."""
    asyncio.run(_carry(make_runner(place, name, [make_tool(place, name, replay)]), config))


async def _carry(runner: Runner, config: RunConfig | None) -> None:
    async with runner:
        if await runner.store.get_session(KEY) is None:
            await (await runner.start(new_message=GO, run_config=config, **HERE)).wait()
        else:
            await runner.recover()


def kill_in(place: Place, name: str, replay: str, config: RunConfig | None = None) -> None:
    """Carry the run in a process of its own, and kill that with -9 at the place's moment, in the middle of the tool."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.crash.shop"])
    pipe, theirs = context.Pipe(duplex=False)
    dying = Place(place.path, place.payments, place.die_at, theirs)
    process = context.Process(target=carry, args=(dying, name, replay, config), daemon=True)
    process.start()
    theirs.close()
    try:
        assert pipe.recv() == place.die_at
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
    assert process.exitcode == -signal.SIGKILL


async def _recovered(runner: Runner) -> list[Record]:
    async with runner:
        await runner.recover()
        return await runner.records(**HERE)


def recover(place: Place, name: str, *tools: FunctionTool) -> tuple[list[Record], str]:
    """Recover in this process. Return the log, and what the model was told in the end."""
    living = Place(place.path, place.payments)
    runner = make_runner(living, name, tools)
    agent = runner.app.root_agent
    assert isinstance(agent, LlmAgent)
    model = agent.model
    assert isinstance(model, ScriptedModel)
    log = asyncio.run(asyncio.wait_for(_recovered(runner), 20))
    told = [str(part) for request in model.requests[-1:] for turn in request.turns for part in turn.parts]
    return log, "\n".join(told)
