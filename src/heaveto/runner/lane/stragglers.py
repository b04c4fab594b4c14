"""What an earlier stop could not end: tasks of a session's runs that work on, and that the next run may wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from heaveto.core.fold import RunState
from heaveto.errors import RunnerClosedError
from heaveto.runner.services import Services
from heaveto.runner.session.log import SessionLog


class Stragglers:
    """The tasks that are left of a session's earlier runs in this process."""

    def __init__(self, services: Services, log: SessionLog) -> None:
        self._services, self._log = services, log
        self._tasks: set[asyncio.Task[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def keep(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Remember tasks until they end. The closing runner waits for them, too."""
        for task in tasks:
            self._tasks.add(task)
            self._services.background.add(task)
            task.add_done_callback(self._forget)
            task.add_done_callback(self._services.background.discard)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._log.notify()

    async def wait(self, run: RunState, seconds: float) -> None:
        """Let them end, as long as the next run wants to wait, is not stopped, and may start.

        Raises:
            RunnerClosedError: the runner was closed meanwhile.
        """
        if not self._tasks or seconds <= 0:
            return
        news = asyncio.Event()
        unwatch = self._log.watch(news.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while self._tasks and run.cancel is None and run.ended is None and not self._services.closed:
                        news.clear()
                        await news.wait()
        finally:
            unwatch()
        if self._services.closed:
            raise RunnerClosedError
