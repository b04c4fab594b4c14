"""Interrupting what does not end at once: again and again, with growing pauses, for as long as the grace lasts.

Code that cleans up behind an interruption and code that swallows it look alike from outside. So the second one waits
for a quarter of the grace, a second at most: whoever rolls back a transaction has that long undisturbed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from heaveto.clock import Clock

_FIRST_PAUSE = 0.25
_LONGEST_FIRST_PAUSE_SECONDS = 1.0


async def insist(
    interrupt: Callable[[], None],
    pending: Callable[[], Collection[asyncio.Future[Any]]],
    *,
    clock: Clock,
    seconds: float,
    cancelled: Callable[[], None],
) -> None:
    """Interrupt work until nothing of it is pending, or the grace is over.

    Args:
        interrupt: interrupts what is pending.
        pending: what has not ended.
        clock: measures the grace.
        seconds: the grace.
        cancelled: called when the one who waits here is cancelled: the event loop is shutting down. The wait goes on.
    """
    end, nudge = clock.monotonic() + seconds, min(seconds * _FIRST_PAUSE, _LONGEST_FIRST_PAUSE_SECONDS)
    interrupt()
    while waiting := pending():
        left = end - clock.monotonic()
        if left <= 0:
            return
        timer = asyncio.ensure_future(clock.sleep(min(nudge, left)))
        try:
            await asyncio.wait({*waiting, timer}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            cancelled()
        if timer.done():
            nudge *= 2
            interrupt()
        else:
            timer.cancel()
