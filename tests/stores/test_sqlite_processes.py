"""Several processes on one file, and what is left when one of them is killed or stopped."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from heaveto.clock import SystemClock
from heaveto.errors import LeaseHeldError
from heaveto.events.records import Message
from heaveto.stores.sqlite import SqliteStore
from heaveto.stores.sqlite.schema import check_integrity
from heaveto.testing.store_contract import KEY, News, message

CHILD = Path(__file__).with_name("store_process.py")
BATCH = 3
TTL_SECONDS = 600.0

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs POSIX signals")


class LaterClock(SystemClock):
    """The system's clock, put forward."""

    seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


class Child:
    """A running `store_process.py`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(20):
            return (await self._process.stdout.readline()).decode().strip()

    async def rest(self) -> list[str]:
        assert self._process.stdout is not None
        return (await self._process.stdout.read()).decode().split("\n")[:-1]

    async def ask(self) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        await self._process.stdin.drain()
        return await self.line()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def child(command: str, path: Path) -> AsyncGenerator[Child]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), command, str(path), str(TTL_SECONDS), stdin=pipe, stdout=pipe
    )
    running = Child(process)
    try:
        yield running
    finally:
        await running.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_two_processes_append_to_one_session(path: Path) -> None:
    """Batches of two processes never interleave, and each hears of the other's (F72, F74)."""
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
        news = News(store, KEY)
        async with child("append", path) as other:
            await other.line()
            await news.wait()
            mine = [[message("mine") for _ in range(BATCH)] for _ in range(20)]
            for batch in mine:
                await store.append(KEY, batch, token=None)
            await other.line()
        records = await store.read(KEY)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    ids = [record.id for record in records]
    for batch in mine:
        first = ids.index(batch[0].id)
        assert first % BATCH == 0 and ids[first : first + BATCH] == [record.id for record in batch]


async def test_the_lease_of_a_killed_process_is_free_at_once(path: Path) -> None:
    """kill -9 of the holder: the next claim succeeds without waiting for any time to live (F78)."""
    async with SqliteStore(path, ttl_seconds=TTL_SECONDS) as store:
        await store.create_session(KEY)
        async with child("hold", path) as other:
            token = int(await other.line())
            with pytest.raises(LeaseHeldError):
                await store.claim(KEY)
            holder = await store.holder(KEY)
            assert holder is not None and holder.alive
            news = News(store, KEY)
            await news.settle()
            await other.kill()
            await news.wait()
            holder = await store.holder(KEY)
            assert holder is not None and not holder.alive
            lease = await store.claim(KEY)
            assert lease.token > token
    assert not list(path.parent.glob("*-owner-*")), "nobody's lock file is left behind"


async def test_a_stopped_process_loses_its_lease_and_cannot_write(path: Path) -> None:
    """SIGSTOP of the holder: held for its time to live, then claimed; after SIGCONT it is refused (F73)."""
    clock = LaterClock()
    async with SqliteStore(path, clock=clock) as store:
        await store.create_session(KEY)
        async with child("hold", path) as other:
            await other.line()
            assert await other.ask() == "1"
            other.signal(signal.SIGSTOP)
            with pytest.raises(LeaseHeldError):
                await store.claim(KEY)
            clock.seconds = TTL_SECONDS
            lease = await store.claim(KEY)
            assert await store.append(KEY, [message()], token=lease.token) == 2
            other.signal(signal.SIGCONT)
            assert await other.ask() == "StaleLeaseError"
            assert await store.append(KEY, [message()], token=lease.token) == 3


@pytest.mark.parametrize("round_", range(5))
async def test_what_was_confirmed_survives_kill_9(path: Path, round_: int) -> None:
    """Killed at any point of its appends, a process leaves every confirmed batch, and no half one (F108, F117)."""
    async with SqliteStore(path) as store:
        await store.create_session(KEY)
    async with child("append", path) as other:
        confirmed = [int(await other.line()) for _ in range(random.randint(1, 40))]
        await asyncio.sleep(random.random() / 500)  # the point of the kill, not a wait
        await other.kill()
        confirmed += [int(line) for line in await other.rest()]
    assert check_integrity(path) == []
    async with SqliteStore(path) as store:
        records = await store.read(KEY)
        assert len(records) >= confirmed[-1] and len(records) % BATCH == 0
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        texts = [part.text for record in records if isinstance(record, Message) for part in record.parts]  # type: ignore[union-attr]
        assert texts == [f"{part}/{BATCH}" for part in range(BATCH)] * (len(records) // BATCH)
        assert await store.append(KEY, [message()], token=None) == len(records) + 1


async def test_a_blocked_event_loop_does_not_look_dead(path: Path) -> None:
    """The beat comes from a thread: a tool that blocks the loop for longer than the time to live keeps its lease."""
    async with SqliteStore(path, ttl_seconds=0.6) as store:
        await store.create_session(KEY)
        lease = await store.claim(KEY)
        time.sleep(0.8)  # noqa: ASYNC251 -- blocking the loop is what is tested
        async with SqliteStore(path) as other:
            with pytest.raises(LeaseHeldError):
                await other.claim(KEY)
        assert await store.append(KEY, [message()], token=lease.token) == 1


async def test_a_lock_alone_keeps_no_lease(path: Path) -> None:
    """A forked child may inherit the lock of a dead owner: without a beat the lease ends all the same."""
    clock = LaterClock()
    async with SqliteStore(path, clock=clock) as store, SqliteStore(path) as holder:
        await store.create_session(KEY)
        lease = await holder.claim(KEY)
        assert len(list(path.parent.glob("*-owner-*"))) == 1
        clock.seconds = 3600
        assert (await store.claim(KEY)).token > lease.token
