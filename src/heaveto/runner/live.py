"""A run while this process carries it: what agents ask for, performed.

`LiveRun` implements `heaveto.agents.context.RunHost`. Its supervisor stands in `supervise`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from heaveto.agents.base import BaseAgent
from heaveto.agents.context import AgentContext
from heaveto.agents.llm import LlmAgent
from heaveto.agents.state import StateView
from heaveto.core.fold import RunState, SessionState, is_within
from heaveto.errors import RunCancelled, StoreError
from heaveto.events.contents import Content, FunctionCall, Json, text_of
from heaveto.events.records import CancelRequested, Cause, Message, Record, SessionKey
from heaveto.runner.config import RunConfig
from heaveto.runner.draft import SAVE_AFTER_CHARACTERS, SAVE_AFTER_SECONDS, LiveDraft
from heaveto.runner.hooks import as_content
from heaveto.runner.journal import Journal
from heaveto.runner.log import SessionLog
from heaveto.runner.model_step import ask_model
from heaveto.runner.operation import ToolOperation
from heaveto.runner.run import carried_run
from heaveto.runner.services import Services, logger
from heaveto.runner.stops import ask_to_stop
from heaveto.runner.tool_step import execute_calls
from heaveto.stores.base import Lease

_T = TypeVar("_T")


class LiveRun:
    """One run in this process.

    Attributes:
        drafts: answers that are being streamed, by message id.
        operations: tool calls that were started here, by call id.
        task: the agents' work.
        stopping: the work is being stopped: what ends now ends because of it.
        sealing: the ending is decided; what comes now is a late result.
        finished: set when the ending is durable, or this process gave the run up.
    """

    def __init__(self, services: Services, log: SessionLog, lease: Lease, run_id: str, config: RunConfig) -> None:
        self.services, self.log, self.lease, self.config, self.run_id = services, log, lease, config, run_id
        self.journal = Journal(log, lease, run_id, services.app.hooks, self.check)
        self.drafts: dict[str, LiveDraft] = {}
        self.operations: dict[str, ToolOperation] = {}
        self.model_calls = 0
        self._recorded_before = self.run.llm_calls
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.stopping = False
        self.sealing = False
        self.finished = asyncio.Event()
        self.wake = asyncio.Event()
        self._temp: dict[str, Json] = {}
        self._local_stop: CancelRequested | None = None
        self._save_timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> SessionKey:
        return self.log.key

    @property
    def session(self) -> SessionState:
        return self.log.state

    @property
    def run(self) -> RunState:
        return self.log.state.run(self.run_id)

    def stamp(self) -> tuple[str, float]:
        return self.services.stamp()

    # --- stops ----------------------------------------------------------------------------------------------------

    @property
    def stop_asked(self) -> CancelRequested | None:
        """The stop that was asked for: durable, or, where the store could not take it, known to this process only."""
        return self.run.cancel or self._local_stop

    def stop_locally(self, cause: Cause, by: str = "runtime", reason: str = "") -> None:
        """Stop although the store cannot record the request: a stop always stops."""
        record_id, time = self.stamp()
        self._local_stop = CancelRequested(
            id=record_id, time=time, run_id=self.run_id, cause=cause, by=by, reason=reason
        )
        self.wake.set()

    async def request_stop(self, cause: Cause, by: str, reason: str = "") -> None:
        """Ask for a stop, durably; where the store cannot take it, in this process."""
        try:
            await ask_to_stop(self.services, self.log, self.run_id, cause, by=by, reason=reason)
        except StoreError:
            logger.exception("the stop of run %s could not be recorded; stopping it all the same", self.run_id)
            self.stop_locally(cause, by, reason)

    def look(self) -> None:
        """Wake the supervisor if a stop has come into the log, or the run's ending by another worker."""
        if self.sealing or self.stopping:
            return
        if self.run.ended is not None:
            self.stop_locally("lease_lost")
        elif self.stop_asked is not None:
            self.wake.set()

    def check(self) -> None:
        """Raise `RunCancelled` if the run was asked to stop, or has ended."""
        stop = self.stop_asked
        if stop is not None:
            raise RunCancelled(self.run_id, stop.cause)
        if self.sealing or self.finished.is_set():
            raise RunCancelled(self.run_id, "lease_lost")

    # --- records --------------------------------------------------------------------------------------------------

    def stage(self, *records: Record) -> None:
        self.journal.stage(*records)

    async def flush(self) -> None:
        await self.journal.flush()
        await self.journal.tell()
        self.check()

    def state_view(self) -> StateView:
        state = self.log.state
        return StateView((state.state, state.shared), self._temp)

    async def unless_stopped(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do work that comes before the run's start. A stop does not wait for it, whatever it does about that.

        Raises:
            RunCancelled: the run was asked to stop.
        """
        task = asyncio.ensure_future(work)
        self.services.background.add(task)
        task.add_done_callback(self.services.background.discard)
        task.add_done_callback(lambda _: self.wake.set())
        unwatch = self.log.watch(self.look)
        try:
            while not task.done() and self.stop_asked is None:
                self.wake.clear()
                await self.wake.wait()
        finally:
            unwatch()
            task.cancel()
        self.check()
        return task.result()

    # --- agents ---------------------------------------------------------------------------------------------------

    async def work(self, agent: BaseAgent) -> None:
        """Do the run's work: plugins around the run, and the agent that takes the input."""
        carried_run.set(self.run_id)
        hooks = self.services.app.hooks
        ctx = AgentContext(self, agent, "")
        said = None
        if hooks.at("before_run"):
            said = await hooks.first("before_run", (), ctx)
            self.check()
        if said is None:
            await self.enter(agent, "", None)
        else:
            await ctx.say(*as_content(said).parts)
        if hooks.at("after_run"):
            await self.flush()
            await hooks.first("after_run", (), ctx)
        ctx.stage()

    async def enter(self, agent: BaseAgent, branch: str, parent: AgentContext | None) -> None:
        self.check()
        ctx = AgentContext(self, agent, branch)
        hooks = self.services.app.hooks
        if not (agent.before_agent_callbacks or hooks.at("before_agent")) or not await self._say_first(
            ctx, "before_agent", agent.before_agent_callbacks
        ):
            await self.flush()  # an agent sees what those before it have set
            await agent.run(ctx)
            if agent.after_agent_callbacks or hooks.at("after_agent"):
                await self._say_first(ctx, "after_agent", agent.after_agent_callbacks)
        ctx.end()

    async def _say_first(self, ctx: AgentContext, point: object, own: Sequence[object]) -> bool:
        await self.flush()
        said: Content | str | None = await self.services.app.hooks.first(point, own, ctx)  # type: ignore[arg-type]
        self.check()
        ctx.stage()
        if said is not None:
            await ctx.say(*as_content(said).parts)
        return said is not None

    async def call_model(self, agent: LlmAgent, ctx: AgentContext) -> Message:
        return await ask_model(self, agent, ctx)

    async def run_calls(self, agent: LlmAgent, ctx: AgentContext, calls: Sequence[FunctionCall]) -> None:
        await execute_calls(self, agent, ctx, calls)

    async def run_task(self, agent: BaseAgent, branch: str, task: str) -> str:
        """Run an agent in an isolated branch with a task of its own; return the last text that was said there."""
        record_id, time = self.stamp()
        self.stage(
            Message(
                id=record_id, time=time, run_id=self.run_id, author="user", branch=branch,
                parts=Content.of(task).parts,
            )
        )  # fmt: skip
        await self.flush()
        since = self.session.last_seq
        await self.enter(agent, branch, None)
        await self.flush()
        for record in reversed(self.session.records[since:]):
            if isinstance(record, Message) and is_within(record.branch, branch) and text_of(record.parts):
                return text_of(record.parts)
        return ""

    @property
    def stragglers(self) -> list[asyncio.Task[None]]:
        """What still works: tools and, if agents or callbacks swallow their cancellation, the agents' own task."""
        tasks = [self.task, *(operation.task for operation in self.operations.values())]
        return [task for task in tasks if task is not None and not task.done()]

    @property
    def unrecorded_model_calls(self) -> int:
        """How many requests of this attempt are under way, or have left no message in the log."""
        return self.model_calls - (self.run.llm_calls - self._recorded_before)

    # --- drafts ---------------------------------------------------------------------------------------------------

    def draft_grew(self, draft: LiveDraft) -> None:
        """Show readers what is new of a draft, and see to it that it is saved soon (every 250 ms or 1 kB)."""
        self.log.notify()
        if draft.unsaved >= SAVE_AFTER_CHARACTERS:
            self._save_drafts()
        elif self._save_timer is None:
            self._save_timer = asyncio.get_running_loop().call_later(SAVE_AFTER_SECONDS, self._save_drafts)

    def forget_draft(self, draft: LiveDraft) -> None:
        """The draft became a message, or its request failed."""
        self.drafts.pop(draft.message_id, None)
        if not self.drafts and self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None

    def keep_cut_drafts(self, author: str, branch: str) -> None:
        """An agent's request failed in mid-answer and the run goes on: what was seen of it is kept, marked as cut."""
        for draft in [draft for draft in self.drafts.values() if (draft.author, draft.branch) == (author, branch)]:
            self.forget_draft(draft)
            self.stage(draft.cut_off("error", self.services.clock.time()))

    def _save_drafts(self) -> None:
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None
        unsaved = [draft for draft in self.drafts.values() if draft.unsaved]
        if unsaved and not self.sealing:
            for draft in unsaved:
                draft.unsaved = 0
            snapshots = [draft.snapshot() for draft in unsaved]
            self.services.spawn(self.services.store.save_drafts(self.key, snapshots), f"save drafts of {self.run_id}")
