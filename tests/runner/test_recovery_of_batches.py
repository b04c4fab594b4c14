"""What a crash in the middle of things leaves: half a batch of calls, half a stream, half a page of the file."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from tests.crash.workers import HERE, KEY, Worker, Yard

from heaveto import App, LlmAgent, MemoryStore, ParallelAgent, Runner, ToolContext
from heaveto.clock import SystemClock
from heaveto.events.contents import calls_of
from heaveto.events.records import CallSettled, Message, RunEnded
from heaveto.stores.memory import MemoryData
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing import ScriptedModel, call, gate, hang, raw_call, say
from heaveto.testing.promises import check_promises


async def test_only_the_call_that_was_working_is_in_doubt(tmp_path: Path) -> None:
    """Of two calls at once, the one that had ended keeps its result, and neither is executed again (F105, F141)."""
    yard = Yard("memory", tmp_path)
    executed: list[str] = []
    working = asyncio.Event()

    async def mail(ctx: ToolContext) -> str:
        """Send a mail."""
        executed.append("mail")
        return "sent"

    async def dig(ctx: ToolContext) -> str:
        """Dig."""
        executed.append("dig")
        working.set()
        await asyncio.Event().wait()
        return "never"

    worker = yard.worker((call("mail"), call("dig"), call("dig")), tools=[mail, dig])
    run = await worker.start("both")
    await working.wait()
    async for item in run.stream():
        if isinstance(item, CallSettled):
            break
    assert isinstance(worker.store, MemoryStore)
    worker.store.abandon()
    second = yard.worker(tools=[mail, dig])
    assert (await second.ask("go on")).outcome == "completed"
    settled = [r for r in await second.log() if isinstance(r, CallSettled)]
    assert [(r.name, r.status, r.cause) for r in settled] == [
        ("mail", "succeeded", None),
        ("dig", "unknown", "crash"),
        ("dig", "unknown", "crash"),
    ]
    assert sorted(executed) == ["dig", "dig", "mail"]
    check_promises(await second.log())
    await yard.close()


async def test_interleaved_arguments_stay_apart() -> None:
    """Two answers that stream their calls at the same time, piece by piece: each call gets its own arguments (F80)."""
    got: list[tuple[str, int]] = []

    def note(ctx: ToolContext, mine: int) -> str:
        """Note a number."""
        got.append((ctx.agent, mine))
        return "noted"

    doors = [gate(), gate()]

    def model(number: int) -> ScriptedModel:
        head = raw_call("note", f'{{"mine": {number}}}', chunks=['{"mi', f'ne": {number}}}'])
        return ScriptedModel((doors[number], head), say("done"))

    agents = [LlmAgent(f"side{number}", model(number), tools=[note]) for number in range(2)]
    async with Runner(app=App("lanes", ParallelAgent("both", sub_agents=agents)), store=MemoryStore()) as runner:
        run = await runner.start(new_message="go", **HERE)
        for door in doors:
            await door.reached()
        for door in doors:
            door.open()
        assert (await run.wait()).outcome == "completed"
        messages = [record for record in await runner.records(**HERE) if isinstance(record, Message)]
        assert sorted(c.args["mine"] for m in messages for c in calls_of(m.parts)) == [0, 1]
    assert sorted(got) == [("side0", 0), ("side1", 1)]


class LaterClock(SystemClock):
    """The clock of a machine on which the dead process's last sign of life is long ago."""

    def monotonic(self) -> float:
        return super().monotonic() + 1000


async def test_a_torn_file_opens_and_goes_on(tmp_path: Path) -> None:
    """A log that breaks off at any of many places is a shorter log: it opens, is closed truthfully, goes on (F108)."""
    yard = Yard("sqlite", tmp_path)
    worker = yard.worker(call("act"), call("act"), (say("half"), hang()), tools=[act])
    run = await worker.start("one")
    async for item in run.stream():
        if not hasattr(item, "seq"):
            break
    whole = (tmp_path / "store.db-wal").read_bytes()
    lengths: set[int] = set()
    for part in range(1, 9):
        torn = tmp_path / f"torn{part}.db"
        shutil.copy(tmp_path / "store.db", torn)
        torn.with_name(torn.name + "-wal").write_bytes(whole[: len(whole.rstrip(b"\0")) * part // 8])
        survivor = Worker(SqliteStore(torn, clock=LaterClock()), tools=[act])
        await survivor.runner.recover()
        assert (await survivor.ask("two")).outcome == "completed"
        log = await survivor.log()
        check_promises(log)
        lengths.add(len(log))
        await survivor.runner.aclose()
    assert len(lengths) > 2
    await yard.close()


def act() -> str:
    """Act."""
    return "acted"


async def test_a_handle_outlives_the_process_that_carries_its_run() -> None:
    """A reader elsewhere sees the run's end although its carrier was killed, and does not wait for ever (F121)."""
    data = MemoryData()
    first = Worker(MemoryStore(data), (say("half"), hang()))
    run = await first.start("one")
    async for _ in run.stream():
        break
    second = Worker(MemoryStore(data))
    attached = await second.runner.attach(run.run_id)
    items = []

    async def read() -> None:
        async for item in attached.stream():
            items.append(item)

    reading = asyncio.create_task(read())
    assert isinstance(first.store, MemoryStore)
    first.store.abandon()
    await second.runner.recover()
    await asyncio.wait_for(reading, 5)
    assert isinstance(items[-1], RunEnded)
    assert items[-1].cause == "crash"
    assert await second.store.read(KEY) == items
    await second.runner.aclose()
    await first.runner.aclose()
