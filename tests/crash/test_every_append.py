"""A crash at every append, enumerated: after it became durable, and before."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.crash.scenarios import GO, NEXT, SCENARIOS, World, make_app

from heaveto import MemoryStore, Runner
from heaveto.clock import SystemClock
from heaveto.events.records import CallSettled, SessionKey
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryData
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing.crash import CrashingStore
from heaveto.testing.promises import check_promises, lost_messages

HERE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("crash", "u", "s")


class LaterClock(SystemClock):
    """The clock of a machine on which the dead process's last sign of life is long ago."""

    def monotonic(self) -> float:
        return super().monotonic() + 1000


class MemoryDisk:
    """Memory that outlives its processes."""

    def __init__(self) -> None:
        self._data = MemoryData()
        self._store = MemoryStore(self._data)

    def first(self) -> Store:
        return self._store

    async def second(self) -> Store:
        self._store.abandon()
        return MemoryStore(self._data)

    async def close(self) -> None:
        pass


class FileDisk:
    """A SQLite file as a killed process leaves it: copied as it is, without the process that held the lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store = SqliteStore(path / "a.db")

    def first(self) -> Store:
        return self._store

    async def second(self) -> Store:
        for suffix in ("", "-wal"):
            source = self._path / f"a.db{suffix}"
            if source.exists():
                shutil.copy(source, self._path / f"b.db{suffix}")
        return SqliteStore(self._path / "b.db", clock=LaterClock())

    async def close(self) -> None:
        await self._store.aclose()


async def run_until_crash(runner: Runner, store: CrashingStore, seen: list[Any]) -> bool:
    """Start a run and read it until it ends or its process dies; return whether it died."""

    async def follow() -> None:
        run = await runner.start(new_message=GO, **HERE)
        async for item in run.stream():
            seen.append(item)
        await run.wait()

    follower = asyncio.create_task(follow())
    death = asyncio.create_task(store.died.wait())
    await asyncio.wait({follower, death}, return_when=asyncio.FIRST_COMPLETED)
    if not store.died.is_set():
        await released(store)
        death.cancel()
    return store.died.is_set()


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


async def crash_once(scenario: str, disk: Any, after: int, *, lands: bool) -> bool:
    """Crash at an append, recover in a new process, go on. Return whether the run got through without crashing."""
    world, seen = World(), []
    store = CrashingStore(disk.first(), after=after, lands=lands)
    died = await run_until_crash(Runner(app=make_app(scenario, world), store=store), store, seen)
    await bury(store)
    second = await disk.second()
    async with Runner(app=make_app(scenario, world), store=second) as runner:
        await runner.recover()
        run = await runner.start(new_message=NEXT, **HERE)
        ended = await run.wait()
        await released(second)
        records = await runner.records(**HERE)
        assert await second.unfinished() == []
    where = f"{scenario}, {'after' if lands else 'before'} append {after}"
    try:
        assert ended.outcome == "completed", ended
        assert all(record.status != "failed" for record in records if isinstance(record, CallSettled))
        check_promises(records, seen=seen, executions=world.executions, told=world.told)
        assert not lost_messages(records, [NEXT] if after == 1 and not lands else [GO, NEXT])
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from error
    return not died


@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_crash_at_any_append_in_memory(scenario: str, lands: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever a process dies, the next one closes its run truthfully, once, and goes on (P1-P7; F01, F105, F121)."""
    after = 1
    while not await crash_once(scenario, MemoryDisk(), after, lands=lands):
        after += 1
    assert after > 2


@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_crash_at_any_append_on_sqlite(scenario: str, lands: bool, tmp_path: Path) -> None:
    """The same on a file."""
    after = 1
    while True:
        place = tmp_path / str(after)
        place.mkdir()
        disk = FileDisk(place)
        through = await crash_once(scenario, disk, after, lands=lands)
        await disk.close()
        if through:
            break
        after += 1
    assert after > 2
