"""The sequences of events that ADK is known for, told in our records, and where we differ on purpose.

ADK writes one event with the results of a step, and marks those that wait as long-running. Here each fact is a record:
a question is `Paused`, an answer `Answered`, each result a settlement, and each run has an ending. Checkpoints are
ADK's, in its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.runner.desk import Desk
from tests.runner.waiting import (
    HERE,
    Counted,
    MakeDesk,
    of,
    paused,
    question,
    questions,
    reply,
    response,
)  # fmt: skip

from heaveto import (
    FunctionTool,
    LlmAgent,
    LongRunningFunctionTool,
    LoopAgent,
    MemoryStore,
    ParallelAgent,
    RunConfig,
    RunFailedError,
    SequentialAgent,
)  # fmt: skip
from heaveto.errors import AnswerConflictError
from heaveto.events.contents import calls_of, text_of
from heaveto.events.records import (
    AgentCheckpoint,
    Answered,
    CallSettled,
    CallStarted,
    Delta,
    Message,
    Paused,
    Record,
    RunEnded,
    RunStarted,
    Transferred,
)  # fmt: skip
from heaveto.stores.memory import MemoryData
from heaveto.testing import CrashingStore, ScriptedModel, call, say


def told(records: Sequence[Record]) -> list[str]:
    """A log in short: one line for each record."""
    return [line(record) for record in records]


def line(record: Record) -> str:
    match record:
        case RunStarted():
            return f"run: {record.trigger}"
        case RunEnded():
            return f"run {record.outcome}"
        case Message():
            where = f"{record.author} ({record.branch})" if record.branch else record.author
            calls = " ".join(one.name for one in calls_of(record.parts))
            return f"{where} calls {calls}" if calls else f"{where}: {text_of(record.parts)}"
        case CallStarted():
            return f"{record.name} begins"
        case CallSettled():
            return f"{record.name} {record.status}: {record.response}"
        case Paused():
            return f"{'asked' if record.held else 'paused'}: {' '.join(one.name for one in record.waiting)}"
        case Answered():
            return f"answered: {record.decision} {record.value}"
        case AgentCheckpoint():
            return f"{record.agent} ends" if record.end_of_agent else f"{record.agent} at {record.agent_state}"
        case Transferred():
            return f"to {record.agent}"
        case _:
            return type(record).__name__


def speaker(name: str, *texts: str) -> LlmAgent:
    return LlmAgent(name, ScriptedModel(*(say(text) for text in texts or (f"{name} text",))))


def waiter(name: str, *texts: str, tool: str = "job") -> LlmAgent:
    """An agent whose long-running tool says nothing yet."""
    model = ScriptedModel(call(tool), *(say(text) for text in texts or (f"{name} text",)))
    return LlmAgent(name, model, tools=[LongRunningFunctionTool(Counted(None), name=tool)])


def waiting_then(*before: str) -> list[str]:
    """What a log says where a call named job waits for its outcome."""
    return [*before, "job begins", "asked: job", "paused: job"]


ANSWERED = ["answered: value done", "run: answer", "job succeeded: {'result': 'done'}"]


async def answered(at: Desk) -> list[str]:
    return told(await reply(at, response((await question(at)).call_id, result="done")))


async def test_a1_a_sequence_with_a_long_running_call(desk: MakeDesk) -> None:
    """Sequential(a, b[waits], c): checkpoints and order are ADK's.

    ADK appends a repeated answer once more, and lets another one replace the first in what the model is told. Here the
    first answer counts: the same again writes nothing, and another one is an error.
    """
    at = desk(agent=SequentialAgent("seq", sub_agents=[speaker("a"), waiter("b"), speaker("c")]))
    await paused(at)
    job = (await question(at)).call_id
    assert told(await at.log()) == waiting_then(
        "run: message", "seq at {'current_sub_agent': 'a'}", "a: a text", "a ends",
        "seq at {'current_sub_agent': 'b'}", "b calls job",
    )  # fmt: skip
    assert await answered(at) == [
        *ANSWERED, "b: b text", "b ends", "seq at {'current_sub_agent': 'c'}", "c: c text", "c ends", "seq ends",
        "run completed",
    ]  # fmt: skip
    before = await at.log()
    assert await reply(at, response(job, result="done")) == []
    with pytest.raises(AnswerConflictError):
        await reply(at, response(job, result="other"))
    assert await at.log() == before


async def test_a1_text_instead_of_an_answer(desk: MakeDesk) -> None:
    """With ``keep`` the text begins a new run from the start, and the old one can be answered later, as in ADK.

    ADK knows no other way. By default a text declines here what waits (see the tests of texts and stops).
    """
    model = ScriptedModel(call("job"), say("b new"), say("b old"))
    b = LlmAgent("b", model, tools=[LongRunningFunctionTool(Counted(None), name="job")])
    at = desk(agent=SequentialAgent("seq", sub_agents=[speaker("a", "a old", "a new"), b]))
    await paused(at)
    seq = (await at.log())[-1].seq
    await at.ask("hello", RunConfig(on_text="keep"))
    assert told((await at.log())[seq:]) == [
        "run: message", "seq at {'current_sub_agent': 'a'}", "a: a new", "a ends",
        "seq at {'current_sub_agent': 'b'}", "b: b new", "b ends", "seq ends", "run completed",
    ]  # fmt: skip
    assert await answered(at) == [*ANSWERED, "b: b old", "b ends", "seq ends", "run completed"]


async def test_a2_a_loop(desk: MakeDesk) -> None:
    """Loop(w), two rounds: `times_looped` counts the completed ones."""
    at = desk(agent=LoopAgent("loop", sub_agents=[speaker("w", "w1", "w2")], max_iterations=2))
    await at.ask()
    assert told(await at.log()) == [
        "run: message", "loop at {'current_sub_agent': 'w', 'times_looped': 0}", "w: w1", "w ends",
        "loop at {'current_sub_agent': 'w', 'times_looped': 1}", "w: w2", "w ends", "loop ends", "run completed",
    ]  # fmt: skip


async def test_a3_a_loop_with_a_long_running_call(desk: MakeDesk) -> None:
    """Loop(w1[waits], w2), one round: no checkpoint is written again for the agent that is entered again."""
    at = desk(agent=LoopAgent("loop", sub_agents=[waiter("w1"), speaker("w2")], max_iterations=1))
    await paused(at)
    assert await answered(at) == [
        *ANSWERED, "w1: w1 text", "w1 ends", "loop at {'current_sub_agent': 'w2', 'times_looped': 0}", "w2: w2 text",
        "w2 ends", "loop ends", "run completed",
    ]  # fmt: skip


async def test_a4_parallel_agents_with_a_long_running_call(desk: MakeDesk) -> None:
    """Parallel(p1, p2[waits]): the other one ends, the one that is answered goes on in its branch."""
    at = desk(agent=ParallelAgent("par", sub_agents=[speaker("p1"), waiter("p2")]))
    await paused(at)
    assert told(await at.log()) == waiting_then(
        "run: message", "par at {}", "p1 (par.p1): p1 text", "p1 ends", "p2 (par.p2) calls job"
    )
    assert await answered(at) == [*ANSWERED, "p2 (par.p2): p2 text", "p2 ends", "par ends", "run completed"]


async def test_a5_two_long_running_calls(desk: MakeDesk) -> None:
    """The first answer starts nothing, the second one model call with both results."""
    tools = [LongRunningFunctionTool(Counted(None), name=name) for name in ("one", "two")]
    at = desk((call("one"), call("two")), say("both"), tools=tools)
    await paused(at)
    asked = await questions(at)
    assert told(await at.log())[-1] == "paused: one two"
    assert told(await reply(at, response(asked["one"].call_id, result=1))) == ["answered: value 1"]
    assert at.model.calls == 1
    assert told(await reply(at, response(asked["two"].call_id, result=2))) == [
        "answered: value 2", "run: answer", "one succeeded: {'result': 1}", "two succeeded: {'result': 2}",
        "root: both", "root ends", "run completed",
    ]  # fmt: skip
    assert at.model.calls == 2


@pytest.mark.parametrize(
    ("confirmed", "outcome"), [(True, ["pay begins", "pay succeeded: {'paid': 1}"]), (False, ["pay denied: None"])]
)
async def test_a6_a_confirmation(desk: MakeDesk, confirmed: bool, outcome: list[str]) -> None:
    """The call waits and is executed, or not, under its own id, and the model is asked once.

    ADK answers the call with an error first, asks with a second call of its own making, and keeps two results of one
    call, of which it shows the last. Here one call waits, has one id and gets one settlement; who answered is recorded,
    an error of the execution is told, and tool callbacks are asked once. A repeated yes is not appended.
    """
    pay = FunctionTool(Counted({"paid": 1}), name="pay", require_confirmation=True)
    at = desk(call("pay"), say("text"), tools=[pay])
    await paused(at)
    assert told(await at.log()) == ["run: message", "root calls pay", "asked: pay", "paused: pay"]
    yes_or_no = response((await question(at)).call_id + ":confirmation", confirmed=confirmed)
    decision = "approve" if confirmed else "deny"
    assert told(await reply(at, yes_or_no)) == [
        f"answered: {decision} None", "run: answer", *outcome, "root: text", "root ends", "run completed",
    ]  # fmt: skip
    assert await reply(at, yes_or_no) == []


async def test_a7_a_long_running_call_that_returns_a_value(desk: MakeDesk) -> None:
    """The model is told the value at once, and the outcome when it comes.

    ADK leaves the invocation without an end, and goes on with it when the outcome is answered. Here each run has one
    ending: the outcome begins a run of its own.
    """
    job = LongRunningFunctionTool(Counted({"status": "pending"}), name="job")
    at = desk(call("job"), say("begun"), say("done"), tools=[job])
    await at.ask()
    assert told(await at.log()) == [
        "run: message", "root calls job", "job begins", "job detached: {'status': 'pending'}", "asked: job",
        "root: begun", "root ends", "run completed",
    ]  # fmt: skip
    seq = (await at.log())[-1].seq
    await answered(at)
    log = await at.until(lambda log: len(of(log, RunEnded)) == 2)
    assert told(log[seq:]) == [
        "answered: value done", "job succeeded: {'result': 'done'}", "Queued", "run: background", "root: done",
        "root ends", "run completed",
    ]  # fmt: skip


async def test_a8_a_transfer(desk: MakeDesk) -> None:
    """The one that hands over ends last, as in ADK for Java; who is active is a record, and not guessed (F32)."""
    sub = speaker("sub", "sub text")
    at = desk(agent=LlmAgent("root", ScriptedModel(call("transfer_to_agent", agent_name="sub")), sub_agents=[sub]))
    await at.ask()
    assert told(await at.log()) == [
        "run: message", "root calls transfer_to_agent", "transfer_to_agent begins",
        "transfer_to_agent succeeded: {'transferred_to': 'sub'}", "to root/sub", "sub: sub text", "sub ends",
        "root ends", "run completed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("replay", "outcome"),
    [("safe", ["job begins", "job succeeded: {'result': 'done'}"]), ("never", ["job unknown: None"])],
)
async def test_a9_a_crash_behind_a_call(desk: MakeDesk, replay: Any, outcome: list[str]) -> None:
    """Resumed by its id, the run first sees to the call, and then asks the model (F69).

    ADK executes the call again, whatever it is and had done. Here only a tool that allows it is (F106).
    """
    data, job = MemoryData(), FunctionTool(Counted("done"), name="job", replay=replay)
    disk = MemoryStore(data)
    store = CrashingStore(disk, after=2)
    dead = Desk(call("job"), store=store, tools=[job])
    run = await dead.start()
    await store.died.wait()
    disk.abandon()
    at = desk(say("text"), store=MemoryStore(data), tools=[job])
    assert told(await at.log()) == ["run: message", "root calls job", "job begins"]
    stream = at.runner.run_async(run_id=run.run_id, **HERE)
    assert told([item async for item in stream if not isinstance(item, Delta)]) == [
        "run: recovery", *outcome, "root: text", "root ends", "run completed",
    ]  # fmt: skip
    store.bury()
    await dead.runner.aclose()


async def test_a12_the_limit_of_model_calls(desk: MakeDesk) -> None:
    """The calls of the last answer are executed, and then the run fails; there is no end of an agent that had none.

    ADK counts anew with each resume, and apart for agents that work as tools; here the budget is the run's.
    """
    at = desk(call("job"), say("never"), tools=[FunctionTool(Counted("done"), name="job")])
    run = await at.start(config=RunConfig(max_llm_calls=1))
    with pytest.raises(RunFailedError, match="1 model calls"):
        await run.result()
    assert told(await at.log()) == [
        "run: message", "root calls job", "job begins", "job succeeded: {'result': 'done'}", "run failed",
    ]  # fmt: skip
