"""Brings a call of each row to its state, all of one ending at once: a session for each, on one runner."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.stopping.kinds import World, make_tools
from tests.stopping.table import KINDS, PATIENT_BACKOFF_SECONDS, Row

from heaveto import App, LlmAgent, Plugin, Run, RunConfig, RunEnd, Runner, StopReport
from heaveto.clock import SystemClock
from heaveto.core.request import ModelRequest
from heaveto.events.contents import FunctionResponse, calls_of, text_of
from heaveto.events.records import CallSettled, CallStarted, Delta, Message, Paused, Record
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, hang, say

APP = "stopping"
GO, NEXT, AFTERWARDS = "Do this:", "And then, in", "And now, in"
ARRIVAL_SECONDS = 40.0


class MovableClock(SystemClock):
    """The machine's clock, which a test moves forward. Long waits end by that only."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._moved = asyncio.Event()
        self._waits: set[float] = set()
        self._longest = asyncio.Event()

    def time(self) -> float:
        return time.time() + self._ahead

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    async def sleep(self, seconds: float) -> None:
        if seconds < ARRIVAL_SECONDS:
            return await asyncio.sleep(seconds)
        if seconds >= PATIENT_BACKOFF_SECONDS:
            self._longest.set()
        end = self.monotonic() + seconds
        while self.monotonic() < end:
            await self._moved.wait()
        return None

    async def in_a_pause(self) -> None:
        """Wait until someone waits as long as the pause of a retry here."""
        await self._longest.wait()

    def move(self, seconds: float) -> None:
        self._ahead += seconds
        self._moved.set()
        self._moved = asyncio.Event()


@dataclass
class Facts:
    """What became of one row."""

    log: list[Record] = field(default_factory=list[Record])
    report: StopReport | None = None
    next_request: ModelRequest | None = None
    later_request: ModelRequest | None = None
    left: str = ""
    left_in_the_end: str = ""

    def settled(self, name: str) -> list[CallSettled]:
        call_id = self.call_id(name)
        return [record for record in self.log if isinstance(record, CallSettled) and record.call_id == call_id]

    def call_id(self, name: str) -> str:
        calls = [part for record in self.log if isinstance(record, Message) for part in calls_of(record.parts)]
        return next((part.call_id for part in reversed(calls) if part.name == name), "")

    def starts(self, name: str) -> list[CallStarted]:
        call_id = self.call_id(name)
        return [record for record in self.log if isinstance(record, CallStarted) and record.call_id == call_id]


class Ends(Plugin):
    """Notes the runs whose end hooks are called."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def on_run_end(self, end: RunEnd) -> None:
        self.told.append(end.run_id)


class Scene:
    """A runner, and the runs of its rows."""

    def __init__(self, place: Path, store: Store, *, hold: bool = True, clock: MovableClock | None = None) -> None:
        self.world = World(place, hold=hold)
        self.clock = clock or MovableClock()
        self.model = ScriptedModel(self._brain, strict=False)
        self.tools = make_tools(self.world)
        agent = LlmAgent("root", self.model, tools=self.tools, before_tool_callback=self._permission)
        self.ends = Ends()
        # A user is a row: a call that waits for a place waits behind another one of its own step.
        app = App(APP, agent, plugins=[self.ends], max_concurrent_calls_per_user=1)
        self.runner = Runner(app=app, store=store, clock=self.clock)
        self.runs: dict[str, Run] = {}

    # --- the agent ------------------------------------------------------------------------------------------------

    def _brain(self, request: ModelRequest) -> Any:
        last = request.turns[-1]
        said = text_of(last.parts)
        if last.role == "user" and GO in said and NEXT not in said and AFTERWARDS not in said:
            return self._calls(said.partition(GO)[2].split()[0])
        row = text_of(request.turns[0].parts).partition(GO)[2].split()
        if last.role == "tool" and row and self.world.waits and not row[0].partition("-")[0].endswith("_over"):
            if row[0].endswith("-finished") and not row[0].startswith(("background", "detached")):
                self.world.reach(row[0])
            return hang()
        return say("ok")

    def _calls(self, row: str) -> Any:
        kind, _, state = row.partition("-")
        wanted = call(kind, **self._args(kind, row, hold=state == "running"))
        if state in ("slot", "lane", "sequential"):
            ahead = kind if kind == state else "ahead_thread" if state == "lane" else "ahead"
            return (call(ahead, hold=True), wanted)
        return wanted

    def _args(self, kind: str, row: str, *, hold: bool) -> dict[str, Any]:
        if kind.startswith(("agent", "background")):
            return {"request": "hold" if hold else "be quick"}
        return {"hold": hold, "pids": str(self.world.pids_file(row))} if KINDS[kind].out else {"hold": hold}

    async def _permission(self, _tool: Any, _args: Any, ctx: Any) -> None:
        row = ctx.session.session
        if row.endswith("-proposed") and self.world.hold:
            self.world.reach(row)
            await asyncio.Event().wait()

    # --- rows come to their states --------------------------------------------------------------------------------

    async def bring(self, rows: Sequence[Row]) -> None:
        """Start the rows' runs, and return when each call is in its state."""
        async with asyncio.timeout(ARRIVAL_SECONDS):
            await asyncio.gather(*map(self._bring, rows))

    async def _bring(self, row: Row) -> None:
        config = RunConfig(
            deadline=self.clock.time() + 1000 if row.ending == "deadline" else None,
            tool_execution_mode="SEQUENTIAL" if row.state == "sequential" else "NONE",
            cancel_grace_seconds=KINDS[row.kind].grace,
            on_crash="seal" if row.ending == "kill_sealed" else "resume",
        )
        run = self.runs[row.id] = await self.runner.start(new_message=f"{GO} {row.id}", run_config=config, **where(row))
        watching = asyncio.create_task(self._watch(row, run))
        await self.world.reached(row.id).wait()
        if row.kind.endswith("_over"):
            await run.wait()
        elif row.kind == "backoff" and row.state == "running":
            await self.clock.in_a_pause()
        while row.state == "slot" and not self._waits_for_a_place(row):  # noqa: ASYNC110 - a gate tells nobody
            await asyncio.sleep(0)
        watching.cancel()

    def _waits_for_a_place(self, row: Row) -> bool:
        return any(key.waiting and key.key[-1] in (row.id, row.kind) for key in self.runner.concurrency())

    async def _watch(self, row: Row, run: Run) -> None:
        """See what rows show that cannot say it."""
        async for item in run.stream():
            match item:
                case Delta(kind="output") if KINDS[row.kind].out and row.state == "running":
                    self.world.reach(row.id)
                case Paused() if row.state == "finished":
                    await self.runner.answer(run.run_id, item.waiting[0].call_id, 3)
                case Paused() if row.state == "running":
                    self.world.reach(row.id)
                case CallSettled(late=True) if row.state == "finished":
                    self.world.reach(row.id)
                case _:
                    pass

    # --- what is there --------------------------------------------------------------------------------------------

    async def log(self, row: Row) -> list[Record]:
        return await self.runner.records(**where(row))

    async def say(self, row: Row, text: str) -> ModelRequest:
        """Send the next message, and return the request that it led to."""
        run = await self.runner.start(new_message=f"{text} {row.id}?", **where(row))
        ended = await run.wait()
        assert ended.outcome == "completed", ended
        wanted = f"{text} {row.id}?"
        return next(r for r in reversed(self.model.requests) if wanted in text_of(r.turns[-1].parts))

    def left_of(self, row: Row, call_id: str) -> str:
        """What works for a row: a task, a thread or processes."""
        if row.state != "running":
            return ""
        name = f"heaveto tool {row.kind}"
        if any(thread.name == name for thread in threading.enumerate()):
            return "thread"
        tasks = [task.get_name() for task in asyncio.all_tasks() if call_id and call_id in task.get_name()]
        if tasks:
            return "server" if all(name.startswith("outcome of call") for name in tasks) else "task"
        if row.kind != "mcp" and self.world.processes(row.id):
            return "processes"
        return ""

    async def close(self) -> None:
        await self.runner.aclose()


def where(row: Row) -> dict[str, Any]:
    return {"user_id": row.id, "session_id": row.id}


def response_to(request: ModelRequest, name: str) -> FunctionResponse:
    """Return what the model is told of the last call of a tool."""
    parts = [part for turn in request.turns for part in turn.parts if isinstance(part, FunctionResponse)]
    return next(part for part in reversed(parts) if part.name == name)


def text_to(request: ModelRequest) -> str:
    return "\n".join(text_of(turn.parts) for turn in request.turns)


def executions_of(log: Iterable[Record], counted: Counter[str]) -> dict[str, int]:
    """Return how often the calls of a log were executed."""
    calls = {record.call_id for record in log if isinstance(record, (CallStarted, CallSettled))}
    return {call_id: count for call_id, count in counted.items() if call_id in calls}
