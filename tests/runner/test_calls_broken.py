"""What broke the promises of calls once, or nearly: hostile values, agents inside calls, races that nobody wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.runner.desk import SESSION, USER, Desk, Held, as_text

from heaveto import AgentTool, LlmAgent, RunConfig, ToolContext
from heaveto.core.request import ModelRequest
from heaveto.errors import DetachError
from heaveto.events.records import CallSettled, CallStarted, Paused
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, gate, say
from heaveto.testing.script import Answer
from heaveto.tools.function import FunctionTool
from heaveto.tools.retry import Retry

MakeDesk = Callable[..., Desk]


# --- values that are not what they seem ---------------------------------------------------------------------------


def no_class(_: object) -> Any:
    raise LookupError("no class")


UnlikeAny = type("UnlikeAny", (), {"__class__": property(no_class)})
"""Nobody may even ask what it is."""


class Unspeakable:
    def __repr__(self) -> str:
        raise LookupError("no words")


@pytest.mark.parametrize(
    "made", [UnlikeAny, lambda: {Unspeakable(): 1}, lambda: [UnlikeAny()]], ids=["class", "key", "inside"]
)
async def test_a_result_that_does_not_let_itself_be_looked_at_fails_its_call_only(
    desk: MakeDesk, made: Callable[[], Any]
) -> None:
    """Whatever its own code raises: the tool ran, so much is said, and the run goes on (P2)."""

    async def give() -> Any:
        """Give."""
        return made()

    at = desk((call("give"), call("give")), say("I see."), tools=[give])
    assert (await at.ask()).outcome == "completed"
    assert [status for status, _, _ in await at.settlements("give")] == ["failed", "failed"]
    assert "The tool ran, but its result cannot be recorded" in at.told()


async def test_what_is_only_as_good_as_true_ends_the_turn_and_loses_no_result(desk: MakeDesk, store: Store) -> None:
    """``ctx.end_turn = 1`` is no reason for the log to refuse what the tool has done (P4)."""

    async def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.end_turn, ctx.escalate = 1, "yes"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
        return "done"

    at = desk(call("work"), store=store, tools=[work])
    assert (await at.ask()).outcome == "completed"
    settled = (await at.settled())["work"]
    assert (settled.status, settled.end_turn, settled.escalate) == ("succeeded", True, True)


@pytest.mark.parametrize("value", [float("nan"), b"bytes", (1, 2), {1: 2}], ids=["nan", "bytes", "tuple", "key"])
async def test_arguments_of_a_callback_that_no_log_can_hold_are_refused(
    desk: MakeDesk, store: Store, value: Any
) -> None:
    """They would fit the function. The call is not executed, and says so; its siblings are."""

    async def keep(data: Any) -> Any:
        """Keep."""
        return data

    async def swap(tool: object, args: dict[str, Any], ctx: ToolContext) -> None:
        if args["data"] == "swap":
            args["data"] = value

    at = desk(
        (call("keep", data="swap"), call("keep", data="mine")), say("I see."), store=store, tools=[keep],
        before_tool_callback=swap,
    )  # fmt: skip
    assert (await at.ask()).outcome == "completed"
    assert [status for status, _, _ in await at.settlements("keep")] == ["failed", "succeeded"]
    assert len(await at.starts("keep")) == 1
    assert "A callback changed the arguments, and they do not fit" in at.told()


# --- questions ----------------------------------------------------------------------------------------------------


async def test_a_question_stays_open_where_its_call_goes_into_the_background(desk: MakeDesk, store: Store) -> None:
    """It was asked before: it is listed still, also behind the run's end, and its answer reaches the call (P8)."""

    async def book(ctx: ToolContext) -> Any:
        """Book."""
        return (await ctx.ask("Window or aisle?")).value

    at = desk(call("book"), say("I wait."), say("Booked."), store=store, tools=[book])
    run = await at.start()
    await at.until(lambda log: any(isinstance(record, Paused) for record in log))
    call_id = await at.call_id("book")
    await at.runner.detach(run.run_id, call_id)
    assert (await run.wait()).outcome == "completed"
    questions = await at.runner.questions(user_id=USER, session_id=SESSION)
    assert [question.call_id for question in questions] == [call_id]
    await at.runner.answer(run.run_id, call_id, "aisle")
    assert (await at.until_settled("book", late=True)).response == {"result": "aisle"}


# --- agents at work in a call -------------------------------------------------------------------------------------


def worker(tool: Any, argument: str = "x") -> LlmAgent:
    """An agent that calls its tool with its task, and then says what came of it. Its model may be asked by several."""

    def answer(request: ModelRequest) -> Answer:
        text = as_text(request.turns)
        task = text.partition("user: ")[2].partition("\n")[0]
        return say(f"{task}: {text.count('tool: ')}") if "tool: " in text else call("work", **{argument: task})

    return LlmAgent("worker", ScriptedModel(*[answer] * 8), tools=[tool])


async def test_agents_that_work_in_one_call_at_the_same_time_do_not_meet(desk: MakeDesk) -> None:
    """Each sees its own task and its own calls, and answers for itself; no call is executed twice (P5)."""
    both, begun = asyncio.Event(), list[str]()

    async def work(x: str) -> str:
        """Work."""
        begun.append(x)
        if len(begun) == 2:
            both.set()
        await both.wait()
        return x

    agent = worker(work)

    async def share(ctx: ToolContext) -> Any:
        """Share."""
        return await asyncio.gather(ctx.run_agent(agent, "one"), ctx.run_agent(agent, "two"))

    at = desk(call("share"), say("Done."), tools=[share])
    assert (await at.ask()).outcome == "completed"
    settled = await at.settled()
    assert settled["share"].response == {"result": ["one: 1", "two: 1"]}
    assert sorted(begun) == ["one", "two"]
    assert await at.settlements("work") == [("succeeded", None, False)] * 2


async def test_an_agent_sees_nothing_of_the_one_before_it_in_the_same_call(desk: MakeDesk) -> None:
    """Its branch is its own, and so is the text that it answers with."""
    agent = LlmAgent("twice", ScriptedModel(say("First."), ""))

    async def share(ctx: ToolContext) -> Any:
        """Share."""
        return [await ctx.run_agent(agent, "one"), await ctx.run_agent(agent, "two")]

    at = desk(call("share"), say("Done."), tools=[share])
    assert (await at.ask()).outcome == "completed"
    assert (await at.settled())["share"].response == {"result": ["First.", ""]}
    model = agent.model
    assert isinstance(model, ScriptedModel)
    assert [as_text(request.turns).strip() for request in model.requests] == ["user: one", "user: two"]


@pytest.mark.parametrize("replay", ["never", "safe"])
async def test_a_further_attempt_leaves_alone_what_an_agent_of_the_one_before_still_has_at_work(
    desk: MakeDesk, replay: Any
) -> None:
    """The agent's call goes on behind the limit. It is neither executed once more nor said to have crashed (P2, P5)."""
    held = Held("late", swallow=100)
    agent = LlmAgent("first", ScriptedModel(call("held"), say("Without it.")), tools=[held.tool(replay=replay)])

    async def job(ctx: ToolContext) -> Any:
        """Work."""
        return await ctx.run_agent(agent, "work")

    retried = FunctionTool(job, replay="safe", timeout_seconds=0.05, retry=Retry(2, backoff_seconds=0))
    at = desk(call("job"), say("Done."), tools=[retried])
    ended = await at.ask(config=RunConfig(cancel_grace_seconds=0.2))
    held.may_end.set()
    await at.until(lambda log: any(isinstance(record, CallSettled) and record.name == "held" for record in log))
    assert ended.outcome == "completed"
    assert held.calls == 1
    assert "crash" not in {cause for _, cause, _ in await at.settlements("held")}


async def test_a_call_whose_agent_has_said_nothing_yet_stays_in_its_run(desk: MakeDesk) -> None:
    """The agent would end with the run; it has its task already. When it is done, the call may be moved (F138)."""
    asked, done, go_on = gate(), asyncio.Event(), asyncio.Event()
    agent = LlmAgent("child", ScriptedModel((asked, say("I say."))))

    async def job(ctx: ToolContext) -> Any:
        """Work."""
        said = await ctx.run_agent(agent, "work")
        done.set()
        await go_on.wait()
        return said

    at = desk(call("job"), say("It works."), say("It is done."), tools=[job])
    run = await at.start()
    await asked.reached()
    call_id = await at.call_id("job")
    with pytest.raises(DetachError):
        await at.runner.detach(run.run_id, call_id)
    asked.open()
    await done.wait()
    await at.runner.detach(run.run_id, call_id)
    assert (await run.wait()).outcome == "completed"
    go_on.set()
    assert (await at.until_settled("job", late=True)).response == {"result": "I say."}


def in_background(agent: LlmAgent) -> AgentTool:
    return AgentTool(agent, background=True)


@pytest.mark.parametrize("alone", [False, True], ids=["run", "call"])
@pytest.mark.parametrize("steps", range(0, 24, 2))
async def test_a_background_agent_that_just_begins_does_not_outlive_its_stop(
    desk: MakeDesk, steps: int, alone: bool
) -> None:
    """Stopped at whatever moment between its call's start and its move into the background (P3)."""
    held = Held()
    agent = LlmAgent("child", ScriptedModel(call("held"), say("Done.")), tools=[held.tool()])
    at = desk(call("child", request="work"), say("It works."), tools=[in_background(agent)])
    run = await at.start(config=RunConfig(cancel_grace_seconds=20))
    await at.until(lambda log: any(isinstance(record, CallStarted) for record in log))
    for _ in range(steps):
        await asyncio.sleep(0)
    if alone:
        await at.runner.cancel_call(run.run_id, await at.call_id("child"))
    else:
        await run.cancel()
    for _ in range(200):
        await asyncio.sleep(0)
    assert held.left.is_set() or not held.began.is_set()
    assert (await at.settlements("child"))[-1][:2] in [("cancelled", "user"), ("not_started", "user")]


async def test_a_stop_reaches_the_background_of_a_background_agent_that_has_answered(desk: MakeDesk) -> None:
    """The child has ended and its answer is known, but what it has handed off works on, for nobody (P3)."""
    held = Held()
    inner = LlmAgent("inner", ScriptedModel(call("held"), say("Done.")), tools=[held.tool()])
    child = LlmAgent("child", ScriptedModel(call("inner", request="work"), say("Begun.")), tools=[in_background(inner)])
    script = (call("child", request="work"), say("It works."), say("Begun, it says."), say("Well."))
    at = desk(*script, tools=[in_background(child)])
    run = await at.start(config=RunConfig(cancel_grace_seconds=20))
    await at.until_settled("child", late=True)
    await held.began.wait()
    await at.runner.cancel(run.run_id, scope="everything")
    for _ in range(200):
        await asyncio.sleep(0)
    assert held.left.is_set()
