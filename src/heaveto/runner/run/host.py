"""What agents ask of the run that they work for, performed (`heaveto.agents.context.RunHost`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from heaveto.agents.base import AgentCallback, BaseAgent, do_part
from heaveto.agents.context import AgentContext, PausePoint
from heaveto.agents.llm import LlmAgent
from heaveto.core.fold import is_within
from heaveto.errors import CallWaits
from heaveto.events.contents import Content, FunctionCall, text_of
from heaveto.events.records import Message, Paused, WaitingCall
from heaveto.runner.application.hooks import call_back
from heaveto.runner.run.calls.step import execute_calls
from heaveto.runner.run.live import LiveRun
from heaveto.runner.run.model_step import ask_model
from heaveto.runner.session.stops import carried_run


class AgentHost(LiveRun):
    """A live run, with the agents' work in it."""

    async def work(self, agent: BaseAgent) -> None:
        """Do the run's work: plugins around the run, and the agent that takes the input."""
        carried_run.set(self.run_id)
        hooks = self.services.app.hooks
        ctx = AgentContext(self, agent, "")
        said: Content | None = None
        if hooks.at("before_run"):
            said = await hooks.first("before_run", (), ctx)
            self.check()
        if said is None:
            self.is_held = not await self.enter(agent, "", self.run.started_seq if self.is_resuming else None)
            if self.is_held:
                return
        else:
            await ctx.say(*said.parts)
        if hooks.at("after_run"):
            await self.flush()
            for callback in hooks.at("after_run"):
                await call_back(callback, ctx)
        ctx.stage()

    async def enter(self, agent: BaseAgent, branch: str, since: int | None = None) -> bool:
        self.check()
        if since is not None and self._has_ended(agent, branch, since):
            return True
        if await self.pauses("after_turn"):
            return False
        ctx = AgentContext(self, agent, branch)
        hooks = self.services.app.hooks
        if not (agent.before_agent_callbacks or hooks.at("before_agent")) or not await self._say_first(
            ctx, "before_agent", agent.before_agent_callbacks
        ):
            await self.flush()  # an agent sees what those before it have set
            await do_part(agent, ctx)
            if ctx.held:
                return False
            if agent.after_agent_callbacks or hooks.at("after_agent"):
                await self._say_first(ctx, "after_agent", agent.after_agent_callbacks)
        ctx.end()
        return True

    async def pauses(self, at: PausePoint) -> bool:
        """Whether an operator wants the run to pause here; then that is recorded, and the agents return."""
        wanted = self.run.pause
        if wanted is not None and wanted.at == at:
            record_id, time = self.stamp()
            held = WaitingCall(call_id=f"operator-{wanted.seq}", kind="operator", hint=wanted.reason)
            self.stage(Paused(id=record_id, time=time, run_id=self.run_id, waiting=(held,), held=True))
            await self.flush()
        return self.run.operator is not None

    def _has_ended(self, agent: BaseAgent, branch: str, since: int) -> bool:
        last = self.run.checkpoints.get((branch, agent.name))
        return last is not None and last.end_of_agent and last.seq > since

    async def _say_first(
        self, ctx: AgentContext, point: Literal["before_agent", "after_agent"], own: Sequence[AgentCallback]
    ) -> bool:
        """Ask the callbacks at a point; let the agent say what one of them returns. Return whether one did."""
        await self.flush()
        said: Content | None = await self.services.app.hooks.first(point, own, ctx)
        self.check()
        ctx.stage()
        if said is not None:
            await ctx.say(*said.parts)
        return said is not None

    async def call_model(self, agent: LlmAgent, ctx: AgentContext) -> Message:
        return await ask_model(self, agent, ctx)

    async def run_calls(self, agent: LlmAgent, ctx: AgentContext, calls: Sequence[FunctionCall]) -> None:
        await execute_calls(self, agent, ctx, calls)

    async def run_task(self, agent: BaseAgent, branch: str, task: str) -> str:
        """Run an agent in an isolated branch with a task of its own; return the last text that was said there.

        If that was begun before, it goes on from there.

        Raises:
            CallWaits: calls of it wait for answers.
        """
        since = self._task_given(branch) if self.is_resuming else 0
        if not since:
            record_id, time = self.stamp()
            self.stage(
                Message(
                    id=record_id, time=time, run_id=self.run_id, author="user", branch=branch,
                    parts=Content.of(task).parts,
                )
            )  # fmt: skip
            await self.flush()
            since = self.session.last_seq
        if not await self.enter(agent, branch, since):
            raise CallWaits
        await self.flush()
        for record in reversed(self.session.records[since:]):
            if isinstance(record, Message) and is_within(record.branch, branch) and text_of(record.parts):
                return text_of(record.parts)
        return ""

    def _task_given(self, branch: str) -> int:
        """Return the seq of the task in an isolated branch, or 0 if none was given there."""
        for record in self.session.records[self.run.started_seq :]:
            if isinstance(record, Message) and record.author == "user" and record.branch == branch:
                return record.seq
        return 0
