"""Ways for a process to die in a test: disks that outlive it, and a run that is read until its process is dead."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Protocol

from tests.crash.scenarios import GO

from heaveto import MemoryStore, Run, Runner
from heaveto.clock import SystemClock
from heaveto.events.records import SessionKey
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryData
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing.crash import CrashingStore

HERE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("crash", "u", "s")


class LaterClock(SystemClock):
    """The clock of a machine on which the dead process's last sign of life is long ago."""

    def __init__(self, later: float) -> None:
        self._later = later

    def monotonic(self) -> float:
        return super().monotonic() + self._later


class Disk(Protocol):
    """What is left of a process."""

    async def open(self) -> Store:
        """Return a store for a new process; the one before is dead from now on."""
        ...

    async def close(self) -> None: ...


class MemoryDisk:
    """Memory that outlives its processes."""

    def __init__(self) -> None:
        self._data = MemoryData()
        self._store: MemoryStore | None = None

    async def open(self) -> Store:
        if self._store is not None:
            self._store.abandon()
        self._store = MemoryStore(self._data)
        return self._store

    async def close(self) -> None:
        pass


class FileDisk:
    """A SQLite file as killed processes leave it: copied as it is, without the process that held the lock."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._stores: list[SqliteStore] = []

    async def open(self) -> Store:
        number = len(self._stores)
        for suffix in ("", "-wal"):
            source = self._place / f"{number - 1}.db{suffix}"
            if source.exists():
                shutil.copy(source, self._place / f"{number}.db{suffix}")
        self._stores.append(SqliteStore(self._place / f"{number}.db", clock=LaterClock(1000.0 * number)))
        return self._stores[-1]

    async def close(self) -> None:
        for store in self._stores:
            await store.aclose()


async def until_death(store: CrashingStore, work: Awaitable[object]) -> bool:
    """Do some work of a process, until it is done or the process dies; return whether it died."""
    worker = asyncio.ensure_future(work)
    death = asyncio.create_task(store.died.wait())
    await asyncio.wait({worker, death}, return_when=asyncio.FIRST_COMPLETED)
    death.cancel()
    if not store.died.is_set():
        await worker
    return store.died.is_set()


async def run_until_crash(runner: Runner, store: CrashingStore, seen: list[Any], **more: Any) -> bool:
    """Start a run and read it until it is over or its process dies; return whether it died."""

    async def carry() -> None:
        run = await runner.start(new_message=GO, **HERE, **more)
        await follow(run, seen)
        await released(store)

    return await until_death(store, carry())


async def follow(run: Run, seen: list[Any]) -> None:
    async for item in run.stream():
        seen.append(item)
    await run.wait()


async def released(store: Any) -> None:
    """Wait until the end hooks were called and the session was given back."""
    changed = asyncio.Event()
    unsubscribe = store.subscribe(KEY, lambda _: changed.set())
    while await store.holder(KEY) is not None:
        await changed.wait()
        changed.clear()
    unsubscribe()


async def bury(store: CrashingStore) -> None:
    """End whatever the dead process had going on."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    while others := {task for task in others if not task.done()}:
        for task in others:
            task.cancel()
        store.bury()
        await asyncio.wait(others, timeout=0.05)
