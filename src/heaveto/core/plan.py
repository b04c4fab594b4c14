"""The plan: what an agent with a model does next, decided from the log alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from heaveto.core.fold import CallState, RunState
from heaveto.events.contents import FunctionCall, calls_of
from heaveto.events.records import Message


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model."""


@dataclass(frozen=True, slots=True)
class RunCalls:
    """See these calls settled, then plan again: execute what is proposed, decide about what a dead process started."""

    calls: tuple[FunctionCall, ...]


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
    """Return the next step of an agent, from what its run's log says since the agent was entered.

    Asked where no call of the agent is under way in this process: what was started and is not settled is in doubt, also
    where it has asked something; unless it is an agent that works as a tool, and one of its own calls waits.
    """
    thread = run.threads.get((branch, agent))
    if thread is None or thread.last is None:
        return CallModel()
    calls = [run.calls[call_id] for call_id in thread.call_ids if call_id in run.calls]
    if not calls:
        return CallModel() if thread.last.interrupted is not None else plan_answer(run, thread.last)
    unsettled = [call for call in calls if call.settled is None]
    waiting = tuple(call.call.call_id for call in unsettled if _waits(run, call))
    ready = tuple(call.call for call in unsettled if call.call.call_id not in waiting)
    if ready:
        return RunCalls(ready)
    if waiting:
        return Wait(waiting)
    if thread.last.interrupted is not None:
        return CallModel()
    if thread.transferred is not None:
        return HandOver(thread.transferred)
    ends_turn = any(call.settled is not None and call.settled.end_turn for call in calls)
    return Finish() if ends_turn and not _is_steered(run, thread.last) else CallModel()


def plan_answer(run: RunState, answer: Message) -> Step:
    """Return the step after a model's answer that may not be in the log yet."""
    calls = calls_of(answer.parts)
    if calls:
        return RunCalls(calls)
    return CallModel() if _is_steered(run, answer) else Finish()


def _waits(run: RunState, call: CallState) -> bool:
    """Whether a call holds its agent up. One that was started and asked something did so in a process that is gone."""
    asks = call.is_waiting and call.phase == "waiting"
    return asks or run.waits_in(call.call.call_id)


def _is_steered(run: RunState, answer: Message) -> bool:
    """Whether text was handed to the run after the answer's request was made: it wants an answer too."""
    return not answer.branch and run.steered_seq > answer.seen > 0
