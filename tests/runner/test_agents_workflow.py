"""Agents over agents: checkpoints, hand-overs, agents as tools, instructions, and bad input."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.runner.desk import SESSION, USER, Desk, Held, kinds, states

from heaveto import (
    AgentTool,
    App,
    Content,
    FunctionCall,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    RunConfig,
    Runner,
    SequentialAgent,
    ToolContext,
)
from heaveto.agents.base import BaseAgent
from heaveto.agents.context import AgentContext
from heaveto.errors import (
    CallInMessageError,
    ConfigError,
    DuplicateNameError,
    EmptyMessageError,
    InputError,
    NotSerializableError,
    UnknownSessionError,
)
from heaveto.events.records import AgentCheckpoint, CallSettled, Message, Record, Transferred
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, hang, say
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]


def speaker(name: str, *texts: str, **options: Any) -> LlmAgent:
    return LlmAgent(name, ScriptedModel(*(say(text) for text in texts or (f"{name} speaks",))), **options)


def line(record: Record) -> str | None:
    match record:
        case AgentCheckpoint(end_of_agent=True):
            return f"{record.agent} EOA"
        case AgentCheckpoint():
            return f"{record.agent} ST{record.agent_state}"
        case Message():
            return f"{record.author} text" + (f" ({record.branch})" if record.branch else "")
        case Transferred():
            return f"{record.author} -> {record.agent}"
        case _:
            return None


async def sequence(at: Desk) -> list[str]:
    return [text for record in await at.log() if (text := line(record)) is not None]


async def test_sequential_checkpoints(desk: MakeDesk, store: Store) -> None:
    """Golden sequence A1, as far as it needs no pause."""
    at = desk(agent=SequentialAgent("seq", sub_agents=[speaker("a"), speaker("b")]), store=store)
    await at.ask()
    assert await sequence(at) == [
        "seq ST{'current_sub_agent': 'a'}", "a text", "a EOA",
        "seq ST{'current_sub_agent': 'b'}", "b text", "b EOA", "seq EOA",
    ]  # fmt: skip


async def test_loop_checkpoints(desk: MakeDesk) -> None:
    """Golden sequence A2."""
    at = desk(agent=LoopAgent("loop", sub_agents=[speaker("w", "1", "2")], max_iterations=2))
    await at.ask()
    assert await sequence(at) == [
        "loop ST{'current_sub_agent': 'w', 'times_looped': 0}", "w text", "w EOA",
        "loop ST{'current_sub_agent': 'w', 'times_looped': 1}", "w text", "w EOA", "loop EOA",
    ]  # fmt: skip


async def test_parallel_checkpoints(desk: MakeDesk) -> None:
    """Golden sequence A4, as far as it needs no pause: a checkpoint, branches of their own, then the end."""
    at = desk(agent=ParallelAgent("par", sub_agents=[speaker("p1"), speaker("p2")]))
    await at.ask()
    lines = await sequence(at)
    assert (lines[0], lines[-1]) == ("par ST{}", "par EOA")
    assert sorted(lines[1:-1]) == ["p1 EOA", "p1 text (par.p1)", "p2 EOA", "p2 text (par.p2)"]


async def test_transfer_sequence(desk: MakeDesk) -> None:
    """Golden sequence A8: the hand-over is explicit, and the root ends behind the agent that took over."""
    sub = speaker("sub")
    at = desk(call("transfer_to_agent", agent_name="sub"), sub_agents=[sub])
    await at.ask()
    assert await sequence(at) == ["root text", "root -> root/sub", "sub text", "sub EOA", "root EOA"]


async def test_a_loop_ends_when_a_tool_escalates(desk: MakeDesk) -> None:
    """escalate, by a tool or by an agent, ends the enclosing loop after that agent."""

    async def enough(ctx: ToolContext) -> None:
        ctx.escalate = True

    model = ScriptedModel(say("draft"), call("enough"), say("bye"))
    later = speaker("later", "x", "never")
    at = desk(agent=LoopAgent("loop", sub_agents=[LlmAgent("w", model, tools=[FunctionTool(enough)]), later]))
    assert (await at.ask()).outcome == "completed"
    assert later.model.calls == 1  # type: ignore[attr-defined]


async def test_a_failing_branch_stops_the_others(desk: MakeDesk) -> None:
    """One branch of a parallel agent fails: the others' tools are stopped before the run ends as failed (F52)."""

    class Failing(BaseAgent):
        async def run(self, ctx: AgentContext) -> None:
            await held.began.wait()
            raise ValueError("bug")

    held = Held()
    worker = LlmAgent("worker", ScriptedModel(call("held")), tools=[held.tool()])
    at = desk(agent=ParallelAgent("par", sub_agents=[worker, Failing("failing")]))
    ended = await at.ask()
    assert ended.error is not None and ended.error.type == "ValueError"
    assert held.left.is_set()
    settled = (await at.settled())["held"]
    assert (settled.status, settled.cause) == ("cancelled", "error")


async def test_an_agent_as_a_tool_sees_its_task_only(desk: MakeDesk) -> None:
    """An agent tool works in an isolated branch of the same run and returns its last text."""
    child = speaker("child", "forty-two")
    at = desk(call("child", request="compute"), say("It is 42."), tools=[AgentTool(child)])
    assert await (await at.start("a secret question")).result() == "It is 42."
    assert (await at.settled())["child"].response == {"result": "forty-two"}
    asked = child.model.requests[0].turns  # type: ignore[attr-defined]
    assert len(asked) == 1
    assert "secret" not in str(asked)
    assert len(await at.endings()) == 1


@pytest.mark.parametrize("error", [ValueError("bug"), asyncio.CancelledError()])
async def test_a_child_that_fails_or_cancels_itself_is_a_result(desk: MakeDesk, error: BaseException) -> None:
    """A child's own end, by error or by cancelling itself, is told to the parent, which goes on (F154)."""

    class Child(BaseAgent):
        async def run(self, ctx: AgentContext) -> None:
            raise error

    at = desk(call("child", request="x"), say("I go on."), tools=[AgentTool(Child("child"))])
    assert (await at.ask()).outcome == "completed"
    assert (await at.settled())["child"].status == "failed"


async def test_a_stop_reaches_the_child(desk: MakeDesk) -> None:
    """The parent cancelled: the child's stream is closed, its half answer kept, its call cancelled (F154)."""
    child_model = ScriptedModel((say("Half"), hang()))
    at = desk(call("child", request="x"), tools=[AgentTool(LlmAgent("child", child_model))])
    run = await at.start()
    async for item in run.stream():
        if type(item).__name__ == "Delta" and getattr(item, "text", "") == "Half":
            break
    report = await run.cancel()
    assert states(report)["child"] == "stopped"
    assert child_model.active == 0
    assert [(m.author, m.interrupted) for m in await at.messages() if m.interrupted] == [("child", "user")]
    assert any(isinstance(r, CallSettled) and r.status == "cancelled" for r in await at.log())


async def test_output_key_and_placeholders(desk: MakeDesk) -> None:
    """An agent's final text goes to its output_key, and from there into the next one's instruction."""
    second = LlmAgent(
        "second", ScriptedModel(say("ok")), instruction='Improve: {draft} {missing?} {"json": 1} {user:name?}'
    )
    at = desk(agent=SequentialAgent("seq", sub_agents=[speaker("first", "a draft", output_key="draft"), second]))
    await at.ask()
    assert second.model.requests[0].instruction == 'Improve: a draft  {"json": 1} '  # type: ignore[attr-defined]
    assert (await at.state())["draft"] == "a draft"


async def test_a_missing_placeholder_fails_the_run(desk: MakeDesk) -> None:
    """A placeholder without value and without `?` is a typed error that names it."""
    ended = await desk(say("never"), instruction="Hi {name}").ask()
    assert ended.error is not None and ended.error.type == "ConfigError"
    assert "{name}" in ended.error.message


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"new_message": ""}, EmptyMessageError),
        ({"new_message": "  \n"}, EmptyMessageError),
        ({"new_message": Content(())}, EmptyMessageError),
        ({"new_message": Content.of(FunctionCall(call_id="1", name="x"))}, CallInMessageError),
        ({"user_id": ""}, InputError),
        ({"session_id": ""}, InputError),
        ({"state_delta": {"x": object()}}, NotSerializableError),
        ({"state_delta": {"x": float("nan")}}, NotSerializableError),
    ],
)
async def test_bad_input_is_refused_and_leaves_nothing(desk: MakeDesk, store: Store, bad: Any, error: Any) -> None:
    """An unacceptable message is a typed error at the start; nothing is written and no model is asked."""
    at = desk(say("never"), store=store)
    with pytest.raises(error):
        await at.runner.start(**{"user_id": USER, "session_id": SESSION, "new_message": "x", **bad})
    assert await at.runner.list_sessions() == []
    assert at.model.calls == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"max_llm_calls": 0}, {"max_tokens": -1}, {"max_cost": float("nan")}, {"max_seconds": 0},
        {"cancel_grace_seconds": -1}, {"model_retries": -1}, {"busy_policy": "wait"}, {"on_limit": "explode"},
        {"tool_execution_mode": "parallel"}, {"deadline": "tomorrow"}, {"max_llm_calls": True},
    ],
)  # fmt: skip
def test_nonsense_settings_are_refused(bad: Any) -> None:
    """RunConfig names the setting that is not acceptable, when it is made."""
    with pytest.raises(InputError, match=next(iter(bad))):
        RunConfig(**bad)


def test_trees_that_are_put_together_wrongly_are_refused() -> None:
    """Duplicate agents or tools, an agent with two parents, a bad name: typed errors, before anything runs."""

    def tool() -> None: ...

    with pytest.raises(DuplicateNameError):
        App("app", SequentialAgent("a", sub_agents=[speaker("b"), SequentialAgent("c", sub_agents=[speaker("b")])]))
    with pytest.raises(DuplicateNameError):
        App("app", LlmAgent("a", ScriptedModel(), tools=[tool, FunctionTool(tool)]))
    child = speaker("child")
    SequentialAgent("one", sub_agents=[child])
    with pytest.raises(ConfigError):
        SequentialAgent("two", sub_agents=[child])
    with pytest.raises(ConfigError):
        speaker("user")
    with pytest.raises(ConfigError):
        Runner()
    with pytest.raises(ConfigError):
        LoopAgent("loop", max_iterations=0)


async def test_an_unknown_session_is_an_error_if_none_are_created(store: Store) -> None:
    """create_sessions=False: a message to a session that is not there is refused, and creates none."""
    runner = Runner(speaker("root"), store=store, create_sessions=False)
    with pytest.raises(UnknownSessionError):
        await runner.start(user_id=USER, session_id=SESSION, new_message="hi")
    assert await runner.list_sessions() == []
    await runner.create_session(user_id=USER, session_id=SESSION)
    run = await runner.start(user_id=USER, session_id=SESSION, new_message="hi")
    assert (await run.wait()).outcome == "completed"
    assert kinds(await runner.records(user_id=USER, session_id=SESSION))[0] == "RunStarted"
    await runner.aclose()
