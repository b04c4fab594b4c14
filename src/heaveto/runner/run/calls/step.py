"""Executing the calls of one model message: in which order they run, and each settled as it finishes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from heaveto.agents.context import AgentContext
from heaveto.agents.llm import LlmAgent
from heaveto.core.fold import calls_around
from heaveto.events.contents import FunctionCall
from heaveto.events.records import CallSettled, Cause, Paused, Record, WaitingCall
from heaveto.runner.run.calls.operation import ToolOperation
from heaveto.runner.run.calls.preparation import Preparation, has_outcome, settle_call, unknown_call
from heaveto.runner.run.live import LiveRun


async def execute_calls(live: LiveRun, agent: LlmAgent, ctx: AgentContext, calls: Sequence[FunctionCall]) -> None:
    """Execute calls and return when each is settled, or in the background.

    A call that a dead process had started is executed again, looked into or settled as unknown, as its tool allows.

    Raises:
        ToolFatalError: a tool demanded that the run fail; no sibling is started any more, the run's end stops the rest.
        RunCancelled: the run was stopped.
    """
    if live.config.tool_execution_mode == "SEQUENTIAL":
        for call in calls:
            await _execute(live, agent, ctx, [call], step=calls)
    else:
        await _execute(live, agent, ctx, calls, step=calls)


async def _execute(
    live: LiveRun, agent: LlmAgent, ctx: AgentContext, calls: Sequence[FunctionCall], *, step: Sequence[FunctionCall]
) -> None:
    ready: list[ToolOperation] = []
    settled: dict[str, list[Record]] = {}
    waiting: list[WaitingCall] = []
    for call in calls:
        verdict = await Preparation(live, agent, ctx, call).verdict()
        match verdict:
            case ToolOperation():
                ready.append(verdict)
            case WaitingCall():
                waiting.append(verdict)
            case _:
                settled[call.call_id] = verdict
    # Others were prepared meanwhile, and one of these may have been stopped.
    staged = [record for call_id, records in settled.items() if not has_outcome(live, call_id) for record in records]
    waiting = [one for one in waiting if not has_outcome(live, one.call_id)]
    if waiting:
        staged.append(_asked_for(live, waiting))
    if staged:
        live.stage(*staged)
        await live.flush()
    if ready:
        await _Group(live, _lanes(live, ready), step).run()


def _asked_for(live: LiveRun, waiting: Sequence[WaitingCall]) -> Paused:
    """Return the record that makes calls wait: they can be answered from now on, whatever else the run still does."""
    record_id, time = live.stamp()
    return Paused(id=record_id, time=time, run_id=live.run_id, waiting=tuple(waiting), held=True)


def _lanes(live: LiveRun, ready: Sequence[ToolOperation]) -> list[list[ToolOperation]]:
    """Return lanes that run at the same time, each of calls that run in order."""
    if live.config.tool_execution_mode == "PARALLEL_SUBSCRIBE":
        return [[operation] for operation in ready]
    blocking = [operation for operation in ready if operation.tool.blocking]
    lanes = [[operation] for operation in ready if not operation.tool.blocking]
    return [*lanes, blocking] if blocking else lanes


def _has_failed(settled: CallSettled) -> bool:
    """Whether a call failed by itself. That nobody knows its outcome counts; that it was stopped does not."""
    is_in_doubt = settled.status == "unknown" and settled.cause is None
    return settled.status == "failed" or settled.cause == "timeout" or is_in_doubt


class _Group:
    """Calls that run at the same time, in lanes of such as run one after another."""

    def __init__(self, live: LiveRun, lanes: Sequence[Sequence[ToolOperation]], step: Sequence[FunctionCall]) -> None:
        self.live, self.lanes = live, lanes
        self.operations = [operation for lane in lanes for operation in lane]
        self._step = [call.call_id for call in step]
        self._fails_all = live.config.on_call_error == "fail_all"

    async def run(self) -> None:
        for operation in self.operations:
            self.live.operations[operation.call_id] = operation
            operation.look()
        if self._fails_all:
            self._fail_all()
        at_once = [lane for lane in self.lanes if self._enter_at_once(lane[0])]
        began = await self._begin([lane[0] for lane in at_once])
        followers = [
            asyncio.ensure_future(self._follow(lane, began=lane[0] in began))
            for lane in self.lanes
            if len(lane) > 1 or lane not in at_once
        ]
        waiting: set[asyncio.Future[None]] = {*(operation.call.released for operation in began), *followers}
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                self._look(done.intersection(followers))
        except asyncio.CancelledError:
            await self._end_with_agent()
            raise
        finally:
            for follower in followers:
                follower.cancel()
            for operation in self.operations:
                operation.call.place.leave()

    async def _end_with_agent(self) -> None:
        """Stop what the agent has begun if it is stopped alone, such as an agent that works as a tool (F154).

        Waits for that until the agent is interrupted once more.
        """
        if self.live.stop_asked is not None or self.live.stopping:
            return  # the run's stop reaches all
        cause = self._cause_of_agent()
        for operation in self.operations:
            operation.call.cut(cause)
        await self._begin([operation for operation in self.operations if operation.task is None])
        going_on = {operation.call.released for operation in self.operations if operation.task is not None}
        if going_on:
            await asyncio.wait(going_on)

    def _cause_of_agent(self) -> Cause:
        """Why the call is stopped that the agent works for; where it works for none, another part of the run failed."""
        around = calls_around(self.operations[0].call.agent_ctx.branch)
        outer = self.live.operations.get(around[-1]) if around else None
        cause = outer.attempt.cancelled if isinstance(outer, ToolOperation) else None
        return cause or "error"

    def _look(self, followers: set[asyncio.Future[None]]) -> None:
        for operation in self.operations:
            self._raise_fatal(operation)
        for follower in followers:
            follower.result()
        if self._fails_all:
            self._fail_all()

    def _fail_all(self) -> None:
        """If a call of the step has failed, stop those that run, and start no other."""
        calls = (self.live.run.calls.get(call_id) for call_id in self._step)
        if any(call is not None and call.settled is not None and _has_failed(call.settled) for call in calls):
            for operation in self.operations:
                operation.call.cut("sibling")

    def _raise_fatal(self, operation: ToolOperation) -> None:
        """Raise what fails the run: a tool's or a callback's wish, or the error that kept a result from the log."""
        task = operation.task
        if task is None or not task.done() or operation.is_in_background:
            return
        if operation.call.fatal is not None:
            raise operation.call.fatal
        if not (task.cancelled() and self._is_settled(operation)):
            task.result()

    def _is_settled(self, operation: ToolOperation) -> bool:
        call = self.live.run.calls.get(operation.call_id)
        return call is None or call.settled is not None

    async def _follow(self, lane: Sequence[ToolOperation], *, began: bool) -> None:
        """Carry a lane from its first call that did not begin at once. Each is committed when its turn comes."""
        previous: ToolOperation | None = None
        for operation in lane:
            if previous is not None and previous.call.fatal is not None:
                return
            if not (began and previous is None):
                await operation.call.enter_line()
                await self._begin([operation])
            if operation.task is not None:
                await asyncio.wait({operation.call.released})
            previous = operation

    def _enter_at_once(self, operation: ToolOperation) -> bool:
        return operation.call.stop_cause is not None or operation.call.place.enter_at_once()

    async def _begin(self, operations: Sequence[ToolOperation]) -> list[ToolOperation]:
        """Make the starts durable, unless a stop came first. Then, and only then, may the work begin (P5).

        Of a call that was itself stopped before, it becomes durable that it was not started, or is in doubt.
        """
        if not operations:
            return []

        def records() -> list[Record]:
            return [record for operation in operations if (record := self._first_record(operation)) is not None]

        await self.live.journal.commit(records)
        await self.live.journal.tell()
        self.live.check()
        began = [operation for operation in operations if not self._is_settled(operation)]
        for operation in began:
            operation.start()
        for operation in operations:
            if operation not in began:
                operation.call.place.leave()
        return began

    def _first_record(self, operation: ToolOperation) -> Record | None:
        operation.look()
        if has_outcome(self.live, operation.call_id):
            return None
        cause = operation.call.stop_cause
        if cause is not None and self.live.stop_asked is None:
            if operation.in_doubt:
                return unknown_call(self.live, operation.call.call, cause)
            return settle_call(self.live, operation.call.call, "not_started", None, cause)
        return None if operation.probing else operation.started()
