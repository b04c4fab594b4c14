"""Erasing a session: what runs and waits in it is stopped, its content and that of its calls' own sessions deleted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from heaveto.errors import SessionErasedError
from heaveto.events.records import CallSettled, Record, SessionKey
from heaveto.runner.lanes import Lanes
from heaveto.runner.runs import stop_run
from heaveto.stores.base import Tombstone


async def erase_session(lanes: Lanes, key: SessionKey, by: str, reason: str) -> Tombstone:
    """Erase a session, wherever it is carried. Idempotent."""
    lane, services = lanes.at(key), lanes.services
    with suppress(SessionErasedError):
        await lane.log.refresh()
        state = lane.log.state
        for run_id in [*state.queue, *([state.current] if state.current is not None else [])]:
            await stop_run(lanes, run_id, key, "user", by, reason or "the session is erased")
        await lane.calls.cancel_background(None, "user", by=by, reason="the session is erased")
        await _erase_children(lanes, state.records, by, reason)
    tombstone = await services.store.erase_session(key, by=by, reason=reason)
    await services.artifacts.erase(key)
    lanes.forget(key)
    return tombstone


async def _erase_children(lanes: Lanes, records: Sequence[Record], by: str, reason: str) -> None:
    """Erase the sessions of the runs that worked for calls of a session."""
    for record in records:
        if isinstance(record, CallSettled) and record.child_run:
            key = await lanes.services.store.find_run(record.child_run)
            if key is not None:
                await erase_session(lanes, key, by, reason)
