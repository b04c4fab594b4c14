"""Pauses by hand: at a safe point, for as long as the operator wants; and what readers see of any pause."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import Ends, Held, kinds, states
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

from heaveto import Answered, LlmAgent, LoopAgent, Paused, RunConfig, RunEnded, RunPausedError, SequentialAgent
from heaveto.errors import AnswerKindError
from heaveto.events.records import PauseRequested, RunStarted
from heaveto.stores.base import Store
from heaveto.testing import FakeClock, ScriptedModel, call, gate, say, usage

MEDIA = pytest.mark.parametrize("medium", ["memory", "sqlite"])


async def test_a_run_pauses_behind_its_tool(desk: MakeDesk, store: Store) -> None:
    """Before the next model call: what the tool did is durable, the worker is free; `resume` lets it go on."""
    held, ends = Held(), Ends()
    at = desk(call("held"), say("ok"), store=store, tools=[held.tool()], plugins=[ends])
    run = await at.start(config=GOES_ON)
    await held.began.wait()
    await at.runner.pause(run.run_id, by="ann", reason="a look first")
    held.may_end.set()
    pause = await run.ending_or_pause()
    assert isinstance(pause, Paused)
    assert statuses(await at.log()) == [("held", "succeeded", None)]
    assert at.model.calls == 1
    asked = await question(at)
    assert (asked.kind, asked.hint, asked.run_id) == ("operator", "a look first", run.run_id)
    assert [(one.by, one.at) for one in of(await at.log(), PauseRequested)] == [("ann", "after_tool")]
    with pytest.raises(RunPausedError):
        await run.result()
    again = await at.runner.resume(run.run_id)
    assert await again.result() == "ok"
    assert held.calls == 1
    assert attempts(await at.log()) == [(1, "message"), (2, "answer")]
    await ends.come(1)


async def test_a_run_pauses_behind_an_agents_turn(desk: MakeDesk) -> None:
    """`after_turn`: before the next agent, not in the midst of one."""
    held = Held()
    first = LlmAgent("first", ScriptedModel(call("held"), say("first is done")), tools=[held.tool()])
    second = LlmAgent("second", ScriptedModel(say("second is done")))
    at = desk(agent=SequentialAgent("root", sub_agents=[first, second]))
    run = await at.start(config=GOES_ON)
    await held.began.wait()
    await at.runner.pause(run.run_id, at="after_turn")
    held.may_end.set()
    assert isinstance(await run.ending_or_pause(), Paused)
    assert [record.author for record in await at.messages()] == ["first", "first"]
    await at.runner.resume(run.run_id)
    await run.wait()
    assert [record.author for record in await at.messages()] == ["first", "first", "second"]
    assert held.calls == 1


async def test_a_loop_that_is_paused_goes_on_in_its_round(desk: MakeDesk) -> None:
    """Its rounds are counted over the pause."""
    held = Held()
    model = ScriptedModel(call("held"), say("one"), say("two"), say("three"))
    worker = LlmAgent("worker", model, tools=[held.tool()])
    at = desk(agent=LoopAgent("root", sub_agents=[worker], max_iterations=3))
    run = await at.start(config=GOES_ON)
    await held.began.wait()
    await at.runner.pause(run.run_id, at="after_turn")
    held.may_end.set()
    assert isinstance(await run.ending_or_pause(), Paused)
    await at.runner.resume(run.run_id)
    await run.wait()
    assert model.calls == 4


async def test_a_run_that_ends_first_ends(desk: MakeDesk) -> None:
    """There is no point behind its last answer; a pause that was asked for is no ending."""
    then = gate()
    at = desk((then, say("ok")))
    run = await at.start(config=GOES_ON)
    await then.reached()
    await at.runner.pause(run.run_id)
    then.open()
    assert (await run.wait()).outcome == "completed"
    await at.runner.pause(run.run_id)
    assert kinds(await at.log())[-1] == "RunEnded"
    assert await at.runner.questions(**HERE) == []


async def test_a_paused_run_is_stopped(desk: MakeDesk, store: Store) -> None:
    """By the same `cancel`; and then it cannot be resumed."""
    held, ends = Held(), Ends()
    at = desk(call("held"), store=store, tools=[held.tool()], plugins=[ends])
    run = await at.start(config=GOES_ON)
    await held.began.wait()
    await at.runner.pause(run.run_id)
    held.may_end.set()
    await run.ending_or_pause()
    report = await run.cancel(by="ann")
    assert (report.outcome, states(report)) == ("cancelled", {"held": "finished"})
    await at.runner.resume(run.run_id)
    assert (await run.wait()).outcome == "cancelled"
    assert len(of(await at.log(), RunStarted)) == 1
    await ends.come(1)


@MEDIA
async def test_a_pause_by_hand_outlives_its_process(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """A restart does not let it go on, nobody but `resume` does: in any process."""
    shelf, held = Shelf(medium, tmp_path), Held()
    first = desk(call("held"), store=shelf.store(), tools=[held.tool()])
    run = await first.start(config=GOES_ON)
    await held.began.wait()
    await first.runner.pause(run.run_id)
    held.may_end.set()
    await run.ending_or_pause()
    await first.runner.aclose()
    second = desk(say("ok"), store=shelf.store(), tools=[held.tool()])
    assert await second.runner.recover() == []
    assert second.model.calls == 0
    assert await (await second.runner.resume(run.run_id)).result() == "ok"


@MEDIA
async def test_a_pause_is_asked_for_from_another_process(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """The request is durable, and whoever carries the run sees it at its next safe point."""
    shelf, held = Shelf(medium, tmp_path), Held()
    first = desk(call("held"), say("ok"), store=shelf.store(), tools=[held.tool()])
    second = desk(store=shelf.store(), tools=[held.tool()])
    run = await first.start(config=GOES_ON)
    await held.began.wait()
    await second.runner.pause(run.run_id)
    await first.until(lambda log: bool(of(log, PauseRequested)))
    held.may_end.set()
    assert isinstance(await run.ending_or_pause(), Paused)
    await first.runner.resume(run.run_id)
    assert await run.result() == "ok"


async def test_a_pause_by_hand_beside_a_question(desk: MakeDesk) -> None:
    """The question is answered first; then the run pauses as the operator wanted, before the model is asked."""
    held, pay = Held(), Counted("paid")
    at = desk((call("held"), call("pay")), say("ok"), tools=[held.tool(), gated(pay)])
    run = await at.start(config=GOES_ON)
    await held.began.wait()
    await at.runner.pause(run.run_id)
    held.may_end.set()
    await run.ending_or_pause()
    await answer(at, "pay")
    await at.until(lambda log: len([one for one in of(log, Paused) if not one.held]) == 2)
    assert (len(pay.executed), at.model.calls) == (1, 1)
    assert (await question(at)).kind == "operator"
    await at.runner.resume(run.run_id)
    assert await run.result() == "ok"


async def test_an_operator_does_not_deny(desk: MakeDesk) -> None:
    """Whoever does not let a run go on stops it; a value says nothing here either."""
    held = Held()
    at = desk(call("held"), say("ok"), tools=[held.tool()])
    run = await at.start(config=GOES_ON)
    await held.began.wait()
    await at.runner.pause(run.run_id)
    held.may_end.set()
    await run.ending_or_pause()
    asked = await question(at)
    with pytest.raises(AnswerKindError):
        await at.runner.answer(run.run_id, asked.call_id, accept=False)
    await at.runner.answer(run.run_id, asked.call_id, by="bob")
    assert await run.result() == "ok"
    assert [one.by for one in of(await at.log(), Answered)] == ["bob"]


async def test_who_resumed_twice_resumed_once(desk: MakeDesk) -> None:
    """Concurrently, too."""
    held = Held()
    at = desk(call("held"), say("ok"), tools=[held.tool()])
    run = await at.start(config=GOES_ON)
    await held.began.wait()
    await at.runner.pause(run.run_id)
    held.may_end.set()
    await run.ending_or_pause()
    await asyncio.gather(*(at.runner.resume(run.run_id) for _ in range(3)))
    assert await run.result() == "ok"
    assert len(of(await at.log(), RunStarted)) == 2


async def test_a_run_may_be_paused_again(desk: MakeDesk) -> None:
    """Each request pauses once; one that comes while it is paused asks for nothing more."""
    first, second = Held(), Held()
    at = desk(call("a"), call("b"), say("ok"), tools=[first.tool("a"), second.tool("b")])
    run = await at.start(config=GOES_ON)
    for held in (first, second):
        await held.began.wait()
        await at.runner.pause(run.run_id)
        held.may_end.set()
        await at.until(lambda log: run.status == "paused")
        await at.runner.pause(run.run_id)
        await at.runner.resume(run.run_id)
    assert await run.result() == "ok"
    assert [number for number, _ in attempts(await at.log())] == [1, 2, 3]


async def test_text_while_an_operator_holds_the_run(desk: MakeDesk) -> None:
    """As with any pause: by default the run ends, and the text begins another one."""
    held = Held()
    at = desk(call("held"), say("new"), tools=[held.tool()])
    run = await at.start(config=GOES_ON)
    await held.began.wait()
    await at.runner.pause(run.run_id)
    held.may_end.set()
    await run.ending_or_pause()
    assert await (await at.start("something else", GOES_ON)).result() == "new"
    assert (await run.wait()).cause == "superseded"
    assert await at.runner.questions(**HERE) == []


# --- what readers see ---------------------------------------------------------------------------------------------


@MEDIA
async def test_a_reader_that_follows_over_a_pause(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """Its stream ends at the pause; with the last seq it goes on from there, in whichever process, without a gap."""
    shelf, seen = Shelf(medium, tmp_path), list[Any]()
    first = desk(call("pay"), store=shelf.store(), tools=[gated(Counted())])
    run = await paused(first)
    seen += [item async for item in run.stream(deltas=False)]
    await first.runner.aclose()
    second = desk(say("ok"), store=shelf.store(), tools=[gated(Counted())])
    attached = await second.runner.attach(run.run_id)
    assert [item async for item in attached.stream(after=seen[-1].seq, deltas=False)] == []
    asked = await question(second)
    await second.runner.answer(run.run_id, asked.call_id)
    seen += [item async for item in attached.stream(after=seen[-1].seq, deltas=False)]
    assert seen == [record for record in await second.log() if record.run_id == run.run_id]
    assert isinstance(seen[-1], RunEnded)


async def test_the_pause_names_all_that_waits(desk: MakeDesk) -> None:
    """The record of the pause, and `ending_or_pause`, list the calls with what is needed to answer them."""
    at = desk((call("pay", order=1), call("pay", order=2)), tools=[gated(Counted(), confirmation_hint="Pay?")])
    run = await paused(at)
    recorded = next(one for one in of(await at.log(), Paused) if not one.held)
    assert [(one.kind, one.name, one.hint, one.args) for one in recorded.waiting] == [
        ("confirmation", "pay", "Pay?", {"order": 1}),
        ("confirmation", "pay", "Pay?", {"order": 2}),
    ]
    pause = await run.ending_or_pause()
    assert isinstance(pause, Paused)
    assert pause.waiting == recorded.waiting
    assert (await at.log())[-1] == recorded


async def test_a_pause_leaves_nothing_running(desk: MakeDesk, store: Store) -> None:
    """Its worker and its session are free: nobody holds the lease, no task of the run is left (F83)."""
    at = desk(call("pay"), store=store, tools=[gated(Counted())])
    run = await paused(at)
    changed = asyncio.Event()
    unsubscribe = at.runner.store.subscribe(run.session, lambda _: changed.set())
    while await at.runner.who_holds(**HERE) is not None:
        await changed.wait()
        changed.clear()
    unsubscribe()
    assert run.status == "paused"
    assert [task.get_name() for task in asyncio.all_tasks() if run.run_id in task.get_name()] == []


async def test_usage_and_calls_are_counted_over_pauses(desk: MakeDesk) -> None:
    """The ending has the sum of all attempts."""
    at = desk((call("pay"), usage(10, 5)), (say("ok"), usage(20, 7)), tools=[gated(Counted())])
    run = await paused(at)
    await answer(at, "pay")
    ended = await run.wait()
    assert (ended.usage.input_tokens, ended.usage.output_tokens, ended.llm_calls) == (30, 12, 2)


async def test_state_and_steering_over_a_pause(desk: MakeDesk) -> None:
    """What was set before is there behind it."""

    async def note(ctx: Any) -> str:
        """Note."""
        ctx.state["seen"] = "yes"
        return "noted"

    at = desk(call("note"), call("pay"), say("ok"), tools=[note, gated(Counted())], instruction="seen: {seen?}")
    run = await paused(at)
    await answer(at, "pay")
    await run.wait()
    assert at.model.requests[-1].instruction == "seen: yes"


async def test_a_pause_of_a_single_step_takes_no_time_of_the_next(desk: MakeDesk) -> None:
    """A clock that stands still shows that nothing polls: no sleeper is left by a pause without a deadline (P9)."""
    clock = FakeClock()
    at = desk(call("pay"), say("ok"), clock=clock, tools=[gated(Counted())])
    run = await paused(at, config=RunConfig())
    assert clock.sleepers == 0
    await reply(at, response((await question(at)).call_id, confirmed=True))
    assert (await run.wait()).outcome == "completed"
