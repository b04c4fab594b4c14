"""Executing the calls of one model message: what may run, in which order, and each settled as it finishes."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from heaveto.agents.context import AgentContext
from heaveto.agents.llm import LlmAgent
from heaveto.core.close import output_response
from heaveto.core.failure import message_of
from heaveto.core.fold import CallState, calls_around
from heaveto.core.replay import recover_call
from heaveto.errors import CallbackAnswerError, NotSerializableError, ToolArgumentsError
from heaveto.events.codec import decode_value, encode_value
from heaveto.events.contents import FunctionCall, Json, text_of
from heaveto.events.records import CallSettled, CallStatus, Cause, Paused, Record, WaitingCall
from heaveto.runner.run.calls.operation import ToolOperation
from heaveto.runner.run.live import LiveRun
from heaveto.tools.base import Confirmation, Tool
from heaveto.tools.response import to_response


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
        verdict = await _Preparation(live, agent, ctx, call).verdict()
        match verdict:
            case ToolOperation():
                ready.append(verdict)
            case WaitingCall():
                waiting.append(verdict)
            case _:
                settled[call.call_id] = verdict
    # Others were prepared meanwhile, and one of these may have been stopped.
    staged = [record for call_id, records in settled.items() if not _has_outcome(live, call_id) for record in records]
    waiting = [one for one in waiting if not _has_outcome(live, one.call_id)]
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


# --- what may run -------------------------------------------------------------------------------------------------


class _Preparation:
    """What comes before a call's start: may it be executed, and with what."""

    def __init__(self, live: LiveRun, agent: LlmAgent, ctx: AgentContext, call: FunctionCall) -> None:
        self.live, self.agent, self.ctx, self.call = live, agent, ctx, call
        self.known = live.run.calls.get(call.call_id)

    async def verdict(self) -> ToolOperation | WaitingCall | list[Record]:
        """Return the operation to start, what the call waits for, or the settlement of one that is not executed."""
        known = self.known
        if _has_outcome(self.live, self.call.call_id):
            return []  # it was stopped before its turn
        if known is not None and known.phase == "started":
            return self._in_doubt()
        if known is not None and known.phase == "waiting":
            return await self._answered(known)
        call, tool = self.call, self.agent.toolbox.get(self.call.name)
        if call.defect:
            what = "were cut off before they were complete" if call.defect == "truncated" else "are not a JSON object"
            return self._refused(f"The arguments {what}.")
        if tool is None:
            there = ", ".join(self.agent.toolbox) or "none"
            return self._failed(f"There is no tool {call.name!r}. The tools are: {there}.")
        bound = self._bound(tool, call.args)
        if isinstance(bound, str):
            return self._refused(bound)
        operation = ToolOperation(self.live, self.agent, self.ctx, call, tool, bound, call.args)
        held = await self._held(operation)
        if held is not None:
            return held
        return await self._hooked(operation)

    async def _hooked(self, operation: ToolOperation) -> ToolOperation | list[Record]:
        if self.agent.before_tool_callbacks or self.live.services.app.hooks.at("before_tool"):
            return await self._asked(operation)
        return operation

    def _bound(self, tool: Tool, args: dict[str, Json]) -> dict[str, Any] | str:
        """Return what the tool gets, or why the arguments do not fit."""
        try:
            return tool.bind(args)
        except ToolArgumentsError as error:
            return message_of(error)
        except Exception as error:  # noqa: BLE001 - a validator of the tool's author that raises something of its own
            return f"{type(error).__name__}: {message_of(error)}"

    async def _asked(self, operation: ToolOperation) -> ToolOperation | list[Record]:
        """Ask the before-tool callbacks. They may give a result, or change the arguments in place, as ADK's do."""
        await self.live.flush()
        args = copy.deepcopy(operation.args)
        own, hooks = self.agent.before_tool_callbacks, self.live.services.app.hooks
        given = None
        operation.look()
        if operation.stop_cause is not None:
            return operation  # it was stopped, and is not started
        try:
            with _UntilStopped(self.live, operation):
                given = await hooks.first("before_tool", own, operation.tool, args, operation.attempt.ctx)
        except CallbackAnswerError:
            raise
        except Exception as error:  # noqa: BLE001 - treated as an error of the tool
            self.live.check()
            return await self._early(operation, await operation.refused(error))
        self.live.check()  # whatever the callback said: a stop came first (F153)
        if operation.stop_cause is not None:
            return operation
        if given is not None:
            return await self._early(operation, await operation.replaced(given))
        self.live.stage(*operation.state_changes())  # theirs, not the attempt's: no other one asks them again
        try:
            args = decode_value(encode_value(args, "args"))
        except NotSerializableError as error:
            return self._refused(f"A callback changed the arguments, and they do not fit: {message_of(error)}.")
        if args != operation.args:
            bound = self._bound(operation.tool, args)
            if isinstance(bound, str):
                return self._refused(f"A callback changed the arguments, and they do not fit: {bound}")
            operation.args, operation.bound = args, bound
        return operation

    async def _held(self, operation: ToolOperation) -> WaitingCall | list[Record] | None:
        """Return what has to come from outside before the call is executed, or instead of that."""
        try:
            hold = await operation.tool.hold(operation.bound, operation.attempt.ctx)
        except Exception as error:  # noqa: BLE001 - an edge: the tool's own code
            self.live.check()
            return await self._early(operation, await operation.refused(error))
        if hold is None:
            return None
        return operation.waiting(hold.kind, hold.hint, hold.schema, hold.payload, hold.within_seconds, hold.default)

    async def _answered(self, known: CallState) -> ToolOperation | list[Record]:
        """Go on with a call that waited: its answer settles it, or lets it be executed."""
        answer, stop = known.answer, known.cancel
        if answer is None:
            assert stop is not None
            status: CallStatus = "cancelled" if known.has_started else "not_started"
            return [settle_call(self.live, self.call, status, None, stop.cause)]
        cause: Cause | None = "expired" if answer.expired else None
        if answer.decision == "deny":
            reason: dict[str, Json] | None = {"reason": answer.value} if answer.value not in (None, "") else None
            status = "cancelled" if known.question is not None and known.question.kind == "long_running" else "denied"
            return [settle_call(self.live, self.call, status, reason, cause)]
        if answer.decision != "approve":
            return [settle_call(self.live, self.call, "succeeded", to_response(answer.value), cause)]
        tool = self.agent.toolbox.get(self.call.name)
        if tool is None:
            return self._refused("The tool is not available any more.")
        args = known.effective_args if answer.args is None else answer.args
        bound = self._bound(tool, args)
        if isinstance(bound, str):
            return self._refused(f"The arguments do not fit: {bound}.")
        operation = ToolOperation(
            self.live, self.agent, self.ctx, self.call, tool, bound, args,
            confirmation=Confirmation(answer.by, answer.value), edited=args != self.call.args,
        )  # fmt: skip
        return await self._hooked(operation)

    async def _early(self, operation: ToolOperation, records: list[Record]) -> list[Record]:
        if operation.fatal is not None:
            self.live.stage(*records)
            await self.live.flush()
            raise operation.fatal
        return records

    def _in_doubt(self) -> ToolOperation | list[Record]:
        """Decide about a call that a dead process had started. Its callbacks have said yes before."""
        assert self.known is not None
        tool, args = self.agent.toolbox.get(self.call.name), self.known.effective_args
        recovery = recover_call(self.known.replay, tool.replay if tool is not None else None)
        bound = self._bound(tool, args) if tool is not None else ""
        if recovery == "unknown" or tool is None or isinstance(bound, str):
            return [unknown_call(self.live, self.call, "crash")]
        answer = self.known.answer
        was_approved = answer is not None and answer.decision == "approve"
        return ToolOperation(
            self.live, self.agent, self.ctx, self.call, tool, bound, args, probe=recovery == "probe",
            confirmation=Confirmation(answer.by, answer.value) if answer is not None and was_approved else None,
            edited=was_approved and args != self.call.args,
        )  # fmt: skip

    def _refused(self, why: str) -> list[Record]:
        stop = "" if why.endswith((".", "!", "?")) else "."
        return self._failed(f"{why}{stop} The call was not executed.")

    def _failed(self, error: str) -> list[Record]:
        return [settle_call(self.live, self.call, "failed", {"error": error})]


class _UntilStopped:
    """A context out of which the stop of one call interrupts the current task; its run goes on behind it."""

    def __init__(self, live: LiveRun, operation: ToolOperation) -> None:
        self._live, self._operation = live, operation
        self._interrupted = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._unwatch = self._live.log.watch(self._look)

    def _look(self) -> None:
        self._operation.look()
        is_stopped = self._operation.stop_cause is not None and self._live.stop_asked is None
        if is_stopped and not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._unwatch()
        is_ours = self._interrupted and self._task.uncancel() <= self._cancelling
        return is_ours and kind is asyncio.CancelledError


def settle_call(
    live: LiveRun, call: FunctionCall, status: CallStatus, response: dict[str, Json] | None, cause: Cause | None = None
) -> CallSettled:
    """Return the settlement of a call that is not executed."""
    record_id, time = live.stamp()
    return CallSettled(
        id=record_id, time=time, run_id=live.run_id, call_id=call.call_id, name=call.name, status=status,
        response=response, cause=cause,
    )  # fmt: skip


def unknown_call(live: LiveRun, call: FunctionCall, cause: Cause) -> CallSettled:
    """Return the settlement of a call that a dead process had started, and that is not executed again."""
    left = live.recovered_output.get(call.call_id)
    put_out = output_response(text_of(left.parts)) if left is not None else None
    return settle_call(live, call, "unknown", put_out, cause)


def _has_outcome(live: LiveRun, call_id: str) -> bool:
    """Whether a call is settled. One whose message is not in the log yet is not."""
    call = live.run.calls.get(call_id)
    return call is not None and call.settled is not None


def _has_failed(settled: CallSettled) -> bool:
    """Whether a call failed by itself. That nobody knows its outcome counts; that it was stopped does not."""
    is_in_doubt = settled.status == "unknown" and settled.cause is None
    return settled.status == "failed" or settled.cause == "timeout" or is_in_doubt


# --- in which order -----------------------------------------------------------------------------------------------


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
        waiting: set[asyncio.Future[None]] = {*(operation.released for operation in began), *followers}
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
                operation.leave_line()

    async def _end_with_agent(self) -> None:
        """Stop what the agent has begun if it is stopped alone, such as an agent that works as a tool (F154).

        Waits for that until the agent is interrupted once more.
        """
        if self.live.stop_asked is not None or self.live.stopping:
            return  # the run's stop reaches all
        cause = self._cause_of_agent()
        for operation in self.operations:
            operation.cut(cause)
        await self._begin([operation for operation in self.operations if operation.task is None])
        going_on = {operation.released for operation in self.operations if operation.task is not None}
        if going_on:
            await asyncio.wait(going_on)

    def _cause_of_agent(self) -> Cause:
        """Why the call is stopped that the agent works for; where it works for none, another part of the run failed."""
        around = calls_around(self.operations[0].agent_ctx.branch)
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
                operation.cut("sibling")

    def _raise_fatal(self, operation: ToolOperation) -> None:
        """Raise what fails the run: a tool's or a callback's wish, or the error that kept a result from the log."""
        task = operation.task
        if task is None or not task.done() or operation.is_in_background:
            return
        if operation.fatal is not None:
            raise operation.fatal
        if not (task.cancelled() and self._is_settled(operation)):
            task.result()

    def _is_settled(self, operation: ToolOperation) -> bool:
        call = self.live.run.calls.get(operation.call_id)
        return call is None or call.settled is not None

    async def _follow(self, lane: Sequence[ToolOperation], *, began: bool) -> None:
        """Carry a lane from its first call that did not begin at once. Each is committed when its turn comes."""
        previous: ToolOperation | None = None
        for operation in lane:
            if previous is not None and previous.fatal is not None:
                return
            if not (began and previous is None):
                await operation.enter_line()
                await self._begin([operation])
            if operation.task is not None:
                await asyncio.wait({operation.released})
            previous = operation

    def _enter_at_once(self, operation: ToolOperation) -> bool:
        return operation.stop_cause is not None or operation.enter_at_once()

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
                operation.leave_line()
        return began

    def _first_record(self, operation: ToolOperation) -> Record | None:
        operation.look()
        if _has_outcome(self.live, operation.call_id):
            return None
        cause = operation.stop_cause
        if cause is not None and self.live.stop_asked is None:
            if operation.in_doubt:
                return unknown_call(self.live, operation.call, cause)
            return settle_call(self.live, operation.call, "not_started", None, cause)
        return None if operation.probing else operation.started()
