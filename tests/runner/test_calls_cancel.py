"""Stopping one call: that call, wherever it stands, and nothing else; the run goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import Desk, Held, HeldThread, states

from heaveto import AgentTool, LlmAgent, ParallelAgent, Retry, RunConfig, SequentialAgent, SqliteStore, ToolContext
from heaveto.errors import DetachError, ModelError, ToolFatalError, UnknownCallError, UnknownRunError
from heaveto.events.contents import calls_of
from heaveto.events.records import CallSettled, CancelRequested, Message, Record
from heaveto.stores.base import Store
from heaveto.testing import FakeClock, ScriptedModel, call, fault, hang, say, settle
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]
SHORT = RunConfig(cancel_grace_seconds=0.02)
PATIENT = RunConfig(cancel_grace_seconds=60)
SEQUENTIAL = RunConfig(cancel_grace_seconds=60, tool_execution_mode="SEQUENTIAL")


async def proposed(at: Desk, *names: str) -> list[str]:
    """The ids of calls, by their tools' names, once they are in the log."""

    def ids(log: list[Record]) -> dict[str, str]:
        made = [part for record in log if isinstance(record, Message) for part in calls_of(record.parts)]
        return {part.name: part.call_id for part in made}

    found = ids(await at.until(lambda log: set(names) <= set(ids(log))))
    return [found[name] for name in names]


async def test_of_three_calls_the_second_is_stopped(desk: MakeDesk, store: Store) -> None:
    """Its siblings finish, it is settled as stopped by the user, and the loop goes on (F139)."""
    held = {name: Held(name) for name in "abc"}
    at = desk(
        tuple(call(name) for name in held), say("Two of three."), store=store,
        tools=[tool.tool(name) for name, tool in held.items()],
    )  # fmt: skip
    run = await at.start()
    await asyncio.gather(*(tool.began.wait() for tool in held.values()))
    settled = await at.runner.cancel_call(run.run_id, (await proposed(at, "b"))[0], by="ann", reason="too dear")
    assert settled is not None
    assert (settled.status, settled.cause) == ("cancelled", "user")
    assert held["b"].left.is_set()
    held["a"].may_end.set()
    held["c"].may_end.set()
    assert (await run.wait()).outcome == "completed"
    assert {name: one.status for name, one in (await at.settled()).items()} == {
        "a": "succeeded", "b": "cancelled", "c": "succeeded",
    }  # fmt: skip
    assert "because the user stopped" in at.told()
    (request,) = [record for record in await at.log() if isinstance(record, CancelRequested)]
    assert (request.call_id, request.by, request.reason) == (settled.call_id, "ann", "too dear")


async def test_stopping_a_call_twice_is_once(desk: MakeDesk) -> None:
    """Two clicks at the same time, and a third afterwards, get the same answer."""
    held = Held()
    at = desk(call("held"), say("ok"), tools=[held.tool()])
    run = await at.start()
    await held.began.wait()
    (call_id,) = await proposed(at, "held")
    first, second = await asyncio.gather(*(at.runner.cancel_call(run.run_id, call_id) for _ in range(2)))
    await run.wait()
    third = await at.runner.cancel_call(run.run_id, call_id)
    assert first == second == third
    assert held.interrupted == 1
    assert len([record for record in await at.log() if isinstance(record, CancelRequested)]) == 1


async def test_what_nobody_knows_cannot_be_stopped(desk: MakeDesk) -> None:
    """Unknown ids are errors, and a call of another run is not this run's."""
    held = Held()
    at = desk(call("held"), say("ok"), say("ok"), tools=[held.tool()])
    run = await at.start()
    await held.began.wait()
    (call_id,) = await proposed(at, "held")
    with pytest.raises(UnknownRunError):
        await at.runner.cancel_call("no-such-run", call_id)
    with pytest.raises(UnknownCallError) as error:
        await at.runner.cancel_call(run.run_id, "no-such-call")
    assert call_id in str(error.value)
    held.may_end.set()
    await run.wait()
    other = await at.start("again")
    await other.wait()
    with pytest.raises(UnknownCallError):
        await at.runner.cancel_call(other.run_id, call_id)


async def test_a_call_that_has_ended_is_told_as_it_ended(desk: MakeDesk) -> None:
    """A stop that comes too late changes nothing, and writes nothing."""
    held = Held()
    held.may_end.set()
    at = desk(call("held"), say("ok"), tools=[held.tool()])
    run = await at.start()
    await run.wait()
    length = len(await at.log())
    settled = await at.runner.cancel_call(run.run_id, (await proposed(at, "held"))[0])
    assert settled is not None
    assert settled.status == "succeeded"
    assert len(await at.log()) == length


async def test_a_call_that_could_not_be_stopped_is_not_asked_again_behind_its_run(desk: MakeDesk) -> None:
    """It was told all that can be told; nothing more is written of a run that has ended."""
    thread = HeldThread()
    at = desk(call("thread"), say("ok"), tools=[thread.tool()])
    run = await at.start("go", SHORT)
    await thread.began.wait()
    (call_id,) = await proposed(at, "thread")
    first = await at.runner.cancel_call(run.run_id, call_id)
    await run.wait()
    length = len(await at.log())
    assert await at.runner.cancel_call(run.run_id, call_id) == first
    assert len(await at.log()) == length


@pytest.mark.parametrize("swallows", [1, 10**9])
async def test_a_call_that_swallows_its_stop_is_interrupted_again_and_then_left_behind(
    desk: MakeDesk, swallows: int
) -> None:
    """It insists for the grace; then the run goes on without it, and its late result is recorded (F151)."""
    clock, held = FakeClock(), Held("late", swallow=swallows)
    at = desk(call("held"), say("ok"), clock=clock, tools=[held.tool()])
    run = await at.start("go", RunConfig(cancel_grace_seconds=1))
    await held.began.wait()
    stopping = asyncio.ensure_future(at.runner.cancel_call(run.run_id, await at.call_id("held")))
    await settle()
    await clock.advance(1)
    settled = await stopping
    assert settled is not None
    assert (settled.status, settled.cause) == ("cancelled" if swallows == 1 else "unknown", "user")
    assert (await run.wait()).outcome == "completed"
    if swallows > 1:
        held.may_end.set()
        assert (await at.until_settled("held", late=True)).response == {"result": "late"}


# --- not begun ----------------------------------------------------------------------------------------------------


async def test_a_queued_blocking_call_is_stopped_before_its_turn(desk: MakeDesk, store: Store) -> None:
    """It is settled as not started at once, while the one before it works on."""
    first, second = HeldThread("first"), HeldThread("second")
    at = desk(
        (call("first"), call("second")), say("ok"), store=store, tools=[first.tool("first"), second.tool("second")]
    )
    run = await at.start("go", PATIENT)
    await first.began.wait()
    async with asyncio.timeout(10):
        settled = await at.runner.cancel_call(run.run_id, (await proposed(at, "second"))[0])
    assert settled is not None
    assert (settled.status, settled.cause) == ("not_started", "user")
    first.may_end.set()
    assert (await run.wait()).outcome == "completed"
    assert (first.calls, second.calls) == (1, 0)


async def test_a_call_that_waits_for_a_place_is_stopped_where_it_waits(desk: MakeDesk) -> None:
    """It leaves the line at once (F164)."""
    held = Held()
    at = desk((call("held"), call("held")), say("ok"), tools=[held.tool(max_concurrency=1)])
    run = await at.start("go", PATIENT)
    await held.began.wait()
    (row,) = at.runner.concurrency()
    async with asyncio.timeout(10):
        settled = await at.runner.cancel_call(run.run_id, row.waiting[0].ref[1])
    assert settled is not None
    assert settled.status == "not_started"
    (row,) = at.runner.concurrency()
    assert (len(row.running), row.waiting) == (1, ())
    held.may_end.set()
    await run.wait()
    assert held.calls == 1
    assert at.runner.concurrency() == []


async def test_one_after_another_a_later_call_is_stopped_before_its_turn(desk: MakeDesk) -> None:
    """In SEQUENTIAL mode as well: nothing of it was begun, not even its callbacks."""
    first, second, asked = Held(), Held(), list[str]()

    def ask(tool: Any, _args: object, _ctx: object) -> None:
        asked.append(tool.name)

    tools = [first.tool("first"), second.tool("second")]
    at = desk((call("first"), call("second")), say("ok"), tools=tools, before_tool_callback=ask)
    run = await at.start("go", SEQUENTIAL)
    await first.began.wait()
    async with asyncio.timeout(10):
        settled = await at.runner.cancel_call(run.run_id, (await proposed(at, "second"))[0])
    assert settled is not None
    assert settled.status == "not_started"
    first.may_end.set()
    await run.wait()
    assert (second.calls, asked) == (0, ["first"])


@pytest.mark.parametrize("answer", [None, {"result": "from the callback"}])
async def test_a_call_is_stopped_while_a_callback_before_it_works(desk: MakeDesk, answer: Any) -> None:
    """Whatever the callback says in the end: the stop came first (F153)."""
    asking, may_answer, held = asyncio.Event(), asyncio.Event(), Held()

    async def ask(_tool: object, _args: object, _ctx: object) -> Any:
        asking.set()
        await may_answer.wait()
        return answer

    at = desk(call("held"), say("ok"), tools=[held.tool()], before_tool_callback=ask)
    run = await at.start("go", PATIENT)
    await asking.wait()
    async with asyncio.timeout(10):
        settled = await at.runner.cancel_call(run.run_id, (await proposed(at, "held"))[0])
    assert settled is not None
    assert settled.status == "not_started"
    may_answer.set()
    assert (await run.wait()).outcome == "completed"
    assert held.calls == 0
    assert await at.settlements("held") == [("not_started", "user", False)]


@pytest.mark.parametrize("point", ["after_tool", "on_tool_error"])
async def test_a_callback_behind_the_tool_does_not_hold_up_the_stop_of_its_call(desk: MakeDesk, point: str) -> None:
    """The call keeps the outcome that it has (P4)."""
    asking = asyncio.Event()

    async def ask(*_: object) -> None:
        asking.set()
        await asyncio.Event().wait()

    async def work() -> str:
        """Work."""
        if point == "on_tool_error":
            raise ValueError("broken")
        return "done"

    at = desk(call("work"), say("ok"), tools=[work], **{f"{point}_callback": ask})
    run = await at.start("go", PATIENT)
    await asking.wait()
    async with asyncio.timeout(10):
        settled = await at.runner.cancel_call(run.run_id, (await proposed(at, "work"))[0])
    assert settled is not None
    assert settled.status == ("failed" if point == "on_tool_error" else "succeeded")
    assert (await run.wait()).outcome == "completed"


# --- within agents ------------------------------------------------------------------------------------------------


async def test_a_call_of_a_sub_agent_is_stopped(desk: MakeDesk) -> None:
    """It is addressed by its id, whoever made it; its agent goes on."""
    held = Held()
    inner = LlmAgent("inner", ScriptedModel(call("held"), say("Without it.")), tools=[held.tool()])
    at = desk(agent=SequentialAgent("root", sub_agents=[inner]))
    run = await at.start()
    await held.began.wait()
    settled = await at.runner.cancel_call(run.run_id, (await proposed(at, "held"))[0])
    assert settled is not None
    assert settled.status == "cancelled"
    assert (await run.wait()).outcome == "completed"
    assert await run.result() == "Without it."


@pytest.mark.parametrize("blocking", [False, True])
async def test_the_calls_of_an_agent_that_works_as_a_tool_end_with_it(desk: MakeDesk, blocking: bool) -> None:
    """Its inner agent stops, with all that it had begun; the parent is told, and goes on (F154, P3)."""
    held: Any = HeldThread(polite=True) if blocking else Held()
    inner = LlmAgent("inner", ScriptedModel(call("held")), tools=[held.tool("held")])
    at = desk(call("inner", request="do it"), say("The agent was stopped."), tools=[AgentTool(inner)])
    run = await at.start("go", PATIENT)
    await held.began.wait()
    settled = await at.runner.cancel_call(run.run_id, (await proposed(at, "inner"))[0])
    assert settled is not None
    assert (settled.status, settled.cause) == ("cancelled", "user")
    await asyncio.wait_for(held.left.wait(), 10)
    assert (await run.wait()).outcome == "completed"
    assert held.effects == 0
    assert await at.settlements("held") == [("cancelled", "user", False)]
    assert "because the user stopped" in at.told()


async def test_the_three_outcomes_of_an_agent_that_works_as_a_tool(desk: MakeDesk) -> None:
    """Its parent can tell them apart: it answered, it failed, it was stopped (F154)."""
    broken = ScriptedModel((fault("no such model", status=400),))
    agents = [
        LlmAgent("answers", ScriptedModel(say("Found it."))),
        LlmAgent("fails", broken),
        LlmAgent("hangs", ScriptedModel((hang(),))),
    ]
    calls = tuple(call(agent.name, request="look") for agent in agents)
    at = desk(calls, say("ok"), tools=[AgentTool(agent) for agent in agents])
    run = await at.start()
    await at.until_settled("fails")
    await at.runner.cancel_call(run.run_id, (await proposed(at, "hangs"))[0])
    assert (await run.wait()).outcome == "completed"
    settled = await at.settled()
    assert {name: one.status for name, one in settled.items()} == {
        "answers": "succeeded", "fails": "failed", "hangs": "cancelled",
    }  # fmt: skip
    assert ModelError.__name__ in str(settled["fails"].response)


@pytest.mark.parametrize("deaf", [False, True])
async def test_what_a_failed_sibling_agent_ends_is_told_as_that(desk: MakeDesk, deaf: bool) -> None:
    """One of two parallel agents fails: the other's call is stopped for it, or named as still running (P2, P3)."""
    held: Any = HeldThread() if deaf else Held()
    works = LlmAgent("works", ScriptedModel(call("held")), tools=[held.tool("held")])

    async def fail(ctx: ToolContext) -> None:
        """Fail the run."""
        await held.began.wait()
        raise ToolFatalError("no more")

    fails = LlmAgent("fails", ScriptedModel(call("fail")), tools=[fail])
    at = desk(agent=ParallelAgent("root", sub_agents=[works, fails]))
    ended = await at.ask("go", SHORT)
    assert (ended.outcome, ended.error.type if ended.error else "") == ("failed", "ToolFatalError")
    assert ended.report is not None
    assert states(ended.report)["held"] == ("still_running" if deaf else "stopped")
    ((status, cause, late),) = await at.settlements("held")
    assert (status, cause, late) == ("unknown" if deaf else "cancelled", "error", False)


async def test_an_agent_as_a_tool_may_be_tried_again_behind_its_limit(desk: MakeDesk) -> None:
    """What its first attempt had begun is stopped before the second begins, and no call is said to have crashed."""

    class Patient(AgentTool):
        timeout_seconds = 0.05
        retry = Retry(2, 0)

    held = Held()
    inner = LlmAgent("inner", ScriptedModel(call("held"), say("Second time.")), tools=[held.tool()])
    at = desk(call("inner", request="do it"), say("ok"), tools=[Patient(inner)])
    assert (await at.ask("go", RunConfig(cancel_grace_seconds=1))).outcome == "completed"
    assert await at.settlements("held") == [("cancelled", "timeout", False)]
    assert (await at.settled())["inner"].response == {"result": "Second time."}


async def test_an_agent_as_a_tool_does_not_go_into_the_background(desk: MakeDesk) -> None:
    """What an agent does within a call belongs to its run and ends with it; the refusal says what to use (F138)."""
    held = Held()
    inner = LlmAgent("inner", ScriptedModel(call("held"), say("done")), tools=[held.tool()])
    at = desk(call("inner", request="do it"), say("ok"), tools=[AgentTool(inner)])
    run = await at.start("go", SHORT)
    await held.began.wait()
    with pytest.raises(DetachError, match="background=True"):
        await at.runner.detach(run.run_id, (await proposed(at, "inner"))[0])
    held.may_end.set()
    assert await run.result() == "ok"


async def test_a_tool_with_an_agent_at_work_does_not_go_into_the_background(desk: MakeDesk) -> None:
    """Neither while the agent works nor before: its work would end with the run (F138)."""
    refused: list[DetachError] = []
    inner = LlmAgent("inner", ScriptedModel(say("done")))

    async def first_away(ctx: ToolContext) -> str:
        """Go away, then work."""
        await ctx.detach()
        try:
            return await ctx.run_agent(inner, "do it")
        except DetachError as error:
            refused.append(error)
            return "refused"

    at = desk(call("first_away"), say("ok"), say("heard"), tools=[first_away])
    assert (await at.ask()).outcome == "completed"
    await at.until_settled("first_away", late=True)
    assert len(refused) == 1


# --- who asks -----------------------------------------------------------------------------------------------------


async def test_another_process_stops_a_call(desk: MakeDesk, tmp_path: Path) -> None:
    """A second worker on the same file finds the run and stops the one call in it (F139)."""
    slow, quick = Held(), Held()
    tools = [slow.tool("slow"), quick.tool("quick")]
    at = desk((call("slow"), call("quick")), say("ok"), store=SqliteStore(tmp_path / "s.db"), tools=tools)
    other = desk(store=SqliteStore(tmp_path / "s.db"), tools=tools)
    run = await at.start()
    await asyncio.gather(slow.began.wait(), quick.began.wait())
    settled = await other.runner.cancel_call(run.run_id, (await proposed(other, "slow"))[0], by="operator")
    assert settled is not None
    assert settled.status == "cancelled"
    quick.may_end.set()
    assert (await run.wait()).outcome == "completed"


@pytest.mark.parametrize("whom", ["itself", "a sibling"])
async def test_a_tool_stops_a_call_of_its_own_run(desk: MakeDesk, whom: str) -> None:
    """It gets no answer to wait for, since it would wait for itself (F59)."""
    held, answers = Held(), list[Any]()

    async def watcher(ctx: ToolContext) -> str:
        await held.began.wait()
        call_id = ctx.call_id if whom == "itself" else (await proposed(at, "held"))[0]
        answers.append(await at.runner.cancel_call(ctx.run_id, call_id))
        if whom == "itself":
            await asyncio.Event().wait()
        return "stopped the other one"

    at = desk((call("watcher"), call("held")), say("ok"), tools=[watcher, held.tool()])
    run = await at.start()
    await held.began.wait()
    victim = "watcher" if whom == "itself" else "held"
    assert (await at.until_settled(victim)).status == "cancelled"
    held.may_end.set()
    assert (await run.wait()).outcome == "completed"
    assert answers == ([None] if whom == "a sibling" else [])


async def test_a_stop_of_a_call_and_of_its_run_at_the_same_moment(desk: MakeDesk) -> None:
    """In whatever order they arrive, each call has one settlement and the run one ending (F17, P7)."""
    for tick in range(10):
        held = Held()
        at = desk(call("held"), say("ok"), tools=[held.tool()])
        run = await at.start("go", SHORT)
        await held.began.wait()
        (call_id,) = await proposed(at, "held")
        one = asyncio.ensure_future(at.runner.cancel_call(run.run_id, call_id))
        for _ in range(tick):
            await asyncio.sleep(0)
        report = await run.cancel()
        await one
        assert report.outcome in ("cancelled", "completed")
        assert len([record for record in await at.log() if isinstance(record, CallSettled)]) == 1
        assert states(report).get("held", "stopped") == "stopped"


async def test_the_stop_of_a_call_leaves_the_session_usable(desk: MakeDesk) -> None:
    """The log is what it says it is, for the same user and the same session."""
    held = Held()
    at = desk(call("held"), say("ok"), say("again"), tools=[held.tool()])
    run = await at.start()
    await held.began.wait()
    await at.runner.cancel_call(run.run_id, (await proposed(at, "held"))[0])
    await run.wait()
    assert (await at.ask("more")).outcome == "completed"


async def test_a_result_that_is_just_ready_is_not_lost_to_a_stop(desk: MakeDesk) -> None:
    """Whatever the moment: what is told is what the tool did."""
    for tick in range(14):
        held = Held("real")
        at = desk(call("held"), say("ok"), tools=[FunctionTool(held, name="held")])
        run = await at.start("go", SHORT)
        await held.began.wait()
        (call_id,) = await proposed(at, "held")
        held.may_end.set()
        for _ in range(tick):
            await asyncio.sleep(0)
        settled = await at.runner.cancel_call(run.run_id, call_id)
        assert settled is not None
        assert (settled.status == "succeeded") == (held.effects == 1)
        await run.wait()
