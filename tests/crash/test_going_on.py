"""Runs that go on after their process died: what stops them, waits behind them, comes into them, and counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import pytest
from tests.crash.sites import HERE, KEY, Process, Site, attempts, ending, settlements

from heaveto import (
    AgentContext,
    AgentTool,
    BaseAgent,
    FunctionTool,
    LlmAgent,
    MemoryStore,
    Plugin,
    SequentialAgent,
    Tool,
    ToolContext,
)
from heaveto.core.request import ModelRequest
from heaveto.errors import SessionBusyError
from heaveto.events.contents import Content, Json, text_of
from heaveto.events.records import (
    CallSettled,
    CallStarted,
    CancelRequested,
    Message,
    Paused,
    Queued,
    Record,
    RunEnded,
    RunStarted,
    SessionKey,
)
from heaveto.testing import FakeClock, ScriptedModel, call, gate, hang, say, settle, usage
from heaveto.testing.promises import check_promises, lost_messages


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    yield site
    await site.close()


class Work:
    """A tool that works until its process is dead; executed again, it is done at once."""

    def __init__(self, output: str = "") -> None:
        self.began = asyncio.Event()
        self.calls: list[str] = []
        self._output = output

    async def __call__(self, ctx: ToolContext) -> str:
        """Work."""
        self.calls.append(ctx.call_id)
        self.began.set()
        if ctx.attempt == 1:
            ctx.output(self._output)
            await asyncio.Event().wait()
        return "worked"

    def tool(self, replay: Literal["never", "safe"] = "safe") -> FunctionTool:
        return FunctionTool(self, name="work", replay=replay)


async def die_at_work(site: Site, work: Work, replay: Literal["never", "safe"] = "safe", **config: Any) -> str:
    """Let a process die in the middle of its tool. Return the run."""
    first = site.process(call("work"), tools=[work.tool(replay)])
    run = await first.start("one", **config)
    await work.began.wait()
    await settle()  # what it put out is saved
    first.kill()
    return run.run_id


# --- stops ------------------------------------------------------------------------------------------------------------


async def test_a_stop_before_the_crash_is_final(site: Site) -> None:
    """A run whose stop was recorded when its process died is not continued, but ends as that stop (F107, F151)."""
    work = Work()
    run_id = await die_at_work(site, work)
    second = site.process(tools=[work.tool()])
    stop = CancelRequested(id="stop", time=1.0, run_id=run_id, cause="user", by="ann")
    await second.store.append(KEY, [stop], token=None)
    log = await second.recover()
    assert (ending(log, run_id).outcome, ending(log, run_id).cause, ending(log, run_id).by) == (
        "cancelled",
        "user",
        "ann",
    )
    assert attempts(log) == [("one", 1)]
    assert (second.model.calls, len(work.calls)) == (0, 1)
    check_promises(log)


class JustBefore(MemoryStore):
    """A store to which someone writes just before the append of a certain record."""

    before: type[Record] = RunStarted
    what: Record | None = None

    async def append(self, key: SessionKey, records: Sequence[Record], **more: Any) -> int:
        what = self.what
        if what is not None and any(isinstance(record, self.before) for record in records):
            self.what = None
            await super().append(key, [what], token=None)
        return await super().append(key, records, **more)


@pytest.mark.parametrize("before", [RunStarted, CallStarted])
async def test_a_stop_at_the_last_moment_before_going_on(site: Site, before: type[Record]) -> None:
    """A stop that comes just before the next attempt of the run, or of its call, forbids it; a call that a dead process
    had started is never said not to have been (F107, F153)."""
    work = Work()
    run_id = await die_at_work(site, work)
    second = site.process(tools=[work.tool()], store=JustBefore)
    assert isinstance(second.store, JustBefore)
    second.store.before = before
    second.store.what = CancelRequested(id="stop", time=1.0, run_id=run_id, cause="user", by="ann")
    log = await second.recover()
    assert (ending(log, run_id).outcome, ending(log, run_id).by) == ("cancelled", "ann")
    assert len(work.calls) == 1
    assert settlements(log) == [("unknown", "user")]
    check_promises(log)


@pytest.mark.parametrize("moment", ["while it is dead", "just before it starts again"])
async def test_a_stopped_call_is_not_executed_again(site: Site, moment: str) -> None:
    """A single call that somebody stopped is not executed again, though its tool allows it: its outcome is unknown, and
    the run goes on without it (F139, F152)."""
    work = Work()
    run_id = await die_at_work(site, work)
    second = site.process(tools=[work.tool()], store=JustBefore)
    assert isinstance(second.store, JustBefore)
    stop = CancelRequested(id="stop", time=1.0, run_id=run_id, cause="user", call_id=work.calls[0])
    if moment == "while it is dead":
        await second.store.append(KEY, [stop], token=None)
    else:
        second.store.before, second.store.what = CallStarted, stop
    log = await second.recover()
    assert ending(log, run_id).outcome == "completed"
    assert len(work.calls) == 1
    assert settlements(log) == [("unknown", "user")]
    check_promises(log)


@pytest.mark.parametrize("whom", ["the run", "the call"])
async def test_a_stop_keeps_what_a_dead_call_had_put_out(site: Site, whom: str) -> None:
    """What a call had put out before its process died is kept, whoever settles it in the end (P4)."""
    work = Work("row\n" * 1000)
    run_id = await die_at_work(site, work)
    second = site.process(tools=[work.tool()], store=JustBefore)
    assert isinstance(second.store, JustBefore)
    second.store.before = CallStarted
    call_id = work.calls[0] if whom == "the call" else ""
    second.store.what = CancelRequested(id="stop", time=1.0, run_id=run_id, cause="user", call_id=call_id)
    log = await second.recover()
    [settled] = [record for record in log if isinstance(record, CallSettled)]
    assert (settled.status, settled.response) == ("unknown", {"output": "row\n" * 1000})
    check_promises(log)


# --- who goes on ------------------------------------------------------------------------------------------------------


async def test_two_processes_recover_at_once(site: Site) -> None:
    """Of several that find the same dead run one continues it: one attempt, one execution (F73)."""
    work = Work()
    run_id = await die_at_work(site, work)
    others = [site.process(tools=[work.tool()]) for _ in range(3)]
    await asyncio.gather(*(other.recover() for other in others))
    log = await others[0].log()
    assert ending(log, run_id).outcome == "completed"
    assert attempts(log) == [("one", 1), ("one", 2)]
    assert len(work.calls) == 2
    check_promises(log, executions={work.calls[0]: 2})


async def test_what_waited_behind_a_crashed_run(site: Site) -> None:
    """A message that waited behind the run when its process died runs after it, and knows what came of it (F164)."""
    work = Work()
    first = site.process(call("work"), tools=[work.tool()])
    run = await first.start("one")
    await work.began.wait()
    waits = await first.start("two")
    first.kill()
    second = site.process(say("one is done"), say("two is done"), tools=[work.tool()])
    log = await second.recover()
    assert attempts(log) == [("one", 1), ("one", 2), ("two", 1)]
    assert ending(log, run.run_id).seq < ending(log, waits.run_id).seq
    assert "one is done" in second.told()
    check_promises(log)


async def test_a_message_is_behind_the_run_that_goes_on(site: Site) -> None:
    """Who sends the next message, without any `recover`, has the crashed run continued first (P6)."""
    work = Work()
    run_id = await die_at_work(site, work)
    second = site.process(tools=[work.tool()])
    ended = await asyncio.wait_for((await second.start("two")).wait(), 5)
    log = await second.log()
    assert attempts(log) == [("one", 1), ("one", 2), ("two", 1)]
    assert (ended.outcome, ending(log, run_id).outcome) == ("completed", "completed")
    check_promises(log)


async def test_interrupting_a_crashed_run(site: Site) -> None:
    """A message that interrupts ends the crashed run as superseded: it is not continued (F107)."""
    work = Work()
    run_id = await die_at_work(site, work)
    second = site.process(tools=[work.tool()])
    ended = await asyncio.wait_for((await second.start("two", busy_policy="interrupt")).wait(), 5)
    log = await second.log()
    assert ended.outcome == "completed"
    assert ending(log, run_id).cause == "superseded"
    assert attempts(log) == [("one", 1), ("two", 1)]
    assert len(work.calls) == 1
    check_promises(log)


async def test_rejecting_behind_a_crashed_run(site: Site) -> None:
    """A session whose run goes on is busy with it: a message that does not want to wait is refused, and written
    nowhere; the run goes on."""
    work = Work()
    run_id = await die_at_work(site, work)
    second = site.process(tools=[work.tool()])
    with pytest.raises(SessionBusyError):
        await second.start("two", busy_policy="reject")
    await asyncio.wait_for((await second.runner.attach(run_id)).wait(), 5)
    log = await second.log()
    assert ending(log, run_id).outcome == "completed"
    assert lost_messages(log, ["one", "two"]) == ["two"]
    check_promises(log)


async def test_steering_a_crashed_run(site: Site) -> None:
    """A text for the running run reaches the attempt that goes on with it."""
    work = Work()
    run_id = await die_at_work(site, work)
    second = site.process(tools=[work.tool()])
    run = await second.start("and be quick", busy_policy="steer")
    ended = await asyncio.wait_for(run.wait(), 5)
    assert (run.run_id, ended.outcome) == (run_id, "completed")
    assert "and be quick" in second.told()
    assert attempts(await second.log()) == [("one", 1), ("one", 2)]
    check_promises(await second.log())


async def test_merging_behind_a_crashed_run(site: Site) -> None:
    """Messages that merge do so with what waits behind the crashed run, and get one answer after it."""
    work = Work()
    first = site.process(call("work"), tools=[work.tool()])
    await first.start("one")
    await work.began.wait()
    waits = await first.start("two")
    first.kill()
    second = site.process(tools=[work.tool()])
    run = await second.start("and three", busy_policy="merge")
    assert run.run_id == waits.run_id
    assert (await asyncio.wait_for(run.wait(), 5)).outcome == "completed"
    log = await second.log()
    assert [(text.replace("\n", " "), attempt) for text, attempt in attempts(log)][:2] == [("one", 1), ("one", 2)]
    assert not lost_messages(log, ["one", "two", "and three"])
    assert len(attempts(log)) == 3
    check_promises(log)


# --- what the dead process had said -----------------------------------------------------------------------------------


async def test_a_half_answer_is_kept_and_the_model_asked_again(site: Site) -> None:
    """What had been streamed of an answer stays, marked as cut off; the model is shown it, and asked again (F60)."""
    door = gate()
    story = "A long story. " * 100
    first = site.process((say(story), door))
    run = await first.start("tell")
    await door.reached()
    await settle()
    first.kill()
    second = site.process(say("The end."))
    log = await second.recover()
    messages = [record for record in log if isinstance(record, Message)]
    assert [(text_of(said.parts), said.interrupted) for said in messages] == [(story, "crash"), ("The end.", None)]
    assert story in second.told()
    assert "cut off there because the process died" in second.told()
    assert ending(log, run.run_id).llm_calls == 2
    assert ending(log, run.run_id).usage.total_tokens > 0
    check_promises(log)


async def test_a_call_in_a_half_answer_never_was(site: Site) -> None:
    """A call that had been streamed whole, of an answer that was not over, is told as not started: nobody executes it,
    and the model is asked again."""
    door, work = gate(), Work()

    async def note(text: str) -> str:
        """Note."""
        raise AssertionError("this call was never made")

    first = site.process((call("note", text="x" * 2000), say("and now"), door), tools=[note])
    run = await first.start("one")
    await door.reached()
    await settle()
    first.kill()
    second = site.process(call("work"), say("done"), tools=[work.tool("never"), note])
    recovering = asyncio.create_task(second.recover())
    await work.began.wait()
    second.kill()
    recovering.cancel()
    third = site.process(say("done"), tools=[work.tool("never"), note])
    log = await third.recover()
    assert attempts(log) == [("one", 1), ("one", 2), ("one", 3)]
    assert settlements(log) == [("not_started", "crash"), ("unknown", "crash")]
    assert ending(log, run.run_id).outcome == "completed"
    check_promises(log, executions={work.calls[0]: 1})


# --- agents of one's own ----------------------------------------------------------------------------------------------


class Steps(BaseAgent):
    """Does steps one after another, the last of them with a model; says which checkpoint it went on from."""

    def __init__(self, model: ScriptedModel, tools: Sequence[Any]) -> None:
        self.child = LlmAgent("child", model, tools=tools)
        super().__init__("steps", sub_agents=[self.child])

    async def run(self, ctx: AgentContext) -> None:
        resumed = ctx.resumed_from
        done: Json = (resumed.agent_state or {}).get("done") if resumed is not None else 0
        assert isinstance(done, int)
        for step in range(done, 2):
            await ctx.say(f"step {step}")
            await ctx.checkpoint({"done": step + 1})
        await ctx.run_agent(self.child, since=None if resumed is None else resumed.seq)
        await ctx.say("over")


async def test_an_agent_of_ones_own_goes_on_from_its_checkpoint(site: Site) -> None:
    """`ctx.resumed_from` is the last durable checkpoint, and None at a beginning; nothing before it is done again."""
    work = Work()
    first = site.process(call("work"), agent=lambda model: Steps(model, [work.tool()]))
    await first.start("one")
    await work.began.wait()
    first.kill()
    second = site.process(say("done"), agent=lambda model: Steps(model, [work.tool()]))
    log = await second.recover()
    said = [text_of(record.parts) for record in log if isinstance(record, Message)]
    assert [text for text in said if text] == ["step 0", "step 1", "done", "over"]
    assert len(work.calls) == 2
    check_promises(log)


async def test_an_agent_that_is_gone(site: Site) -> None:
    """A run that stood at an agent which the new version has not fails, names it, and leaves nothing open (F32)."""
    work = Work()

    def both(model: ScriptedModel) -> BaseAgent:
        return SequentialAgent("all", sub_agents=[LlmAgent("a", model, tools=[work.tool()]), LlmAgent("b", model)])

    first = site.process(call("work"), agent=both)
    run = await first.start("one")
    await work.began.wait()
    first.kill()
    second = site.process(agent=lambda model: SequentialAgent("all", sub_agents=[LlmAgent("b", model)]))
    log = await second.recover()
    error = ending(log, run.run_id).error
    assert error is not None
    assert (error.type, "'a'" in error.message) == ("AgentTreeChangedError", True)
    assert settlements(log) == [("unknown", "error")]
    check_promises(log)


async def test_an_agent_as_tool_goes_on_inside(site: Site) -> None:
    """An agent that works as a tool is not begun anew: what it had said and done counts, a call of its own that must
    not be repeated is not, and its caller gets its answer (F106)."""
    work = Work()

    def nested(model: ScriptedModel) -> BaseAgent:
        return LlmAgent("outer", model, tools=[AgentTool(LlmAgent("inner", model, tools=[work.tool("never")]))])

    first = site.process(call("inner", request="x"), call("work"), agent=nested)
    run = await first.start("one")
    await work.began.wait()
    first.kill()
    second = site.process(say("inner is done"), say("outer is done"), agent=nested)
    log = await second.recover()
    assert ending(log, run.run_id).outcome == "completed"
    assert len(work.calls) == 1
    assert "inner is done" in second.told()
    assert settlements(log) == [("unknown", "crash"), ("succeeded", None)]
    check_promises(log)


async def test_the_second_agent_of_a_call_goes_on_inside(site: Site) -> None:
    """Each agent that a call lets work goes on with its own task: the first has ended, the second is continued."""
    work = Work()

    def nested(model: ScriptedModel) -> BaseAgent:
        inner = LlmAgent("inner", model, tools=[work.tool("never")])

        async def both(ctx: ToolContext) -> list[str]:
            """Let it work twice."""
            return [await ctx.run_agent(inner, "alpha"), await ctx.run_agent(inner, "beta")]

        return LlmAgent("outer", model, tools=[FunctionTool(both, replay="safe")])

    first = site.process(call("both"), say("alpha is done"), call("work"), agent=nested)
    run = await first.start("one")
    await work.began.wait()
    first.kill()
    second = site.process(say("beta is done"), say("outer is done"), agent=nested)
    log = await second.recover()
    assert ending(log, run.run_id).outcome == "completed"
    assert len(work.calls) == 1
    assert "['alpha is done', 'beta is done']" in second.told()
    assert settlements(log) == [("unknown", "crash"), ("succeeded", None)]
    check_promises(log)


# --- what stands around calls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["SEQUENTIAL", "PARALLEL", "PARALLEL_SUBSCRIBE"])
async def test_calls_beside_the_one_that_died(site: Site, mode: str) -> None:
    """In every mode: calls that were settled are not executed again, and those that had not begun are executed now."""
    work, done = Work(), Counter[str]()

    async def quick(ctx: ToolContext) -> str:
        """Be done at once."""
        done[ctx.call_id] += 1
        return "done"

    first = site.process((call("quick"), call("work"), call("quick")), tools=[work.tool(), quick])
    run = await first.start("one", tool_execution_mode=mode)
    await work.began.wait()
    await settle()
    first.kill()
    second = site.process(tools=[work.tool(), quick])
    log = await second.recover()
    assert ending(log, run.run_id).outcome == "completed"
    assert sorted(done.values()) == [1, 1]
    assert settlements(log) == [("succeeded", None)] * 3
    check_promises(log, executions={**done, work.calls[0]: 2})


async def test_callbacks_of_a_run_that_goes_on(site: Site) -> None:
    """What stands around a run and an agent is asked in each attempt; what was said to a message, and to a call that
    had been started, stands."""
    asked: list[str] = []

    class Curious(Plugin):
        async def on_user_message(self, key: SessionKey, content: Content) -> None:
            asked.append("on_user_message")

        async def before_run(self, ctx: AgentContext) -> None:
            asked.append("before_run")

        async def before_agent(self, ctx: AgentContext) -> None:
            asked.append("before_agent")

        async def before_tool(self, tool: Tool, args: dict[str, Json], ctx: ToolContext) -> None:
            asked.append("before_tool")

        async def after_run(self, ctx: AgentContext) -> None:
            asked.append("after_run")

    work = Work()
    first = site.process(call("work"), tools=[work.tool()], plugins=[Curious()])
    await first.start("one")
    await work.began.wait()
    first.kill()
    assert asked == ["on_user_message", "before_run", "before_agent", "before_tool"]
    asked.clear()
    await site.process(tools=[work.tool()], plugins=[Curious()]).recover()
    assert asked == ["before_run", "before_agent", "after_run"]


async def test_a_call_in_the_background_is_lost_with_its_process(site: Site) -> None:
    """It is not executed again, whatever its policy: its run was answered long ago. The model is told that nobody
    knows (F106)."""
    begun: list[str] = []

    async def watch(ctx: ToolContext) -> None:
        """Watch in the background."""
        begun.append(ctx.call_id)
        await ctx.detach()
        await asyncio.Event().wait()

    work, watching = Work(), FunctionTool(watch, replay="safe")
    first = site.process((call("watch"), call("work")), tools=[watching, work.tool()])
    run = await first.start("one")
    await work.began.wait()
    await settle()
    first.kill()
    second = site.process(tools=[watching, work.tool()])
    log = await second.recover()
    assert ending(log, run.run_id).outcome == "completed"
    assert len(begun) == 1
    assert settlements(log) == [("detached", None), ("unknown", "crash"), ("succeeded", None)]
    assert "the process died before its outcome was known" in second.told()
    check_promises(log)


async def test_an_agent_in_the_background_goes_on(site: Site) -> None:
    """It is a run of its own: it is continued like any other, and brings its answer home to the caller, who is told."""
    work = Work()

    def nested(model: ScriptedModel) -> BaseAgent:
        inner = LlmAgent("inner", model, tools=[work.tool()])
        return LlmAgent("outer", model, tools=[AgentTool(inner, background=True)])

    first = site.process(*[_by_agent] * 4, agent=nested)
    run = await first.start("one")
    await asyncio.wait_for(run.wait(), 5)
    await work.began.wait()
    first.kill()
    second = site.process(*[_by_agent] * 4, agent=nested)
    woken = next(record for record in await second.recover() if isinstance(record, Queued))
    await asyncio.wait_for((await second.runner.attach(woken.run_id)).wait(), 5)
    log = await second.log()
    assert len(work.calls) == 2
    assert settlements(log) == [("detached", None), ("succeeded", None)]
    assert "inner has done it" in second.told()
    check_promises(log)


def _by_agent(request: ModelRequest) -> Any:
    if request.agent == "outer":
        return call("inner", request="x") if len(request.turns) == 1 else say("noted")
    return call("work") if len(request.turns) == 1 else say("inner has done it")


async def test_a_question_is_asked_again(site: Site) -> None:
    """A call that waited for people is executed again if it may be, asks again, and gets the answer to that."""

    async def which(ctx: ToolContext) -> str:
        """Ask which."""
        return str((await ctx.ask("which?")).value)

    tool = FunctionTool(which, replay="safe")
    first = site.process(call("which"), tools=[tool])
    run = await first.start("one")
    while not (questions := await first.runner.questions(**HERE)):
        await settle()
    first.kill()
    second = site.process(tools=[tool])
    recovering = asyncio.create_task(second.recover())
    while len([record for record in await second.log() if isinstance(record, Paused)]) < 2:
        await settle()
    await second.runner.answer(run.run_id, questions[0].call_id, "this", by="ann")
    log = await recovering
    assert ending(log, run.run_id).outcome == "completed"
    assert "'result': 'this'" in second.told()
    check_promises(log)


# --- crash loops ------------------------------------------------------------------------------------------------------


async def test_a_model_that_insists_on_what_kills(site: Site) -> None:
    """A tool that may not be repeated and takes its process with it, and a model that asks for it again each time: the
    run is sealed after so many attempts, instead of killing one process after another (F107)."""
    works = [Work() for _ in range(3)]
    for number, work in enumerate(works):
        process = site.process(call("work"), tools=[work.tool("never")])
        if number == 0:
            await process.start("one", max_fruitless_attempts=2)
        else:
            recovering = asyncio.create_task(process.runner.recover())
        await work.began.wait()
        process.kill()
        if number:
            recovering.cancel()
    log = await site.process(tools=[works[0].tool("never")]).recover()
    assert [attempt for _, attempt in attempts(log)] == [1, 2, 3]
    assert settlements(log) == [("unknown", "crash")] * 3
    ended = next(record for record in log if isinstance(record, RunEnded))
    assert (ended.outcome, ended.cause, ended.llm_calls) == ("failed", "crash", 3)
    check_promises(log)


async def test_an_agent_of_ones_own_that_never_gets_on(site: Site) -> None:
    """An agent that says the same before it kills its process, each time, is not getting on."""

    class Poison(BaseAgent):
        def __init__(self, began: asyncio.Event) -> None:
            super().__init__("poison")
            self._began = began

        async def run(self, ctx: AgentContext) -> None:
            await ctx.checkpoint({"at": "the start"})
            await ctx.say("here I go")
            self._began.set()
            await asyncio.Event().wait()

    for number in range(3):
        began = asyncio.Event()
        process = site.process(agent=lambda _, began=began: Poison(began))
        if number == 0:
            await process.start("one", max_fruitless_attempts=2)
        else:
            recovering = asyncio.create_task(process.runner.recover())
        await began.wait()
        process.kill()
        if number:
            recovering.cancel()
    log = await site.process(agent=lambda _: Poison(asyncio.Event())).recover()
    assert [attempt for _, attempt in attempts(log)] == [1, 2, 3]
    check_promises(log)


# --- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "spent", "error"),
    [
        ({"max_llm_calls": 1}, 0, "LlmCallsLimitExceededError"),
        ({"max_tokens": 100}, 120, "LimitExceededError"),
        ({"max_tokens": 200}, 120, None),
        ({"max_llm_calls": 2}, 0, None),
    ],
)
async def test_budgets_count_over_attempts(site: Site, limit: dict[str, int], spent: int, error: str | None) -> None:
    """What the dead process spent counts: calls and tokens are those of the run, not of an attempt."""
    work = Work()
    first = site.process((call("work"), usage(spent, 0)), tools=[work.tool()])
    run = await first.start("one", **limit)
    await work.began.wait()
    first.kill()
    second = site.process(tools=[work.tool()])
    ended = ending(await second.recover(), run.run_id)
    assert (ended.error.type if ended.error is not None else None) == error
    assert second.model.calls == (0 if error else 1)
    assert ended.usage.total_tokens >= spent
    check_promises(await second.log())


async def die_on_a_clock(clock: FakeClock, **config: Any) -> tuple[Site, Process, str]:
    """Let a process die after eight seconds, in the middle of its tool."""
    site, work = Site(clock), Work()
    first = site.process(call("work"), tools=[work.tool()])
    run = await first.start("one", **config)
    await work.began.wait()
    await clock.advance(8)
    first.kill()
    return site, site.process(hang(), tools=[work.tool()]), run.run_id


@pytest.mark.parametrize("kind", ["max_seconds", "deadline"])
async def test_time_counts_over_attempts(kind: str) -> None:
    """The seconds of a run are those since its first start; its deadline stays the same: both end the later attempt."""
    clock = FakeClock()
    limit = {kind: 10.0 if kind == "max_seconds" else clock.time() + 10}
    site, second, run_id = await die_on_a_clock(clock, on_limit="stop", **limit)
    recovering = asyncio.create_task(second.recover())
    await settle()
    assert second.model.active == 1
    await clock.advance(2)
    ended = ending(await recovering, run_id)
    assert (ended.outcome, ended.cause) == ("cancelled", "deadline" if kind == "deadline" else "budget")
    check_promises(await second.log())
    await site.close()


async def test_time_that_passed_while_it_was_dead(site: Site) -> None:
    """A run whose deadline passed before anyone could continue it ends by it: nothing of it is begun again."""
    clock = FakeClock()
    site, second, run_id = await die_on_a_clock(clock, deadline=clock.time() + 10)
    await clock.advance(60)
    log = await second.recover()
    assert (ending(log, run_id).outcome, ending(log, run_id).cause) == ("cancelled", "deadline")
    assert second.model.calls == 0
    assert settlements(log)[0][0] == "unknown"
    check_promises(log)
    await site.close()


async def test_the_choice_is_stored_with_the_run(site: Site) -> None:
    """A run that was started to be sealed is sealed, whatever the app of the process that finds it says."""
    work = Work()
    run_id = await die_at_work(site, work, on_crash="seal")
    second = site.process(tools=[work.tool()])
    log = await second.recover()
    assert (ending(log, run_id).outcome, ending(log, run_id).cause) == ("failed", "crash")
    assert attempts(log) == [("one", 1)]
    check_promises(log)
