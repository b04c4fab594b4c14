"""First come, first served, one at a time, and nobody forgotten: within a process and between two."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest
from tests.crash.workers import HERE, Yard

from heaveto.errors import RunIdTakenError, SessionBusyError, UnknownRunError
from heaveto.events.records import RunEnded
from heaveto.testing import gate, say
from heaveto.testing.promises import check_promises, lost_messages

media = pytest.mark.parametrize("medium", ["memory", "sqlite"])
Medium = Literal["memory", "sqlite"]


@media
async def test_messages_at_once_run_in_the_order_of_their_starts(medium: Medium, tmp_path: Path) -> None:
    """Twenty messages to a new session at the same moment become twenty runs, in order (F71, F80, F156)."""
    yard = Yard(medium, tmp_path)
    worker = yard.worker()
    texts = [f"m{number:02}" for number in range(20)]
    runs = await asyncio.gather(*(worker.start(text) for text in texts))
    for run in runs:
        assert (await run.wait()).outcome == "completed"
    assert await worker.inputs() == texts
    check_promises(await worker.log())
    await yard.close()


@media
async def test_two_workers_meet_in_a_new_session(medium: Medium, tmp_path: Path) -> None:
    """Two processes that send the first messages of a session at the same moment: all run, one at a time (F72)."""
    yard = Yard(medium, tmp_path)
    workers = [yard.worker(), yard.worker()]
    texts = [f"m{number}" for number in range(8)]
    runs = await asyncio.gather(*(workers[number % 2].start(text) for number, text in enumerate(texts)))
    for run in runs:
        assert (await run.wait()).outcome == "completed"
    log = await workers[0].log()
    assert sorted(await workers[0].inputs()) == texts
    check_promises(log)
    await yard.close()


async def test_two_hundred_messages_wait(tmp_path: Path) -> None:
    """A long inbox is carried out whole and in order (F156)."""
    yard = Yard("sqlite", tmp_path)
    door = gate()
    worker = yard.worker((door, say("first")), *(say(f"answer {number}") for number in range(200)))
    worker.model._check = False  # the requests are many, and of one kind
    first = await worker.start("first")
    await door.reached()
    texts = [f"m{number:03}" for number in range(200)]
    runs = await asyncio.gather(*(worker.start(text) for text in texts))
    assert await worker.inbox() == texts
    door.open()
    await first.wait()
    await asyncio.gather(*(run.wait() for run in runs))
    assert (await worker.inputs())[1:] == texts
    await yard.close()


@media
async def test_of_many_that_reject_one_runs(medium: Medium, tmp_path: Path) -> None:
    """Of five messages at once that would rather fail than wait, the first runs and the others leave no trace."""
    yard = Yard(medium, tmp_path)
    worker = yard.worker((door := gate(), say("fine")))
    results = await asyncio.gather(*(worker.start(f"m{n}", "reject") for n in range(5)), return_exceptions=True)
    door.open()
    assert [type(result) for result in results[1:]] == [SessionBusyError] * 4
    assert await worker.inputs() == ["m0"]
    await yard.close()


async def test_a_message_is_durable_when_start_returns(tmp_path: Path) -> None:
    """What `start` confirmed is in the log, whether it runs or waits, and whoever put earlier messages there (F60)."""
    yard = Yard("memory", tmp_path)
    door = gate()
    dead = yard.worker((door, say("never")))
    await dead.start("one")
    await door.reached()
    await dead.start("two")
    dead.store.abandon()  # type: ignore[attr-defined]
    second_door = gate()
    worker = yard.worker((second_door, say("two is done")), say("three is done"))
    run = await asyncio.wait_for(worker.start("three"), 2)
    assert not lost_messages(await worker.log(), ["one", "two", "three"])
    second_door.open()
    assert (await run.wait()).outcome == "completed"
    assert await worker.inputs() == ["one", "two", "three"]
    await yard.close()


@media
async def test_a_message_taken_back_never_runs(medium: Medium, tmp_path: Path) -> None:
    """Cancelling a message that waits returns at once, though another run goes on; its end is told once (F164)."""
    yard = Yard(medium, tmp_path)
    door = gate()
    worker = yard.worker((door, say("one")), say("three"))
    first = await worker.start("one")
    await door.reached()
    second, third = await worker.start("two"), await worker.start("three")
    report = await asyncio.wait_for(second.cancel(by="ann"), 2)
    assert (report.outcome, report.cause, report.by) == ("cancelled", "user", "ann")
    assert await worker.inbox() == ["three"]
    assert first.status == "running"
    door.open()
    await first.wait()
    await third.wait()
    await worker.idle()
    assert await worker.inputs() == ["one", "three"]
    assert "two" not in worker.told()
    told = [end.run_id for end in worker.bell.ends]
    check_promises(await worker.log(), told=told)
    assert not any(end.redelivered for end in worker.bell.ends)
    await yard.close()


@media
async def test_another_worker_takes_a_message_back(medium: Medium, tmp_path: Path) -> None:
    """A waiting message can be withdrawn from any process, by its run id alone."""
    yard = Yard(medium, tmp_path)
    door = gate()
    worker, other = yard.worker((door, say("one"))), yard.worker()
    first = await worker.start("one")
    await door.reached()
    second = await worker.start("two")
    await asyncio.wait_for(other.runner.cancel(second.run_id, by="bob"), 2)
    assert await other.inbox() == []
    door.open()
    assert (await first.wait()).outcome == "completed"
    assert (await second.wait()).by == "bob"
    await other.bell.rang(1)
    await worker.bell.rang(1)
    assert sorted(end.run_id for end in [*worker.bell.ends, *other.bell.ends]) == sorted([first.run_id, second.run_id])
    assert await worker.inputs() == ["one"]
    await yard.close()


async def test_a_stop_before_the_start_is_kept(tmp_path: Path) -> None:
    """A stop that overtakes its delayed start wins; the next message runs (F165)."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker(say("fine"))
    await worker.runner.cancel("late-one", by="ann", **HERE)
    ended = await worker.ask("too late", run_id="late-one")
    assert (ended.outcome, ended.cause, ended.by) == ("cancelled", "user", "ann")
    assert worker.model.calls == 0
    assert (await worker.ask("next")).outcome == "completed"
    assert "too late" not in worker.told()
    await yard.close()


async def test_an_unknown_run_cannot_be_stopped(tmp_path: Path) -> None:
    """A stop for a run that nobody knows is an error, and hits nothing else."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker((door := gate(), say("fine")))
    run = await worker.start("one")
    await door.reached()
    with pytest.raises(UnknownRunError):
        await worker.runner.cancel("nobody")
    door.open()
    assert (await run.wait()).outcome == "completed"
    await yard.close()


async def test_a_stop_for_an_old_run_leaves_the_new_one_alone(tmp_path: Path) -> None:
    """Stopping a run that has ended returns its report; the run that goes on now is not touched."""
    yard = Yard("memory", tmp_path)
    door = gate()
    worker = yard.worker(say("one"), (door, say("two")))
    first = await worker.start("one")
    await first.wait()
    second = await worker.start("two")
    await door.reached()
    assert (await first.cancel()).outcome == "completed"
    assert second.status == "running"
    door.open()
    assert (await second.wait()).outcome == "completed"
    assert sum(isinstance(record, RunEnded) for record in await worker.log()) == 2
    await yard.close()


async def test_a_callback_that_refuses_a_waiting_message_does_not_block_the_lane(tmp_path: Path) -> None:
    """A message whose `on_user_message` raises ends as failed; those behind it run."""
    from heaveto import Plugin
    from heaveto.events.contents import Content
    from heaveto.events.records import SessionKey

    class Picky(Plugin):
        async def on_user_message(self, key: SessionKey, message: Content) -> Content | None:
            if "bad" in message.text:
                raise ValueError("bad words")
            return None

    yard = Yard("memory", tmp_path)
    door = gate()
    worker = yard.worker((door, say("one")), say("three"), plugins=[Picky()])
    await worker.start("one")
    await door.reached()
    second, third = await worker.start("bad"), await worker.start("three")
    door.open()
    assert (await asyncio.wait_for(third.wait(), 2)).outcome == "completed"
    assert (await asyncio.wait_for(second.wait(), 2)).outcome == "failed"
    await yard.close()


@media
async def test_a_run_id_is_used_once(medium: Medium, tmp_path: Path) -> None:
    """A second start under the id of another run is refused, while that runs and after it; nothing is written."""
    yard = Yard(medium, tmp_path)
    door = gate()
    worker, other = yard.worker((door, say("one"))), yard.worker()
    first = await worker.start("one", run_id="mine")
    await door.reached()
    for place in (worker, other):
        with pytest.raises(RunIdTakenError):
            await place.start("two", run_id="mine")
    door.open()
    assert (await first.wait()).outcome == "completed"
    await worker.idle()
    before = await worker.log()
    with pytest.raises(RunIdTakenError):
        await worker.start("two", run_id="mine")
    assert await worker.log() == before
    await yard.close()


async def test_a_run_id_is_used_once_also_at_the_same_moment(tmp_path: Path) -> None:
    """Of two starts at once under one id, one is refused, and its message does not vanish into the other's run."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker()
    results = await asyncio.gather(
        worker.start("one", run_id="mine"), worker.start("two", run_id="mine"), return_exceptions=True
    )
    assert isinstance(results[1], RunIdTakenError)
    assert await worker.inputs() == ["one"]
    await yard.close()
