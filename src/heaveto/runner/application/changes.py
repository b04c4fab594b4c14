"""What a run that is to go on needs of an app's agents and tools, and does not find there any more. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heaveto.agents.base import BaseAgent
from heaveto.agents.llm import LlmAgent
from heaveto.agents.tool import AgentTool
from heaveto.agents.workflow import CURRENT, LoopAgent, ParallelAgent, SequentialAgent
from heaveto.core.close import Stamp
from heaveto.core.fold import CallState, RunState, calls_around
from heaveto.events.records import CallSettled

_OURS = {agent.run for agent in (LlmAgent, SequentialAgent, ParallelAgent, LoopAgent)}
"""Agents that run no others than those below them. One in plain Python may keep some to itself."""


def missing_pieces(run: RunState, agents: Mapping[str, BaseAgent]) -> tuple[str, ...]:
    """Return which agents and tools a run needs that are not among `agents`, which are all there are, by name.

    A call that waits, or that a dead process had started, needs its tool. One that was only made does not: models call
    tools that never were. What a toolset has is not known before it is opened.
    """
    missing = [f"agent {name!r}" for name in gone_agents(run, agents)]
    for call in run.calls.values():
        agent = agents.get(call.agent)
        if not isinstance(agent, LlmAgent) or agent.toolsets:
            continue
        if call.phase in ("started", "waiting") and call.call.name not in agent.toolbox:
            missing.append(f"tool {call.call.name!r} of agent {call.agent!r}")
    return tuple(dict.fromkeys(missing))


def gone_agents(run: RunState, agents: Mapping[str, BaseAgent]) -> list[str]:
    """Return the agents that a run is in the midst of, or goes on with, and that are not there."""
    needed = [*_named(run, agents), *_at_work(run, agents)]
    return [name for name in dict.fromkeys(needed) if name and name not in agents]


def close_calls_of(names: list[str], run: RunState, *, stamp: Stamp) -> list[CallSettled]:
    """Return the settlements of open calls of agents that are gone."""
    calls = [call for call in run.calls.values() if call.settled is None and call.agent in names]
    return [_closed(call, *stamp()) for call in calls]


def _closed(call: CallState, record_id: str, time: float) -> CallSettled:
    name, call_id = call.call.name, call.call.call_id
    if call.phase == "started":
        return CallSettled(
            id=record_id, time=time, run_id=call.run_id, call_id=call_id, name=name, status="unknown", cause="crash"
        )
    why = f"The agent {call.agent!r} that made this call is not available any more. The call was not executed."
    return CallSettled(
        id=record_id, time=time, run_id=call.run_id, call_id=call_id, name=name, status="failed",
        response={"error": why},
    )  # fmt: skip


def _named(run: RunState, agents: Mapping[str, BaseAgent]) -> Iterator[str]:
    """The agents that the log names as those who go on."""
    yield _last_of(run.agent)
    for (_, name), checkpoint in run.checkpoints.items():
        if isinstance(agents.get(name), (SequentialAgent, LoopAgent)) and not checkpoint.end_of_agent:
            yield str((checkpoint.agent_state or {}).get(CURRENT, ""))
    for (branch, _), thread in run.threads.items():
        if thread.transferred is not None and not _may_be_private(branch, run, agents):
            yield _last_of(thread.transferred)


def _at_work(run: RunState, agents: Mapping[str, BaseAgent]) -> Iterator[str]:
    """The agents that have begun and not ended."""
    begun = [(branch, name) for (branch, name), last in run.checkpoints.items() if not last.end_of_agent]
    calling = [(call.branch, call.agent) for call in run.calls.values() if call.settled is None]
    for branch, name in (*begun, *run.threads, *calling):
        if not _may_be_private(branch, run, agents):
            yield name


def _may_be_private(branch: str, run: RunState, agents: Mapping[str, BaseAgent]) -> bool:
    """Whether an agent at work in a branch may be one that code in plain Python keeps to itself."""
    around = calls_around(branch)
    if not around:
        return any(type(agent).run not in _OURS for agent in agents.values())
    call = run.calls.get(around[-1])
    agent = agents.get(call.agent) if call is not None else None
    tool = agent.toolbox.get(call.call.name) if call is not None and isinstance(agent, LlmAgent) else None
    return not isinstance(tool, AgentTool) or any(type(one).run not in _OURS for one in tool.agent.walk())


def _last_of(path: str) -> str:
    return path.rpartition("/")[2]
