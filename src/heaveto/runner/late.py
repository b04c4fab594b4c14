"""What becomes known of a call after it was settled: recorded from the side, and told to the agent."""

from __future__ import annotations

from collections.abc import Sequence

from heaveto.core.notes import background_note
from heaveto.errors import GuardTakenError, LogMovedError
from heaveto.events.contents import Content
from heaveto.events.records import CallSettled, Queued, Record
from heaveto.runner.log import SessionLog
from heaveto.runner.services import Services, logger
from heaveto.stores.base import Guard


async def record_late(services: Services, log: SessionLog, settled: CallSettled, more: Sequence[Record] = ()) -> bool:
    """Record a late outcome, and in the same append what comes with it. The first one counts.

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
            is_stopped = settled.status == "cancelled" or call.cancel is not None
            wakes = call.is_in_background and not is_stopped and log.state.run(call.run_id).ended
            batch = [settled, *more, *([_waking(services, settled)] if wakes else [])]
            try:
                await log.append(batch, token=None, expect=log.state.last_seq, guard=guard)
            except LogMovedError:
                await log.refresh()
            except GuardTakenError:
                logger.debug("call %s was settled late before", settled.call_id)
                return False
            else:
                return bool(wakes)


def _waking(services: Services, settled: CallSettled) -> Queued:
    record_id, time = services.stamp()
    note = background_note(settled.call_id, settled.name, settled.status)
    return Queued(
        id=record_id, time=time, run_id=services.ids.record_id(), input=Content.of(note), owner=services.store.owner,
        trigger="background",
    )  # fmt: skip
