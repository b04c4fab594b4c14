"""Processes that carry one gated refund: one that is killed at a named moment, and those that bring it to its end."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tests.crash.payments import pay_at, payment_at

from heaveto import App, FunctionTool, LlmAgent, Paused, Runner, ToolContext
from heaveto.core.request import ModelRequest
from heaveto.errors import AnswerError, UnknownCallError
from heaveto.events.contents import FunctionResponse
from heaveto.events.records import Record, SessionKey
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing import ScriptedModel, call, say

HERE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("refunds", "u", "s")
AMOUNT = 10
Policy: TypeAlias = Literal["never", "idempotent", "probe"]
Moment: TypeAlias = tuple[Literal["before append", "behind append", "before request", "behind request"], int]


@dataclass(frozen=True)
class Desk:
    """Where a process works, under which policy, and the moment at which it is killed: what, and the how many-eth."""

    path: Path
    url: str
    policy: Policy
    dies_at: Moment | None = None

    def pass_by(self, *moment: Any) -> None:
        if moment == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
            threading.Event().wait()


class DyingStore(SqliteStore):
    """A store whose process is killed around one of its appends."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk.path / "store.db")
        self._desk, self._appends = desk, 0

    async def append(self, key: SessionKey, records: Sequence[Record], **more: Any) -> int:
        self._appends += 1
        number = self._appends
        self._desk.pass_by("before append", number)
        last = await super().append(key, records, **more)
        self._desk.pass_by("behind append", number)
        return last


def refund_tool(desk: Desk) -> FunctionTool:
    def refund(ctx: ToolContext, amount: int) -> dict[str, Any]:
        """Pay money back."""
        # A tool that must never be repeated has no key that the service would know it by: twice is two payments.
        key = ctx.idempotency_key if desk.policy != "never" else f"{ctx.idempotency_key}-{uuid.uuid4()}"
        desk.pass_by("before request", ctx.attempt)
        receipt = pay_at(desk.url, key, amount)
        desk.pass_by("behind request", ctx.attempt)
        return receipt

    def probe(ctx: ToolContext, amount: int) -> dict[str, Any] | None:
        return payment_at(desk.url, ctx.idempotency_key)

    if desk.policy == "probe":
        return FunctionTool(refund, probe=probe, require_confirmation=True)
    return FunctionTool(refund, replay=desk.policy, require_confirmation=True)


def brain(request: ModelRequest) -> Any:
    told = [part for turn in request.turns for part in turn.parts if isinstance(part, FunctionResponse)]
    return say(f"That is what came of it: {told[-1].response}") if told else call("refund", amount=AMOUNT)


def make_runner(desk: Desk) -> Runner:
    agent = LlmAgent("clerk", ScriptedModel(brain, strict=False), tools=[refund_tool(desk)])
    return Runner(app=App(KEY.app, agent), store=DyingStore(desk))


async def carry(desk: Desk) -> list[Record]:
    """Start the refund, or find it; approve it whenever it is asked for; until it has ended. Return the log."""
    async with make_runner(desk) as runner:
        looking = asyncio.create_task(runner.recover_always(every_seconds=0.05))
        run = await runner.start(new_message="Refund 10.", idempotency_key="refund of order 7", **HERE)
        while isinstance(reached := await run.ending_or_pause(), Paused):
            for waiting in reached.waiting:
                with suppress(AnswerError, UnknownCallError):  # another process was faster, and went on
                    await runner.answer(run.run_id, waiting.call_id, by="ann")
        looking.cancel()
        return await runner.records(**HERE)


def carry_here(desk: Desk) -> list[Record]:
    return asyncio.run(asyncio.wait_for(carry(desk), 20))


def in_process(desk: Desk) -> Callable[[], int | None]:
    """Carry it in a process of its own; return how to wait for its end, which returns its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.crash.refund_work"])
    process = context.Process(target=carry_here, args=(desk,), daemon=True)
    process.start()

    def wait() -> int | None:
        process.join(30)
        return process.exitcode

    return wait


def kill_at(desk: Desk, moment: Moment) -> bool:
    """Carry the refund in a process that is killed at the moment. Return whether it came to that."""
    exit_code = in_process(replace(desk, dies_at=moment))()
    assert exit_code in (0, -signal.SIGKILL)
    return exit_code != 0


def bring_home(desk: Desk) -> list[Record]:
    """Let two processes go on with it at the same time, each of which would approve it. Return the log."""
    other = in_process(desk)
    log = carry_here(desk)
    assert other() == 0
    return log
