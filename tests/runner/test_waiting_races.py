"""What comes to a paused run in the same moment, or while its session works for another: one ending, one end hook."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import Desk, Ends, Held
from tests.runner.test_waiting_confirmations import gated
from tests.runner.waiting import GOES_ON, HERE, Counted, MakeDesk, Shelf, of, paused, question

from heaveto import MemoryStore, Record, RunConfig, RunEnded, ToolContext
from heaveto.errors import AnswerConflictError, HeavetoError, NotWaitingError
from heaveto.events.records import Answered, Paused, Rewound, SessionKey
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryData
from heaveto.testing import FakeClock, call, say

KEEP = RunConfig(on_text="keep", cancel_grace_seconds=0.02)


async def test_a_paused_run_is_stopped_at_once_while_another_works(desk: MakeDesk, store: Store) -> None:
    """Who stops it has the report while the other run works on; the end hook is told behind that, once (P7)."""
    ends, held = Ends(), Held()
    at = desk(
        call("pay", order=1), call("held"), say("done"), tools=[gated(Counted()), held.tool()], store=store,
        plugins=[ends],
    )  # fmt: skip
    first = await paused(at)
    second = await at.start("something else", KEEP)
    await held.began.wait()
    async with asyncio.timeout(5):
        report = await at.runner.cancel(first.run_id, by="ann")
    assert (report.outcome, report.cause, report.by) == ("cancelled", "user", "ann")
    assert second.status == "running"
    held.may_end.set()
    assert await second.result() == "done"
    await asyncio.wait_for(ends.come(2), 5)
    assert sorted(end.run_id for end in ends.ends) == sorted([first.run_id, second.run_id])
    assert not any(end.redelivered for end in ends.ends)
    assert len(of(await at.log(), RunEnded)) == 2


async def test_another_process_stops_a_paused_run_of_a_busy_session(desk: MakeDesk, tmp_path: Path) -> None:
    """It needs nothing of the one that has the session."""
    shelf, held, ends = Shelf("sqlite", tmp_path), Held(), Ends()
    tools = [gated(Counted()), held.tool()]
    at = desk(call("pay", order=1), call("held"), say("done"), tools=tools, store=shelf.store(), plugins=[ends])
    other = desk(say("never"), tools=tools, store=shelf.store(), plugins=[ends])
    first = await paused(at)
    second = await at.start("something else", KEEP)
    await held.began.wait()
    async with asyncio.timeout(5):
        report = await other.runner.cancel(first.run_id)
    assert report.outcome == "cancelled"
    held.may_end.set()
    assert await second.result() == "done"
    await asyncio.wait_for(ends.come(2), 5)
    assert sorted(end.run_id for end in ends.ends) == sorted([first.run_id, second.run_id])


@pytest.mark.parametrize("laps", range(8))
async def test_stops_rewinds_texts_and_answers_at_once(desk: MakeDesk, tmp_path: Path, laps: int) -> None:
    """From two processes, in any order: one ending and one end hook for each run, at most one effect (P5, P7, P8)."""
    shelf, pay, ends = Shelf("sqlite", tmp_path), Counted("paid"), Ends()
    clock = FakeClock()
    tools = [gated(pay)]
    steps = (call("pay", order=1), *[say("ok")] * 4)
    at = desk(*steps, tools=tools, store=shelf.store(), plugins=[ends], clock=clock)
    other = desk(*[say("ok")] * 4, tools=tools, store=shelf.store(), plugins=[ends], clock=clock)
    run = await paused(at)
    call_id = (await question(at)).call_id

    async def lag(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    async def do(number: int, desk: Desk) -> object:
        await lag((number * 7 + laps * 5) % 11)
        match number:
            case 0:
                return await desk.runner.answer(run.run_id, call_id, by="x")
            case 1:
                return await desk.runner.cancel(run.run_id)
            case 2:
                return await desk.runner.rewind(to=0, **HERE)
            case 3:
                return await (await desk.start("other", GOES_ON)).wait()
            case _:
                return await desk.runner.resume(run.run_id)

    order = [(laps + step) % 5 for step in range(5)]
    jobs = [do(number, (at, other)[(number + laps) % 2]) for number in order]
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        await asyncio.gather(at.runner.recover(), other.runner.recover())
    for outcome in outcomes:
        assert not isinstance(outcome, BaseException) or isinstance(outcome, HeavetoError), outcome
    log = await at.log()
    ended = [record.run_id for record in of(log, RunEnded)]
    assert len(ended) == len(set(ended))
    assert run.run_id in ended
    told = [end.run_id for end in ends.ends]
    assert sorted(told) == sorted(ended)
    assert len(pay.executed) <= 1
    assert len(of(log, Answered)) <= 1
    assert len(of(log, Rewound)) <= 1


class StoppedJustNow(MemoryStore):
    """Another process stops the run in the moment in which the first answer is to be written."""

    stop: Callable[[], Awaitable[object]] | None = None

    async def append(self, key: SessionKey, records: Sequence[Record], **more: Any) -> int:
        stop, is_answer = self.stop, any(isinstance(record, Answered) for record in records)
        if stop is not None and is_answer:
            self.stop = None
            await stop()
        return await super().append(key, records, **more)


async def test_a_deadline_that_passes_as_its_run_is_stopped_holds_up_nobody(desk: MakeDesk) -> None:
    """The default is too late for a run that another process stopped: the message behind it is carried out (P7)."""
    data, clock, ends = MemoryData(), FakeClock(), Ends()
    tools = [gated(Counted(), confirm_within_seconds=10)]
    store = StoppedJustNow(data)
    at = desk(call("pay", order=1), say("next"), tools=tools, store=store, clock=clock, plugins=[ends])
    other = desk(tools=tools, store=MemoryStore(data), clock=clock, plugins=[ends])
    run = await paused(at)
    store.stop = partial(other.runner.cancel, run.run_id)
    await clock.advance(20)
    async with asyncio.timeout(5):
        assert (await run.wait()).outcome == "cancelled"
        assert await (await at.start("other", KEEP)).result() == "next"
    await asyncio.wait_for(ends.come(2), 5)
    assert of(await at.log(), Answered) == []
    assert len(ends.ends) == 2


async def test_a_text_meets_a_deadline_and_a_stop(desk: MakeDesk) -> None:
    """Its sender is not told of the trouble of a question that is none of theirs."""
    data, clock = MemoryData(), FakeClock()
    tools = [gated(Counted(), confirm_within_seconds=10)]
    store = StoppedJustNow(data)
    at = desk(call("pay", order=1), tools=tools, store=store, clock=clock)
    run = await paused(at)
    await at.runner.aclose()
    later = FakeClock(clock.time() + 20)
    store = StoppedJustNow(data)
    at = desk(say("next"), tools=tools, store=store, clock=later)
    store.stop = partial(desk(tools=tools, store=MemoryStore(data), clock=later).runner.cancel, run.run_id)
    async with asyncio.timeout(5):
        assert await (await at.start("other", KEEP)).result() == "next"
        assert (await at.runner.attach(run.run_id)).status == "cancelled"


async def test_an_answer_repeated_late_is_none_to_the_second_question(desk: MakeDesk) -> None:
    """A yes that was meant for the first question of a call, and comes twice, lets nothing else happen (F90)."""
    effects: list[int] = []

    async def pay(ctx: ToolContext, order: int) -> str:
        """Pay."""
        if not ctx.confirmation or ctx.confirmation.payload != "really":
            ctx.request_confirmation("Really? It is a lot.")
            return ""
        effects.append(order)
        return "paid"

    at = desk(call("pay", order=1), say("Paid."), tools=[gated(pay)])
    run = await paused(at)
    first = await question(at)
    yes = await at.runner.answer(run.run_id, first.question_id)
    await at.until(lambda log: len(of(log, Paused)) == 3)
    assert await at.runner.answer(run.run_id, first.question_id) == yes
    with pytest.raises(AnswerConflictError):
        await at.runner.answer(run.run_id, first.question_id, accept=False)
    (second,) = await at.runner.questions(**HERE)
    assert (len(of(await at.log(), Answered)), effects) == (1, [])
    await at.runner.answer(run.run_id, second.question_id, "really")
    await at.until(lambda log: len(of(log, RunEnded)) == 1)
    with pytest.raises(AnswerConflictError):
        await at.runner.answer(run.run_id, first.question_id, "really")
    assert await at.runner.answer(run.run_id, first.question_id) == yes
    with pytest.raises(NotWaitingError, match="not ask"):
        await at.runner.answer(run.run_id, f"{first.call_id}#999")
    assert effects == [1]
