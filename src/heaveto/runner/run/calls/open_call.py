"""A call under way as its run and the outside see it: its place in line, what comes for it, what it says meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Literal

from heaveto.agents.context import AgentContext
from heaveto.agents.llm import LlmAgent
from heaveto.core.close import output_response
from heaveto.core.fold import calls_around, task_branch
from heaveto.errors import RunCancelled
from heaveto.events.contents import FunctionCall, Json
from heaveto.events.records import (
    Answered,
    CallSettled,
    CallStarted,
    Cause,
    Message,
    Paused,
    Record,
    WaitingCall,
    WaitingKind,
)
from heaveto.runner.run.calls.output import CallOutput
from heaveto.runner.run.calls.place import Place
from heaveto.runner.run.live import LiveRun
from heaveto.tools.base import Confirmation, Tool, ToolContext


class OpenCall:
    """A call under way.

    Attributes:
        args: the arguments in force; `bound` is what the tool gets of them.
        edited: they are not the model's: whoever confirmed the call changed them.
        saves, tasks: number the artifacts that the tool saves, and the tasks that it gives to agents.
        task: its work, once it has begun.
        released: resolved when nothing of the run has to wait for the call any more: it is settled, or in the
            background.
        news: set when something has come that its work may be waiting for.
        fatal: what fails the run once this call is settled: the tool's wish, or the error of a callback behind it.
        own_stop: why it was asked to stop alone.
        child_run: the run that it goes on as, if it is an agent's in the background.
        is_left: it goes on in the background, as a run that this process does not carry any more.
    """

    def __init__(
        self,
        live: LiveRun,
        agent: LlmAgent,
        ctx: AgentContext,
        call: FunctionCall,
        tool: Tool,
        bound: dict[str, Any],
        args: dict[str, Json],
        *,
        confirmation: Confirmation | None = None,
        edited: bool = False,
    ) -> None:
        self.live, self.agent, self.agent_ctx, self.call, self.tool = live, agent, ctx, call, tool
        self.bound, self.args, self.confirmation, self.edited = bound, args, confirmation, edited
        self.known = live.session.calls.get(call.call_id)
        self.place = Place(live, tool, call.call_id, ctx.branch)
        self.saves = itertools.count()
        self.tasks = itertools.count(self._first_task() if self.known is not None and self.known.attempt else 1)
        self.task: asyncio.Task[None] | None = None
        self.released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.news = asyncio.Event()
        self.fatal: Exception | None = None
        self.own_stop: Cause | None = None
        self._run_stop: Cause | None = None
        """Why it was asked to stop together with its run, which settles it then."""
        self.child_run = ""
        self.is_left = self._is_asking = False
        self._answer: asyncio.Future[Answered] | None = None
        self._unwatch: Callable[[], None] | None = None

    @property
    def call_id(self) -> str:
        return self.call.call_id

    def _first_task(self) -> int:
        """Return the number of the first task that the attempt of a dead process gave to an agent.

        A further attempt in the same process gives its tasks anew. One behind a crash goes on with those of the
        attempt before, in the order in which they were given.
        """
        tasks = first = 0
        for record in self.live.session.records[self.live.run.started_seq :]:
            if isinstance(record, CallStarted) and record.call_id == self.call_id and record.previous is not None:
                first = tasks
            elif isinstance(record, Message) and record.author == "user":
                tasks += record.branch == task_branch(self.agent_ctx.branch, self.call_id, tasks + 1)
        return first + 1

    # --- what comes for it ----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take note of what came for this call: a stop, an answer, its move into the background."""
        self.known = known = self.live.session.calls.get(self.call_id) or self.known
        if known is None or (self.task is not None and self.task.done()):
            return
        if known.is_in_background and not self.is_in_background:
            self._go_into_background()
        if known.cancel is not None:
            self.cut(known.cancel.cause)
        if known.answer is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(known.answer)

    def _go_into_background(self) -> None:
        services = self.live.services
        self._unwatch = self.live.log.watch(self.look)
        services.background_calls[self.call_id] = self
        if self.task is not None:  # the closing runner waits for its end, which is recorded late
            services.background.add(self.task)
            self.task.add_done_callback(services.background.discard)
        self._release()

    @property
    def is_in_background(self) -> bool:
        return self._unwatch is not None

    def _release(self) -> None:
        if not self.released.done():
            self.released.set_result(None)
        self.place.leave()

    def end(self) -> None:
        """Nothing comes for it any more: its work is over."""
        self._release()
        if self._unwatch is not None:
            self._unwatch()
            self.live.services.background_calls.pop(self.call_id, None)

    async def until(self, future: asyncio.Future[Any]) -> None:
        """Wait for a future, or for a stop of this call."""
        future.add_done_callback(lambda _: self.news.set())
        while not future.done() and self.stop_cause is None:
            self.news.clear()
            await self.news.wait()

    async def enter_line(self) -> None:
        """Wait for a place. Returns without one if the call is stopped meanwhile."""
        entry = self.place.enter()
        if entry is not None:
            try:
                await self.until(entry)
            finally:
                entry.cancel()

    # --- stops ----------------------------------------------------------------------------------------------------

    @property
    def stop_cause(self) -> Cause | None:
        stop = self.live.stop_asked if not self.is_in_background else None
        return self.own_stop or self._run_stop or (stop.cause if stop is not None else None)

    @property
    def stops_with_run(self) -> bool:
        """Whether the ending of its run says what became of it; a stop that was asked for counts before it comes."""
        return not self.is_in_background and (self._run_stop is not None or self.live.stop_asked is not None)

    def cut(self, cause: Cause) -> None:
        """Stop this one call; its run goes on."""
        if self.own_stop is None:
            self.own_stop = cause
            self.news.set()
            if self._is_asking and self.task is not None:
                self.task.cancel()  # a callback behind the tool does not hold up a stop

    def stop_with_run(self, cause: Cause) -> None:
        """Take note that it stops together with its run."""
        self._run_stop = self._run_stop or cause
        self.news.set()

    # --- what it says while it works ------------------------------------------------------------------------------

    async def record_aside(self, record: Record) -> None:
        """Record something that the tool says while it works.

        Raises:
            RunCancelled: the run has ended: nothing but late results may follow.
        """
        if self.is_in_background and self.live.sealing:
            await self.live.finished.wait()
            await self.live.log.append([record], token=None)
        elif self.live.sealing:
            raise RunCancelled(self.live.run_id, self.stop_cause or "lease_lost")
        else:
            await self.live.journal.record_fact([record])

    async def detach(self, settled: CallSettled) -> None:
        """Answer the call now, as detached, and let it work on in the background."""
        self.child_run = settled.child_run
        await self.record_aside(settled)
        self.look()

    def put_out(self, text: str) -> None:
        """Show a piece of its output, and keep it."""
        draft = self.live.drafts.get(self.output_key)
        if draft is None:
            draft = self.live.drafts[self.output_key] = CallOutput(
                run_id=self.live.run_id, call_id=self.call_id, author=self.agent.name, branch=self.agent_ctx.branch
            )
        assert isinstance(draft, CallOutput)
        draft.put(text)
        self.live.draft_grew(draft)

    @property
    def output_key(self) -> str:
        return f"output:{self.call_id}"

    def kept_output(self) -> dict[str, Json] | None:
        """Return what it has put out as its result, where no other one comes."""
        draft = self.live.drafts.get(self.output_key)
        return output_response(draft.text) if isinstance(draft, CallOutput) else None

    # --- what it asks for -----------------------------------------------------------------------------------------

    def waiting(
        self, kind: WaitingKind, hint: str, schema: dict[str, Json] | None = None, payload: Json = None,
        within_seconds: float | None = None, default: Json = None,
    ) -> WaitingCall:  # fmt: skip
        """Return what the call waits for, as it is recorded."""
        now = self.live.services.clock.time()
        return WaitingCall(
            call_id=self.call_id, kind=kind, name=self.tool.name, hint=hint, schema=schema, args=self.args,
            deadline=None if within_seconds is None else now + within_seconds, default=default, payload=payload,
            path=self._path(),
        )  # fmt: skip

    def _path(self) -> str:
        """The agents from the root to this one, through the calls in which agents work as tools (F162)."""
        around = [self.live.session.calls.get(call_id) for call_id in calls_around(self.agent_ctx.branch)]
        agents = (self.live.services.app.agent_named(call.agent) for call in around if call is not None)
        return "/".join([*(agent.path for agent in agents if agent is not None), self.agent.path])

    def asked(self, question: WaitingCall) -> Paused:
        """Return the record that makes it wait for an answer."""
        record_id, time = self.live.stamp()
        return Paused(id=record_id, time=time, run_id=self.live.run_id, waiting=(question,), held=True)

    async def answer(self) -> Answered:
        """Wait for the answer to the question that was recorded."""
        known = self.live.session.calls.get(self.call_id)
        if known is not None and known.answer is not None:
            return known.answer
        self._answer = asyncio.get_running_loop().create_future()
        return await self._answer

    # --- the callbacks behind it ----------------------------------------------------------------------------------

    async def ask_behind(
        self, point: Literal["after_tool", "on_tool_error"], ctx: ToolContext, outcome: object
    ) -> dict[str, Json] | None:
        """Ask the callbacks behind a call for another result.

        Whatever happens to them, the call keeps the outcome that it has (P4): a stop ends the asking, and their error
        fails the run once the call is settled.
        """
        hooks, agent = self.live.services.app.hooks, self.agent
        own = agent.after_tool_callbacks if point == "after_tool" else agent.on_tool_error_callbacks
        if self.stop_cause is not None or not (own or hooks.at(point)):
            return None
        self._is_asking = True
        try:
            given: dict[str, Json] | None = await hooks.first(point, own, self.tool, self.args, ctx, outcome)
            return given
        except Exception as error:  # noqa: BLE001 - raised again when the call is settled
            self.fatal = error
        except KeyboardInterrupt:
            raise
        except BaseException as signal:  # noqa: BLE001 - whatever it signals, the call keeps its outcome
            if self.stop_cause is None:
                self.fatal = RuntimeError(f"a callback {point} ended itself with {type(signal).__name__}")
        finally:
            self._is_asking = False
        return None
