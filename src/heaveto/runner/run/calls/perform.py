"""An attempt at work: to its end, to the end of its time, or to a stop of its call, and the grace behind these."""

from __future__ import annotations

import asyncio
from typing import Any

from heaveto.runner.run.calls.attempt import Attempt
from heaveto.runner.run.calls.open_call import OpenCall
from heaveto.runner.tasks.insist import insist


class LeftBehindError(Exception):
    """The attempt could not be stopped within the grace, and works on."""


async def perform(call: OpenCall, attempt: Attempt, *, probing: bool) -> Any:
    """Let the attempt work to its end, or as long as it may.

    Raises:
        LeftBehindError: it goes on beyond the grace.
        BaseException: what the tool raised.
    """
    work = attempt.probe() if probing else attempt.begin()
    work.add_done_callback(lambda _: call.news.set())
    limit = call.tool.timeout_seconds
    timer = asyncio.create_task(_time_out(call, attempt, limit)) if limit is not None else None
    try:
        while not work.done() and not _is_cut(call, attempt):
            call.news.clear()
            try:
                await call.news.wait()
            except asyncio.CancelledError:  # the event loop shuts down: the tool is told, and waited for
                attempt.interrupt(call.stop_cause or "shutdown")
        if not work.done():
            await _cut_short(call, attempt, work)
    finally:
        if timer is not None:
            timer.cancel()
    if work.done():
        return work.result()
    raise LeftBehindError


async def _time_out(call: OpenCall, attempt: Attempt, seconds: float) -> None:
    await call.live.services.clock.sleep(seconds)
    if attempt.stop_cause is None and attempt.work is not None and not attempt.work.done():
        attempt.is_out_of_time = True
        call.news.set()


def _is_cut(call: OpenCall, attempt: Attempt) -> bool:
    """Whether this one call is to end, although its run goes on."""
    return attempt.is_out_of_time or call.own_stop is not None


async def _cut_short(call: OpenCall, attempt: Attempt, work: asyncio.Future[Any]) -> None:
    cause = call.own_stop or "timeout"
    if call.tool.on_cancel == "abandon":
        attempt.interrupt(cause)
        return
    await insist(
        lambda: attempt.interrupt(cause),
        lambda: [] if work.done() else [work],
        clock=call.live.services.clock,
        seconds=call.live.config.cancel_grace_seconds,
        cancelled=lambda: None,
    )
