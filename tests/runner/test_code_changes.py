"""Runs that were begun by other code: what has been renamed, removed or changed since, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import Desk, kinds
from tests.runner.test_waiting_confirmations import gated
from tests.runner.waiting import (
    GOES_ON,
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
    App,
    CallStarted,
    FunctionTool,
    LlmAgent,
    LoopAgent,
    MemoryStore,
    RequestInputTool,
    RunEnded,
    SequentialAgent,
)  # fmt: skip
from heaveto.agents.base import BaseAgent
from heaveto.errors import AgentTreeChangedError, AnswerInvalidError, ConfigError, RunFailedError
from heaveto.events.records import RunStarted
from heaveto.stores.memory import MemoryData
from heaveto.testing import CrashingStore, ScriptedModel, call, say

MEDIA = pytest.mark.parametrize("medium", ["memory", "sqlite"])
CLOSE = {"on_tree_change": "close"}


def speaker(name: str) -> LlmAgent:
    return LlmAgent(name, ScriptedModel(say(f"{name} text")))


async def left_waiting(desk: MakeDesk, shelf: Shelf, *steps: Any, **options: Any) -> str:
    """Leave a run that waits behind, and return its id."""
    before: Desk = desk(*steps, store=shelf.store(), **options)
    run = await paused(before)
    await before.runner.aclose()
    return run.run_id


def test_the_hash_of_a_tree_tells_its_shape() -> None:
    """Agents, their kinds and places, and their tools by name; what they say and do may change."""

    def hash_of(root: BaseAgent) -> str:
        return App("x", root).tree_hash

    def root(*tools: str, instruction: str = "", sub_agents: Any = ()) -> LlmAgent:
        return LlmAgent(
            "root", ScriptedModel(), instruction=instruction, sub_agents=sub_agents,
            tools=[FunctionTool(Counted(), name=name) for name in tools],
        )  # fmt: skip

    one = hash_of(root("a", "b"))
    assert one == hash_of(root("b", "a")) == hash_of(root("a", "b", instruction="be kind"))
    others = [root("a"), root("a", "c"), root("a", "b", sub_agents=[speaker("x")]), SequentialAgent("root")]
    assert len({one, *map(hash_of, others)}) == 5


async def test_each_attempt_records_the_tree_that_it_ran_on(desk: MakeDesk, tmp_path: Path) -> None:
    """A change that does no harm is visible in the log, and holds nothing up."""
    shelf = Shelf("memory", tmp_path)
    await left_waiting(desk, shelf, call("pay"), tools=[gated(Counted())])
    at = desk(say("ok"), store=shelf.store(), tools=[gated(Counted()), gated(Counted(), "refund")])
    await reply(at, response((await question(at)).call_id, confirmed=True))
    first, second = of(await at.log(), RunStarted)
    assert first.tree_hash != second.tree_hash == at.runner.app.tree_hash
    assert [ended.outcome for ended in await at.endings()] == ["completed"]


@MEDIA
async def test_an_answer_is_refused_while_its_tool_is_gone(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """The error names the tool, nothing is written, and once the tool is back the same answer works (F116)."""
    shelf, pay = Shelf(medium, tmp_path), Counted("paid")
    run_id = await left_waiting(desk, shelf, call("pay"), tools=[gated(pay)])
    without: Desk = desk(store=shelf.store())
    asked, before = await question(without), await without.log()
    for attempt in (
        without.runner.answer(run_id, asked.call_id),
        reply(without, response(asked.call_id, confirmed=True)),
    ):
        with pytest.raises(AgentTreeChangedError) as changed:
            await attempt
        assert changed.value.missing == ("tool 'pay' of agent 'root'",)
    assert await without.log() == before
    assert await without.runner.recover() == []
    await without.runner.aclose()
    again = desk(say("ok"), store=shelf.store(), tools=[gated(pay)])
    await again.runner.answer(run_id, asked.call_id)
    assert await (await again.runner.attach(run_id)).result() == "ok"
    assert len(pay.executed) == 1


@MEDIA
async def test_a_call_of_a_tool_that_is_gone_is_closed(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """With ``close`` the model is told that it is not available any more, and the run goes on."""
    shelf = Shelf(medium, tmp_path)
    run_id = await left_waiting(desk, shelf, call("pay"), tools=[gated(Counted())])
    at = desk(say("I cannot pay."), store=shelf.store(), app_options=CLOSE)
    await at.runner.answer(run_id, (await question(at)).call_id)
    assert await (await at.runner.attach(run_id)).result() == "I cannot pay."
    assert statuses(await at.log()) == [("pay", "failed", None)]
    assert "not available any more" in at.told()
    assert "It was not executed" in at.told() or "not executed" in at.told()


async def test_a_denied_call_needs_no_tool(desk: MakeDesk, tmp_path: Path) -> None:
    """With ``close``, a no is a no."""
    shelf = Shelf("memory", tmp_path)
    run_id = await left_waiting(desk, shelf, call("pay"), tools=[gated(Counted())])
    at = desk(say("Fine."), store=shelf.store(), app_options=CLOSE)
    await at.runner.answer(run_id, (await question(at)).call_id, accept=False)
    assert (await (await at.runner.attach(run_id)).wait()).outcome == "completed"
    assert statuses(await at.log()) == [("pay", "denied", None)]


def sequence(*agents: BaseAgent) -> SequentialAgent:
    return SequentialAgent("root", sub_agents=agents)


def asking(name: str, *steps: Any) -> LlmAgent:
    return LlmAgent(name, ScriptedModel(*steps), tools=[gated(Counted("paid"))])


@MEDIA
async def test_a_renamed_agent_does_not_begin_again(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """ADK starts such a sequence from its first agent with a warning; here the answer is refused by name (F32)."""
    shelf = Shelf(medium, tmp_path)
    await left_waiting(desk, shelf, agent=sequence(speaker("a"), asking("b", call("pay")), speaker("c")))
    renamed = desk(store=shelf.store(), agent=sequence(speaker("a"), asking("bb", say("never")), speaker("c")))
    asked = await question(renamed)
    with pytest.raises(AgentTreeChangedError, match="agent 'b'"):
        await renamed.runner.answer(asked.run_id, asked.call_id)
    await renamed.runner.aclose()
    back = desk(store=shelf.store(), agent=sequence(speaker("a"), asking("b", say("b text")), speaker("c")))
    await back.runner.answer(asked.run_id, asked.call_id)
    ended = await (await back.runner.attach(asked.run_id)).wait()
    assert ended.outcome == "completed"
    assert [message.author for message in await back.messages()] == ["a", "b", "b", "c"]


async def test_an_agent_that_is_gone_is_left_out(desk: MakeDesk, tmp_path: Path) -> None:
    """With ``close``: its calls are settled, those behind it go on, none before it is run again."""
    shelf = Shelf("memory", tmp_path)
    run_id = await left_waiting(desk, shelf, agent=sequence(speaker("a"), asking("b", call("pay")), speaker("c")))
    at = desk(store=shelf.store(), agent=sequence(speaker("a"), speaker("c")), app_options=CLOSE)
    await at.runner.answer(run_id, (await question(at)).call_id)
    ended = await (await at.runner.attach(run_id)).wait()
    assert ended.outcome == "completed"
    assert [message.author for message in await at.messages()] == ["a", "b", "c"]
    assert [status for _, status, _ in statuses(await at.log())] == ["failed"]


async def test_a_sub_agent_that_had_taken_over_is_gone(desk: MakeDesk, tmp_path: Path) -> None:
    """It is named. With ``close`` its nearest ancestor goes on, and the next input goes there too (F32)."""
    shelf = Shelf("memory", tmp_path)
    handing = ScriptedModel(call("transfer_to_agent", agent_name="sub"))
    tree = LlmAgent("root", handing, sub_agents=[asking("sub", call("pay"))])
    run_id = await left_waiting(desk, shelf, agent=tree)
    fails: Desk = desk(store=shelf.store(), agent=LlmAgent("root", ScriptedModel()))
    asked = await question(fails)
    with pytest.raises(AgentTreeChangedError, match="'sub'"):
        await fails.runner.answer(run_id, asked.call_id)
    await fails.runner.aclose()
    at = desk(say("root here"), say("still root"), store=shelf.store(), app_options=CLOSE)
    await at.runner.answer(run_id, asked.call_id)
    ended = await (await at.runner.attach(run_id)).wait()
    assert ended.outcome == "completed"
    assert (await at.ask("hello", GOES_ON)).outcome == "completed"
    assert [message.author for message in await at.messages()][-1] == "root"


async def test_a_text_reaches_whoever_is_left(desk: MakeDesk, tmp_path: Path) -> None:
    """It declines what waits, also where the tool of that is gone, and begins at the nearest agent (F32, F89)."""
    shelf = Shelf("memory", tmp_path)
    handing = ScriptedModel(call("transfer_to_agent", agent_name="sub"))
    await left_waiting(desk, shelf, agent=LlmAgent("root", handing, sub_agents=[asking("sub", call("pay"))]))
    at = desk(say("root here"), store=shelf.store())
    assert (await at.ask("hello", GOES_ON)).outcome == "completed"
    assert statuses(await at.log())[-1] == ("pay", "denied", None)
    assert "root" in [message.author for message in await at.messages()]


async def test_a_waiting_run_whose_tool_is_gone_can_be_stopped(desk: MakeDesk, tmp_path: Path) -> None:
    """Stopping needs no tool."""
    shelf = Shelf("memory", tmp_path)
    run_id = await left_waiting(desk, shelf, call("pay"), tools=[gated(Counted())])
    at: Desk = desk(store=shelf.store())
    await at.runner.cancel(run_id)
    assert [(one.outcome, one.cause) for one in await at.endings()] == [("cancelled", "user")]


async def test_arguments_that_fit_no_more_are_refused_when_the_call_goes_on(desk: MakeDesk, tmp_path: Path) -> None:
    """The schema of today holds: the call fails with what is wrong, and is not executed with less than it needs."""
    shelf, paid = Shelf("memory", tmp_path), list[str]()

    def pay(order: int) -> str:
        """Pay."""
        return "paid"

    def pay_now(order: int, account: str) -> str:
        """Pay."""
        paid.append(account)
        return "paid"

    await left_waiting(desk, shelf, call("pay", order=1), tools=[gated(pay)])
    at = desk(say("Which account?"), store=shelf.store(), tools=[gated(pay_now)])
    await reply(at, response((await question(at)).call_id, confirmed=True))
    assert paid == []
    assert statuses(await at.log()) == [("pay", "failed", None)]
    assert "account" in at.told()


async def test_a_changed_schema_is_met_by_edited_arguments(desk: MakeDesk, tmp_path: Path) -> None:
    """Whoever approves can add what the tool needs today; what it does not take is refused before it counts."""
    shelf, paid = Shelf("memory", tmp_path), list[str]()

    def pay(order: int) -> str:
        """Pay."""
        return "paid"

    def pay_now(order: int, account: str) -> str:
        """Pay."""
        paid.append(account)
        return "paid"

    run_id = await left_waiting(desk, shelf, call("pay", order=1), tools=[gated(pay)])
    at = desk(say("Paid."), store=shelf.store(), tools=[gated(pay_now)])
    asked = await question(at)
    with pytest.raises(AnswerInvalidError, match="account"):
        await at.runner.answer(run_id, asked.call_id, args={"order": 1})
    await at.runner.answer(run_id, asked.call_id, args={"order": 1, "account": "B"})
    await (await at.runner.attach(run_id)).wait()
    assert paid == ["B"]


async def test_the_question_that_was_asked_is_the_one_that_is_answered(desk: MakeDesk, tmp_path: Path) -> None:
    """A value is held against the schema that people were shown, not against that of today (F103)."""
    shelf = Shelf("memory", tmp_path)
    old, new = RequestInputTool(schema={"type": "integer"}), RequestInputTool(schema={"type": "string"})
    await left_waiting(desk, shelf, call("request_input", question="How old?"), tools=[old])
    at = desk(say("ok"), store=shelf.store(), tools=[new])
    with pytest.raises(AnswerInvalidError):
        await answer(at, "request_input", "old")
    await answer(at, "request_input", 42)
    await at.until(lambda log: bool(of(log, RunEnded)))
    assert (await at.settled())["request_input"].response == {"result": 42}


async def test_a_policy_that_asks_no_more_changes_nothing_for_what_waits(desk: MakeDesk, tmp_path: Path) -> None:
    """A call that was told to need a yes waits for it; new ones are executed at once (F100)."""
    shelf, pay = Shelf("memory", tmp_path), Counted("paid")
    run_id = await left_waiting(desk, shelf, call("pay", order=1), tools=[gated(pay)])
    at = desk(call("pay", order=2), say("ok"), store=shelf.store(), tools=[FunctionTool(pay, name="pay")])
    assert await at.runner.recover() == []
    assert pay.executed == []
    await at.runner.answer(run_id, (await question(at)).call_id)
    await (await at.runner.attach(run_id)).wait()
    assert pay.executed == [{"order": 1}, {"order": 2}]


async def left_dead(data: MemoryData, *, after: int = 2, **options: Any) -> tuple[str, Desk, CrashingStore]:
    """Leave the run of a dead process behind: its call was begun."""
    disk = MemoryStore(data)
    store = CrashingStore(disk, after=after)
    dead = Desk(call("job"), store=store, **options)
    run = await dead.start(config=GOES_ON)
    await store.died.wait()
    disk.abandon()
    return run.run_id, dead, store


@pytest.mark.parametrize(("then", "now"), [("safe", "never"), ("never", "safe"), ("safe", "safe")])
async def test_both_declarations_must_allow_another_attempt(desk: MakeDesk, then: Any, now: Any) -> None:
    """The policy that was stored with the call, and the tool's of today (F106)."""
    data, job = MemoryData(), Counted("done")
    _, dead, store = await left_dead(data, tools=[FunctionTool(job, name="job", replay=then)])
    executed = len(job.executed)
    at = desk(say("ok"), store=MemoryStore(data), tools=[FunctionTool(job, name="job", replay=now)])
    await at.runner.recover()
    may = then == now == "safe"
    assert len(job.executed) - executed == int(may)
    assert statuses(await at.log()) == [("job", "succeeded", None) if may else ("job", "unknown", "crash")]
    assert [start.replay for start in of(await at.log(), CallStarted)] == ([then, now] if may else [then])
    store.bury()
    await dead.runner.aclose()


async def test_a_crashed_run_whose_tool_is_gone_fails_by_name(desk: MakeDesk) -> None:
    """It ends once, truthfully: what was begun is unknown; it can be tried again as a new run."""
    data = MemoryData()
    run_id, dead, store = await left_dead(data, tools=[FunctionTool(Counted(), name="job")])
    at = desk(store=MemoryStore(data))
    await at.runner.recover()
    with pytest.raises(RunFailedError, match="tool 'job'"):
        await (await at.runner.attach(run_id)).result()
    (ended,) = await at.endings()
    assert ended.error is not None and ended.error.type == "AgentTreeChangedError"
    assert [status for _, status, _ in statuses(await at.log())] == ["unknown"]
    assert kinds(await at.log())[-1] == "RunEnded"
    store.bury()
    await dead.runner.aclose()


async def test_a_crashed_run_whose_tool_is_gone_goes_on_without_it(desk: MakeDesk) -> None:
    """With ``close``."""
    data = MemoryData()
    _, dead, store = await left_dead(data, tools=[FunctionTool(Counted(), name="job", replay="safe")])
    at = desk(say("ok"), store=MemoryStore(data), app_options=CLOSE)
    await at.runner.recover()
    assert [ended.outcome for ended in await at.endings()] == ["completed"]
    assert statuses(await at.log()) == [("job", "unknown", "crash")]
    store.bury()
    await dead.runner.aclose()


async def test_agents_that_work_as_tools_are_looked_for_too(desk: MakeDesk, tmp_path: Path) -> None:
    """An agent within a call is missed by name, and there again the run goes on."""
    shelf = Shelf("memory", tmp_path)
    inner = asking("inner", call("pay"))
    run_id = await left_waiting(desk, shelf, call("inner", request="t"), tools=[AgentTool(inner)])
    other: Desk = desk(store=shelf.store(), tools=[AgentTool(LlmAgent("inner", ScriptedModel()))])
    with pytest.raises(AgentTreeChangedError, match="tool 'pay' of agent 'inner'"):
        await other.runner.answer(run_id, (await question(other)).call_id)
    await other.runner.aclose()
    at = desk(say("ok"), store=shelf.store(), tools=[AgentTool(asking("inner", say("paid it")))])
    await at.runner.answer(run_id, (await question(at)).call_id)
    assert await (await at.runner.attach(run_id)).result() == "ok"


async def test_a_loop_with_another_bound(desk: MakeDesk, tmp_path: Path) -> None:
    """What the log counted stays counted: fewer rounds than were done end the loop behind the one that waits."""
    shelf = Shelf("memory", tmp_path)
    model = ScriptedModel(say("one"), call("pay"))
    worker = LlmAgent("worker", model, tools=[gated(Counted())])
    run_id = await left_waiting(desk, shelf, agent=LoopAgent("root", sub_agents=[worker], max_iterations=5))
    shorter = LoopAgent("root", sub_agents=[asking("worker", say("two"))], max_iterations=2)
    at = desk(store=shelf.store(), agent=shorter)
    await at.runner.answer(run_id, (await question(at)).call_id)
    assert (await (await at.runner.attach(run_id)).wait()).outcome == "completed"
    assert attempts(await at.log()) == [(1, "message"), (2, "answer")]


def test_what_to_do_about_changes_is_one_of_two() -> None:
    """Anything else is refused where the app is made."""
    with pytest.raises(ConfigError, match="on_tree_change"):
        App("x", LlmAgent("root", ScriptedModel()), on_tree_change="ignore")  # type: ignore[arg-type]
