"""Calls of one step together: what the failure of one means for the others, and how many run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.runner.desk import Desk, Held, HeldThread, states

from heaveto import AgentTool, LlmAgent, RunConfig, ToolContext
from heaveto.errors import InDoubtError, ToolFatalError
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, raw_call, say, settle
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]
SHORT = RunConfig(cancel_grace_seconds=0.02)
FAIL_ALL = RunConfig(cancel_grace_seconds=0.02, on_call_error="fail_all")
FAIL_ALL_IN_ORDER = RunConfig(cancel_grace_seconds=0.02, on_call_error="fail_all", tool_execution_mode="SEQUENTIAL")


async def broken() -> str:
    """Break."""
    raise ValueError("broken")


async def statuses(at: Desk) -> dict[str, tuple[str, str | None]]:
    return {name: (one.status, one.cause) for name, one in (await at.settled()).items()}


# --- failures -----------------------------------------------------------------------------------------------------


async def test_a_failure_leaves_the_others_alone(desk: MakeDesk, store: Store) -> None:
    """By default each call is its own (F52, F53)."""
    held = Held()
    at = desk((call("broken"), call("held")), say("ok"), store=store, tools=[broken, held.tool()])
    run = await at.start()
    await at.until_settled("broken")
    assert not held.left.is_set()
    held.may_end.set()
    assert (await run.wait()).outcome == "completed"
    assert await statuses(at) == {"broken": ("failed", None), "held": ("succeeded", None)}


@pytest.mark.parametrize("how", ["raises", "bad arguments", "unknown tool"])
async def test_with_fail_all_a_failure_stops_the_others(desk: MakeDesk, how: str) -> None:
    """Those that run are stopped, those that queue never begin, what has finished is kept, and the run goes on."""
    held, thread, queued, done = Held(), HeldThread(polite=True), HeldThread(), Held("kept")
    done.may_end.set()

    async def fail(ctx: ToolContext, number: int) -> str:
        if how == "raises":
            await asyncio.gather(held.began.wait(), thread.began.wait(), done.left.wait())
            await settle()
        raise ValueError("broken")

    first = {
        "raises": call("fail", number=1), "bad arguments": call("fail", number="x"), "unknown tool": call("no_such"),
    }[how]  # fmt: skip
    tools = [FunctionTool(fail), held.tool("held"), thread.tool("thread"), queued.tool("queued"), done.tool("done")]
    calls = (first, call("held"), call("thread"), call("queued"), call("done"))
    at = desk(calls, say("I see."), tools=tools)
    assert (await at.ask("go", FAIL_ALL)).outcome == "completed"
    found = await statuses(at)
    assert found.pop("no_such" if how == "unknown tool" else "fail") == ("failed", None)
    if how == "raises":
        assert found == {
            "held": ("cancelled", "sibling"), "thread": ("cancelled", "sibling"),
            "queued": ("not_started", "sibling"), "done": ("succeeded", None),
        }  # fmt: skip
    else:
        assert set(found.values()) == {("not_started", "sibling")}
    assert queued.calls == 0


async def test_with_fail_all_the_calls_after_a_failure_never_begin(desk: MakeDesk) -> None:
    """One after another: those before it are kept, those behind it are not started (F52)."""
    first, last = Held("kept"), Held()
    first.may_end.set()
    at = desk(
        (call("first"), call("broken"), call("last")), say("ok"),
        tools=[first.tool("first"), broken, last.tool("last")],
    )  # fmt: skip
    await at.ask("go", FAIL_ALL_IN_ORDER)
    assert await statuses(at) == {
        "first": ("succeeded", None), "broken": ("failed", None), "last": ("not_started", "sibling"),
    }  # fmt: skip


@pytest.mark.parametrize("how", ["time limit", "in doubt"])
async def test_with_fail_all_a_call_without_a_result_counts_as_failed(desk: MakeDesk, how: str) -> None:
    """A time limit that passed and an outcome that nobody knows are no success of the step (F52)."""
    held, slow = Held(), Held()

    async def doubtful() -> str:
        """Do."""
        await held.began.wait()
        raise InDoubtError("lost")

    first = slow.tool("first", timeout_seconds=0.01) if how == "time limit" else FunctionTool(doubtful, name="first")
    at = desk((call("first"), call("held")), say("ok"), tools=[first, held.tool()])
    assert (await at.ask("go", FAIL_ALL)).outcome == "completed"
    assert (await statuses(at))["held"] == ("cancelled", "sibling")


async def test_a_call_that_a_user_stops_is_no_failure(desk: MakeDesk) -> None:
    """With fail_all, its siblings go on (F139)."""
    first, held = Held(), Held()
    at = desk((call("first"), call("held")), say("ok"), tools=[first.tool("first"), held.tool()])
    run = await at.start("go", FAIL_ALL)
    await asyncio.gather(first.began.wait(), held.began.wait())
    await at.runner.cancel_call(run.run_id, await at.call_id("first"))
    await settle()
    held.may_end.set()
    await run.wait()
    assert await statuses(at) == {"first": ("cancelled", "user"), "held": ("succeeded", None)}


async def test_a_fatal_error_stops_all_and_keeps_what_there_is(desk: MakeDesk, store: Store) -> None:
    """The run fails; siblings are stopped, queued ones never begin, finished ones are kept (F53)."""
    held, thread, queued, done = Held(), HeldThread(polite=True), HeldThread(), Held("kept")
    done.may_end.set()

    async def fatal() -> str:
        """Fail the run."""
        await asyncio.gather(held.began.wait(), thread.began.wait())
        await at.until_settled("done")
        raise ToolFatalError("no more")

    tools = [FunctionTool(fatal), held.tool(), thread.tool(), queued.tool("queued"), done.tool("done")]
    calls = tuple(call(tool.name) for tool in tools)
    at = desk(calls, store=store, tools=tools)
    ended = await at.ask("go", SHORT)
    assert (ended.outcome, ended.error.type if ended.error else "") == ("failed", "ToolFatalError")
    assert await statuses(at) == {
        "fatal": ("failed", None), "held": ("cancelled", "error"), "thread": ("cancelled", "error"),
        "queued": ("not_started", "error"), "done": ("succeeded", None),
    }  # fmt: skip
    assert at.runner.concurrency() == []


async def test_what_cannot_be_executed_does_not_keep_the_others_from_it(desk: MakeDesk) -> None:
    """Unknown tools, arguments that are no JSON and such that do not fit are told; the rest is executed."""

    async def add(one: int, two: int) -> int:
        """Add."""
        return one + two

    calls = (call("nope"), raw_call("add", "{not json"), call("add", one="x", two=1), call("add", one=1, two=2))
    at = desk(calls, say("ok"), tools=[add])
    assert (await at.ask()).outcome == "completed"
    told = at.told()
    assert "There is no tool 'nope'" in told
    assert told.count(". The call was not executed.") == 2  # a sentence of its own
    assert "{'result': 3}" in told


async def test_a_callback_changes_the_arguments_in_place(desk: MakeDesk) -> None:
    """The tool gets them, both are recorded, and the model's own stay as they were."""
    got: list[int] = []

    def pay(euros: int) -> str:
        """Pay."""
        got.append(euros)
        return "paid"

    def limit(_tool: object, args: dict[str, Any], _ctx: object) -> None:
        args["euros"] = min(args["euros"], 100)

    at = desk(call("pay", euros=500), say("ok"), tools=[pay], before_tool_callback=limit)
    await at.ask()
    (start,) = await at.starts("pay")
    assert (got, start.args) == ([100], {"euros": 100})
    (made,) = [part for message in await at.messages() for part in message.parts if hasattr(part, "args")]
    assert made.args == {"euros": 500}


async def test_arguments_that_a_callback_spoils_are_not_executed(desk: MakeDesk) -> None:
    """What it changed is validated as the model's own are."""

    def pay(euros: int) -> str:
        """Pay."""
        raise AssertionError("it must not come to this")

    def spoil(_tool: object, args: dict[str, Any], _ctx: object) -> None:
        args["euros"] = "a lot"

    at = desk(call("pay", euros=5), say("ok"), tools=[pay], before_tool_callback=spoil)
    assert (await at.ask()).outcome == "completed"
    assert "A callback changed the arguments" in at.told()


# --- how many at a time -------------------------------------------------------------------------------------------


class Crowd:
    """Counts how many calls are inside at the same time."""

    def __init__(self) -> None:
        self.inside = self.most = self.calls = 0

    async def __call__(self) -> None:
        """Work a little."""
        self.inside += 1
        self.calls += 1
        self.most = max(self.most, self.inside)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
        finally:
            self.inside -= 1


@pytest.mark.parametrize("limit", ["tool", "user", "app"])
async def test_as_many_run_as_the_limit_allows(desk: MakeDesk, limit: str) -> None:
    """Of a tool, of a user, of the app; in the end all have run and nobody has a place."""
    crowd = Crowd()
    app = {"user": {"max_concurrent_calls_per_user": 3}, "app": {"max_concurrent_calls": 3}}.get(limit, {})
    tool = FunctionTool(crowd, name="work", max_concurrency=3 if limit == "tool" else None)
    at = desk(tuple(call("work") for _ in range(12)), say("ok"), tools=[tool], app_options=app)
    assert (await at.ask()).outcome == "completed"
    assert (crowd.most, crowd.calls) == (3, 12)
    assert at.runner.concurrency() == []


async def test_concurrency_says_who_runs_and_who_waits(desk: MakeDesk) -> None:
    """As it is at the moment, by call."""
    held = Held()
    at = desk(tuple(call("held") for _ in range(3)), say("ok"), tools=[held.tool(max_concurrency=1)])
    run = await at.start()
    await held.began.wait()
    await settle()
    (row,) = at.runner.concurrency()
    assert (row.key, row.limit, len(row.running), len(row.waiting)) == (("tool", "held"), 1, 1, 2)
    assert {ref[0] for ref in row.running} == {run.run_id}
    held.may_end.set()
    await run.wait()
    assert held.calls == 3


async def test_calls_of_an_agent_inside_a_call_do_not_wait_for_it(desk: MakeDesk) -> None:
    """One place for the whole app, and an agent as a tool whose agent has an agent as a tool: no deadlock."""
    crowd = Crowd()
    work = FunctionTool(crowd, name="work")
    inner = LlmAgent("inner", ScriptedModel((call("work"), call("work")), say("done")), tools=[work])
    middle = LlmAgent("middle", ScriptedModel(call("inner", request="x"), say("done")), tools=[AgentTool(inner)])
    at = desk(
        call("middle", request="x"), say("ok"), tools=[AgentTool(middle)], app_options={"max_concurrent_calls": 1}
    )
    async with asyncio.timeout(10):
        assert (await at.ask()).outcome == "completed"
    assert crowd.calls == 2
    assert at.runner.concurrency() == []


async def test_a_stop_while_calls_wait_for_a_place_starts_none_of_them(desk: MakeDesk, store: Store) -> None:
    """They are settled as not started, and all places are free (F164)."""
    held = Held()
    at = desk(tuple(call("held") for _ in range(3)), store=store, tools=[held.tool(max_concurrency=1)])
    run = await at.start("go", SHORT)
    await held.began.wait()
    report = await run.cancel()
    assert sorted(operation.state for operation in report.operations) == ["not_started", "not_started", "stopped"]
    assert held.calls == 1
    assert at.runner.concurrency() == []


WAYS_OUT = ["succeeds", "raises", "fatal", "time limit", "left behind", "detached", "stopped", "in doubt"]


@pytest.mark.parametrize("path", WAYS_OUT)
async def test_a_place_is_given_back_on_every_way_out(desk: MakeDesk, path: str) -> None:
    """Whatever becomes of the call, the next one goes."""
    thread, last = HeldThread(), Held()
    last.may_end.set()
    began = asyncio.Event()

    async def work(ctx: ToolContext) -> str:
        began.set()
        match path:
            case "raises":
                raise ValueError("broken")
            case "fatal":
                raise ToolFatalError("no more")
            case "in doubt":
                raise InDoubtError("lost")
            case "time limit" | "stopped":
                await asyncio.Event().wait()
            case "detached":
                await ctx.detach()
                await asyncio.Event().wait()
            case _:
                pass
        return "done"

    seconds = 0.01 if path in ("time limit", "left behind") else None
    limits: dict[str, Any] = {"max_concurrency": 1, "timeout_seconds": seconds}
    tool = thread.tool("work", **limits) if path == "left behind" else FunctionTool(work, **limits)
    at = desk(
        (call("work"), call("last")), say("ok"), say("more"), tools=[tool, last.tool("last")],
        app_options={"max_concurrent_calls": 1},
    )  # fmt: skip
    run = await at.start("go", SHORT)
    if path == "stopped":
        await began.wait()
        await at.runner.cancel_call(run.run_id, await at.call_id("work"))
    ended = await run.wait()
    assert ended.outcome == ("failed" if path == "fatal" else "completed")
    assert last.calls == (0 if path == "fatal" else 1)
    assert at.runner.concurrency() == []
    if path == "left behind":
        assert ended.report is not None
        assert states(ended.report)["work"] == "still_running"


async def test_no_place_is_lost_in_many_stops(desk: MakeDesk) -> None:
    """Stopped at whatever moment, the next run has all places."""
    for tick in range(20):
        held = Held()
        model = ScriptedModel(tuple(call("held") for _ in range(4)), say("ok"), strict=False)
        at = desk(model=model, tools=[held.tool(max_concurrency=2)], app_options={"max_concurrent_calls": 3})
        run = await at.start("go", SHORT)
        for _ in range(tick * 2):
            await asyncio.sleep(0)
        await run.cancel()
        assert at.runner.concurrency() == []
