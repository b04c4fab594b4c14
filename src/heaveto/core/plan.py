"""The plan: what an agent with a model does next, decided from the log alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from heaveto.core.fold import CallState, RunState


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model."""


@dataclass(frozen=True, slots=True)
class RunCalls:
    """Execute these proposed calls, then plan again."""

    calls: tuple[CallState, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can go on until these calls are settled from elsewhere."""

    call_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HandOver:
    """Another agent goes on; `agent` is its path."""

    agent: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The agent's turn is over."""


Step: TypeAlias = CallModel | RunCalls | Wait | HandOver | Finish


def plan_step(run: RunState, agent: str, branch: str) -> Step:
    """Return the next step of an agent, from what its run's log says since the agent was entered."""
    thread = run.threads.get((branch, agent))
    if thread is None or thread.last is None:
        return CallModel()
    calls = [run.calls[call_id] for call_id in thread.call_ids if call_id in run.calls]
    if not calls:
        # Text that was handed to the running agent after its request was made wants an answer too.
        return CallModel() if not branch and run.steered_seq > thread.last.seen > 0 else Finish()
    proposed = tuple(call for call in calls if call.phase == "proposed")
    if proposed:
        return RunCalls(proposed)
    unsettled = tuple(call.call.call_id for call in calls if call.settled is None)
    if unsettled:
        return Wait(unsettled)
    if thread.transferred is not None:
        return HandOver(thread.transferred)
    if any(call.settled is not None and call.settled.end_turn for call in calls):
        return Finish()
    return CallModel()
