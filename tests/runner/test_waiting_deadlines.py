"""Answers that do not come in time: the default is recorded as the answer, for the cause that nobody answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import Held
from tests.runner.test_waiting_confirmations import gated
from tests.runner.waiting import (
    Counted,
    MakeDesk,
    Medium,
    Shelf,
    answer,
    of,
    paused,
    question,
    reply,
    response,
    statuses,
)

from heaveto import Answered, ClientTool, FunctionTool, Hold, RequestInputTool, RunConfig, RunEnded, ToolContext
from heaveto.errors import AnswerConflictError, AnswerExpiredError
from heaveto.events.records import Queued
from heaveto.stores.base import Store
from heaveto.testing import FakeClock, call, gate, say

MINUTE = 60.0


def soon(func: Any, **options: Any) -> FunctionTool:
    return gated(func, confirm_within_seconds=MINUTE, **options)


async def test_nobody_says_yes_in_time(desk: MakeDesk, store: Store) -> None:
    """The call is denied, cause ``expired``, by nobody; the model is told, and the run goes on (F87, F143)."""
    pay, clock = Counted(), FakeClock()
    at = desk(call("pay", order=1), say("Not paid."), store=store, clock=clock, tools=[soon(pay)])
    run = await paused(at)
    assert (await question(at)).deadline == clock.time() + MINUTE
    await clock.advance(MINUTE + 1)
    await run.wait()
    assert await run.result() == "Not paid."
    assert pay.executed == []
    assert statuses(await at.log()) == [("pay", "denied", "expired")]
    (recorded,) = of(await at.log(), Answered)
    assert (recorded.decision, recorded.expired, recorded.by) == ("deny", True, "deadline")
    assert "nobody answered in time" in at.told()


async def test_a_default_is_taken_as_the_answer(desk: MakeDesk) -> None:
    """Of a question that has one; that nobody gave it stays visible."""
    clock = FakeClock()
    tool = RequestInputTool(within_seconds=MINUTE, default="Berlin")
    at = desk(call("request_input", question="Where?"), say("Berlin, then."), clock=clock, tools=[tool])
    run = await paused(at)
    await clock.advance(MINUTE + 1)
    await run.wait()
    assert await run.result() == "Berlin, then."
    settled = (await at.settled())["request_input"]
    assert (settled.status, settled.response, settled.cause) == ("succeeded", {"result": "Berlin"}, "expired")


async def test_an_answer_in_time_counts(desk: MakeDesk) -> None:
    """And the deadline that passes later changes nothing."""
    pay, clock = Counted("paid"), FakeClock()
    at = desk(call("pay", order=1), say("Paid."), clock=clock, tools=[soon(pay)])
    run = await paused(at)
    await clock.advance(MINUTE - 1)
    await answer(at, "pay")
    await run.wait()
    await clock.advance(10 * MINUTE)
    assert statuses(await at.log()) == [("pay", "succeeded", None)]
    assert len(of(await at.log(), Answered)) == 1


async def test_an_answer_that_is_too_late_is_told_so(desk: MakeDesk) -> None:
    """Before the default is recorded as expired, and behind it as a conflict that shows it."""
    clock = FakeClock()
    at = desk(call("pay"), say("ok"), clock=clock, tools=[soon(Counted())])
    run = await paused(at)
    asked = await question(at)
    clock._now += MINUTE + 1  # pyright: ignore[reportPrivateUsage]  # nobody has looked at the time yet
    with pytest.raises(AnswerExpiredError):
        await at.runner.answer(run.run_id, asked.call_id)
    await clock.advance(0)
    await run.wait()
    with pytest.raises(AnswerConflictError) as conflict:
        await reply(at, response(asked.call_id, confirmed=True))
    assert conflict.value.first.expired


@pytest.mark.parametrize("medium", ["memory", "sqlite"])
async def test_a_deadline_that_passed_while_no_process_lived(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """The next one who has the session takes the default, however he comes to it (F112, F143)."""
    shelf, clock = Shelf(medium, tmp_path), FakeClock()
    first = desk(call("pay"), store=shelf.store(), clock=clock, tools=[soon(Counted())])
    run = await paused(first)
    await first.runner.aclose()
    later = FakeClock(clock.time() + 2 * MINUTE)
    second = desk(say("Not paid."), store=shelf.store(), clock=later, tools=[soon(Counted())])
    assert await second.runner.recover() == [run.run_id]
    assert [ended.outcome for ended in await second.endings()] == ["completed"]
    assert statuses(await second.log()) == [("pay", "denied", "expired")]


@pytest.mark.parametrize("medium", ["memory", "sqlite"])
async def test_the_message_that_finds_a_passed_deadline_is_durable_at_once(
    desk: MakeDesk, medium: Medium, tmp_path: Path
) -> None:
    """It stands in line behind the run that its arrival sets free, and `start` does not wait for that one (P4)."""
    shelf, clock, door = Shelf(medium, tmp_path), FakeClock(), gate()
    first = desk(call("pay"), store=shelf.store(), clock=clock, tools=[soon(Counted())])
    run = await paused(first)
    await first.runner.aclose()
    later = FakeClock(clock.time() + 2 * MINUTE)
    script = ((door, say("Not paid.")), say("And hello."))
    second = desk(*script, store=shelf.store(), clock=later, tools=[soon(Counted())])
    async with asyncio.timeout(10):
        greeting = await second.start("Hello?")
    assert [queued.run_id for queued in of(await second.log(), Queued)] == [greeting.run_id]
    door.open()
    assert await greeting.result() == "And hello."
    assert [ended.run_id for ended in await second.endings()] == [run.run_id, greeting.run_id]


@pytest.mark.parametrize("medium", ["memory", "sqlite"])
async def test_who_looks_again_and_again_finds_deadlines(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """A process that did not carry the run takes its default when the time has come (`recover_always`)."""
    shelf, clock = Shelf(medium, tmp_path), FakeClock()
    first = desk(call("pay"), store=shelf.store(), clock=clock, tools=[soon(Counted())])
    await paused(first)
    await first.runner.aclose()
    second = desk(say("Not paid."), store=shelf.store(), clock=clock, tools=[soon(Counted())])
    watching = asyncio.create_task(second.runner.recover_always(every_seconds=10))
    await clock.advance(20)
    assert (await question(second)).tool == "pay"
    ended = asyncio.ensure_future(second.until(lambda log: bool(of(log, RunEnded))))
    for _ in range(600):
        await clock.advance(1)
        if ended.done():
            break
    async with asyncio.timeout(10):
        assert statuses(await ended) == [("pay", "denied", "expired")]
    watching.cancel()


async def test_a_tool_that_asks_itself_sets_its_own_deadline(desk: MakeDesk) -> None:
    """`request_confirmation(within_seconds=)`."""
    clock = FakeClock()

    async def pay(ctx: ToolContext) -> None:
        """Pay."""
        ctx.request_confirmation("Pay it?", within_seconds=MINUTE)

    at = desk(call("pay"), say("ok"), clock=clock, tools=[pay])
    run = await paused(at)
    await clock.advance(MINUTE + 1)
    await run.wait()
    assert statuses(await at.log()) == [("pay", "denied", "expired")]


async def test_the_earliest_of_several_deadlines(desk: MakeDesk) -> None:
    """Each call has its own; the run goes on when the last one is answered or has expired."""
    clock = FakeClock()
    client = ClientTool("look", "Look.", {"type": "object"}, within_seconds=3 * MINUTE)
    at = desk((call("pay"), call("look")), say("ok"), clock=clock, tools=[soon(Counted()), client])
    run = await paused(at)
    await clock.advance(MINUTE + 1)
    await at.until(lambda log: bool(of(log, Answered)))
    assert run.status == "paused"
    assert (await question(at)).tool == "look"
    await clock.advance(2 * MINUTE)
    assert (await run.wait()).outcome == "completed"
    assert [one.by for one in of(await at.log(), Answered)] == ["deadline", "deadline"]


async def test_a_deadline_that_passes_while_others_work(desk: MakeDesk) -> None:
    """Then the default is taken when the run would pause for it, and the run goes on."""
    clock, slow = FakeClock(), Held()
    at = desk((call("pay"), call("held")), say("ok"), clock=clock, tools=[soon(Counted()), slow.tool()])
    run = await at.start(config=RunConfig())
    await slow.began.wait()
    await clock.advance(2 * MINUTE)
    slow.may_end.set()
    await at.until(lambda log: bool(of(log, Answered)))
    assert (await run.wait()).outcome == "completed"
    assert (await at.settled())["pay"].cause == "expired"


async def test_time_limits_of_a_run_do_not_count_its_pauses(desk: MakeDesk) -> None:
    """`max_seconds` is for work: a day of waiting uses none of it up, and what was used before stays used."""
    clock, held = FakeClock(), Held()
    at = desk(call("pay"), call("held"), clock=clock, tools=[gated(Counted()), held.tool()])
    run = await paused(at, config=RunConfig(max_seconds=100, on_limit="stop"))
    await clock.advance(24 * 3600)
    await answer(at, "pay")
    await held.began.wait()
    await clock.advance(90)
    assert run.status == "running"
    await clock.advance(20)
    ended = await run.wait()
    assert (ended.outcome, ended.cause) == ("cancelled", "budget")


async def test_a_deadline_of_the_run_passes_also_in_a_pause(desk: MakeDesk) -> None:
    """It is a point in time: a run that is answered behind it is stopped before it does anything."""
    clock, pay = FakeClock(), Counted()
    at = desk(call("pay"), clock=clock, tools=[gated(pay)])
    run = await paused(at, config=RunConfig(deadline=clock.time() + 100))
    await clock.advance(200)
    await answer(at, "pay")
    ended = await run.wait()
    assert (ended.outcome, ended.cause) == ("cancelled", "deadline")
    assert pay.executed == []


def test_a_hold_denies_by_default() -> None:
    """Where nothing else is said, silence is a no (F95)."""
    assert Hold("confirmation").default is None
