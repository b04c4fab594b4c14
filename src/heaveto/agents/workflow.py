"""Workflow agents: one after another, side by side, again and again.

Each records a checkpoint before it goes on, so that a resumed run knows where it was; the sequences of checkpoints are
ADK's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from heaveto.agents.base import AgentCallback, BaseAgent
from heaveto.agents.context import AgentContext
from heaveto.errors import ConfigError, LoopStalledError
from heaveto.events.records import AgentCheckpoint

CURRENT = "current_sub_agent"
LOOPED = "times_looped"


def _place(ctx: AgentContext) -> tuple[int, AgentCheckpoint | None]:
    """Return the position of the sub-agent that goes on, and the checkpoint that says that it was begun.

    A sub-agent that is gone is left out: the one goes on that now stands behind the last one before it.
    """
    resumed, names = ctx.resumed_from, [child.name for child in ctx.agent.sub_agents]
    if resumed is None:
        return 0, None
    if _current(resumed) in names:
        return names.index(_current(resumed)), resumed
    begun = [
        names.index(_current(record))
        for record in ctx.host.session.records[ctx.host.run.started_seq - 1 : resumed.seq]
        if isinstance(record, AgentCheckpoint)
        and (record.run_id, record.branch, record.agent) == (resumed.run_id, resumed.branch, resumed.agent)
        and _current(record) in names
    ]
    return (begun[-1] + 1 if begun else 0), None


def _current(checkpoint: AgentCheckpoint) -> str:
    return str((checkpoint.agent_state or {}).get(CURRENT))


def _rounds(resumed: AgentCheckpoint | None) -> int:
    looped = (resumed.agent_state or {}).get(LOOPED) if resumed is not None else 0
    return looped if isinstance(looped, int) else 0


def _seq(resumed: AgentCheckpoint | None) -> int | None:
    return None if resumed is None else resumed.seq


class SequentialAgent(BaseAgent):
    """Runs its sub-agents one after another. Checkpoint: ``{current_sub_agent}``."""

    async def run(self, ctx: AgentContext) -> None:
        position, resumed = _place(ctx)
        for child in self.sub_agents[position:]:
            if resumed is None:
                await ctx.checkpoint({CURRENT: child.name})
            if not await ctx.run_agent(child, since=_seq(resumed)):
                return
            resumed = None


class ParallelAgent(BaseAgent):
    """Runs its sub-agents at the same time, each in a branch of its own. Checkpoint: ``{}``.

    They do not see each other's messages; agents that come later see all of them. If one waits for an answer, the
    others go on to their ends. If one fails, the others are stopped and the run fails.
    """

    async def run(self, ctx: AgentContext) -> None:
        resumed = ctx.resumed_from
        if resumed is None:
            await ctx.checkpoint({})
        try:
            async with asyncio.TaskGroup() as group:
                for child in self.sub_agents:
                    name = f"{self.name}.{child.name}"
                    branch = f"{ctx.branch}.{name}" if ctx.branch else name
                    group.create_task(ctx.run_agent(child, branch=branch, since=_seq(resumed)))
        except BaseExceptionGroup as failures:
            raise _first(failures) from failures


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first failure of a group; the others are consequences, or lost to it in time."""
    first = failures.exceptions[0]
    return _first(cast("BaseExceptionGroup[BaseException]", first)) if isinstance(first, BaseExceptionGroup) else first


class LoopAgent(BaseAgent):
    """Runs its sub-agents in turn until one escalates or `max_iterations` is reached.

    Checkpoint: ``{current_sub_agent, times_looped}``, with the number of completed rounds.

    A loop without `max_iterations` must get on: a round in which no agent says anything, sets state or does anything
    else that is recorded fails the run with `LoopStalledError`, because the next round would be the same, as fast as
    it can, for ever. A loop that waits for something outside gets a bound.
    """

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        sub_agents: Sequence[BaseAgent] = (),
        max_iterations: int | None = None,
        before_agent_callback: AgentCallback | Sequence[AgentCallback] | None = None,
        after_agent_callback: AgentCallback | Sequence[AgentCallback] | None = None,
    ) -> None:
        if max_iterations is not None and max_iterations < 1:
            raise ConfigError(f"loop agent {name!r}: max_iterations must be at least 1, not {max_iterations}")
        super().__init__(
            name,
            description=description,
            sub_agents=sub_agents,
            before_agent_callback=before_agent_callback,
            after_agent_callback=after_agent_callback,
        )
        self.max_iterations = max_iterations

    async def run(self, ctx: AgentContext) -> None:
        looped = _rounds(ctx.resumed_from)
        position, resumed = _place(ctx)
        while self.sub_agents and (self.max_iterations is None or looped < self.max_iterations):
            round_began = ctx.host.session.last_seq
            for child in self.sub_agents[position:]:
                before = ctx.host.session.last_seq if resumed is None else resumed.seq
                if resumed is None:
                    await ctx.checkpoint({CURRENT: child.name, LOOPED: looped})
                if not await ctx.run_agent(child, since=_seq(resumed)):
                    return
                await ctx.host.flush()
                resumed = None
                if ctx.host.run.has_escalated(ctx.branch, since=before):
                    return
            looped, position = looped + 1, 0
            recorded = ctx.host.session.records[round_began:]
            if self.max_iterations is None and all(isinstance(record, AgentCheckpoint) for record in recorded):
                raise LoopStalledError(self.name)
