"""What comes before a call's start: may it be executed, and with what; and the settlements of those that are not."""

from __future__ import annotations

import asyncio
import copy
from types import TracebackType
from typing import Any

from heaveto.agents.context import AgentContext
from heaveto.agents.llm import LlmAgent
from heaveto.core.close import output_response
from heaveto.core.failure import message_of
from heaveto.core.fold import CallState
from heaveto.core.replay import recover_call
from heaveto.errors import CallbackAnswerError, NotSerializableError, ToolArgumentsError
from heaveto.events.codec import decode_value, encode_value
from heaveto.events.contents import FunctionCall, Json, text_of
from heaveto.events.records import CallSettled, CallStatus, Cause, Record, WaitingCall
from heaveto.runner.run.calls.open_call import OpenCall
from heaveto.runner.run.calls.operation import ToolOperation
from heaveto.runner.run.live import LiveRun
from heaveto.tools.base import Confirmation, Tool
from heaveto.tools.response import to_response


class Preparation:
    """What comes before a call's start: may it be executed, and with what."""

    def __init__(self, live: LiveRun, agent: LlmAgent, ctx: AgentContext, call: FunctionCall) -> None:
        self.live, self.agent, self.ctx, self.call = live, agent, ctx, call
        self.known = live.run.calls.get(call.call_id)

    async def verdict(self) -> ToolOperation | WaitingCall | list[Record]:
        """Return the operation to start, what the call waits for, or the settlement of one that is not executed."""
        known = self.known
        if has_outcome(self.live, self.call.call_id):
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
        operation = ToolOperation(OpenCall(self.live, self.agent, self.ctx, call, tool, bound, call.args))
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
        args = copy.deepcopy(operation.call.args)
        own, hooks = self.agent.before_tool_callbacks, self.live.services.app.hooks
        given = None
        operation.look()
        if operation.call.stop_cause is not None:
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
        if operation.call.stop_cause is not None:
            return operation
        if given is not None:
            return await self._early(operation, await operation.replaced(given))
        self.live.stage(*operation.attempt.state_changes())  # theirs, not the attempt's: no other one asks them again
        try:
            args = decode_value(encode_value(args, "args"))
        except NotSerializableError as error:
            return self._refused(f"A callback changed the arguments, and they do not fit: {message_of(error)}.")
        if args != operation.call.args:
            bound = self._bound(operation.tool, args)
            if isinstance(bound, str):
                return self._refused(f"A callback changed the arguments, and they do not fit: {bound}")
            operation.call.args, operation.call.bound = args, bound
        return operation

    async def _held(self, operation: ToolOperation) -> WaitingCall | list[Record] | None:
        """Return what has to come from outside before the call is executed, or instead of that."""
        try:
            hold = await operation.tool.hold(operation.call.bound, operation.attempt.ctx)
        except Exception as error:  # noqa: BLE001 - an edge: the tool's own code
            self.live.check()
            return await self._early(operation, await operation.refused(error))
        if hold is None:
            return None
        return operation.call.waiting(
            hold.kind, hold.hint, hold.schema, hold.payload, hold.within_seconds, hold.default
        )

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
        approved = OpenCall(
            self.live, self.agent, self.ctx, self.call, tool, bound, args,
            confirmation=Confirmation(answer.by, answer.value), edited=args != self.call.args,
        )  # fmt: skip
        return await self._hooked(ToolOperation(approved))

    async def _early(self, operation: ToolOperation, records: list[Record]) -> list[Record]:
        if operation.call.fatal is not None:
            self.live.stage(*records)
            await self.live.flush()
            raise operation.call.fatal
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
        begun = OpenCall(
            self.live, self.agent, self.ctx, self.call, tool, bound, args,
            confirmation=Confirmation(answer.by, answer.value) if answer is not None and was_approved else None,
            edited=was_approved and args != self.call.args,
        )  # fmt: skip
        return ToolOperation(begun, probe=recovery == "probe")

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
        is_stopped = self._operation.call.stop_cause is not None and self._live.stop_asked is None
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


def has_outcome(live: LiveRun, call_id: str) -> bool:
    """Whether a call is settled. One whose message is not in the log yet is not."""
    call = live.run.calls.get(call_id)
    return call is not None and call.settled is not None
