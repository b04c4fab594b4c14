"""Asking a run to stop: the durable intent, the same for everyone who asks."""

from __future__ import annotations

from contextvars import ContextVar

from heaveto.errors import GuardTakenError, LogMovedError
from heaveto.events.records import CancelRequested, Cause, StopScope
from heaveto.runner.services import Services
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Guard

carried_run: ContextVar[str] = ContextVar("heaveto_carried_run", default="")
"""The run that the current task or thread works for; so that a stop from inside does not wait for itself (F59)."""


async def ask_to_stop(
    services: Services, log: SessionLog, run_id: str, cause: Cause, *, by: str = "", reason: str = "",
    scope: StopScope = "children", delivered: int | None = None,
) -> None:  # fmt: skip
    """Record that a run shall stop. Idempotent: the first request counts. A run that has ended is left alone.

    How much of its last text was delivered is recorded once, be it late: it is a fact, and most answers are ready long
    before they are heard (F62).

    Raises:
        StoreError: it could not be recorded.
    """
    while True:
        async with log.still():
            run = log.state.run(run_id)
            is_stopped = run.cancel is not None or run.ended is not None
            if is_stopped and (delivered is None or run.delivered is not None):
                return
            record_id, time = services.stamp()
            request = CancelRequested(
                id=record_id, time=time, run_id=run_id, cause=cause, by=_storable(by), reason=_storable(reason),
                scope=scope, delivered=delivered,
            )  # fmt: skip
            try:
                # Conditional, so that it never lands behind an ending that is just being written.
                guard = Guard(f"{'delivered' if is_stopped else 'cancel'}:{run_id}", request.id)
                await log.append([request], token=None, expect=log.state.last_seq, guard=guard)
            except (LogMovedError, GuardTakenError):
                await log.refresh()


async def ask_to_stop_call(
    services: Services, log: SessionLog, run_id: str, call_id: str, cause: Cause, *, by: str = "", reason: str = ""
) -> bool:
    """Record that one call shall stop. Idempotent: the first request counts. Return whether it can still be stopped.

    Raises:
        StoreError: it could not be recorded.
    """
    while True:
        async with log.still():
            call = log.state.calls.get(call_id)
            if call is None or call.run_id != run_id or (call.settled is not None and not call.is_in_background):
                return False
            if call.cancel is not None:
                return True
            record_id, time = services.stamp()
            request = CancelRequested(
                id=record_id, time=time, run_id=run_id, cause=cause, by=_storable(by), reason=_storable(reason),
                call_id=call_id,
            )  # fmt: skip
            try:
                await log.append([request], token=None, expect=log.state.last_seq)
            except LogMovedError:
                await log.refresh()


def _storable(text: str) -> str:
    """Return the text without what no store takes: a stop never fails for how its sender is called."""
    return text.encode("utf-8", "replace").decode()
