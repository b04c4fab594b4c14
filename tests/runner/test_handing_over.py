"""A runner that is closed over running runs, and hands them over: the next process goes on with what is known."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from tests.runner.desk import Held, HeldThread

from heaveto import (
    App,
    LlmAgent,
    MemoryStore,
    ParallelAgent,
    RequestInputTool,
    Run,
    RunConfig,
    Runner,
    SequentialAgent,
)
from heaveto.agents.base import BaseAgent
from heaveto.errors import ConfigError, RunnerClosedError
from heaveto.events.records import CallSettled, CallStarted, Message, Paused, Record, RunEnded, RunStarted, SessionKey
from heaveto.stores.memory import MemoryData
from heaveto.testing import ScriptedModel, call, gate, say, settle
from heaveto.testing.promises import check_promises
from heaveto.tools.function import FunctionTool

WHO: dict[str, Any] = {"user_id": "ann", "session_id": "s"}
KEY = SessionKey("desk", "ann", "s")
QUICK = RunConfig(cancel_grace_seconds=0.05)


def open_runner(data: MemoryData, agent: BaseAgent) -> Runner:
    return Runner(app=App("desk", agent, on_shutdown="hand_over"), store=MemoryStore(data))


async def start(runner: Runner, text: str = "go") -> Run:
    return await runner.start(**WHO, new_message=text, run_config=QUICK)


async def log_of(data: MemoryData) -> list[Record]:
    store = MemoryStore(data)
    records = await store.read(KEY)
    await store.aclose()
    return records


async def recovered(data: MemoryData, agent: BaseAgent) -> list[Record]:
    async with open_runner(data, agent) as runner:
        await runner.recover()
    records = await log_of(data)
    check_promises(records)
    return records


def statuses(records: list[Record]) -> list[tuple[str, str | None]]:
    return [(record.status, record.cause) for record in records if isinstance(record, CallSettled)]


@pytest.mark.parametrize(
    ("replay", "expected", "starts"),
    [("never", [("cancelled", "shutdown")], 1), ("safe", [("succeeded", None)], 2)],
)
async def test_a_call_at_work(
    replay: Literal["never", "safe"], expected: list[tuple[str, str | None]], starts: int
) -> None:
    """One that may be repeated is executed again by the next process; of another the model is told that it was stopped
    by the shutdown (F107)."""
    data, held, again = MemoryData(), Held(), Held("again")
    again.may_end.set()
    runner = open_runner(data, LlmAgent("root", ScriptedModel(call("job")), tools=[tool(held, replay)]))
    await start(runner)
    await held.began.wait()
    await runner.aclose()
    handed = await log_of(data)
    assert isinstance(handed[-1], Paused) and not any(isinstance(record, RunEnded) for record in handed)
    records = await recovered(data, LlmAgent("root", ScriptedModel(say("done")), tools=[tool(again, replay)]))
    assert statuses(records) == expected
    assert sum(isinstance(record, CallStarted) for record in records) == starts
    assert [record.trigger for record in records if isinstance(record, RunStarted)] == ["message", "continuation"]
    assert [record.outcome for record in records if isinstance(record, RunEnded)] == ["completed"]


def tool(held: Held, replay: Literal["never", "safe"]) -> FunctionTool:
    return FunctionTool(held, name="job", replay=replay)


async def test_an_answer_that_was_being_streamed() -> None:
    """What was seen of it is kept as cut off by the shutdown, and the model goes on."""
    data, door = MemoryData(), gate()
    runner = open_runner(data, LlmAgent("root", ScriptedModel((say("The answ"), door, say("er")))))
    await start(runner)
    await door.reached()
    await runner.aclose()
    records = await recovered(data, LlmAgent("root", ScriptedModel(say("The answer."))))
    said = [record for record in records if isinstance(record, Message)]
    assert [(message.interrupted, message.parts[0].text) for message in said] == [  # type: ignore[union-attr]
        ("shutdown", "The answ"), (None, "The answer."),
    ]  # fmt: skip


async def test_agents_that_were_done_do_not_work_again() -> None:
    """A sequence goes on with the agent that was at work."""
    data, held, again = MemoryData(), Held(), Held("again")
    again.may_end.set()

    def agents(first: ScriptedModel, second: ScriptedModel, job: Held) -> SequentialAgent:
        tools = [tool(job, "safe")]
        return SequentialAgent("both", sub_agents=[LlmAgent("a", first), LlmAgent("b", second, tools=tools)])

    runner = open_runner(data, agents(ScriptedModel(say("a is done")), ScriptedModel(call("job")), held))
    await start(runner)
    await held.began.wait()
    await runner.aclose()
    records = await recovered(data, agents(ScriptedModel(), ScriptedModel(say("b is done")), again))
    assert [record.author for record in records if isinstance(record, Message)] == ["a", "b", "b"]


async def test_a_thread_that_goes_on_is_not_executed_beside_itself() -> None:
    """It is unknown, and nobody starts it again, although its tool would allow it (P5)."""
    data, thread = MemoryData(), HeldThread()
    agent = LlmAgent("root", ScriptedModel(call("thread")), tools=[FunctionTool(thread, name="thread", replay="safe")])
    runner = open_runner(data, agent)
    await start(runner)
    await thread.began.wait()
    closing = asyncio.ensure_future(runner.aclose())
    handed_over = asyncio.Event()
    watching = MemoryStore(data)
    watching.subscribe(KEY, lambda _: handed_over.set())
    await handed_over.wait()
    assert statuses(await log_of(data)) == [("unknown", "shutdown")]
    thread.may_end.set()
    await closing


async def test_what_worked_beside_a_question_goes_on_before_its_answer() -> None:
    """Of two agents one waits for a person, the other one works. The next process goes on with the work at once; the
    question stays asked, and its answer completes the run (F107)."""
    data, held, again = MemoryData(), Held(), Held("again")
    again.may_end.set()

    def sides(asks: ScriptedModel, works: ScriptedModel, job: Held) -> ParallelAgent:
        asking = LlmAgent("asks", asks, tools=[RequestInputTool()])
        return ParallelAgent("sides", sub_agents=[asking, LlmAgent("works", works, tools=[tool(job, "safe")])])

    asked = ScriptedModel(call("request_input", question="Which colour?"))
    runner = open_runner(data, sides(asked, ScriptedModel(call("job")), held))
    run = await start(runner)
    await held.began.wait()
    await settle()
    assert await runner.questions(**WHO)
    await runner.aclose()

    async with open_runner(data, sides(ScriptedModel(say("blue")), ScriptedModel(say("worked")), again)) as other:
        await other.recover()
        said = [record.author for record in await other.records(**WHO) if isinstance(record, Message)]
        assert said.count("works") == 2, "its call, and its answer"
        (question,) = await other.questions(**WHO)
        await other.answer(run.run_id, question.call_id, "blue")
        assert (await (await other.attach(run.run_id)).wait()).outcome == "completed"
    check_promises(await log_of(data))


async def test_a_stop_is_final() -> None:
    """A run that someone stopped is not handed over (F107)."""
    data, held = MemoryData(), Held(swallow=10**6)
    runner = open_runner(data, LlmAgent("root", ScriptedModel(call("job")), tools=[tool(held, "never")]))
    run = await start(runner)
    await held.began.wait()
    stopping = asyncio.ensure_future(run.cancel())
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(runner.aclose())
    report = await stopping
    held.may_end.set()
    await closing
    assert report.cause == "user"
    assert [record.cause for record in await log_of(data) if isinstance(record, RunEnded)] == ["user"]


async def test_who_waits_for_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The handle of a closed runner does not wait for what another process does."""
    data, held = MemoryData(), Held()
    runner = open_runner(data, LlmAgent("root", ScriptedModel(call("job")), tools=[tool(held, "safe")]))
    run = await start(runner)
    waiting = asyncio.ensure_future(run.wait())
    await held.began.wait()
    await runner.aclose()
    with pytest.raises(RunnerClosedError):
        await waiting
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_the_next_message_waits_for_it() -> None:
    """Whoever writes next finds the run going on first; the message is durable meanwhile (F60)."""
    data, held, again = MemoryData(), Held(), Held("again")
    runner = open_runner(data, LlmAgent("root", ScriptedModel(call("job")), tools=[tool(held, "safe")]))
    await start(runner)
    await held.began.wait()
    await runner.aclose()
    model = ScriptedModel(say("first"), say("second"))
    async with open_runner(data, LlmAgent("root", model, tools=[tool(again, "safe")])) as other:
        second = await asyncio.wait_for(start(other, "next"), 5)
        await again.began.wait()
        again.may_end.set()
        assert await second.result() == "second"
    records = await log_of(data)
    check_promises(records)
    assert [record.outcome for record in records if isinstance(record, RunEnded)] == ["completed", "completed"]


def test_a_policy_that_does_not_exist_is_refused() -> None:
    """The error names those there are."""
    with pytest.raises(ConfigError, match="stop, hand_over"):
        App("desk", LlmAgent("root", ScriptedModel()), on_shutdown="leave")  # type: ignore[arg-type]
