"""Readers: each with a position of its own, none of them in a run's way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.crash.workers import HERE, Yard

from heaveto import RunConfig
from heaveto.events.records import Delta, Message, Record, RunEnded
from heaveto.testing import call, gate, say
from heaveto.testing.promises import check_promises

media = pytest.mark.parametrize("medium", ["memory", "sqlite"])
Medium = Literal["memory", "sqlite"]


def act(n: int = 1) -> int:
    """Act."""
    return n


def final(items: list[Any]) -> list[Record]:
    return [item for item in items if not isinstance(item, Delta)]


async def test_two_readers_each_see_all(tmp_path: Path) -> None:
    """Two readers of one run, one of them slow: both get every record, in order, exactly once (F120)."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker(call("act"), say("a b c d", chunks=7), tools=[act])
    run = await worker.start("go")
    quick = [item async for item in run.stream()]
    slow: list[Any] = []
    async for item in run.stream():
        slow.append(item)
        await asyncio.sleep(0)
    assert final(quick) == final(slow) == await worker.log()
    check_promises(await worker.log(), seen=quick)
    await yard.close()


async def test_a_run_needs_no_reader(tmp_path: Path) -> None:
    """Without a reader, and with one that never reads on, the run ends all the same (F118, F164)."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker(call("act"), say("done", chunks=3), tools=[act])
    run = await worker.start("go")
    lazy = run.stream()
    await anext(lazy)
    assert (await run.wait()).outcome == "completed"
    rest = [item async for item in lazy]
    assert isinstance(rest[-1], RunEnded)
    await yard.close()


async def test_pieces_come_before_their_message_and_never_behind_it(tmp_path: Path) -> None:
    """Deltas of a message lead up to it; a reader that comes late gets what is there so far (F121)."""
    yard = Yard("memory", tmp_path)
    door = gate()
    worker = yard.worker((say("one two ", chunks=2), door, say("three", chunks=2)))
    run = await worker.start("go")
    early = run.stream()
    seen: list[Any] = []

    async def read(reader: Any, into: list[Any]) -> None:
        async for item in reader:
            into.append(item)

    reading = asyncio.create_task(read(early, seen))
    await door.reached()
    late: list[Any] = []
    reading_late = asyncio.create_task(read(run.stream(), late))
    await asyncio.sleep(0)
    door.open()
    await asyncio.gather(reading, reading_late)
    for items in (seen, late):
        check_promises(await worker.log(), seen=items)
        text = "".join(item.text for item in items if isinstance(item, Delta))
        message = next(item for item in items if isinstance(item, Message))
        assert text.startswith("one two ")
        assert "one two three".startswith(text)
        assert {item.message_id for item in items if isinstance(item, Delta)} == {message.id}
    await yard.close()


async def test_no_piece_behind_a_cut_message(tmp_path: Path) -> None:
    """When a run is stopped in mid-answer its reader gets the cut message, then the ending, then nothing (F123)."""
    yard = Yard("memory", tmp_path)
    door = gate()
    worker = yard.worker((say("one two ", chunks=2), door, say("three")))
    run = await worker.start("go")
    seen: list[Any] = []

    async def read() -> None:
        async for item in run.stream():
            seen.append(item)

    reading = asyncio.create_task(read())
    await door.reached()
    await run.cancel()
    await reading
    assert [type(item).__name__ for item in seen[-3:]] == ["CancelRequested", "Message", "RunEnded"]
    assert seen[-2].interrupted == "user"
    check_promises(await worker.log(), seen=seen)
    replayed = [item async for item in run.stream()]
    assert replayed == final(seen)
    await yard.close()


@media
async def test_reading_on_after_a_position(medium: Medium, tmp_path: Path) -> None:
    """`after` continues where a reader was cut off: no gap, no repetition, also when it is cut off twice (F120)."""
    yard = Yard(medium, tmp_path)
    worker = yard.worker(call("act"), call("act"), say("done"), tools=[act])
    run = await worker.start("go")
    got: list[Record] = []
    while not (got and isinstance(got[-1], RunEnded)):
        reader = run.stream(after=got[-1].seq if got else None, deltas=False)
        for _ in range(2):
            try:
                item = await anext(reader)
            except StopAsyncIteration:
                break
            assert not isinstance(item, Delta)
            got.append(item)
        await reader.aclose()
    assert got == await worker.log()
    await yard.close()


@media
async def test_a_reader_in_another_process(medium: Medium, tmp_path: Path) -> None:
    """A run can be found, followed and stopped from a process that does not carry it (F122, F136, F166)."""
    yard = Yard(medium, tmp_path)
    door = gate()
    worker, other = yard.worker(call("act"), (say("half "), door, say("done")), tools=[act]), yard.worker()
    run = await worker.start("go")
    await door.reached()
    attached = await other.runner.attach(run.run_id)
    seen: list[Any] = []

    async def read() -> None:
        async for item in attached.stream():
            seen.append(item)

    reading = asyncio.create_task(read())
    holding = await other.runner.who_holds(**HERE)
    assert holding is not None
    assert (holding.owner, holding.alive, holding.run_id) == (worker.store.owner, True, run.run_id)
    report = await asyncio.wait_for(attached.cancel(by="bob"), 5)
    assert (report.cause, report.by) == ("user", "bob")
    await reading
    assert final(seen) == await worker.log()
    assert (await run.wait()).by == "bob"
    await worker.idle()
    assert await other.runner.who_holds(**HERE) is None
    check_promises(await worker.log(), seen=seen, told=[end.run_id for end in worker.bell.ends])
    await yard.close()


async def test_following_an_ended_run_replays_it(tmp_path: Path) -> None:
    """A run that has ended is replayed from the log, to any number of readers, in any process."""
    yard = Yard("sqlite", tmp_path)
    worker = yard.worker(say("done"))
    run = await worker.start("go")
    await run.wait()
    other = yard.worker()
    attached = await other.runner.attach(run.run_id)
    for _ in range(2):
        assert [item async for item in attached.stream()] == await worker.log()
    assert await attached.result() == "done"
    await yard.close()


async def test_stopping_a_followed_run_twice_and_reading_it_twice(tmp_path: Path) -> None:
    """Handles are independent of the run and of each other: two stops, two readers, one ending (F122)."""
    yard = Yard("memory", tmp_path)
    door = gate()
    worker = yard.worker((door, say("never")))
    run = await worker.start("go")
    await door.reached()
    handles = [await worker.runner.attach(run.run_id) for _ in range(3)]
    reports = await asyncio.gather(*(handle.cancel(by=f"ann {n}") for n, handle in enumerate(handles)))
    assert len({report.by for report in reports}) == 1
    logs = [[item async for item in handle.stream()] for handle in handles]
    assert logs[0] == logs[1] == logs[2]
    check_promises(await worker.log(), seen=logs[0])
    await yard.close()


async def test_leaving_a_reader_of_a_started_run_changes_nothing(tmp_path: Path) -> None:
    """Closing or dropping a reader is a disconnect, not a stop (F118)."""
    yard = Yard("memory", tmp_path)
    door = gate()
    worker = yard.worker((say("a"), door, say("b")))
    run = await worker.start("go", run_id="mine")
    async with run.stream() as reader:
        await anext(reader)
    reading = asyncio.create_task(anext(run.stream(after=10)))
    await door.reached()
    reading.cancel()
    await asyncio.wait({reading})
    door.open()
    assert (await run.wait()).outcome == "completed"
    assert await run.result() == "ab"
    await yard.close()


async def test_a_reader_without_deltas_gets_none(tmp_path: Path) -> None:
    """`deltas=False`, or `streaming=False` for a cold stream, leaves the pieces out."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker(say("a b c", chunks=3), say("a b c", chunks=3))
    run = await worker.start("go")
    assert not any(isinstance(item, Delta) for item in [item async for item in run.stream(deltas=False)])
    stream = worker.runner.run_async(new_message="go", run_config=RunConfig(streaming=False), **HERE)
    assert not any(isinstance(item, Delta) for item in [item async for item in stream])
    await yard.close()
