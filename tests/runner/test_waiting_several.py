"""Several calls that wait at once, beside others that do not, and within agents of every kind."""

from __future__ import annotations

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
    attempts,
    of,
    paused,
    question,
    questions,
    reply,
    response,
    statuses,
)  # fmt: skip

from heaveto import (
    AgentTool,
    Answered,
    CallSettled,
    FunctionTool,
    LlmAgent,
    LoopAgent,
    Message,
    ParallelAgent,
    Paused,
    RequestInputTool,
    RunConfig,
    SequentialAgent,
    ToolContext,
)  # fmt: skip
from heaveto.agents.base import BaseAgent
from heaveto.agents.context import AgentContext
from heaveto.errors import AnswerInvalidError, ContradictingAnswersError, MixedAnswerError, UnknownCallError
from heaveto.events.contents import FunctionResponse, text_of
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, say

ALL_MODES = pytest.mark.parametrize("mode", ["NONE", "SEQUENTIAL", "PARALLEL", "PARALLEL_SUBSCRIBE"])


def texts(records: list[Any]) -> list[str]:
    """Who said what, in order."""
    said = [one for one in of(records, Message) if text_of(one.parts) and one.author != "user"]
    return [f"{one.author}: {text_of(one.parts)}" for one in said]


def asking(name: str, *steps: Any, tool: str = "pay", **options: Any) -> LlmAgent:
    """An agent that calls a gated tool first."""
    return LlmAgent(name, ScriptedModel(call(tool), *steps), tools=[gated(Counted(f"{name} paid"), tool)], **options)


def saying(name: str, *texts: str) -> LlmAgent:
    return LlmAgent(name, ScriptedModel(*map(say, texts or (f"{name} is done",))))


@ALL_MODES
async def test_siblings_that_need_no_yes_are_durable_before_the_pause(desk: MakeDesk, mode: Any) -> None:
    """They are executed at once, and once; with the yes exactly the gated call runs, then one answer (F84, F101)."""
    look, drop = Counted("rows"), Counted("dropped")
    tools = [gated(drop, "drop"), FunctionTool(look, name="look")]
    at = desk((call("drop", order=1), call("look", order=2)), say("Both."), tools=tools)
    run = await paused(at, config=RunConfig(tool_execution_mode=mode))
    assert (len(look.executed), len(drop.executed)) == (1, 0)
    assert statuses(await at.log()) == [("look", "succeeded", None)]
    await answer(at, "drop")
    assert await run.result() == "Both."
    assert (len(look.executed), len(drop.executed)) == (1, 1)
    assert at.model.calls == 2


@ALL_MODES
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
async def test_answers_one_by_one_add_up(desk: MakeDesk, store: Store, mode: Any, order: tuple[str, str]) -> None:
    """The first answer starts nothing, the last one everything, once, and no answer is asked for twice (F92, F101)."""
    a, b = Counted("A"), Counted("B")
    at = desk((call("a"), call("b")), say("Both."), store=store, tools=[gated(a, "a"), gated(b, "b")])
    run = await paused(at, config=RunConfig(tool_execution_mode=mode))
    asked = await questions(at)
    await at.runner.answer(run.run_id, asked[order[0]].call_id)
    assert run.status == "paused"
    assert list(await questions(at)) == [order[1]]
    pause = await run.ending_or_pause()
    assert isinstance(pause, Paused)
    assert [one.name for one in pause.waiting] == [order[1]]
    assert (a.executed, b.executed) == ([], [])
    await at.runner.answer(run.run_id, asked[order[1]].call_id, accept=False)
    assert await run.result() == "Both."
    assert (len(a.executed), len(b.executed)) == ((1, 0) if order == ("a", "b") else (0, 1))
    assert attempts(await at.log()) == [(1, "message"), (2, "answer")]


async def test_several_answers_at_once(desk: MakeDesk) -> None:
    """In one message, each reaches the call whose id it has, not the one at its place (F90)."""
    tools = [RequestInputTool(name) for name in "abc"]
    at = desk(tuple(call(name, question=f"{name}?") for name in "abc"), say("ok"), tools=tools)
    await paused(at)
    asked = await questions(at)
    assert len({one.call_id for one in asked.values()}) == 3
    await reply(at, *(response(asked[name].call_id, result=name.upper()) for name in "cab"))
    settled = await at.settled()
    assert {name: settled[name].response for name in "abc"} == {name: {"result": name.upper()} for name in "abc"}


async def test_a_bare_answer_is_not_guessed_at(desk: MakeDesk) -> None:
    """An answer without an id is refused, with one waiting call and with several (F91)."""
    at = desk((call("a"), call("b")), tools=[gated(Counted(), "a"), gated(Counted(), "b")])
    await paused(at)
    with pytest.raises(MixedAnswerError, match="no call id"):
        await reply(at, FunctionResponse(call_id="", name="a", response={"confirmed": True}))
    with pytest.raises(UnknownCallError) as unknown:
        await reply(at, response("nosuchcall", confirmed=True))
    assert set(unknown.value.known) == {one.call_id for one in (await questions(at)).values()}
    assert of(await at.log(), Answered) == []


async def test_contradicting_answers_are_all_refused(desk: MakeDesk) -> None:
    """Also those that are clear: who sends such a message is asked what they mean."""
    at = desk((call("a"), call("b")), tools=[gated(Counted(), "a"), gated(Counted(), "b")])
    await paused(at)
    asked = await questions(at)
    a, b = asked["a"].call_id, asked["b"].call_id
    with pytest.raises(ContradictingAnswersError):
        await reply(at, response(b, confirmed=True), response(a, confirmed=True), response(a, confirmed=False))
    assert of(await at.log(), Answered) == []


async def test_answers_that_are_settled_already_do_not_hold_up_the_rest(desk: MakeDesk) -> None:
    """A client that repeats what it said before, beside what is new, is understood (F97)."""
    at = desk((call("a"), call("b"), call("nosuch")), say("ok"), tools=[gated(Counted(), "a"), gated(Counted(), "b")])
    await paused(at)
    asked = await questions(at)
    a, b = (response(asked[name].call_id, confirmed=True) for name in "ab")
    assert [type(record).__name__ for record in await reply(at, a)] == ["Answered"]
    log = await reply(at, a, b)
    assert of(log, CallSettled) and texts(log) == ["root: ok"]


async def test_a_gated_call_in_a_sub_agent(desk: MakeDesk, store: Store) -> None:
    """The question names the whole path, and the sub-agent goes on, not its root (F32, F162)."""
    sub = asking("sub", say("sub is done"))
    root = LlmAgent("root", ScriptedModel(call("transfer_to_agent", agent_name="sub")), sub_agents=[sub])
    at = desk(store=store, agent=root)
    run = await paused(at)
    assert (await question(at)).path == "root/sub"
    await answer(at, "pay")
    assert await run.result() == "sub is done"


@pytest.mark.parametrize("medium", ["memory", "sqlite"])
async def test_a_gated_call_in_agents_within_agents(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """The innermost agent is named, with the way to it; the answer finds it in a new process, and begins nothing anew.

    Approving within an agent that works as a tool must neither restart that agent nor ask again (F160, F162).
    """
    pay = Counted("paid")

    def tree(outer: list[Any], middle: list[Any], inner: list[Any]) -> LlmAgent:
        innermost = LlmAgent("innermost", ScriptedModel(*inner), tools=[gated(pay)])
        between = LlmAgent("between", ScriptedModel(*middle), tools=[AgentTool(innermost)])
        return LlmAgent("root", ScriptedModel(*outer), tools=[AgentTool(between)])

    shelf = Shelf(medium, tmp_path)
    calls = call("between", request="t1"), call("innermost", request="t2"), call("pay", order=1)
    first = desk(store=shelf.store(), agent=tree(*([one] for one in calls)))
    await paused(first)
    assert (await question(first)).path == "root/between/innermost"
    await first.runner.aclose()
    second = desk(store=shelf.store(), agent=tree([say("all done")], [say("between done")], [say("paid it")]))
    log = await reply(second, response((await question(second)).call_id, confirmed=True))
    assert pay.executed == [{"order": 1}]
    assert texts(log) == ["innermost: paid it", "between: between done", "root: all done"]
    tasks = [text_of(one.parts) for one in of(await second.log(), Message) if one.author == "user"]
    assert tasks == ["t1", "t2"]


async def test_edited_arguments_within_an_agent_tool_are_checked(desk: MakeDesk) -> None:
    """The tool is found where it is, not only in the root's tree."""
    inner = LlmAgent("inner", ScriptedModel(call("pay", order=1), say("ok")), tools=[gated(Counted())])
    at = desk(call("inner", request="t"), say("done"), tools=[AgentTool(inner)])
    await paused(at)
    with pytest.raises(AnswerInvalidError):
        await answer(at, "pay", args={"order": "x"})


async def test_an_agent_tool_beside_a_plain_one(desk: MakeDesk) -> None:
    """What waits inside a call leaves its siblings alone: they are executed once, and their results are kept (F84)."""
    look = Counted("rows")
    inner = asking("inner", say("inner is done"))
    tools = [AgentTool(inner), FunctionTool(look, name="look")]
    at = desk((call("inner", request="t"), call("look")), say("Both."), tools=tools)
    run = await paused(at)
    assert statuses(await at.log()) == [("look", "succeeded", None)]
    await answer(at, "pay")
    assert await run.result() == "Both."
    assert len(look.executed) == 1
    assert (await at.settled())["inner"].response == {"result": "inner is done"}


async def test_a_tool_that_runs_an_agent_itself_goes_on_within_it(desk: MakeDesk) -> None:
    """``ctx.run_agent`` in a tool that may be repeated: what waits in the agent ends the tool for now, and no more."""
    inner, seen = asking("inner", say("inner is done")), list[int]()

    async def ask_inner(ctx: ToolContext) -> str:
        """Ask the inner agent."""
        seen.append(ctx.attempt)
        try:
            return await ctx.run_agent(inner, "task")
        except Exception as error:
            return f"absorbed {error!r}"

    at = desk(call("ask_inner"), say("ok"), tools=[FunctionTool(ask_inner, replay="safe")])
    run = await paused(at)
    await answer(at, "pay")
    await run.wait()
    assert seen == [1, 2]
    assert (await at.settled())["ask_inner"].response == {"result": "inner is done"}


async def test_parallel_agents_go_on_to_their_ends(desk: MakeDesk, store: Store) -> None:
    """One that waits holds up no other; with its answer only it goes on, and then those that come behind."""
    quick, slow = saying("quick"), Held("slow result")
    slowly = LlmAgent("slowly", ScriptedModel(call("held"), say("slowly is done")), tools=[slow.tool()])
    asks = asking("asks", say("asks is done"))
    both = ParallelAgent("both", sub_agents=[quick, asks, slowly])
    at = desk(store=store, agent=SequentialAgent("root", sub_agents=[both, saying("last")]))
    run = await at.start(config=RunConfig())
    await slow.began.wait()
    await at.until(lambda log: any(one.held for one in of(log, Paused)))
    assert run.status == "running"
    slow.may_end.set()
    await run.ending_or_pause()
    assert sorted(texts(await at.log())) == ["quick: quick is done", "slowly: slowly is done"]
    await answer(at, "pay")
    await run.wait()
    assert texts(await at.log())[2:] == ["asks: asks is done", "last: last is done"]
    assert slow.calls == 1


async def test_an_answer_that_comes_while_others_still_work(desk: MakeDesk) -> None:
    """It counts at once, durably, and what it lets go on goes on when the others have come to their ends."""
    slow = Held()
    slowly = LlmAgent("slowly", ScriptedModel(call("held"), say("slowly is done")), tools=[slow.tool()])
    both = ParallelAgent("both", sub_agents=[asking("asks", say("asks is done")), slowly])
    at = desk(agent=both)
    run = await at.start(config=RunConfig())
    await slow.began.wait()
    await at.until(lambda log: any(one.held for one in of(log, Paused)))
    await answer(at, "pay")
    slow.may_end.set()
    assert (await run.wait()).outcome == "completed"
    assert sorted(texts(await at.log())) == ["asks: asks is done", "slowly: slowly is done"]


async def test_two_parallel_agents_wait(desk: MakeDesk) -> None:
    """The run goes on when both are answered, in whichever order."""
    x, y = (asking(name, say(f"{name} is done"), tool=f"p{name}") for name in "xy")
    at = desk(agent=ParallelAgent("both", sub_agents=[x, y]))
    run = await paused(at)
    await answer(at, "py")
    assert run.status == "paused"
    await answer(at, "px")
    await run.wait()
    assert sorted(texts(await at.log())) == ["x: x is done", "y: y is done"]


async def test_a_sequence_waits_at_its_place(desk: MakeDesk) -> None:
    """Those before are not run again, those behind not before the answer."""
    agents = [saying("a"), asking("b", say("b is done")), saying("c")]
    at = desk(agent=SequentialAgent("root", sub_agents=agents))
    run = await paused(at)
    assert texts(await at.log()) == ["a: a is done"]
    await answer(at, "pay")
    await run.wait()
    assert texts(await at.log()) == ["a: a is done", "b: b is done", "c: c is done"]


async def test_a_loop_waits_in_its_round(desk: MakeDesk) -> None:
    """Each round asks anew, and goes on in the round in which it asked."""
    model = ScriptedModel(call("pay"), say("one"), call("pay"), say("two"))
    worker = LlmAgent("worker", model, tools=[gated(Counted())])
    at = desk(agent=LoopAgent("root", sub_agents=[saying("before", "b1", "b2"), worker], max_iterations=2))
    run = await paused(at)
    await answer(at, "pay")
    await at.until(lambda log: len([one for one in of(log, Paused) if not one.held]) == 2)
    await answer(at, "pay")
    await run.wait()
    assert texts(await at.log()) == ["before: b1", "worker: one", "before: b2", "worker: two"]


async def test_an_agent_in_plain_python_hears_that_another_waits(desk: MakeDesk) -> None:
    """`run_agent` returns False, and the agent is called again when the answer has come."""
    heard: list[bool] = []

    class Custom(BaseAgent):
        async def run(self, ctx: AgentContext) -> None:
            resumed = ctx.resumed_from
            if resumed is None:
                await ctx.checkpoint({"at": "asks"})
            done = await ctx.run_agent(self.sub_agents[0], since=resumed.seq if resumed else None)
            heard.append(done)
            if done:
                await ctx.say("custom is done")

    at = desk(agent=Custom("root", sub_agents=[asking("asks", say("asks is done"))]))
    run = await paused(at)
    assert heard == [False]
    await answer(at, "pay")
    await run.wait()
    assert heard == [False, True]
    assert texts(await at.log()) == ["asks: asks is done", "root: custom is done"]
