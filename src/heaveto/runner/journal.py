"""A run's way to its log: records are staged, and durable before the run's next effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from heaveto.errors import LogMovedError
from heaveto.events.records import Record
from heaveto.runner.hooks import Hooks
from heaveto.runner.log import SessionLog
from heaveto.stores.base import Guard, Lease


class Journal:
    """Appends under the run's lease. `check` raises once the run was stopped, so that nothing new begins then."""

    __slots__ = ("_check", "_hooks", "_last", "_lease", "_log", "_staged")

    def __init__(self, log: SessionLog, lease: Lease, hooks: Hooks, check: Callable[[], None]) -> None:
        self._log, self._lease, self._hooks, self._check = log, lease, hooks, check
        self._staged: list[Record] = []
        self._last: asyncio.Task[None] | None = None

    def stage(self, *records: Record) -> None:
        """Put records into the next append."""
        self._check()
        self._staged.extend(records)

    async def flush(self) -> None:
        """Append what is staged; return when everything that was staged so far is durable."""
        if self._staged:
            self._check()
            self._last = asyncio.ensure_future(self._write(self.take()))
        if self._last is not None:
            last = self._last
            await asyncio.shield(last)
            if self._last is last:
                self._last = None
        self._check()

    async def commit(self, records: Sequence[Record]) -> None:
        """Append what is staged and `records`, but only onto a log that this process knows to its end.

        The commit point of effects: if others appended, it reads on and looks for a stop before it tries again (F153).
        """
        while True:
            await self._log.settle()
            self._check()
            staged = self.take()
            try:
                await self._write([*staged, *records], expect=self._log.state.last_seq)
                return
            except LogMovedError:
                self.put_back(staged)
                await self._log.refresh()

    async def record_fact(self, records: Sequence[Record]) -> None:
        """Append facts that a stop does not make untrue, such as a tool's result."""
        await self._write([*self.take(), *records])

    async def write_last(self, records: Sequence[Record]) -> None:
        """Append the closing batch.

        Raises:
            LogMovedError: others appended since this process read the log.
        """
        await self._write(records, expect=self._log.state.last_seq)

    async def write_first(self, records: Sequence[Record], *, expect: int, guard: Guard | None) -> None:
        """Append the opening batch, on condition of `expect` and `guard`."""
        await self._write(records, expect=expect, guard=guard)

    def take(self) -> list[Record]:
        """Take what is staged, to append it otherwise."""
        staged, self._staged = self._staged, []
        return staged

    def put_back(self, staged: Sequence[Record]) -> None:
        """Stage again what was taken, before what was staged since."""
        self._staged = [*staged, *self._staged]

    async def _write(self, batch: Sequence[Record], *, expect: int | None = None, guard: Guard | None = None) -> None:
        await self._log.append(batch, token=self._lease.token, expect=expect, guard=guard)
        for callback in self._hooks.at("on_event"):
            for record in batch:
                await callback(record)
