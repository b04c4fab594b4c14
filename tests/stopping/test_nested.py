"""Stops and what is nested: tools of agents that work as tools (F45, F154)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.runner.desk import QUICK, Desk, Held, HeldThread, as_text, states

from heaveto import AgentTool, LlmAgent, RunConfig
from heaveto.testing import ScriptedModel, call, say, settle

MakeDesk = Callable[..., Desk]


async def test_a_time_limit_does_not_lose_a_nested_thread(desk: MakeDesk) -> None:
    """An agent as a tool runs into its limit while a tool of its agent blocks a thread: that one is named, and its
    result recorded when it comes; the limit is not its own (F45)."""
    thread = HeldThread("written after all")
    child_model = ScriptedModel(call("thread"), say("never"))
    child = AgentTool(LlmAgent("child", child_model, tools=[thread.tool()]))
    child.timeout_seconds = 0.05
    at = desk(call("child", request="x"), say("I go on."), say("ok"), tools=[child])
    run = await at.start()
    await thread.began.wait()
    assert (await run.wait()).outcome == "completed"
    assert await at.settlements("child") == [("cancelled", "timeout", False)]
    assert states(run.report)["thread"] == "still_running"  # type: ignore[arg-type]
    thread.may_end.set()
    late = await at.until_settled("thread", late=True)
    assert (late.status, late.response) == ("succeeded", {"result": "written after all"})
    assert thread.effects == 1
    assert (await at.ask("next")).outcome == "completed"


async def test_a_stop_names_a_nested_thread(desk: MakeDesk) -> None:
    """Stopped with its run, the agent's call is over, and the report names the thread that works on (F45)."""
    thread = HeldThread("late")
    child = LlmAgent("child", ScriptedModel(call("thread"), say("never")), tools=[thread.tool()])
    at = desk(call("child", request="x"), say("ok"), tools=[AgentTool(child)])
    run = await at.start("go", QUICK)
    await thread.began.wait()
    assert states(await run.cancel()) == {"child": "stopped", "thread": "still_running"}
    thread.may_end.set()
    assert (await at.until_settled("thread", late=True)).status == "succeeded"


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        ("fails", "failed", "ValueError: no such file"),
        ("is stopped alone", "cancelled", "because the user stopped it"),
        ("is stopped with its run", "cancelled", "because the user stopped the run"),
    ],
)
async def test_three_ends_of_a_child_are_told_apart(desk: MakeDesk, end: str, status: str, words: str) -> None:
    """A child that failed, one that was stopped and one whose parent was stopped are three facts; only in the first two
    does the parent go on (F154)."""

    async def broken(_ctx: object) -> None:
        raise ValueError("no such file")

    held = Held()
    child = LlmAgent("child", ScriptedModel(call("held"), say("never")), tools=[held.tool()])
    if end == "fails":
        child = LlmAgent("child", ScriptedModel(say("never")), before_agent_callback=broken)
    at = desk(call("child", request="x"), say("I go on."), tools=[AgentTool(child)])
    run = await at.start("go", RunConfig(cancel_grace_seconds=20))
    if end != "fails":
        await held.began.wait()
    if end == "is stopped alone":
        await at.runner.cancel_call(run.run_id, await at.call_id("child"), by="ann")
    elif end == "is stopped with its run":
        await run.cancel()
        assert held.left.is_set()
        await at.ask("and?")
    assert (await run.wait()).outcome == ("cancelled" if end == "is stopped with its run" else "completed")
    assert (await at.settled())["child"].status == status
    assert words in as_text(at.model.requests[-1].turns)


async def test_a_child_that_is_stopped_alone_leaves_nothing_at_work(desk: MakeDesk) -> None:
    """The tools of the child end with it, and each is told as stopped (F154, P3)."""
    held, other = Held(), Held()
    child = LlmAgent("child", ScriptedModel((call("held"), call("other")), say("never")), tools=[
        held.tool(), other.tool("other"),
    ])  # fmt: skip
    at = desk(call("child", request="x"), say("I go on."), tools=[AgentTool(child)])
    run = await at.start("go", RunConfig(cancel_grace_seconds=20))
    await asyncio.gather(held.began.wait(), other.began.wait())
    await at.runner.cancel_call(run.run_id, await at.call_id("child"), by="ann")
    assert (await run.wait()).outcome == "completed"
    await settle()
    assert held.left.is_set() and other.left.is_set()
    assert {name: record.status for name, record in (await at.settled()).items()} == {
        "child": "cancelled", "held": "cancelled", "other": "cancelled",
    }  # fmt: skip
    assert (await at.settled())["held"].cause == "user"
