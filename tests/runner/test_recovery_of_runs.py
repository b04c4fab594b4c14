"""What becomes of a run whose process died, was closed, or lost its session to another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.crash.workers import HERE, KEY, Worker, Yard

from heaveto import MemoryStore, ToolContext
from heaveto.errors import StoreError, StoreFullError
from heaveto.events.contents import Text
from heaveto.events.records import (
    CallSettled,
    CancelRequested,
    Message,
    Queued,
    Record,
    RunEnded,
    RunStarted,
    SessionKey,
)
from heaveto.stores.base import Guard
from heaveto.stores.memory import MemoryData
from heaveto.testing import FakeClock, call, gate, hang, say, settle, usage
from heaveto.testing.promises import check_promises, lost_messages


def kill(worker: Worker) -> None:
    """Let a worker's process be dead for all others."""
    assert isinstance(worker.store, MemoryStore)
    worker.store.abandon()


def ending(log: Sequence[Record], run_id: str) -> RunEnded:
    return next(record for record in log if isinstance(record, RunEnded) and record.run_id == run_id)


async def test_a_stop_that_was_asked_for_is_not_forgotten_by_a_crash(tmp_path: Path) -> None:
    """A run whose stop was durable when its process died ends as stopped by that user, not as crashed (F107, F150)."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker((say("half"), hang()))
    run = await worker.start("one")
    async for _ in run.stream():
        break
    request = CancelRequested(id="stop", time=1.0, run_id=run.run_id, cause="user", by="ann")
    kill(worker)
    second = yard.worker()
    await second.store.append(KEY, [request], token=None, guard=Guard(f"cancel:{run.run_id}", "stop"))
    attached = await second.runner.attach(run.run_id)
    assert attached.status == "cancelling"
    await second.runner.recover()
    ended = await attached.wait()
    assert (ended.outcome, ended.cause, ended.by) == ("cancelled", "user", "ann")
    assert second.model.calls == 0
    await yard.close()


async def test_a_stop_of_a_dead_run_settles_it(tmp_path: Path) -> None:
    """Stopping a run whose process is dead ends it here and now, with a report (F86, F150)."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker(hang())
    run = await worker.start("one")
    kill(worker)
    second = yard.worker()
    report = await asyncio.wait_for(second.runner.cancel(run.run_id, by="ann"), 5)
    assert (report.outcome, report.cause, report.by) == ("cancelled", "user", "ann")
    assert (await second.ask("two")).outcome == "completed"
    await yard.close()


async def test_shutdown_user_and_crash_are_told_apart(tmp_path: Path) -> None:
    """The same run, ended by a shutdown, by its user and by a crash, ends with three causes (F114)."""
    causes: dict[str, tuple[str, str | None]] = {}
    for how in ("shutdown", "user", "crash"):
        yard = Yard("memory", tmp_path)
        worker = yard.worker((say("half"), hang()))
        run = await worker.start("one")
        async for _ in run.stream():
            break
        if how == "shutdown":
            await worker.runner.aclose()
        elif how == "user":
            await run.cancel()
        else:
            kill(worker)
        second = yard.worker()
        await second.runner.recover()
        ended = ending(await second.log(), run.run_id)
        causes[how] = (ended.outcome, ended.cause)
        assert (await second.ask("two")).outcome == "completed"
        await yard.close()
    assert causes == {
        "shutdown": ("cancelled", "shutdown"),
        "user": ("cancelled", "user"),
        "crash": ("failed", "crash"),
    }


async def test_closing_with_one_running_and_one_waiting(tmp_path: Path) -> None:
    """A shutdown ends the running run, leaves the waiting message in the inbox, and the next process runs it (F164)."""
    yard = Yard("sqlite", tmp_path)
    worker = yard.worker((say("half"), hang()))
    first = await worker.start("one")
    second = await worker.start("two")
    await worker.runner.aclose()
    later = yard.worker(say("two it is"))
    assert await later.inbox() == ["two"]
    assert ending(await later.log(), first.run_id).cause == "shutdown"
    assert await later.runner.recover() == [second.run_id]
    log = await later.log()
    assert ending(log, second.run_id).outcome == "completed"
    check_promises(log, told=[end.run_id for end in [*worker.bell.ends, *later.bell.ends]])
    await yard.close()


async def test_recovery_leaves_living_runs_alone(tmp_path: Path) -> None:
    """`recover`, here and in another process, while a run works: the run goes on, once (F111)."""
    yard = Yard("memory", tmp_path)
    door = gate()
    worker, other = yard.worker((door, say("done"))), yard.worker()
    run = await worker.start("one")
    await door.reached()
    assert await worker.runner.recover() == []
    assert await other.runner.recover() == []
    door.open()
    assert (await run.wait()).outcome == "completed"
    check_promises(await worker.log())
    await yard.close()


async def test_recovery_at_the_moment_of_the_first_message(tmp_path: Path) -> None:
    """`recover` and `start` at the same moment, in two processes, on a dead run: closed once, and the messages run."""
    yard = Yard("memory", tmp_path)
    dead = yard.worker(hang())
    run = await dead.start("one")
    kill(dead)
    workers = [yard.worker(), yard.worker()]
    results = await asyncio.gather(
        *(worker.runner.recover() for worker in workers), *(worker.start(f"m{n}") for n, worker in enumerate(workers))
    )
    for started in results[2:]:
        await started.wait()  # type: ignore[union-attr]
    for worker in workers:
        await worker.idle()
    log = await workers[0].log()
    told = [end.run_id for worker in workers for end in worker.bell.ends]
    check_promises(log, told=told)
    assert ending(log, run.run_id).cause == "crash"
    assert not lost_messages(log, ["one", "m0", "m1"])
    await yard.close()


async def test_recovery_writes_nothing_over_what_is_there(tmp_path: Path) -> None:
    """Recovering appends behind the log as it was found (F116), and a second time it finds nothing to do."""
    yard = Yard("memory", tmp_path)
    began = asyncio.Event()

    async def act() -> str:
        """Act."""
        began.set()
        await asyncio.Event().wait()
        return "never"

    worker = yard.worker((say("I act."), call("act"), usage(7, 3)), tools=[act])
    await worker.start("one")
    await began.wait()
    before = await worker.log()
    kill(worker)
    second = yard.worker()
    await second.runner.recover()
    log = await second.log()
    assert log[: len(before)] == before
    assert ending(log, before[0].run_id).usage.total_tokens == 10
    settled = [record for record in log if isinstance(record, CallSettled)]
    assert [(record.status, record.cause) for record in settled] == [("unknown", "crash")]
    assert await second.runner.recover() == []
    assert await second.log() == log
    await yard.close()


async def test_a_draft_survives_its_process(tmp_path: Path) -> None:
    """Text that was saved while it streamed is in the log after a crash, marked as cut, and told to the model (F60)."""
    yard = Yard("memory", tmp_path)
    door = gate()
    worker = yard.worker((say("A long story. " * 100, chunks=50), door))
    run = await worker.start("tell")
    await door.reached()
    assert isinstance(worker.store, MemoryStore)
    await settle()
    assert await worker.store.drafts(KEY, run.run_id)
    kill(worker)
    second = yard.worker()
    assert (await second.ask("go on")).outcome == "completed"
    cut = next(record for record in await second.log() if isinstance(record, Message))
    assert cut.interrupted == "crash"
    assert len(cut.parts[0].text) >= 1024  # type: ignore[union-attr]
    assert any(
        isinstance(part, Text) and "A long story" in part.text
        for turn in second.model.requests[-1].turns
        if turn.role == "model"
        for part in turn.parts
    )
    await yard.close()


class DeadToOthers(MemoryStore):
    """A store instance whose process others take for dead, as after a long stop of the whole process (SIGSTOP)."""

    def seem_dead(self) -> None:
        self.data.alive.discard(self.owner)


async def test_a_zombie_writes_nothing_and_ends(tmp_path: Path) -> None:
    """A process that lost its session to another one appends nothing more, starts no tool, its run ends (F72, F73)."""
    data = MemoryData()
    executed: list[str] = []
    yard = Yard("memory", tmp_path)
    door = gate()

    async def act(ctx: ToolContext) -> str:
        """Act."""
        executed.append(ctx.call_id)
        return "acted"

    store = DeadToOthers(data)
    zombie = yard.worker((door, call("act")), say("never"), store=store, tools=[act])
    run = await zombie.start("one")
    await door.reached()
    store.seem_dead()
    other = yard.worker(say("taken over"), store=MemoryStore(data))
    assert (await other.ask("two")).outcome == "completed"
    await other.idle()
    log = await other.log()
    data.alive.add(store.owner)
    door.open()
    ended = await asyncio.wait_for(run.wait(), 5)
    assert ended.cause == "crash"
    await zombie.runner.recover()
    assert await other.log() == log
    assert executed == []
    assert zombie.model.closed == 1
    check_promises(log)
    assert (await zombie.ask("three")).outcome == "completed"
    await yard.close()


async def test_the_session_of_a_dead_holder_is_free_at_once(tmp_path: Path) -> None:
    """A message to a session whose holder is dead does not wait (F78), and `who_holds` said so."""
    yard = Yard("memory", tmp_path)
    dead = yard.worker(hang())
    await dead.start("one")
    kill(dead)
    worker = yard.worker()
    holding = await worker.runner.who_holds(**HERE)
    assert holding is not None
    assert not holding.alive
    assert (await asyncio.wait_for(worker.ask("two"), 1)).outcome == "completed"
    await yard.close()


async def test_resending_right_after_a_stop(tmp_path: Path) -> None:
    """A stop of a run whose tool ignores it returns after the grace, and the next message runs at once (F77, F02)."""
    yard = Yard("memory", tmp_path)
    began, may_end = asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        """Ignore every stop."""
        began.set()
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    worker = yard.worker(call("stubborn"), say("on we go"), say("so it is"), tools=[stubborn])
    run = await worker.start("one")
    await began.wait()
    report = await run.cancel()
    assert [operation.name for operation in report.still_running] == ["stubborn"]
    assert (await asyncio.wait_for(worker.ask("two", "reject"), 1)).outcome == "completed"
    may_end.set()
    changed = asyncio.Event()
    worker.store.subscribe(KEY, lambda _: changed.set())
    while not any(isinstance(record, CallSettled) and record.late for record in await worker.log()):
        await changed.wait()
        changed.clear()
    assert (await worker.ask("three")).outcome == "completed"
    assert "at last" in worker.told()
    check_promises(await worker.log())
    await yard.close()


async def test_seqs_are_integers_even_when_time_stands_still(tmp_path: Path) -> None:
    """Versions are counted, not timed: runs work on a clock that does not move (F74)."""
    from heaveto import LlmAgent, Runner
    from heaveto.testing import ScriptedModel

    clock = FakeClock()
    model = ScriptedModel(say("a"), say("b"), clock=clock)
    async with Runner(LlmAgent("root", model), app_name="lanes", store=MemoryStore(clock=clock), clock=clock) as runner:
        for text in ("one", "two"):
            await (await runner.start(new_message=text, **HERE)).wait()
        check_promises(await runner.records(**HERE))
        assert len({record.time for record in await runner.records(**HERE)}) == 1


class BlindAfterCommit(MemoryStore):
    """A store to which others write just before an append, and whose next read behind it fails once (F117)."""

    blind = False

    async def append(self, key: SessionKey, records: Sequence[Record], **more: Any) -> int:
        if not any(isinstance(record, Queued) for record in records):
            return await super().append(key, records, **more)
        await super().append(key, [CancelRequested(id="x", time=1.0, run_id="other", cause="user")], token=None)
        last = await super().append(key, records, **more)
        self.blind = True
        return last

    async def read(self, key: SessionKey, *, after: int = 0, limit: int | None = None) -> list[Record]:
        if self.blind:
            self.blind = False
            raise StoreError("the connection was reset")
        return await super().read(key, after=after, limit=limit)


async def test_an_append_is_not_reported_as_failed_for_a_read_behind_it(tmp_path: Path) -> None:
    """What is durable counts as done, though the read that follows fails: one message, one run (F117)."""
    yard = Yard("memory", tmp_path)
    data = MemoryData()
    door = gate()
    first = yard.worker((door, say("one")), say("two"), store=MemoryStore(data))
    second = yard.worker(store=BlindAfterCommit(data))
    await first.start("one")
    await door.reached()
    run = await second.start("two")
    door.open()
    assert (await asyncio.wait_for(run.wait(), 5)).outcome == "completed"
    assert (await second.inputs()).count("two") == 1
    await yard.close()


class Full(MemoryStore):
    """A store on a disk that is full."""

    full = False

    async def append(self, key: SessionKey, records: Sequence[Record], **more: Any) -> int:
        if self.full:
            raise StoreFullError("no space left")
        return await super().append(key, records, **more)


async def test_a_stop_on_a_full_disk_stops_and_says_so(tmp_path: Path) -> None:
    """Where the ending cannot be written the work stops all the same; the caller gets the error and does not hang."""
    yard = Yard("memory", tmp_path)
    store = Full()
    worker = yard.worker((say("half"), hang()), say("fine"), store=store)
    run = await worker.start("one")
    async for _ in run.stream():
        break
    store.full = True
    with pytest.raises(StoreFullError):
        await asyncio.wait_for(run.cancel(), 5)
    with pytest.raises(StoreFullError):
        await asyncio.wait_for(run.wait(), 5)
    assert worker.model.active == 0
    store.full = False
    assert (await worker.ask("two")).outcome == "completed"
    check_promises(await worker.log())
    assert [record.input.text for record in await worker.log() if isinstance(record, RunStarted)] == ["one", "two"]
    await yard.close()


async def test_a_full_disk_does_not_make_the_lane_spin(tmp_path: Path) -> None:
    """A waiting message that cannot be started for want of space waits on; when there is space, it runs (F112)."""
    yard = Yard("memory", tmp_path)
    store = Full()
    door = gate()
    worker = yard.worker((door, say("one")), say("two"), say("three"), store=store)
    await worker.start("one")
    await door.reached()
    second = await worker.start("two")
    store.full = True
    door.open()
    with pytest.raises(StoreFullError):
        await asyncio.wait_for(second.wait(), 5)
    store.full = False
    await worker.runner.recover()
    log = await worker.log()
    assert ending(log, second.run_id).outcome == "completed"
    check_promises(log)
    await yard.close()


async def test_an_end_hook_interrupted_by_a_crash_is_told_again(tmp_path: Path) -> None:
    """A process that dies between the ending and the confirmation of its hook: told again, and marked so (P7)."""
    from heaveto import Plugin, RunEnd

    class Stuck(Plugin):
        def __init__(self) -> None:
            self.reached, self.may_end = asyncio.Event(), asyncio.Event()

        async def on_run_end(self, end: RunEnd) -> None:
            self.reached.set()
            await self.may_end.wait()

    yard = Yard("memory", tmp_path)
    stuck = Stuck()
    worker = yard.worker(say("one"), plugins=[stuck])
    run = await worker.start("one")
    await stuck.reached.wait()
    kill(worker)
    second = yard.worker()
    await second.runner.recover()
    assert [(end.run_id, end.redelivered) for end in second.bell.ends] == [(run.run_id, True)]
    await second.runner.recover()
    assert len(second.bell.ends) == 1
    stuck.may_end.set()
    await yard.close()
