"""The ends of runs that their own process did not see to: closing what it left, and telling the end hooks."""

from __future__ import annotations

from heaveto.core.close import Ending, close_run, report_of
from heaveto.core.fold import RunState
from heaveto.errors import LogMovedError
from heaveto.events.records import ErrorInfo, SessionKey
from heaveto.runner.application.config import RunConfig
from heaveto.runner.application.hooks import RunEnd, call_back
from heaveto.runner.services import Services, logger
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Lease


async def seal_run(services: Services, log: SessionLog, lease: Lease, run: RunState) -> None:
    """Close a run that nobody carries: its process died, or it was stopped in a pause. A stop counts (F107).

    One that was stopped in a pause may be closed from the side meanwhile: it has that one ending.
    """
    drafts = await services.store.drafts(log.key, run.run_id)
    if given_up := _is_given_up(run):
        logger.error(
            "session %s: run %s is given up: %d attempts in a row brought nothing before their process died",
            log.key, run.run_id, run.fruitless,
        )  # fmt: skip
    elif run.run_id not in log.state.paused:
        logger.warning("session %s: closing run %s, whose process died", log.key, run.run_id)
    while run.ended is None:
        stop = run.cancel
        if stop is not None:
            ending = Ending("cancelled", stop.cause, stop.by, stop.reason)
        else:
            often = f", and {run.fruitless} attempts in a row brought nothing" if given_up else ""
            error = ErrorInfo("ProcessDied", f"the process that carried the run died{often}", retryable=True)
            ending = Ending("failed", "crash", error=error)
        records = close_run(run, ending, stamp=services.stamp, drafts=drafts)
        try:
            await log.append(records, token=lease.token, expect=log.state.last_seq)
            return
        except LogMovedError:
            await log.refresh()


async def close_stopped_pause(services: Services, log: SessionLog, run_id: str) -> bool:
    """Close a paused run that was asked to stop, from the side: no lease, and no wait for who works in its session.

    Nothing works for it, and behind the stop nobody lets it go on. Return whether it was this that closed it.
    """
    while (run := log.state.paused.get(run_id)) is not None and (stop := run.cancel) is not None:
        drafts = await services.store.drafts(log.key, run_id)
        async with log.still():
            if log.state.paused.get(run_id) is not run:
                continue
            ending = Ending("cancelled", stop.cause, stop.by, stop.reason)
            records = close_run(run, ending, stamp=services.stamp, drafts=drafts)
            try:
                await log.append(records, token=None, expect=log.state.last_seq)
            except LogMovedError:
                await log.refresh()
            else:
                return True
    return False


def _is_given_up(run: RunState) -> bool:
    """Whether it has died so often that it is not tried again."""
    limit = RunConfig.of_settings(run.settings).max_fruitless_attempts
    return run.cancel is None and run.fruitless >= max(1, limit)


async def tell_end(services: Services, key: SessionKey, run: RunState, *, redelivered: bool = False) -> None:
    """Call the end hooks: shielded, bounded, their errors logged."""
    ended = run.ended
    callbacks = services.app.hooks.at("on_run_end")
    if ended is None or not callbacks:
        return
    end = RunEnd(key, run.run_id, ended, report_of(ended), ended.usage, redelivered)
    for callback in callbacks:
        await services.bounded(call_back(callback, end), f"on_run_end hook of run {run.run_id}")
