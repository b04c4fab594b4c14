"""Tool calls: what runs when, what the model is told, and what a tool may set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.runner.desk import Desk, Held, HeldThread, kinds

from heaveto import LlmAgent, RunConfig, ToolContext, ToolFatalError
from heaveto.errors import NotSerializableError
from heaveto.events.records import CallSettled, CallStarted
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, finish, raw_call, say, settle
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]


def mode(name: Any) -> RunConfig:
    return RunConfig(cancel_grace_seconds=0.02, tool_execution_mode=name)


@pytest.mark.parametrize(
    ("name", "coroutines", "threads"),
    [
        ("NONE", [True, True], [True, False]),
        ("PARALLEL", [True, True], [True, False]),
        ("PARALLEL_SUBSCRIBE", [True, True], [True, True]),
        ("SEQUENTIAL", [True, False], [False, False]),
    ],
)
async def test_the_modes_overlap_as_they_say(desk: MakeDesk, name: str, coroutines: Any, threads: Any) -> None:
    """What of two coroutines and two blocking functions begins at once, per execution mode."""
    a, b, c, d = Held(), Held(), HeldThread(), HeldThread()
    at = desk(
        (call("a"), call("b"), call("c"), call("d")), say("ok"),
        tools=[a.tool("a"), b.tool("b"), c.tool("c"), d.tool("d")],
    )  # fmt: skip
    run = await at.start("go", mode(name))
    await a.began.wait()
    if threads[0]:
        await c.began.wait()
    if threads[1]:
        await d.began.wait()
    await settle()
    started = {record.name for record in await at.log() if isinstance(record, CallStarted)}
    assert [name in started for name in "abcd"] == [*coroutines, *threads]
    for tool in (a, b, c, d):
        tool.may_end.set()
    assert (await run.wait()).outcome == "completed"
    assert [tool.effects for tool in (a, b, c, d)] == [1, 1, 1, 1]


async def test_a_call_starts_on_record_only_when_its_turn_comes(desk: MakeDesk) -> None:
    """A blocking function that waits for its turn is not recorded as started (P5)."""
    first, second = HeldThread(), HeldThread()
    at = desk((call("first"), call("second")), say("ok"), tools=[first.tool("first"), second.tool("second")])
    run = await at.start()
    await first.began.wait()
    assert [r.name for r in await at.log() if isinstance(r, CallStarted)] == ["first"]
    first.may_end.set()
    second.may_end.set()
    await run.wait()


async def test_a_fatal_error_starts_no_further_call(desk: MakeDesk) -> None:
    """ToolFatalError fails the run; calls behind it are not started, and say so."""
    fatal, later = Held(error=ToolFatalError("disk gone")), Held()
    fatal.may_end.set()
    at = desk((call("fatal"), call("later")), tools=[fatal.tool("fatal"), later.tool("later")])
    ended = await at.ask("go", mode("SEQUENTIAL"))
    assert ended.error is not None
    assert (ended.outcome, ended.error.type) == ("failed", "ToolFatalError")
    assert later.calls == 0
    settled = await at.settled()
    assert (settled["fatal"].status, settled["later"].status) == ("failed", "not_started")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (call("nothing"), "There is no tool 'nothing'. The tools are: held."),
        (call("held", amount="x"), "amount"),
        (raw_call("held", "[1, 2]"), "not a JSON object"),
        ((raw_call("held", '{"a": '), finish("length", cut=True)), "cut off"),
    ],
)
async def test_what_cannot_be_called_is_explained(desk: MakeDesk, step: Any, words: str) -> None:
    """Unknown tool, wrong arguments, broken arguments: an error result for the model, no execution, the run goes on."""
    held = Held()
    at = desk(step, say("I see."), tools=[held.tool()])
    assert (await at.ask()).outcome == "completed"
    assert held.calls == 0
    assert words in at.told()
    assert "CallStarted" not in kinds(await at.log())


async def test_a_result_that_cannot_be_recorded_is_a_failed_call(desk: MakeDesk) -> None:
    """A tool that returns what is not JSON ran; the model is told that, and the run goes on."""
    at = desk(call("t"), say("ok"), tools=[Held(object()).tool("t")])
    at.agent.tools[0].func.may_end.set()  # type: ignore[attr-defined]
    assert (await at.ask()).outcome == "completed"
    assert (await at.settled())["t"].status == "failed"
    assert "The tool ran" in at.told()


async def test_state_that_cannot_be_recorded_is_refused_where_it_is_set(desk: MakeDesk, store: Store) -> None:
    """Setting a state value that is not JSON raises there; nothing else of the run is lost."""

    async def setter(ctx: ToolContext) -> str:
        with pytest.raises(NotSerializableError):
            ctx.state["bad"] = object()
        numbers = [1]
        ctx.state["numbers"] = numbers
        numbers.append(2)
        return "set"

    at = desk(call("setter"), say("ok"), store=store, tools=[FunctionTool(setter)])
    assert (await at.ask()).outcome == "completed"
    assert await at.state() == {"numbers": [1]}


async def test_a_tool_sets_state_with_its_result(desk: MakeDesk, store: Store) -> None:
    """State that a tool sets is recorded in one append with its result; `temp:` values never are."""

    async def setter(ctx: ToolContext) -> str:
        ctx.state["user:name"] = "Ann"
        ctx.state["cart"] = [1]
        ctx.state["temp:secret"] = object()
        return "set"

    at = desk(call("setter"), say("ok"), store=store, tools=[FunctionTool(setter)])
    await at.ask()
    assert await at.state() == {"user:name": "Ann", "cart": [1]}
    order = kinds(await at.log())
    assert order[order.index("CallSettled") + 1] == "StateChanged"


async def test_end_turn_ends_the_turn(desk: MakeDesk) -> None:
    """A tool that sets end_turn ends the agent's turn without another model call (ADK: skip_summarization)."""

    async def show(ctx: ToolContext) -> str:
        ctx.end_turn = True
        return "shown"

    at = desk(call("show"), tools=[FunctionTool(show)])
    assert (await at.ask()).outcome == "completed"
    assert at.model.calls == 1


async def test_a_tool_may_hand_over(desk: MakeDesk) -> None:
    """A tool that names an agent hands the run over to it, now and for the next input."""

    async def route(ctx: ToolContext) -> None:
        ctx.transfer_to_agent = "billing"

    billing = LlmAgent("billing", ScriptedModel(say("Billing here."), say("Still billing.")))
    at = desk(call("route"), tools=[FunctionTool(route)], sub_agents=[billing])
    assert await (await at.start()).result() == "Billing here."
    assert await (await at.start("and?")).result() == "Still billing."


async def test_progress_is_durable(desk: MakeDesk, store: Store) -> None:
    """A progress value is in the log when `progress` returns, from coroutines and threads; a straggler's is refused."""

    async def coroutine(ctx: ToolContext) -> None:
        await ctx.progress({"percent": 50})

    def thread(ctx: ToolContext) -> None:
        ctx.progress_from_thread({"percent": 60})

    at = desk((call("coroutine"), call("thread")), say("ok"), store=store,
              tools=[FunctionTool(coroutine), FunctionTool(thread)])  # fmt: skip
    await at.ask()
    values = [record.value for record in await at.log() if type(record).__name__ == "CallProgress"]
    assert sorted(value["percent"] for value in values) == [50, 60]  # type: ignore[attr-defined]


async def test_the_idempotency_key_is_stable_and_unique(desk: MakeDesk) -> None:
    """Each call has its own key, the same in the tool's context and in the log (P5)."""
    keys: list[str] = []

    async def pay(ctx: ToolContext) -> None:
        keys.append(ctx.idempotency_key)

    at = desk((call("pay"), call("pay")), say("ok"), tools=[FunctionTool(pay)])
    await at.ask()
    assert len(set(keys)) == 2
    assert sorted(keys) == sorted(r.idempotency_key for r in await at.log() if isinstance(r, CallStarted))


async def test_a_tool_that_exits_the_process_fails_alone(desk: MakeDesk) -> None:
    """sys.exit in a tool, blocking or not, is a failed call and not the end of the service."""

    async def leave() -> None:
        raise SystemExit(1)

    def leave_thread() -> None:
        raise SystemExit(1)

    at = desk((call("leave"), call("leave_thread")), say("ok"), tools=[leave, leave_thread])
    assert (await at.ask()).outcome == "completed"
    assert {record.status for record in await at.log() if isinstance(record, CallSettled)} == {"failed"}
