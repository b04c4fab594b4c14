"""Time as an argument: the only place of the package that reads a clock."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Tests pass a fake; everything else passes `SystemClock`."""

    def time(self) -> float:
        """Return the wall-clock time in epoch seconds. It is written into records."""
        ...

    def monotonic(self) -> float:
        """Return a clock in seconds that never goes back. Deadlines are measured with it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait. Cancelling the caller ends the wait at once."""
        ...


class SystemClock:
    """The machine's own clock."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
