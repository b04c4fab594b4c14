"""Executing the calls of one model message: what may run, in which order, and each settled as it finishes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from heaveto.agents.context import AgentContext
from heaveto.agents.llm import LlmAgent
from heaveto.errors import CallbackAnswerError, ToolArgumentsError
from heaveto.events.contents import FunctionCall, Json
from heaveto.events.records import CallSettled, CallStatus, Record
from heaveto.runner.failure import message_of
from heaveto.runner.live import LiveRun
from heaveto.runner.operation import ToolOperation


async def execute_calls(live: LiveRun, agent: LlmAgent, ctx: AgentContext, calls: Sequence[FunctionCall]) -> None:
    """Execute calls and return when each is settled.

    Raises:
        ToolFatalError: a tool demanded that the run fail; no sibling is started any more, the run's end stops the rest.
        RunCancelled: the run was stopped.
    """
    ready: list[ToolOperation] = []
    settled: list[Record] = []
    for call in calls:
        verdict = await _prepare(live, agent, ctx, call)
        if isinstance(verdict, ToolOperation):
            ready.append(verdict)
        else:
            settled.extend(verdict)
    if settled:
        live.stage(*settled)
        await live.flush()
    for group in _groups(live, ready):
        await _run_group(live, group)


async def _prepare(
    live: LiveRun, agent: LlmAgent, ctx: AgentContext, call: FunctionCall
) -> ToolOperation | list[Record]:
    """Return the operation to start, or the settlement of a call that is not executed."""
    if call.defect:
        what = "were cut off before they were complete" if call.defect == "truncated" else "are not a JSON object"
        return [_settle(live, call, "failed", {"error": f"The arguments {what}. The call was not executed."})]
    tool = agent.toolbox.get(call.name)
    if tool is None:
        known = ", ".join(agent.toolbox) or "none"
        return [_settle(live, call, "failed", {"error": f"There is no tool {call.name!r}. The tools are: {known}."})]
    try:
        bound = tool.bind(call.args)
    except ToolArgumentsError as error:
        return [_settle(live, call, "failed", {"error": f"{message_of(error)} The call was not executed."})]
    except Exception as error:  # noqa: BLE001 - a validator of the tool's author that raises something of its own
        return [
            _settle(
                live,
                call,
                "failed",
                {"error": f"{type(error).__name__}: {message_of(error)} The call was not executed."},
            )
        ]
    operation = ToolOperation(live, agent, ctx, call, tool, bound)
    hooks = live.services.app.hooks
    if agent.before_tool_callbacks or hooks.at("before_tool"):
        await live.flush()
        try:
            given = await hooks.first("before_tool", agent.before_tool_callbacks, tool, call.args, operation.ctx)
        except CallbackAnswerError:
            raise
        except Exception as error:  # noqa: BLE001 - treated as an error of the tool
            live.check()
            return await _settle_early(live, operation, await operation.refused(error))
        live.check()  # whatever the callback said: a stop came first (F153)
        if given is not None:
            return await _settle_early(live, operation, await operation.replaced(given))
    return operation


async def _settle_early(live: LiveRun, operation: ToolOperation, records: list[Record]) -> list[Record]:
    if operation.fatal is not None:
        live.stage(*records)
        await live.flush()
        raise operation.fatal
    return records


def _settle(live: LiveRun, call: FunctionCall, status: CallStatus, response: dict[str, Json]) -> CallSettled:
    record_id, time = live.stamp()
    return CallSettled(
        id=record_id, time=time, run_id=live.run_id, call_id=call.call_id, name=call.name, status=status,
        response=response,
    )  # fmt: skip


def _groups(live: LiveRun, ready: Sequence[ToolOperation]) -> list[list[list[ToolOperation]]]:
    """Return groups that run one after another, each of lanes that run at the same time, each of calls in order."""
    mode = live.config.tool_execution_mode
    if mode == "SEQUENTIAL":
        return [[[operation]] for operation in ready]
    if mode == "PARALLEL_SUBSCRIBE":
        return [[[operation] for operation in ready]] if ready else []
    blocking = [operation for operation in ready if operation.tool.blocking]
    lanes = [[operation] for operation in ready if not operation.tool.blocking]
    if blocking:
        lanes.append(blocking)
    return [lanes] if lanes else []


async def _run_group(live: LiveRun, lanes: Sequence[Sequence[ToolOperation]]) -> None:
    await _commit(live, [lane[0] for lane in lanes])
    tasks = [lane[0].start() for lane in lanes]
    followers = [asyncio.ensure_future(_run_lane(live, lane, task)) for lane, task in zip(lanes, tasks, strict=True)
                 if len(lane) > 1]  # fmt: skip
    waiting: set[asyncio.Future[None]] = {*tasks, *followers}
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for lane in lanes:
                _raise_fatal(live, lane)
            for follower in done.intersection(followers):
                follower.result()
    finally:
        for follower in followers:
            follower.cancel()


def _raise_fatal(live: LiveRun, lane: Sequence[ToolOperation]) -> None:
    """Raise what fails the run: a tool's or a callback's wish, or the error that kept a result from being recorded."""
    for operation in lane:
        task = operation.task
        if task is None or not task.done():
            continue
        if operation.fatal is not None:
            raise operation.fatal
        if not (task.cancelled() and _is_settled(live, operation)):
            task.result()


def _is_settled(live: LiveRun, operation: ToolOperation) -> bool:
    call = live.run.calls.get(operation.call.call_id)
    return call is None or call.settled is not None


async def _run_lane(live: LiveRun, lane: Sequence[ToolOperation], first: asyncio.Task[None]) -> None:
    """Run the rest of a lane behind its first call. Each call is committed only when its turn comes."""
    await asyncio.wait({first})
    for previous, operation in itertools.pairwise(lane):
        if previous.fatal is not None:
            return
        await _commit(live, [operation])
        await asyncio.wait({operation.start()})


async def _commit(live: LiveRun, operations: Sequence[ToolOperation]) -> None:
    """Make the starts durable, unless a stop came first. Then, and only then, may the work begin (P5)."""
    for operation in operations:
        live.operations[operation.call.call_id] = operation
    await live.journal.commit([operation.started() for operation in operations])
    await live.journal.tell()
    live.check()
