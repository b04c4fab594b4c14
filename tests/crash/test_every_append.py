"""A crash at every append, enumerated: after it became durable, and before. The runs are sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.crash.deaths import HERE, Disk, FileDisk, MemoryDisk, bury, released, run_until_crash
from tests.crash.scenarios import GO, NEXT, SCENARIOS, World, make_app

from heaveto import Runner
from heaveto.events.records import CallSettled
from heaveto.testing.crash import CrashingStore
from heaveto.testing.promises import check_promises, lost_messages


async def crash_once(scenario: str, disk: Disk, after: int, *, lands: bool) -> bool:
    """Crash at an append, recover in a new process, go on. Return whether the run got through without crashing."""
    world, seen = World(), list[Any]()
    store = CrashingStore(await disk.open(), after=after, lands=lands)
    died = await run_until_crash(Runner(app=make_app(scenario, world), store=store), store, seen)
    await bury(store)
    second = await disk.open()
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
async def test_a_crash_at_any_append_in_memory(scenario: str, lands: bool) -> None:
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
