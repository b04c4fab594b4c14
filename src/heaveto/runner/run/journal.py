"""A run's way to its log: records are staged, and durable before the run's next effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from heaveto.errors import LogMovedError, StoreError
from heaveto.events.records import Record
from heaveto.runner.application.hooks import Hooks, call_back
from heaveto.runner.services import logger
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Guard, Lease

_CLOSING_ATTEMPTS = 3


class Journal:
    """Appends under the run's lease. `check` raises once the run was stopped, so that nothing new begins then."""

    __slots__ = ("_check", "_hooks", "_last", "_lease", "_log", "_run_id", "_staged", "_telling", "_told")

    def __init__(self, log: SessionLog, lease: Lease, run_id: str, hooks: Hooks, check: Callable[[], None]) -> None:
        self._log, self._lease, self._run_id, self._hooks, self._check = log, lease, run_id, hooks, check
        self._staged: list[Record] = []
        self._told = log.state.last_seq
        self._telling = asyncio.Lock()
        self._last: asyncio.Future[int] | None = None

    def end(self, refuse: Callable[[], None]) -> None:
        """The run is over: `refuse` answers to whatever still wants to record something."""
        self._check = refuse

    def stage(self, *records: Record) -> None:
        """Put records into the next append."""
        self._check()
        self._staged.extend(records)

    async def flush(self) -> None:
        """Append what is staged; return when everything that was staged so far is durable."""
        if self._staged:
            self._check()
            self._last = self._append_staged()
        if self._last is not None:
            last = self._last
            await asyncio.shield(last)
            if self._last is last:
                self._last = None
        self._check()

    def _append_staged(self) -> asyncio.Future[int]:
        """Begin to append what is staged. If it fails, it is staged again: what was seen is not lost for it (P4)."""
        staged = self.take()
        outcome = self._log.append_soon(staged, token=self._lease.token)
        outcome.add_done_callback(lambda done: None if _is_stored(done) else self.put_back(staged))
        return outcome

    async def commit(self, records: Callable[[], Sequence[Record]]) -> None:
        """Append what is staged and what `records` decides, but only onto a log that this process knows to its end.

        The commit point of effects: if others appended, it reads on, looks for a stop, and lets `records` decide
        anew before it tries again (F153).
        """
        while True:
            async with self._log.still():
                self._check()
                decided = records()
                staged = self.take()
                if not (staged or decided):
                    return
                try:
                    await self._write([*staged, *decided], expect=self._log.state.last_seq)
                    return
                except LogMovedError:
                    await self.read_on(staged)
                except StoreError:
                    self.put_back(staged)
                    raise

    async def record_fact(self, records: Sequence[Record]) -> None:
        """Append facts that a stop does not make untrue, such as a tool's result."""
        staged = self.take()
        if not (staged or records):
            return
        try:
            await self._write([*staged, *records])
        except Exception:
            self.put_back(staged)
            raise

    async def write_last(self, records: Sequence[Record]) -> None:
        """Append the closing batch; again, if the store says that its trouble may pass.

        Raises:
            LogMovedError: others appended since this process read the log.
            StoreError
        """
        for left in reversed(range(_CLOSING_ATTEMPTS)):
            try:
                await self._write(records, expect=self._log.state.last_seq)
            except StoreError as error:
                if isinstance(error, LogMovedError) or not (error.retryable and left):
                    raise
            else:
                return

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

    async def read_on(self, staged: Sequence[Record]) -> None:
        """Read what others appended; stage again what was taken, but not what has come into the log after all."""
        self.put_back(staged)
        records = self._log.state.records
        since = len(records)
        await self._log.refresh()
        known = {record.id for record in records[since:]}
        self._staged = [record for record in self._staged if record.id not in known]

    async def _write(self, batch: Sequence[Record], *, expect: int | None = None, guard: Guard | None = None) -> None:
        await self._log.append(batch, token=self._lease.token, expect=expect, guard=guard)

    async def tell(self) -> None:
        """Tell plugins, in order, the run's records that became durable. An error of theirs is logged (F151)."""
        callbacks = self._hooks.at("on_event")
        if not callbacks:
            return
        async with self._telling:
            records = self._log.state.records
            while self._told < len(records):
                record = records[self._told]
                self._told += 1
                if record.run_id == self._run_id:
                    for callback in callbacks:
                        await _tell_one(callback, record)


def _is_stored(outcome: asyncio.Future[int]) -> bool:
    return not outcome.cancelled() and outcome.exception() is None


async def _tell_one(callback: Callable[..., object], record: Record) -> None:
    try:
        await call_back(callback, record)
    except Exception:  # noqa: BLE001 - the observer's own code
        logger.exception("an on_event callback failed for record %s", record.seq)
