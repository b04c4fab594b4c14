"""A runner with one session, and tools that a test holds in its hand: begun when it sees, ended when it says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from heaveto import App, LlmAgent, Run, RunConfig, RunEnd, Runner, StopReport
from heaveto.agents.base import BaseAgent
from heaveto.clock import Clock
from heaveto.core.request import Turn
from heaveto.errors import SessionErasedError, StoreClosedError, UnknownSessionError
from heaveto.events.contents import FunctionResponse, calls_of, text_of
from heaveto.events.records import CallSettled, CallStarted, Message, Record, RunEnded, SessionKey
from heaveto.runner.application.hooks import Plugin
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel
from heaveto.testing.promises import check_promises
from heaveto.testing.script import Step
from heaveto.tools.base import OnCancel, ToolContext
from heaveto.tools.function import FunctionTool

USER, SESSION = "ann", "s"
_HELD: WeakSet[Any] = WeakSet()
QUICK = RunConfig(cancel_grace_seconds=0.02, on_crash="seal")


class Desk:
    """One session of an agent that plays a script."""

    def __init__(
        self,
        *steps: Step,
        store: Store | None = None,
        tools: Sequence[Any] = (),
        plugins: Sequence[Plugin] = (),
        agent: BaseAgent | None = None,
        model: ScriptedModel | None = None,
        clock: Clock | None = None,
        app_options: Mapping[str, Any] | None = None,
        artifacts: Any = None,
        **agent_options: Any,
    ) -> None:
        self.model = model or ScriptedModel(*steps, clock=clock)
        self.agent = agent or LlmAgent("root", self.model, tools=tools, **agent_options)
        app = App("desk", self.agent, plugins=plugins, **(app_options or {}))
        self.runner = Runner(app=app, store=store, clock=clock, artifacts=artifacts)

    async def start(self, text: str = "go", config: RunConfig | None = None, **more: Any) -> Run:
        return await self.runner.start(
            user_id=USER, session_id=SESSION, new_message=text, run_config=config or QUICK, **more
        )

    async def ask(self, text: str = "go", config: RunConfig | None = None, **more: Any) -> RunEnded:
        """Run to the end."""
        return await (await self.start(text, config, **more)).wait()

    async def log(self) -> list[Record]:
        return await self.runner.records(user_id=USER, session_id=SESSION)

    async def state(self) -> dict[str, Any]:
        return await self.runner.state(user_id=USER, session_id=SESSION)

    async def settled(self) -> dict[str, CallSettled]:
        """The last settlement of each tool, by the tool's name."""
        return {record.name: record for record in await self.log() if isinstance(record, CallSettled)}

    async def settlements(self, name: str) -> list[tuple[str, str | None, bool]]:
        """Status, cause and lateness of all settlements of a tool's calls, in order."""
        found = [record for record in await self.log() if isinstance(record, CallSettled) and record.name == name]
        return [(record.status, record.cause, record.late) for record in found]

    async def starts(self, name: str) -> list[CallStarted]:
        """The recorded starts of a tool's calls, in order."""
        return [record for record in await self.log() if isinstance(record, CallStarted) and record.name == name]

    async def call_id(self, name: str) -> str:
        """The id of the newest call of a tool."""
        calls = [part for message in await self.messages() for part in calls_of(message.parts)]
        return next(part.call_id for part in reversed(calls) if part.name == name)

    async def until(self, holds: Callable[[list[Record]], bool]) -> list[Record]:
        """Wait until the log is as wanted, and return it."""
        changed = asyncio.Event()
        unsubscribe = self.runner.store.subscribe(SessionKey("desk", USER, SESSION), lambda _: changed.set())
        try:
            async with asyncio.timeout(20):
                while not holds(log := await self.log()):
                    await changed.wait()
                    changed.clear()
            return log
        finally:
            unsubscribe()

    async def until_settled(self, name: str, *, late: bool = False) -> CallSettled:
        """Wait until a call of a tool is settled, or has its late result, and return that."""

        def found(log: list[Record]) -> list[CallSettled]:
            settled = [record for record in log if isinstance(record, CallSettled) and record.name == name]
            return [record for record in settled if record.late or not late]

        return found(await self.until(lambda log: bool(found(log))))[-1]

    async def endings(self) -> list[RunEnded]:
        return [record for record in await self.log() if isinstance(record, RunEnded)]

    async def messages(self) -> list[Message]:
        return [record for record in await self.log() if isinstance(record, Message)]

    async def check_promises(self) -> None:
        """Hold the log, whatever the test was about, against what is promised of every log (P2 to P7)."""
        try:
            records = await self.log()
        except (UnknownSessionError, SessionErasedError, StoreClosedError):
            return
        check_promises(records, open_runs=1)

    def told(self) -> str:
        """Everything that the model was sent with its last request, as text."""
        return as_text(self.model.requests[-1].turns)


def as_text(turns: Sequence[Turn]) -> str:
    return "\n".join(f"{turn.role}: {text_of(turn.parts)}{_responses(turn)}" for turn in turns)


def _responses(turn: Turn) -> str:
    return " ".join(str(part.response) for part in turn.parts if isinstance(part, FunctionResponse))


def kinds(records: Sequence[Any]) -> list[str]:
    """The records' types, in order."""
    return [type(record).__name__ for record in records]


def states(report: StopReport) -> dict[str, str]:
    """What a stop found, by name."""
    return {operation.name: operation.state for operation in report.operations}


class Held:
    """A coroutine tool that works until it is let go. `left` is set when its code has ended, in whatever way.

    Args:
        swallow: how many cancellations it swallows.
    """

    def __init__(self, result: Any = "done", *, swallow: int = 0, error: BaseException | None = None) -> None:
        self.began, self.may_end, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.calls = self.interrupted = self.effects = 0
        self._result, self._swallow, self._error = result, swallow, error
        _HELD.add(self)

    async def __call__(self) -> Any:
        """Work."""
        self.calls += 1
        self.began.set()
        try:
            await self._until_let_go()
            if self._error is not None:
                raise self._error
            self.effects += 1
            return self._result
        finally:
            self.left.set()

    async def _until_let_go(self) -> None:
        while True:
            try:
                await self.may_end.wait()
                return
            except asyncio.CancelledError:
                self.interrupted += 1
                if self.interrupted > self._swallow:
                    raise

    def tool(self, name: str = "held", on_cancel: OnCancel = "cancel", **options: Any) -> FunctionTool:
        return FunctionTool(self, name=name, on_cancel=on_cancel, **options)


class HeldThread:
    """A blocking tool that works until it is let go; with `polite` it looks whether its run was stopped."""

    def __init__(self, result: Any = "done", *, polite: bool = False) -> None:
        self.began, self.left = asyncio.Event(), asyncio.Event()
        self.may_end = threading.Event()
        self.calls = self.effects = 0
        self._result, self._polite = result, polite
        self._loop = asyncio.get_running_loop()
        _HELD.add(self)

    def __call__(self, ctx: ToolContext) -> Any:
        """Work."""
        self.calls += 1
        if self._polite:
            ctx.on_cancel(self.may_end.set)
        self._loop.call_soon_threadsafe(self.began.set)
        try:
            assert self.may_end.wait(20)
            if self._polite:
                ctx.raise_if_cancelled()
            self.effects += 1
            return self._result
        finally:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.left.set)

    def tool(self, name: str = "thread", on_cancel: OnCancel = "cancel", **options: Any) -> FunctionTool:
        return FunctionTool(self, name=name, on_cancel=on_cancel, **options)


def let_all_go() -> None:
    """Let go of every tool that is still held, so that a test that fails does not hang on it."""
    for held in _HELD:
        held.may_end.set()


class Ends(Plugin):
    """Counts the ends of runs."""

    def __init__(self) -> None:
        self.ends: list[RunEnd] = []
        self._more = asyncio.Event()

    async def on_run_end(self, end: RunEnd) -> None:
        self.ends.append(end)
        self._more.set()

    async def come(self, count: int) -> None:
        """Wait for so many ends."""
        while len(self.ends) < count:
            self._more.clear()
            await self._more.wait()

    @property
    def outcomes(self) -> list[tuple[str, str | None]]:
        return [(end.outcome.outcome, end.outcome.cause) for end in self.ends]
