"""The supervisor of a run: watches for its end or a stop, stops what is left, writes the one ending.

It runs in the lane's task, outside everything that a run's own code can hold up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from heaveto.agents.base import BaseAgent
from heaveto.core.close import Ending, Work, close_run
from heaveto.core.failure import info_of
from heaveto.core.handover import hand_over
from heaveto.core.limits import seconds_left
from heaveto.errors import LimitExceededError, LogMovedError, NotResumableError, NotSerializableError
from heaveto.events.codec import encode
from heaveto.events.records import AgentCheckpoint, Cause, Draft, Message, Operation, Paused, Record, RunEnded
from heaveto.runner.run.host import AgentHost
from heaveto.runner.run.live import LiveRun, Stoppable
from heaveto.runner.services import logger
from heaveto.runner.tasks.insist import insist


async def carry(live: AgentHost, agent: BaseAgent) -> RunEnded | Paused:
    """Run an agent to the run's one ending, or to a pause, and return it. The run's start is in the log already.

    Cancelling this (the event loop is shutting down) stops the run with cause ``shutdown``, and closes it first.

    Raises:
        StoreError: the ending could not be recorded; whoever next opens the session will close the run.
    """
    unwatch = live.log.watch(live.look)
    timer: asyncio.Task[None] | None = None
    try:
        timer = await _start_time_limit(live)
        while True:
            live.task = work = asyncio.create_task(live.work(agent), name=f"heaveto run {live.run_id}")
            ending = await _watch_over(live, work)
            waits = ending.outcome == "completed" and (live.is_held or bool(live.run.waiting))
            if waits and live.run.waiting and not _may_pause(live):
                waits, ending = False, _failed(live.error or RuntimeError())
            if _is_handed_over(live, ending):
                ended = await _hand_over(live)
            else:
                ended = await _pause(live) if waits else await _close(live, ending)
            if ended is not None:
                await _tell_ending(live)
                return ended
    finally:
        live.finished.set()
        live.log.notify()
        unwatch()
        if timer is not None:
            timer.cancel()


async def _start_time_limit(live: LiveRun) -> asyncio.Task[None] | None:
    limit = seconds_left(live.run, live.services.clock.time())
    if limit is None:
        return None
    seconds, error = limit
    if seconds <= 0:  # it passed while the message waited: nothing is begun
        await _time_is_up(live, error)
        return None
    return asyncio.create_task(_time_out(live, seconds, error), name=f"heaveto time limit of {live.run_id}")


async def _time_out(live: LiveRun, seconds: float, error: LimitExceededError | None) -> None:
    await live.services.clock.sleep(seconds)
    await _time_is_up(live, error)


async def _time_is_up(live: LiveRun, error: LimitExceededError | None) -> None:
    if live.stop_asked is not None:
        return  # the stop that came first is the one that counts
    if error is not None and live.run.limits.on_limit == "fail":
        live.error = error
    cause: Cause = "deadline" if error is None else "budget"
    await live.request_stop(cause, "runtime", str(error or "the deadline passed"))


async def _watch_over(live: LiveRun, work: asyncio.Task[None]) -> Ending:
    """Wait for the end of the work, or for a stop; return how the run ends, with nothing of it left to wait for."""
    work.add_done_callback(partial(_work_is_over, live))
    while not work.done() and live.stop_asked is None:
        live.wake.clear()
        try:
            await live.wake.wait()
        except asyncio.CancelledError:
            live.stop_locally("shutdown")
    await _stop_work(live, work)
    stop = live.stop_asked
    failure = _failure(work)
    if stop is not None:
        if isinstance(live.error, LimitExceededError):
            return _failed(live.error)
        return Ending("cancelled", stop.cause, stop.by, stop.reason)
    if failure is None:
        return Ending("completed")
    if isinstance(failure, LimitExceededError) and live.run.limits.on_limit == "stop":
        return Ending("cancelled", "budget", "runtime", str(failure))
    live.error = failure
    return _failed(failure)


def _work_is_over(live: LiveRun, work: asyncio.Task[None]) -> None:
    if not work.cancelled():
        work.exception()  # looked at: nobody asks any more for the end of work that could not be stopped in time
    live.wake.set()


def _failure(work: asyncio.Task[None]) -> BaseException | None:
    if not work.done():
        return None  # it could not be stopped; a stop was asked for
    if work.cancelled():
        return RuntimeError("the agent's code cancelled itself")
    return work.exception()


def _failed(error: BaseException) -> Ending:
    return Ending("failed", error=info_of(error))


async def _stop_work(live: LiveRun, work: asyncio.Task[None]) -> None:
    """Stop the agents' task and every operation; wait for them up to the grace, nudging those that swallow it."""
    if not _pending(live, work):
        return
    live.stopping = True
    await insist(
        partial(_interrupt, live, work),
        partial(_pending, live, work),
        clock=live.services.clock,
        seconds=live.config.cancel_grace_seconds,
        cancelled=partial(live.stop_locally, "shutdown"),
    )


def _reached(live: LiveRun) -> list[Stoppable]:
    """The operations that end with the run: those in the background do only if a stop wants it."""
    stop = live.stop_asked
    all_of_them = stop is not None and stop.scope != "turn"
    return [operation for operation in live.operations.values() if all_of_them or not operation.is_in_background]


def _pending(live: LiveRun, work: asyncio.Task[None]) -> list[asyncio.Task[Any]]:
    tasks: list[asyncio.Task[Any]] = [] if work.done() else [work]
    awaited = (operation.task for operation in _reached(live) if operation.is_awaited)
    tasks.extend(task for task in awaited if task is not None)
    return tasks


def _interrupt(live: LiveRun, work: asyncio.Task[None]) -> None:
    stop = live.stop_asked
    for operation in _reached(live):
        if operation.task is not None and not operation.task.done():
            operation.ask_to_stop(stop.cause if stop is not None else "error")
    work.cancel()


def _is_handed_over(live: LiveRun, ending: Ending) -> bool:
    """Whether the process ends and the next one goes on with the run: not if someone wanted it to stop."""
    return (
        ending.cause == "shutdown"
        and live.run.cancel is None
        and live.run.ended is None
        and live.services.app.on_shutdown == "hand_over"
    )


async def _hand_over(live: LiveRun) -> Paused | RunEnded | None:
    """Write that the next process goes on with the run; or, if someone stopped it in the last moment, its ending."""
    while live.run.cancel is None and live.run.ended is None:
        await live.seal()
        staged = [record for record in live.journal.take() if not _is_end(record)]
        records = hand_over(live.run, stamp=live.stamp, drafts=_drafts(live, staged), work=_work(live))
        paused = records[-1]
        assert isinstance(paused, Paused)
        try:
            await live.journal.write_last([*staged, *records])
            return paused
        except LogMovedError:
            live.sealing = False
            await live.journal.read_on(staged)
    stop = live.run.cancel
    return await _close(live, Ending("cancelled", stop.cause, stop.by, stop.reason)) if stop else live.run.ended


def _may_pause(live: LiveRun) -> bool:
    """Whether the run may wait for answers; if not, why is in `live.error`."""
    if live.services.app.resumability_config.resumable:
        return True
    live.error = NotResumableError(live.run_id, tuple(call.call.name for call in live.run.waiting))
    return False


async def _pause(live: LiveRun) -> Paused | RunEnded | None:
    """Write that the run pauses. Return None where something came in the last moment, and it goes on.

    The append is conditional: a stop, or the last answer, is not passed over.
    """
    while live.stop_asked is None and live.run.ended is None:
        await live.seal()
        waiting = tuple(call.question for call in live.run.waiting if call.question is not None)
        if not waiting:  # the last answer came after the agents had seen that it was missing
            live.is_resuming, live.sealing = True, False
            return None
        staged = live.journal.take()
        record_id, time = live.stamp()
        paused = Paused(id=record_id, time=time, run_id=live.run_id, waiting=waiting)
        try:
            await live.journal.write_last([*staged, paused])
            return paused
        except LogMovedError:
            live.sealing = False
            await live.journal.read_on(staged)
    return live.run.ended


async def _close(live: LiveRun, ending: Ending) -> RunEnded | None:
    """Write the ending. Return None where a completed run got one message more and goes on.

    The append is conditional: a stop, or a text for the run, that came in the last moment is not passed over.
    """
    while True:
        await live.seal()
        if live.run.ended is not None:
            return live.run.ended  # another worker took the session over and closed the run
        steered = live.run.steered_seq
        staged = live.journal.take()
        records = _closing_records(live, ending, staged)
        try:
            await live.journal.write_last([*staged, *records])
            ended = records[-1]
            assert isinstance(ended, RunEnded)
            return ended
        except LogMovedError:
            live.sealing = False
            await live.journal.read_on(staged)
        except NotSerializableError as error:
            live.sealing = False
            live.journal.put_back(_storable(staged, error))
            if ending.outcome == "completed":
                live.error = error
                ending = _failed(error)
        stop = live.stop_asked
        if ending.outcome == "completed" and stop is not None:
            ending = Ending("cancelled", stop.cause, stop.by, stop.reason)
        elif ending.outcome == "completed" and live.run.steered_seq > steered:
            # The agents are not done: they have not heard all. A stop that comes now is seen by who goes on.
            await live.journal.record_fact([record for record in live.journal.take() if not _is_end(record)])
            live.is_resuming = False
            return None


def _is_end(record: Record) -> bool:
    return isinstance(record, AgentCheckpoint) and record.end_of_agent


def _storable(staged: Sequence[Record], error: NotSerializableError) -> list[Record]:
    """Return what can be stored of the last records: what cannot be does not keep the run open (P7).

    Raises:
        NotSerializableError: all can be stored; the error comes from elsewhere.
    """
    kept = [record for record in map(_without_foreign_data, staged) if record is not None]
    if kept == list(staged):
        raise error
    return kept


def _without_foreign_data(record: Record) -> Record | None:
    candidates = [record, replace(record, data=None)] if isinstance(record, Message) else [record]
    for candidate in candidates:
        with suppress(NotSerializableError):
            encode(candidate)
            return candidate
    logger.error("a %s of run %s cannot be recorded and is left out", type(record).__name__, record.run_id)
    return None


def _closing_records(live: LiveRun, ending: Ending, staged: Sequence[Record]) -> list[Record]:
    drafts, work = _drafts(live, staged), _work(live)
    records = close_run(live.run, ending, stamp=live.stamp, drafts=drafts, work=work, pending=staged)
    if live.task is not None and not live.task.done():
        records[-1] = _naming_agent(live, records[-1])
    return records


def _drafts(live: LiveRun, staged: Sequence[Record]) -> list[Draft]:
    """What was received of messages that are not said yet, and what calls have put out."""
    said = {record.id for record in staged}
    drafts = [draft.snapshot(last=True) for draft in live.drafts.values() if draft.message_id not in said]
    return [*live.recovered_output.values(), *drafts]


def _work(live: LiveRun) -> dict[str, Work]:
    """What became of the work of calls that were started here."""
    found: dict[str, Work] = {}
    for call_id, operation in live.operations.items():
        if operation.work is not None:
            found[call_id] = operation.work
    return found


def _naming_agent(live: LiveRun, ended: Record) -> Record:
    """Return the ending with the agents' own task in its report: their code, or a callback, swallows the stop (P3)."""
    if not isinstance(ended, RunEnded) or ended.report is None:
        return ended
    operation = Operation(kind="agent", name=live.run.agent.rpartition("/")[2], state="still_running")
    return replace(ended, report=replace(ended.report, operations=(*ended.report.operations, operation)))


async def _tell_ending(live: LiveRun) -> None:
    """Let on_event callbacks hear of the ending, bounded in time."""
    if live.services.app.hooks.at("on_event"):
        await live.services.bounded(live.journal.tell(), f"on_event of run {live.run_id}")
