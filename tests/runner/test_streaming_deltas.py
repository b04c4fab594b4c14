"""What readers are shown while an answer is streamed, and what of it is saved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.runner.desk import QUICK, SESSION, USER, Desk, Held

from heaveto import RunConfig, ToolContext
from heaveto.events.records import Delta, Message, RunEnded
from heaveto.stores.base import Store
from heaveto.testing import call, cut, fault, gate, hang, say, settle, think
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]


async def read(run: Any, **options: Any) -> list[Any]:
    return [item async for item in run.stream(**options)]


async def test_deltas_come_before_their_message_and_add_up(desk: MakeDesk, store: Store) -> None:
    """Deltas of a message never come behind it, and what is shown adds up to what is recorded (P4)."""
    door = gate()
    at = desk((say("Hel"), door, say("lo")), store=store)
    run = await at.start()
    reading = asyncio.ensure_future(read(run))
    await door.reached()
    await settle()
    door.open()
    items = await reading
    message = next(item for item in items if isinstance(item, Message))
    deltas = [item for item in items if isinstance(item, Delta)]
    assert {delta.message_id for delta in deltas} <= {message.id}
    assert all(items.index(delta) < items.index(message) for delta in deltas)
    assert isinstance(items[-1], RunEnded)
    assert "Hello".startswith("".join(delta.text for delta in deltas))


async def test_nobody_sees_a_final_record_before_it_is_durable(desk: MakeDesk, store: Store) -> None:
    """Each record that a reader is handed is in the store already (P4, F67)."""
    done = Held()
    done.may_end.set()
    at = desk(call("t"), say("ok"), store=store, tools=[done.tool("t")])
    run = await at.start()
    async for item in run.stream(deltas=False):
        assert item in await at.log()  # type: ignore[comparison-overlap]


async def test_readers_have_positions_of_their_own(desk: MakeDesk) -> None:
    """Two readers, one late, one from the middle: each gets every record behind its position once."""
    door = gate()
    at = desk((say("a"), door, say("b")))
    run = await at.start()
    early = asyncio.ensure_future(read(run, deltas=False))
    await door.reached()
    door.open()
    await run.wait()
    log = await at.log()
    assert await early == log
    assert await read(run, deltas=False) == log
    assert await read(run, after=2, deltas=False) == log[2:]


async def test_a_reader_that_never_reads_holds_nothing_up(desk: MakeDesk) -> None:
    """A slow or absent reader does not stall the run, and finds all of it later."""
    at = desk(say("x" * 100_000, chunks=2000))
    run = await at.start()
    reader = run.stream()
    assert (await run.wait()).outcome == "completed"
    assert [item async for item in reader if not isinstance(item, Delta)] == await at.log()


async def test_streaming_off_shows_records_only(desk: MakeDesk) -> None:
    """RunConfig(streaming=False): the cold stream yields records, no deltas."""
    at = desk((say("Hel"), say("lo")))
    config = RunConfig(streaming=False)
    items = [i async for i in at.runner.run_async(user_id=USER, session_id=SESSION, new_message="x", run_config=config)]
    assert not [item for item in items if isinstance(item, Delta)]


async def test_thoughts_and_arguments_are_shown_as_such(desk: MakeDesk) -> None:
    """Deltas tell text, thought and arguments apart; thoughts are no part of the run's result."""
    at = desk((think("Hm."), say("Answer")))
    run = await at.start()
    assert await run.result() == "Answer"


async def test_a_long_answer_is_saved_while_it_comes(desk: MakeDesk, store: Store) -> None:
    """After 1 kB of text a draft of it is in the store, so that even kill -9 loses little (P4, F60)."""
    door = gate()
    at = desk((say("y" * 3000, chunks=30), door), store=store)
    run = await at.start()
    await door.reached()
    for task in [task for task in asyncio.all_tasks() if task.get_name().startswith("save drafts")]:
        await task
    drafts = await store.drafts(run.session, run.run_id)
    assert sum(len(part.text) for draft in drafts for part in draft.parts) >= 1024  # type: ignore[union-attr]
    await run.cancel()
    assert await store.drafts(run.session, run.run_id) == []


async def test_a_retry_comes_before_anything_was_seen_only(desk: MakeDesk) -> None:
    """An error before the first chunk is retried unseen; the answer starts once (F63, F64)."""
    at = desk(fault("busy", status=503), say("Hello"))
    run = await at.start("go", RunConfig(retry_backoff_seconds=0))
    items = await read(run)
    assert "".join(item.text for item in items if isinstance(item, Delta)) in ("", "Hello")
    assert [m.parts[0].text for m in await at.messages()] == ["Hello"]  # type: ignore[union-attr]


async def test_arguments_that_break_off_are_never_executed(desk: MakeDesk) -> None:
    """A stream that ends in the midst of a call's arguments: the call is told as not executed (F65, F30)."""
    held = Held()
    at = desk((call("held"), cut(after_chunks=1)), say("I see."), tools=[held.tool()])
    await at.ask()
    assert held.calls == 0


async def test_a_complete_call_of_a_cut_answer_is_not_started(desk: MakeDesk) -> None:
    """An answer that is stopped behind a complete call keeps the call, as not started (F06)."""
    held = Held()
    door = gate()
    at = desk((say("Let me"), call("held"), say("."), door, hang()), say("ok"), tools=[held.tool()])
    run = await at.start()
    await door.reached()
    await run.cancel()
    assert held.calls == 0
    statuses = {record.status for record in (await at.settled()).values()}
    assert statuses <= {"not_started"}
    assert (await at.ask("and?")).outcome == "completed"


async def test_a_tool_reads_no_context_of_another_run(desk: MakeDesk) -> None:
    """Two runs at the same time: each tool's context names its own run (F131, F132)."""
    seen: list[tuple[str, str]] = []

    async def who(ctx: ToolContext) -> None:
        seen.append((ctx.run_id, ctx.session.session))

    at = desk(call("who"), call("who"), say("a"), say("b"), tools=[FunctionTool(who)])
    runs = await asyncio.gather(
        *(at.runner.start(user_id=USER, session_id=s, new_message="x", run_config=QUICK) for s in ("s1", "s2"))
    )
    await asyncio.gather(*(run.wait() for run in runs))
    assert sorted(seen) == sorted((run.run_id, run.session.session) for run in runs)
