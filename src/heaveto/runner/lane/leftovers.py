"""What stands in a session for whoever gets it next: what of it can be told from the log, and the calls it settles."""

from __future__ import annotations

from contextlib import suppress
from math import inf

from heaveto.core.fold import CallState, RunState, SessionState
from heaveto.core.replay import may_resume
from heaveto.errors import LogMovedError
from heaveto.events.records import CallSettled, Record
from heaveto.runner.application.config import OnCrash, RunConfig
from heaveto.runner.services import Services
from heaveto.runner.session.late import give_up_outside
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Lease


def has_leftovers(state: SessionState, now: float) -> bool:
    """Whether there is something to do for whoever finds the session in nobody's hands."""
    waits = state.current is not None or state.queue or state.background
    return bool(waits or has_news(state) or next_deadline(state) <= now)


def has_news(state: SessionState) -> bool:
    """Whether an answer or a stop has come to what is paused."""
    return bool(answered_run(state) or stopped_pauses(state) or stopped_questions(state))


def answered_run(state: SessionState) -> RunState | None:
    """Return the first paused run whose answers have come, or that was handed over."""
    paused = state.paused.values()
    return next((run for run in paused if run.cancel is None and (run.was_handed_over or not run.waiting)), None)


def stopped_pauses(state: SessionState) -> list[RunState]:
    """Return the paused runs that were asked to stop: whoever has the lane closes them."""
    return [run for run in state.paused.values() if run.cancel is not None]


def stopped_questions(state: SessionState) -> list[CallState]:
    """Return calls that were stopped alone while their run waits for others: whoever has the lane settles them."""
    waiting = [run for run in state.paused.values() if run.cancel is None and run.waiting]
    calls = (call for run in waiting for call in run.calls.values())
    return [call for call in calls if call.cancel is not None and call.phase == "waiting"]


def next_deadline(state: SessionState) -> float:
    """Return when the first answer that somebody waits for will be too late; infinity if never."""
    questions = (call.question for run in state.paused.values() for call in run.waiting)
    return min((one.deadline for one in questions if one is not None and one.deadline is not None), default=inf)


def resumable_run(state: SessionState, default: OnCrash, *, wanted: set[str]) -> RunState | None:
    """Return the run that a dead process left open, if it is to go on: by its settings, or as somebody wants it to."""
    run = state.current_run
    if run is None:
        return None
    config = RunConfig.of_settings(run.settings)
    goes_on = may_resume(
        on_crash="resume" if run.run_id in wanted else config.on_crash or default,
        stopped=run.cancel is not None,
        fruitless=run.fruitless,
        max_fruitless=config.max_fruitless_attempts,
    )
    return run if goes_on else None


async def settle_lost_calls(services: Services, log: SessionLog) -> None:
    """Say of calls in the background whose process died that nobody knows what became of them (P2)."""
    for call_id in tuple(log.state.background):
        call = log.state.calls.get(call_id)
        if call is None or call_id in services.background_calls or (call.settled and call.settled.child_run):
            continue  # a child run is found again, and brings its outcome itself
        if call.is_outside:  # nobody here works for it: its outcome is answered
            if call.cancel is not None:
                await give_up_outside(services, log, call, call.cancel.cause)
        elif not await services.store.is_alive(call.owner):
            await give_up_outside(services, log, call, "crash")


async def settle_stopped_questions(services: Services, log: SessionLog, lease: Lease) -> None:
    """Settle the calls that were stopped alone while they waited for an answer."""
    records: list[Record] = []
    for call in stopped_questions(log.state):
        assert call.cancel is not None
        record_id, time = services.stamp()
        records.append(
            CallSettled(
                id=record_id, time=time, run_id=call.run_id, call_id=call.call.call_id, name=call.call.name,
                status="cancelled" if call.has_started else "not_started", cause=call.cancel.cause,
            )
        )  # fmt: skip
    with suppress(LogMovedError):  # their run may be over, closed from the side: looked at again in the next turn
        await log.append(records, token=lease.token, expect=log.state.last_seq)
