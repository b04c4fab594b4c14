"""Runs as those see them who start and stop them: how one begins, is found again and is stopped, wherever it is."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from heaveto.core.close import Ending, report_since
from heaveto.errors import (
    GuardTakenError,
    IdempotencyConflictError,
    RunIdTakenError,
    SessionBusyError,
    SessionExistsError,
    UnknownSessionError,
)
from heaveto.events.records import Cause, SessionKey, StopReport, StopScope
from heaveto.runner.checks import require_delivered, require_scope
from heaveto.runner.handle import Run
from heaveto.runner.lane.lane import Lane
from heaveto.runner.lane.ticket import Ticket, guard_name
from heaveto.runner.lanes import Lanes
from heaveto.runner.session.stops import ask_to_stop, carried_run


def handle(lanes: Lanes, lane: Lane, run_id: str, *, start: int, ticket: Ticket | None = None) -> Run:
    """Return a handle of a run whose readers begin behind the seq `start`."""
    return Run(lane, run_id, partial(stop_run, lanes), ticket=ticket, start=start)


async def begin_run(lanes: Lanes, key: SessionKey, ticket: Ticket, *, is_new_id: bool = False) -> Run:
    """Hand a message to its session's lane, and return when it is durable; errors as in `Runner.start`."""
    lane = lanes.at(key)
    if (same := await _find_same(lanes, lane, ticket)) is not None:
        return same
    if not is_new_id and await lanes.services.store.find_run(ticket.run_id) is not None:
        raise RunIdTakenError(ticket.run_id)
    position = lane.log.state.last_seq
    try:
        await lanes.at(key).admit(ticket)  # looked up again: it is used now, whatever came between
    except (GuardTakenError, RunIdTakenError, SessionBusyError):
        if (same := await _find_same(lanes, lane, ticket)) is not None:
            return same
        raise
    return handle(lanes, lane, ticket.run_id, start=position, ticket=ticket)


async def _find_same(lanes: Lanes, lane: Lane, ticket: Ticket) -> Run | None:
    """Return the run that a message with this idempotency key went into before."""
    if ticket.idempotency_key is None:
        return None
    try:
        taken = await lanes.services.store.find_guard(lane.key, guard_name(ticket.idempotency_key))
    except UnknownSessionError:
        return None
    if taken is None:
        return None
    run_id, _, fingerprint = taken.partition(" ")
    if fingerprint != ticket.fingerprint:
        raise IdempotencyConflictError(ticket.idempotency_key, run_id)
    if lane.live is None:
        await lane.log.refresh()
    return attach_run(lanes, lane, run_id)


def attach_run(lanes: Lanes, lane: Lane, run_id: str) -> Run:
    """Return a handle of a run that was started before, followed from its beginning."""
    return handle(lanes, lane, run_id, start=max(0, lane.log.state.run(run_id).started_seq - 1))


async def stop_run(
    lanes: Lanes,
    run_id: str,
    key: SessionKey,
    cause: Cause,
    by: str,
    reason: str,
    scope: StopScope = "children",
    delivered: int | None = None,
) -> StopReport:
    """Stop a run, wherever it is carried, and wait for its ending; but not from code that the run itself carries."""
    require_scope(scope)
    require_delivered(delivered)
    lane = lanes.at(key)
    live = lane.live if lane.live is not None and lane.live.run_id == run_id else None
    if live is not None:
        await live.request_stop(cause, by, reason, scope, delivered)
    else:
        await _refresh_or_create(lanes, lane)
        await ask_to_stop(
            lanes.services, lane.log, run_id, cause, by=by, reason=reason, scope=scope, delivered=delivered
        )
        await lane.end_aside(run_id, Ending("cancelled", cause, by, reason))
    run = lane.log.state.run(run_id)
    asked = StopReport(run_id, "cancelled", cause, by)
    if carried_run.get() == run_id:
        return asked
    if live is None and not run.started_seq and run.ended is None:
        return asked  # it has not begun: the request is kept for its start
    if live is None or run_id in lane.log.state.paused:
        lane.kick(reap=True)
    stopped = handle(lanes, lane, run_id, start=0, ticket=lane.ticket_of(run_id))
    await stopped.wait()
    if scope != "turn":
        await lane.calls.cancel_background(run_id if scope == "children" else None, cause, by=by, reason=reason)
    if stopped.report is None or run.ended is None:
        return asked
    return report_since(stopped.report, lane.log.state.records[run.ended.seq :])


async def _refresh_or_create(lanes: Lanes, lane: Lane) -> None:
    try:
        await lane.log.refresh()
    except UnknownSessionError:
        if not lanes.create_sessions:
            raise
        with suppress(SessionExistsError):  # another worker was faster
            await lanes.services.store.create_session(lane.key)
