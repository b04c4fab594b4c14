"""Recovery of many sessions: so many at a time, shared by those who recover, and held up by none of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.crash.sites import KEY, Process, Site

from heaveto.core.request import ModelRequest
from heaveto.errors import InputError, StoreBusyError
from heaveto.events.contents import text_of
from heaveto.events.records import Record, RunEnded, RunStarted, SessionKey
from heaveto.stores.base import Lease
from heaveto.stores.memory import MemoryStore
from heaveto.testing import FakeClock, gate, hang, say, settle
from heaveto.testing.promises import check_promises


@pytest.fixture
async def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def site(clock: FakeClock) -> AsyncIterator[Site]:
    site = Site(clock)
    yield site
    await site.close()


async def die(site: Site, count: int) -> list[str]:
    """Let a process die with so many runs, one per session; return their ids."""
    dead = site.process(*[(say("Half"), hang())] * count)
    runs = [
        await dead.runner.start(user_id="u", session_id=f"s{number}", new_message=f"s{number}")
        for number in range(count)
    ]
    while dead.model.active < count:
        await settle()
    dead.kill()
    return [run.run_id for run in runs]


async def logs(process: Process, count: int) -> list[list[Record]]:
    found = [await process.runner.records(user_id="u", session_id=f"s{number}") for number in range(count)]
    for log in found:
        check_promises(log)
    return found


class Held(MemoryStore):
    """Knows how many sessions are held at most at the same time."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.now = self.peak = 0

    async def claim(self, key: SessionKey) -> Lease:
        lease = await super().claim(key)
        self.now += 1
        self.peak = max(self.peak, self.now)
        return lease

    async def release(self, lease: Lease, *, settled: Sequence[str] = ()) -> None:
        await super().release(lease, settled=settled)
        self.now -= 1


async def test_no_more_sessions_are_carried_than_wanted(site: Site) -> None:
    """Three hundred interrupted runs with five places: never more than five are held, and all are completed."""
    count = 300
    run_ids = await die(site, count)
    alive = site.process(*[say("done")] * count, store=Held)
    assert sorted(await alive.runner.recover(max_concurrent=5)) == sorted(run_ids)
    assert isinstance(alive.store, Held)
    assert alive.store.peak == 5
    for log in await logs(alive, count):
        assert [record.outcome for record in log if isinstance(record, RunEnded)] == ["completed"]


async def test_several_recoverers_share_the_sessions(site: Site) -> None:
    """Two processes with four places each have eight of them at work, and each session is in one pair of hands (F111):
    nobody waits for a session that another one was faster to take."""
    run_ids, door = await die(site, 20), gate()
    ones, others = (site.process(*[(door, say("done"))] * 20) for _ in range(2))
    recovering = [asyncio.create_task(process.runner.recover(max_concurrent=4)) for process in (ones, others)]
    await settle()
    assert (ones.model.active, others.model.active) == (4, 4)
    door.open()
    first, second = await asyncio.wait_for(asyncio.gather(*recovering), 20)
    assert len(first) >= 4
    assert len(second) >= 4
    assert sorted([*first, *second]) == sorted(run_ids)
    for log in await logs(ones, 20):
        assert [record.attempt for record in log if isinstance(record, RunStarted)] == [1, 2]


class Broken(MemoryStore):
    """Cannot read one session, for a reason that no store should have."""

    async def read(self, key: SessionKey, *, after: int = 0, limit: int | None = None) -> list[Record]:
        if key.session == "s0":
            raise ZeroDivisionError("bad sector")
        return await super().read(key, after=after, limit=limit)


async def test_a_session_that_fails_and_one_that_hangs_keep_nobody_from_their_turn(site: Site) -> None:
    """With two places, one of them taken for ever, the others are recovered; and who waits for the end may give up,
    which stops no run (F83)."""
    await die(site, 8)

    def think(request: ModelRequest) -> Any:
        return hang() if "s1" in text_of(request.turns[0].parts) else say("done")

    alive = site.process(*[think] * 7, store=Broken)
    recovering = asyncio.create_task(alive.runner.recover(max_concurrent=2))
    async with asyncio.timeout(20):
        while alive.model.closed < 6:
            await settle()
    await settle()
    for number in range(2, 8):
        log = await alive.runner.records(user_id="u", session_id=f"s{number}")
        assert [record.outcome for record in log if isinstance(record, RunEnded)] == ["completed"]
    assert not recovering.done()
    recovering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await recovering
    assert alive.model.active == 1, "the run goes on with its runner"


async def test_giving_up_takes_up_nothing_more(site: Site) -> None:
    """Of ten sessions with two places, the other eight are left to whoever looks next."""
    await die(site, 10)
    door = gate()
    alive = site.process(*[(door, say("done"))] * 10)
    recovering = asyncio.create_task(alive.runner.recover(max_concurrent=2))
    await settle()
    recovering.cancel()
    await asyncio.wait({recovering})
    door.open()
    await settle()
    assert alive.model.calls == 2
    assert len(await alive.runner.recover()) == 8


async def test_who_looks_always_goes_on_as_places_become_free(site: Site, clock: FakeClock) -> None:
    """One look is enough for all, however few places there are; the time between looks does not count."""
    run_ids = await die(site, 12)
    alive = site.process(*[say("done")] * 12)
    looking = asyncio.create_task(alive.runner.recover_always(every_seconds=10, max_concurrent=1))
    async with asyncio.timeout(20):
        for run_id in run_ids:
            assert await (await alive.runner.attach(run_id)).result() == "done"
    looking.cancel()
    await asyncio.wait({looking})
    assert clock.time() < 10 + FakeClock().time()


async def test_a_store_in_trouble_is_told_as_it_is(site: Site) -> None:
    """Who recovers once gets the store's own error."""

    class Away(MemoryStore):
        async def unfinished(self, key: SessionKey | None = None) -> Any:
            raise StoreBusyError("away")

    alive = site.process(store=Away)
    with pytest.raises(StoreBusyError):
        await alive.runner.recover()


@pytest.mark.parametrize("count", [0, -1, 2.5, "3", True, None])
async def test_a_number_of_places_that_is_none_is_refused(site: Site, count: Any) -> None:
    """The error says what it was."""
    runner = site.process().runner
    with pytest.raises(InputError, match="max_concurrent must be an int of at least 1"):
        await runner.recover(max_concurrent=count)
    with pytest.raises(InputError, match="max_concurrent"):
        await runner.recover_always(max_concurrent=count)


async def test_a_live_process_that_gets_nowhere_is_alarmed_about_once(
    site: Site, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A session whose holder is alive and records nothing for long is told of, once for each time (F83)."""
    door, again = gate(), gate()
    stuck = site.process((say("Half"), door), (say("Half"), again))
    await stuck.start("one")
    await door.reached()
    alive = site.process()
    looking = asyncio.create_task(alive.runner.recover_always(every_seconds=10, alarm_after_seconds=60))
    with caplog.at_level(logging.ERROR, "heaveto"):
        for _ in range(12):
            await clock.advance(10)
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 1
        assert said[0].startswith(f"session {KEY}: nothing was recorded for 60 seconds, and {stuck.store.owner}, ")
        door.open()
        await stuck.start("two")
        await again.reached()
        for _ in range(8):
            await clock.advance(10)
        assert len(caplog.records) == 2
    looking.cancel()
    await asyncio.wait({looking})
