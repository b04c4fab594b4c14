"""What becomes known of a call after it was settled: recorded from the side, and told to the agent."""

from __future__ import annotations

from collections.abc import Sequence

from heaveto.core.fold import CallState, SessionState
from heaveto.core.notes import background_note
from heaveto.errors import GuardTakenError, LogMovedError, StoreError
from heaveto.events.contents import Content
from heaveto.events.records import CallSettled, Cause, Queued, Record
from heaveto.runner.services import Services, logger
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Guard

PATIENCE = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0)
"""The pauses between attempts to record what nobody else knows."""


async def record_late(
    services: Services,
    log: SessionLog,
    settled: CallSettled,
    more: Sequence[Record] = (),
    *,
    pauses: Sequence[float] = (),
) -> bool:
    """Record a late outcome, and in the same append what comes with it. The first one counts.

    Where the store says that its trouble may pass, it is tried again after each of `pauses`.

    Raises:
        StoreError: it could not be recorded.
    """
    for pause in pauses:
        try:
            return await _record(services, log, settled, more)
        except StoreError as error:
            if not error.retryable:
                raise
            logger.warning("the outcome of call %s is not recorded yet", settled.call_id, exc_info=error)
        await services.clock.sleep(pause)
    return await _record(services, log, settled, more)


async def give_up_outside(services: Services, log: SessionLog, call: CallState, cause: Cause) -> None:
    """Say of a call in the background for which nobody works here that what becomes of it is not known (P2)."""
    record_id, time = services.stamp()
    lost = CallSettled(
        id=record_id, time=time, run_id=call.run_id, call_id=call.call.call_id, name=call.call.name, status="unknown",
        cause=cause, late=True,
    )  # fmt: skip
    await record_late(services, log, lost)


async def _record(services: Services, log: SessionLog, settled: CallSettled, more: Sequence[Record]) -> bool:
    """Record it, or find that it is known.

    Where a call in the background ends after its run, a run of its own begins, so that the agent hears of it: unless
    the call was stopped (F47). Return whether that is so: the session's lane has something to do.
    """
    guard = Guard(f"{'lost' if settled.status == 'unknown' else 'late'}:{settled.call_id}", settled.id)
    while True:
        async with log.still():
            call = log.state.calls.get(settled.call_id)
            if call is None or call.settled is None or not call.awaits_late_result:
                logger.debug("call %s was settled late before", settled.call_id)
                return False
            if call.settled.status == settled.status == "unknown":
                return False  # that is known
            waking = waking_of(services, log.state, settled)
            try:
                await log.append([settled, *more, *waking], token=None, expect=log.state.last_seq, guard=guard)
            except LogMovedError:
                await log.refresh()
            except GuardTakenError:
                logger.debug("call %s was settled late before", settled.call_id)
                return False
            else:
                return bool(waking)


def waking_of(services: Services, state: SessionState, settled: CallSettled) -> list[Record]:
    """Return what begins a run of its own, where the run of a call in the background has ended before it."""
    call = state.calls[settled.call_id]
    is_stopped = settled.status == "cancelled" or call.cancel is not None
    if not call.is_in_background or is_stopped or state.run(call.run_id).ended is None:
        return []
    return [_waking(services, settled)]


def _waking(services: Services, settled: CallSettled) -> Queued:
    record_id, time = services.stamp()
    note = background_note(settled.call_id, settled.name, settled.status)
    return Queued(
        id=record_id, time=time, run_id=services.ids.record_id(), input=Content.of(note), owner=services.store.owner,
        trigger="background",
    )  # fmt: skip
