"""What becomes of a message that comes while the session is busy: the same here and from another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.crash.workers import Worker, Yard

from heaveto import ToolContext
from heaveto.errors import SessionBusyError
from heaveto.events.records import RunEnded
from heaveto.testing import call, gate, say
from heaveto.testing.promises import check_promises, lost_messages

Pair = tuple[Worker, Worker, Any]


@pytest.fixture(params=["same worker", "memory", "sqlite"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """A worker whose model stands at a gate in the middle of a run, and the one that later messages come to."""
    door = gate()
    yard = Yard("memory" if request.param == "same worker" else request.param, tmp_path)
    busy = yard.worker((say("I am "), door, say("at it")), say("two"), say("three"))
    other = busy if request.param == "same worker" else yard.worker(say("two"), say("three"))
    yield busy, other, door
    door.open()
    await yard.close()


async def occupy(busy: Worker, door: Any) -> Any:
    run = await busy.start("one")
    await door.reached()
    return run


async def test_queue_waits_for_its_turn(pair: Pair) -> None:
    """A queued message is durable, listed, and answered after the run before it; each run hears its own input (F71)."""
    busy, other, door = pair
    first = await occupy(busy, door)
    second = await other.start("two")
    assert second.status == "queued"
    assert await other.inbox() == ["two"]
    door.open()
    await first.wait()
    assert (await second.wait()).outcome == "completed"
    assert await other.inbox() == []
    assert await other.inputs() == ["one", "two"]
    check_promises(await other.log())


async def test_reject_writes_nothing(pair: Pair) -> None:
    """A rejected message fails with the busy run's id and leaves the log as it is (F72)."""
    busy, other, door = pair
    first = await occupy(busy, door)
    before = await other.log()
    with pytest.raises(SessionBusyError) as caught:
        await other.start("two", "reject")
    assert caught.value.run_id == first.run_id
    assert await other.log() == before
    door.open()
    assert (await first.wait()).outcome == "completed"
    await busy.idle()
    assert (await other.ask("three", "reject")).outcome == "completed"


async def test_interrupt_supersedes(pair: Pair) -> None:
    """The running run ends as superseded with its text kept; the new one is told of both (F29, F77)."""
    busy, other, door = pair
    first = await occupy(busy, door)
    second = await other.start("two", "interrupt")
    ended = await first.wait()
    assert (ended.outcome, ended.cause) == ("cancelled", "superseded")
    assert (await second.wait()).outcome == "completed"
    carrier = busy if len(busy.model.requests) == 2 else other
    assert "one" in carrier.told()
    assert "two" in carrier.told()
    check_promises(await other.log())


async def test_merge_gives_one_answer(pair: Pair) -> None:
    """Messages that wait are joined: one run, one answer, all texts in order."""
    busy, other, door = pair
    await occupy(busy, door)
    second = await other.start("two", "merge")
    third = await other.start("three", "merge")
    assert second.run_id == third.run_id
    door.open()
    assert (await third.wait()).outcome == "completed"
    assert (await other.inputs())[1:] == ["twothree"]
    assert sum(isinstance(record, RunEnded) for record in await other.log()) == 2


async def test_steer_reaches_the_running_run(pair: Pair) -> None:
    """A steered text is answered by the run that is running; no run of its own starts (F71)."""
    busy, other, door = pair
    first = await occupy(busy, door)
    steered = await other.start("and quickly", "steer")
    assert steered.run_id == first.run_id
    door.open()
    assert (await steered.wait()).outcome == "completed"
    assert len(busy.model.requests) == 2
    assert "and quickly" in busy.told()
    assert await other.inputs() == ["one"]


async def test_steer_during_a_tool_is_told_with_its_result(tmp_path: Path) -> None:
    """A text that comes while a tool works reaches the model with the tool's result, in one request."""
    began, may_end = asyncio.Event(), asyncio.Event()

    async def dig() -> str:
        """Dig."""
        began.set()
        await may_end.wait()
        return "a hole"

    yard = Yard("memory", tmp_path)
    worker = yard.worker(call("dig"), say("done"), tools=[dig])
    run = await worker.start("dig")
    await began.wait()
    await worker.start("deeper", "steer")
    may_end.set()
    assert (await run.wait()).outcome == "completed"
    assert "deeper" in worker.told()
    assert len(worker.model.requests) == 2
    await yard.close()


async def test_steer_into_an_idle_session_is_a_run(tmp_path: Path) -> None:
    """Where nothing runs, a steered or merged message is an ordinary one."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker()
    for policy in ("steer", "merge", "interrupt", "reject"):
        assert (await worker.ask(policy, policy)).outcome == "completed"  # type: ignore[arg-type]
        await worker.idle()
    assert await worker.inputs() == ["steer", "merge", "interrupt", "reject"]
    await yard.close()


async def test_three_quick_interrupts_are_all_heard(tmp_path: Path) -> None:
    """Three messages that each interrupt the one before: none is lost, the last answer takes all into account (F29)."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker(say("fine"), say("fine"), say("fine"))
    runs = await asyncio.gather(*(worker.start(text, "interrupt") for text in ("m1", "m2", "m3")))
    assert len({run.run_id for run in runs}) == 3
    outcomes = [(await run.wait()).outcome for run in runs]
    assert outcomes[-1] == "completed"
    told = worker.told()
    assert [text for text in ("m1", "m2", "m3") if text not in told] == []
    assert told.index("m1") < told.index("m2") < told.index("m3")
    check_promises(await worker.log())
    await yard.close()


async def test_a_second_writer_does_not_hurt_the_run(tmp_path: Path) -> None:
    """Side appends of others while a run works neither stop it nor are lost to it (F75, F147)."""
    hole = asyncio.Event()

    async def dig(ctx: ToolContext) -> str:
        """Dig."""
        await hole.wait()
        return "a hole"

    yard = Yard("sqlite", tmp_path)
    worker, other = yard.worker(call("dig"), say("done"), say("next"), tools=[dig]), yard.worker()
    run = await worker.start("dig")
    for number in range(5):
        await other.start(f"note {number}", "merge")
    hole.set()
    assert (await run.wait()).outcome == "completed"
    await worker.idle()
    log = await worker.log()
    assert not lost_messages(log, [f"note {number}" for number in range(5)])
    await yard.close()
