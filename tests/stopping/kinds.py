"""Makes a tool of each kind. Each works until the test lets it go, and says when it has begun.

A call's arguments say whether it holds; the world says whether anything is held at all: in the process that recovers
what another one left, nothing is.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from tests.stopping import workers
from tests.stopping.table import PATIENT_BACKOFF_SECONDS, SHORT

from heaveto import AgentTool, FunctionTool, LlmAgent
from heaveto.core.request import ModelRequest
from heaveto.events.contents import text_of
from heaveto.testing import ScriptedModel, call, say
from heaveto.tools.base import Tool, ToolContext
from heaveto.tools.command import run_command
from heaveto.tools.mcp import MCPToolset
from heaveto.tools.retry import Retry
from heaveto.tools.toolset import Toolset

HERE = Path(__file__).parent
DONE = "done"
_HOLDING_COMMAND = """
trap '' TERM
(trap '' TERM; sleep 3600 & echo $! >> {pids}; wait) &
echo $$ $! >> {pids}
sleep 0.05; echo begun; wait
"""


def row_of(ctx: ToolContext) -> str:
    """The row that a call belongs to: the name of its session, or of the session that its own works for."""
    return ctx.session.session.split("~")[0]


class World:
    """What tools and test have in common.

    Attributes:
        hold: whether calls that shall hold do.
        waits: whether the model, asked again, does not answer.
        may_end: lets go what still works.
        place: a directory for the numbers of processes, and for what outlives this one.
    """

    def __init__(self, place: Path, *, hold: bool) -> None:
        self.place, self.hold, self.waits = place, hold, hold
        self.may_end, self._released = threading.Event(), asyncio.Event()
        self._reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._loop = asyncio.get_running_loop()

    # --- what tools say and ask -----------------------------------------------------------------------------------

    def begin(self, ctx: ToolContext) -> None:
        """A tool begins its work: noted durably. From any thread."""
        with (self.place / "executions").open("a") as file:
            file.write(f"{ctx.call_id}\n")
        self.reach(row_of(ctx))

    def reach(self, row: str) -> None:
        """A row has come where the ending is to find it. From any thread."""
        self._loop.call_soon_threadsafe(self._reached[row].set)

    async def held(self, hold: bool) -> str:
        if hold and self.hold:
            await self._released.wait()
        return DONE

    def held_thread(self, hold: bool) -> str:
        if hold and self.hold:
            assert self.may_end.wait(60)
        return DONE

    # --- what the test says and asks ------------------------------------------------------------------------------

    def reached(self, row: str) -> asyncio.Event:
        return self._reached[row]

    def let_go(self) -> None:
        self.may_end.set()
        self._released.set()
        for file in tuple(self.place.glob("*.pids")):
            Path(f"{file}.go").touch()

    def executions(self) -> Counter[str]:
        file = self.place / "executions"
        return Counter(file.read_text().split() if file.exists() else [])

    def pids_file(self, row: str) -> Path:
        return self.place / f"{row}.pids"

    def processes(self, row: str) -> list[int]:
        """The processes of a row that live."""
        file = self.pids_file(row)
        return [pid for pid in map(int, file.read_text().split() if file.exists() else []) if is_alive(pid)]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def make_tools(world: World) -> list[Tool | Toolset]:
    """Return a tool of each kind, and those that calls wait behind."""
    pieces = _Pieces(world)
    return [*pieces.coroutines(), *pieces.threads(), *pieces.processes(), *pieces.others()]


class _Pieces:
    def __init__(self, world: World) -> None:
        self.world = world

    # --- coroutines -----------------------------------------------------------------------------------------------

    def coroutines(self) -> list[Tool]:
        async def coroutine(hold: bool, ctx: ToolContext) -> str:
            self.world.begin(ctx)
            return await self.world.held(hold)

        async def swallows_once(hold: bool, ctx: ToolContext) -> str:
            self.world.begin(ctx)
            try:
                return await self.world.held(hold)
            except asyncio.CancelledError:
                return await self.world.held(hold)

        async def swallows_always(hold: bool, ctx: ToolContext) -> str:
            self.world.begin(ctx)
            while True:
                try:
                    return await self.world.held(hold)
                except asyncio.CancelledError:
                    continue

        async def returns_value(hold: bool, ctx: ToolContext) -> str:
            self.world.begin(ctx)
            try:
                return await self.world.held(hold)
            except asyncio.CancelledError:
                return DONE

        async def finish(hold: bool, ctx: ToolContext) -> str:
            told = asyncio.Event()
            ctx.on_cancel(told.set)
            self.world.begin(ctx)
            if hold and self.world.hold:
                await told.wait()
            return DONE

        async def async_generator(hold: bool, ctx: ToolContext) -> AsyncIterator[str]:
            yield "piece"
            self.world.begin(ctx)
            yield await self.world.held(hold)

        async def found(hold: bool, ctx: ToolContext) -> str:
            return DONE

        async def nothing(hold: bool, ctx: ToolContext) -> None:
            return None

        async def cannot_tell(hold: bool, ctx: ToolContext) -> None:
            raise ConnectionError("the service is away")

        def policy(name: str, **options: Any) -> FunctionTool:
            return FunctionTool(coroutine, name=name, **options)

        return [
            *map(policy, ("coroutine", "ahead")),
            policy("safe", replay="safe"),
            policy("idempotent", replay="idempotent"),
            policy("probe", probe=found),
            policy("probe_nothing", probe=nothing),
            policy("probe_raises", probe=cannot_tell),
            policy("slot", max_concurrency=1),
            policy("abandon", on_cancel="abandon"),
            policy("finish_slow", on_cancel="finish"),
            FunctionTool(finish, on_cancel="finish"),
            *map(FunctionTool, (swallows_once, swallows_always, returns_value, async_generator)),
        ]

    # --- threads --------------------------------------------------------------------------------------------------

    def threads(self) -> list[Tool]:
        def polite(hold: bool, ctx: ToolContext) -> str:
            self.world.begin(ctx)
            while hold and self.world.hold and not self.world.may_end.wait(SHORT):
                ctx.raise_if_cancelled()
            return DONE

        def hook(hold: bool, ctx: ToolContext) -> str:
            if _wait_for_hook(hold, ctx):
                raise ConnectionError("closed")
            return DONE

        def hook_returns(hold: bool, ctx: ToolContext) -> str:
            _wait_for_hook(hold, ctx)
            return DONE

        def _wait_for_hook(hold: bool, ctx: ToolContext) -> bool:
            closed = threading.Event()
            ctx.on_cancel(closed.set)
            self.world.begin(ctx)
            return hold and self.world.hold and closed.wait(60)

        def deaf(hold: bool, ctx: ToolContext) -> str:
            self.world.begin(ctx)
            return self.world.held_thread(hold)

        def generator(hold: bool, ctx: ToolContext) -> Iterator[str]:
            yield "piece"
            self.world.begin(ctx)
            while hold and self.world.hold and not self.world.may_end.wait(SHORT):
                yield "."
            yield DONE

        ahead = FunctionTool(polite, name="ahead_thread")
        return [ahead, *map(FunctionTool, (polite, hook, hook_returns, deaf, generator))]

    # --- processes ------------------------------------------------------------------------------------------------

    def processes(self) -> list[Tool | Toolset]:
        async def command(hold: bool, pids: str, ctx: ToolContext) -> str:
            line = _HOLDING_COMMAND.format(pids=pids) if hold else "echo done"
            return (await run_command(["sh", "-c", line], ctx=ctx, term_seconds=0.1)).output

        server = ["-S", str(HERE / "mcp_server.py")]
        return [
            FunctionTool(command),
            FunctionTool(workers.process_polite, isolation="process"),
            FunctionTool(workers.process_deaf, isolation="process"),
            MCPToolset.stdio(sys.executable, server, name="held", cancel_wait_seconds=0.05),
        ]

    # --- agents, questions, the background, retries ---------------------------------------------------------------

    def others(self) -> list[Tool]:
        async def ask(hold: bool, ctx: ToolContext) -> str:
            if self.world.hold:
                await ctx.ask("How many?")
            self.world.begin(ctx)
            return DONE

        async def detached(hold: bool, ctx: ToolContext) -> str:
            await ctx.detach({"job": 1})
            self.world.begin(ctx)
            return await self.world.held(hold)

        async def backoff(hold: bool, ctx: ToolContext) -> str:
            self.world.begin(ctx)
            if hold and self.world.hold:
                raise ConnectionError("try again")
            return DONE

        patient = Retry(2, PATIENT_BACKOFF_SECONDS, PATIENT_BACKOFF_SECONDS)
        return [
            *map(FunctionTool, (ask, detached)),
            FunctionTool(ask, name="ask_safe", replay="safe"),
            FunctionTool(detached, name="detached_over"),
            FunctionTool(backoff, replay="safe", retry=patient),
            AgentTool(self._helper("agent")),
            AgentTool(self._helper("background"), background=True),
            AgentTool(self._helper("background_over"), background=True),
        ]

    def _helper(self, name: str) -> LlmAgent:
        """An agent that calls a coroutine if its task is to hold."""

        async def inner(hold: bool, ctx: ToolContext) -> str:
            self.world.begin(ctx)
            return await self.world.held(hold)

        def brain(request: ModelRequest) -> Any:
            last = request.turns[-1]
            if last.role == "user" and "hold" in text_of(last.parts):
                return call("inner", hold=True)
            return say("helped")

        return LlmAgent(name, ScriptedModel(brain, strict=False), tools=[FunctionTool(inner)])
