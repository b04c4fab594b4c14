"""Processes that are closed in order, at any append: the way of a deploy, beside the deaths."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from tests.crash.deaths import bury, until_death

from heaveto import Runner
from heaveto.errors import RunnerClosedError
from heaveto.events.records import Record, SessionKey
from heaveto.stores.base import Guard, Store
from heaveto.testing.crash import CrashingStore

NEVER = 10_000


class ClosingStore(CrashingStore):
    """Behind its n-th append somebody begins to close the runner; some appends later the process may die.

    Args:
        close_at: behind which append; then `told` is called, once.
        crash: how many appends later the process dies.
    """

    def __init__(self, inner: Store, *, close_at: int, told: Callable[[], None], crash: int, lands: bool) -> None:
        super().__init__(inner, after=close_at + crash, lands=lands)
        self._close_at, self._told = close_at, told
        self.closing = asyncio.Event()

    async def append(
        self,
        key: SessionKey,
        records: Sequence[Record],
        *,
        token: int | None,
        expect: int | None = None,
        guard: Guard | None = None,
    ) -> int:
        seq = await super().append(key, records, token=token, expect=expect, guard=guard)
        if self.appends >= self._close_at > 0 and not self.closing.is_set():
            self._told()
            self.closing.set()
        return seq


async def until_closed(store: ClosingStore, runner: Runner, work: Awaitable[None]) -> bool:
    """Do some work of a process, until it is done, or the process is closed or dies; return whether it died."""

    async def close() -> None:
        await store.closing.wait()
        await runner.aclose()

    async def live() -> None:
        closing = asyncio.create_task(close())
        with suppress(RunnerClosedError):
            await work
        if store.closing.is_set():
            await closing
        closing.cancel()

    died = await until_death(store, live())
    await bury(store)
    return died
