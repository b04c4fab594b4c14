"""What text and stops do to runs that wait: declined, kept or refused; stopped for good, whoever asks and wherever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import Desk, Ends, Held, states
from tests.runner.test_waiting_confirmations import gated
from tests.runner.waiting import (
    GOES_ON,
    HERE,
    Counted,
    MakeDesk,
    Medium,
    Shelf,
    answer,
    attempts,
    of,
    paused,
    question,
    reply,
    response,
    statuses,
)  # fmt: skip

from heaveto import (
    AgentTool,
    CallSettled,
    LlmAgent,
    LongRunningFunctionTool,
    RequestInputTool,
    RunConfig,
    RunEnded,
    RunFailedError,
    ToolContext,
)  # fmt: skip
from heaveto.errors import NotWaitingError, SessionWaitingError
from heaveto.events.records import CancelRequested, RunStarted
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, say

MEDIA = pytest.mark.parametrize("medium", ["memory", "sqlite"])
KEEP, REJECT = RunConfig(on_text="keep"), RunConfig(on_text="reject")


def waits(desk: MakeDesk, *steps: Any, pay: Counted | None = None, **options: Any) -> Desk:
    return desk(call("pay", order=1), *steps, tools=[gated(pay or Counted("paid"))], **options)


# --- text while calls wait ----------------------------------------------------------------------------------------


async def test_text_declines_what_waits(desk: MakeDesk, store: Store) -> None:
    """The calls are denied with the text as reason, their run ends, and the text begins a run of its own (F89)."""
    ends = Ends()
    at = waits(desk, say("The other account, then."), store=store, plugins=[ends])
    run = await paused(at)
    second = await at.start("no, use the other account", GOES_ON)
    assert await second.result() == "The other account, then."
    assert statuses(await at.log()) == [("pay", "denied", None)]
    assert (await at.settled())["pay"].response == {"reason": "no, use the other account"}
    first = await run.wait()
    assert (first.outcome, first.cause, first.by) == ("cancelled", "superseded", second.run_id)
    assert await at.runner.questions(**HERE) == []
    await ends.come(2)
    assert sorted(end.run_id for end in ends.ends) == sorted([run.run_id, second.run_id])
    told = at.told()
    assert "This call was denied" in told and "no, use the other account" in told


async def test_text_declines_every_call_of_every_run_that_waits(desk: MakeDesk) -> None:
    """Also a call whose tool asked for itself; work elsewhere may come to its end, and nobody waits for that."""

    async def ask(ctx: ToolContext) -> None:
        """Ask."""
        ctx.request_confirmation("May I?")

    tools = [gated(Counted()), ask, RequestInputTool(), LongRunningFunctionTool(Counted(None), name="build")]
    calls = (call("pay"), call("ask"), call("request_input", question="Why?"), call("build"))
    at = desk(calls, say("ok"), tools=tools)
    await paused(at)
    await at.ask("stop that", GOES_ON)
    assert sorted(statuses(await at.log())) == [
        ("ask", "denied", None),
        ("build", "unknown", "superseded"),
        ("pay", "denied", None),
        ("request_input", "denied", None),
    ]
    assert len(of(await at.log(), RunEnded)) == 2


async def test_an_answer_behind_a_decline_is_refused(desk: MakeDesk) -> None:
    """It says that nothing is open, and executes nothing (F86)."""
    pay = Counted()
    at = waits(desk, say("ok"), pay=pay)
    run = await paused(at)
    asked = await question(at)
    await at.ask("no", GOES_ON)
    with pytest.raises(NotWaitingError):
        await at.runner.answer(run.run_id, asked.call_id)
    with pytest.raises(NotWaitingError):
        await reply(at, response(asked.call_id, confirmed=True))
    assert pay.executed == []


async def test_text_beside_a_run_that_is_kept(desk: MakeDesk, store: Store) -> None:
    """With ``keep`` the new run is a run like any other; the one that waits is answered later, and goes on."""
    pay = Counted("paid")
    at = waits(desk, say("It is noon."), say("Paid."), pay=pay, store=store)
    run = await paused(at)
    other = await at.start("what time is it", KEEP)
    assert await other.result() == "It is noon."
    assert "waits for an answer from outside" in at.told()
    assert run.status == "paused"
    await answer(at, "pay")
    assert await run.result() == "Paid."
    assert pay.executed == [{"order": 1}]


async def test_text_is_refused_while_calls_wait(desk: MakeDesk, store: Store) -> None:
    """With ``reject`` nothing is written, and the error names the runs."""
    at = waits(desk, say("ok"), store=store)
    run = await paused(at)
    before = await at.log()
    with pytest.raises(SessionWaitingError) as waiting:
        await at.start("hello", REJECT)
    assert waiting.value.run_ids == (run.run_id,)
    assert await at.log() == before
    await answer(at, "pay")
    assert await run.result() == "ok"


async def test_text_that_was_queued_and_is_refused_then_fails_alone(desk: MakeDesk) -> None:
    """Its sender had its place in the line already: its run ends as failed, and holds up nobody."""
    held, ends = Held(), Ends()
    at = desk(call("held"), call("pay"), say("ok"), tools=[held.tool(), gated(Counted())], plugins=[ends])
    run = await at.start(config=GOES_ON)
    await held.began.wait()
    queued = await at.start("hello", REJECT)
    behind = await at.start("and I", KEEP)
    held.may_end.set()
    with pytest.raises(RunFailedError, match="SessionWaitingError"):
        await queued.result()
    assert await behind.result() == "ok"
    assert run.status == "paused"


async def test_text_that_was_queued_declines_the_pause_before_it(desk: MakeDesk) -> None:
    """What waits in the line is a message like one that comes later."""
    held = Held()
    at = desk(call("held"), call("pay"), say("ok"), tools=[held.tool(), gated(Counted())])
    run = await at.start(config=GOES_ON)
    await held.began.wait()
    queued = await at.start("rather not", GOES_ON)
    held.may_end.set()
    assert await queued.result() == "ok"
    assert (await run.wait()).cause == "superseded"
    assert (await at.settled())["pay"].response == {"reason": "rather not"}


async def test_news_of_the_background_declines_nothing(desk: MakeDesk) -> None:
    """A run that begins because work has ended is no word of the user."""
    build = LongRunningFunctionTool(Counted({"ticket": 1}), name="build")
    at = desk(call("build"), say("Begun."), call("pay"), say("Built."), say("Paid."), tools=[build, gated(Counted())])
    first = await at.start(config=GOES_ON)
    await first.wait()
    work = await question(at)
    run = await paused(at, "pay")
    await at.runner.answer(first.run_id, work.call_id, {"artifact": "a"})
    await at.until(lambda log: len(of(log, RunEnded)) == 2)
    assert run.status == "paused"
    await answer(at, "pay")
    assert await run.result() == "Paid."


# --- stops --------------------------------------------------------------------------------------------------------


@MEDIA
async def test_a_waiting_run_is_stopped_from_any_process(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """Its calls are settled with its ending; neither a late answer nor a restart lets it go on (F86, F107)."""
    shelf, pay, ends = Shelf(medium, tmp_path), Counted(), Ends()
    first = waits(desk, store=shelf.store(), pay=pay)
    run = await paused(first)
    asked = await question(first)
    second = desk(store=shelf.store(), tools=[gated(pay)], plugins=[ends])
    report = await second.runner.cancel(run.run_id, by="ann", reason="enough")
    assert (report.outcome, report.cause, report.by) == ("cancelled", "user", "ann")
    assert states(report) == {"pay": "not_started"}
    log = await second.log()
    assert statuses(log) == [("pay", "not_started", "user")]
    (settled,), (ended,) = of(log, CallSettled), of(log, RunEnded)
    assert settled.seq == ended.seq - 1
    await ends.come(1)
    for at in (second, first):
        with pytest.raises(NotWaitingError):
            await at.runner.answer(run.run_id, asked.call_id)
        assert await at.runner.questions(**HERE) == []
        await at.runner.recover()
    assert [record for record in await second.log() if record.seq > ended.seq] == []
    assert pay.executed == []


@MEDIA
async def test_a_waiting_run_is_stopped_after_a_restart(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """The stop needs nothing of the process that asked."""
    shelf = Shelf(medium, tmp_path)
    first = waits(desk, store=shelf.store())
    run = await paused(first)
    await first.runner.aclose()
    second = waits(desk, say("never"), store=shelf.store())
    await (await second.runner.attach(run.run_id)).cancel()
    assert [(ended.outcome, ended.cause) for ended in await second.endings()] == [("cancelled", "user")]


async def test_what_a_stop_says_of_calls_that_wait(desk: MakeDesk) -> None:
    """Nothing was done for a question; work that goes on elsewhere may yet come to its end, and nobody here knows."""

    async def ask(ctx: ToolContext) -> None:
        """Ask."""
        ctx.request_confirmation("May I?")

    tools = [gated(Counted()), ask, RequestInputTool(), LongRunningFunctionTool(Counted(None), name="build")]
    calls = (call("pay"), call("ask"), call("request_input", question="Why?"), call("build"))
    at = desk(calls, tools=tools)
    run = await paused(at)
    await run.cancel()
    assert sorted(statuses(await at.log())) == [
        ("ask", "cancelled", "user"),
        ("build", "unknown", "user"),
        ("pay", "not_started", "user"),
        ("request_input", "not_started", "user"),
    ]


async def test_a_stop_of_a_run_that_waits_in_an_agent_tool(desk: MakeDesk) -> None:
    """The calls within and the agent's own are settled; the agent was stopped, nobody asks what became of it."""
    inner = LlmAgent("inner", ScriptedModel(call("pay")), tools=[gated(Counted())])
    at = desk(call("inner", request="t"), tools=[AgentTool(inner)])
    run = await paused(at)
    await run.cancel()
    assert sorted(statuses(await at.log())) == [("inner", "cancelled", "user"), ("pay", "not_started", "user")]


@pytest.mark.parametrize("stop_first", [True, False])
async def test_stop_and_answer_at_once(desk: MakeDesk, stop_first: bool) -> None:
    """Whichever comes first counts; the run ends once, and a stop is final (F107)."""
    pay = Counted("paid")
    at = waits(desk, say("ok"), pay=pay)
    run = await paused(at)
    asked = await question(at)
    acts: list[Callable[[], Any]] = [run.cancel, lambda: at.runner.answer(run.run_id, asked.call_id)]
    await asyncio.gather(*(act() for act in (acts if stop_first else acts[::-1])), return_exceptions=True)
    ended = await run.wait()
    log = await at.log()
    assert len(of(log, RunEnded)) == 1
    assert ended.outcome == "cancelled" or not of(log, CancelRequested)
    assert len(pay.executed) <= 1
    assert len(of(log, CallSettled)) == 1


async def test_a_run_stopped_between_its_answer_and_its_next_attempt(desk: MakeDesk) -> None:
    """An answered run that was asked to stop does not go on."""
    pay = Counted()
    at = waits(desk, pay=pay)
    run = await paused(at)
    await run.cancel()
    assert attempts(await at.log()) == [(1, "message")]
    assert (await run.wait()).outcome == "cancelled"
    assert pay.executed == []


async def test_one_waiting_call_is_stopped_alone(desk: MakeDesk, store: Store) -> None:
    """The run goes on without it; what asks nothing any more is not answered (F139, F145)."""
    pay = Counted()
    at = waits(desk, say("Not paid."), pay=pay, store=store)
    run = await paused(at)
    asked = await question(at)
    settled = await at.runner.cancel_call(run.run_id, asked.call_id, by="ann")
    assert settled is not None
    assert (settled.status, settled.cause) == ("not_started", "user")
    assert await run.result() == "Not paid."
    assert pay.executed == []
    assert "the user stopped it" in at.told()
    with pytest.raises(NotWaitingError):
        await at.runner.answer(run.run_id, asked.call_id)
    assert await at.runner.cancel_call(run.run_id, asked.call_id) == settled


async def test_one_of_two_waiting_calls_is_stopped(desk: MakeDesk) -> None:
    """The other one is still waited for; then both are told."""
    pay = Counted("paid")
    at = desk((call("pay"), call("request_input", question="Why?")), say("ok"), tools=[gated(pay), RequestInputTool()])
    run = await paused(at, config=RunConfig(cancel_grace_seconds=0))
    asked = {one.tool: one for one in await at.runner.questions(**HERE)}
    await at.runner.cancel_call(run.run_id, asked["request_input"].call_id)
    assert run.status == "paused"
    assert [one.tool for one in await at.runner.questions(**HERE)] == ["pay"]
    await answer(at, "pay")
    assert (await run.wait()).outcome == "completed"
    assert sorted(statuses(await at.log())) == [("pay", "succeeded", None), ("request_input", "not_started", "user")]


@MEDIA
async def test_one_waiting_call_is_stopped_from_another_process(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """As from its own."""
    shelf = Shelf(medium, tmp_path)
    first = waits(desk, store=shelf.store())
    run = await paused(first)
    await first.runner.aclose()
    second = desk(say("Not paid."), store=shelf.store(), tools=[gated(Counted())])
    asked = await question(second)
    settled = await second.runner.cancel_call(run.run_id, asked.call_id)
    assert settled is not None and settled.status == "not_started"
    assert await (await second.runner.attach(run.run_id)).result() == "Not paid."


async def test_closing_the_runner_leaves_pauses_alone(desk: MakeDesk, store: Store) -> None:
    """A shutdown is no stop of what waits: nothing is working there (F114)."""
    ends = Ends()
    at = waits(desk, plugins=[ends], store=store)
    run = await paused(at)
    await at.runner.aclose()
    assert ends.ends == []
    assert run.status == "paused"
    assert run.state.run(run.run_id).cancel is None


async def test_an_erased_session_takes_its_questions_along(desk: MakeDesk) -> None:
    """Nothing of it can be answered any more."""
    at = waits(desk)
    run = await paused(at)
    asked = await question(at)
    await at.runner.erase_session(**HERE, by="dpo")
    with pytest.raises(Exception, match=r"erased|no run"):
        await at.runner.answer(run.run_id, asked.call_id)


async def test_the_messages_of_a_busy_policy_do_not_stop_what_waits(desk: MakeDesk) -> None:
    """A paused run is not running: ``reject`` and ``steer`` find the session free."""
    at = waits(desk, say("one"), say("two"))
    run = await paused(at)
    for policy in ("reject", "steer"):
        other = await at.start("hello", RunConfig(busy_policy=policy, on_text="keep"))  # type: ignore[arg-type]
        assert (await other.wait()).outcome == "completed"
    assert run.status == "paused"
    assert [record.run_id for record in of(await at.log(), RunStarted)].count(run.run_id) == 1
