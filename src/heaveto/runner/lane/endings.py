"""The ends of a session's runs: told to the end hooks, and written for those runs that nobody carries."""

from __future__ import annotations

from heaveto.core.close import Ending, close_run, report_of
from heaveto.core.fold import RunState
from heaveto.errors import LogMovedError
from heaveto.events.records import ErrorInfo
from heaveto.runner.application.config import RunConfig
from heaveto.runner.application.hooks import RunEnd, call_back
from heaveto.runner.lane.leftovers import stopped_pauses
from heaveto.runner.services import Services, logger
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Lease


class Endings:
    """What a lane does behind the ends of its session's runs, and for runs that their own process did not end.

    Attributes:
        is_telling: an end hook is being called.
    """

    def __init__(self, services: Services, log: SessionLog) -> None:
        self._services, self._log = services, log
        self.is_telling = False
        self._ended_aside: set[str] = set()
        """Runs that were ended here from the side, and whose end hook has not been told."""

    async def tell(self, run: RunState, *, redelivered: bool = False) -> None:
        """Call the end hooks: shielded, bounded, their errors logged. Bring the outcome of a child run home."""
        self.is_telling = bool(self._services.app.hooks.at("on_run_end"))
        try:
            await self._call_hooks(run, redelivered=redelivered)
        finally:
            self.is_telling = False
        if run.parent is not None and run.ended is not None:
            await self._services.children.deliver(self._log.state, run.run_id)

    async def _call_hooks(self, run: RunState, *, redelivered: bool) -> None:
        ended = run.ended
        callbacks = self._services.app.hooks.at("on_run_end")
        if ended is None or not callbacks:
            return
        end = RunEnd(self._log.key, run.run_id, ended, report_of(ended), ended.usage, redelivered)
        for callback in callbacks:
            await self._services.bounded(call_back(callback, end), f"on_run_end hook of run {run.run_id}")

    async def end_aside(self, run_id: str, ending: Ending) -> bool:
        """End a run that nobody carries: one that waits and has not begun, or that is paused and was asked to stop.

        Return whether it was ended here.
        """
        was_waiting = await end_waiting(self._services, self._log, run_id, ending)
        if was_waiting or await _close_stopped_pause(self._services, self._log, run_id):
            self._ended_aside.add(run_id)
            return True
        return False

    async def close_leftovers(self, lease: Lease, open_run: RunState | None) -> list[str]:
        """Close what dead holders left open, and call the end hooks that they did not come to (P7).

        Return the runs whose end hooks were told.
        """
        settled: list[str] = []
        sealed = [*stopped_pauses(self._log.state), *([open_run] if open_run is not None else [])]
        for run in sealed:
            await _seal_run(self._services, self._log, lease, run)
        for unfinished in await self._services.store.unfinished(self._log.key):
            if unfinished.ended:
                run_id = unfinished.run_id
                is_first = run_id in self._ended_aside or any(run.run_id == run_id for run in sealed)
                if self._log.state.run(run_id).ended is None:
                    await self._log.refresh()  # it was taken back elsewhere since the log was read
                await self.tell(self._log.state.run(run_id), redelivered=not is_first)
                self._ended_aside.discard(run_id)
                settled.append(run_id)
        return settled


async def end_waiting(services: Services, log: SessionLog, run_id: str, ending: Ending) -> bool:
    """End a run that waits and has not begun. It needs no lease: a start that comes at the same time is noticed.

    Return whether it was this that ended it.
    """
    while run_id in log.state.queue:
        records = close_run(log.state.run(run_id), ending, stamp=services.stamp)
        try:
            await log.append(records, token=None, expect=log.state.last_seq)
        except LogMovedError:
            await log.refresh()
        else:
            return True
    return False


async def _seal_run(services: Services, log: SessionLog, lease: Lease, run: RunState) -> None:
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


async def _close_stopped_pause(services: Services, log: SessionLog, run_id: str) -> bool:
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
