"""Public failures of streams, with real connectors where the failure was theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.models.raw_server import HEAD, RawServer, event, events
from tests.runner.desk import Desk

from heaveto import LlmAgent, RunConfig
from heaveto.agents.tool import AgentTool
from heaveto.events.contents import Text, text_of
from heaveto.events.records import Delta, Paused
from heaveto.models.gemini import Gemini
from heaveto.models.openai_chat import OpenAIChat
from heaveto.stores.base import Store
from heaveto.testing import Emulator, ScriptedModel, call, fault, gate, hang, say, usage
from heaveto.testing.clock import FakeClock
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]


def delta(content: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": content, "finish_reason": finish}]}


def shown(items: list[Any]) -> str:
    return "".join(item.text for item in items if isinstance(item, Delta) and item.kind == "text")


async def test_what_readers_were_shown_is_what_is_kept_and_told(desk: MakeDesk) -> None:
    """Behind a stop, the model is told its answer as far as it was delivered to readers, and no further (P4)."""
    door = gate()
    at = desk((say("Hel"), door, say("lo")), say("ok"))
    run = await at.start()
    items: list[Any] = []
    async for item in run.stream():
        items.append(item)
        if isinstance(item, Delta):
            break
    await door.reached()
    await run.cancel()
    assert [text_of(message.parts) for message in await at.messages()] == [shown(items)] == ["Hel"]
    await at.ask("and?")
    told = [turn for turn in at.model.requests[1].turns if turn.role == "model"]
    assert [text_of(turn.parts) for turn in told] == ["Hel"]


async def test_an_attempt_that_only_began_is_not_seen_behind_a_second_one(desk: MakeDesk) -> None:
    """It sent its start and stalled: readers and the log see one message, that of the second attempt (F64)."""
    began = delta({"role": "assistant", "content": ""})
    whole = events(began, delta({"content": "Hello"}), delta({}, "stop"))
    async with RawServer([HEAD, event(began), "hang"], whole) as server:
        model = OpenAIChat("m", base_url=f"{server.url}/v1", timeout_seconds=0.2)
        at = desk(agent=LlmAgent("root", model))
        run = await at.start("go", RunConfig(model_retries=1, retry_backoff_seconds=0))
        items = [item async for item in run.stream()]
        assert (await run.wait()).outcome == "completed"
        await model.aclose()
        assert len(server.requests) == 2
    (message,) = await at.messages()
    assert message.parts == (Text(text="Hello"),)
    assert {item.message_id for item in items if isinstance(item, Delta)} <= {message.id}
    assert shown(items) in ("", "Hello")


async def test_arguments_of_two_attempts_never_meet(desk: MakeDesk) -> None:
    """Cut at the first one, whole at the next: what is executed is the second one, and nothing of the first (F65)."""
    codes: list[str] = []

    async def execute(code: str) -> None:
        codes.append(code)

    steps = ((call("execute", code="print(0)"), fault(after_chunks=1)), call("execute", code="print(1)"), say("Done."))
    async with Emulator(*steps) as emulator:
        model = OpenAIChat("m", base_url=emulator.openai_url)
        at = desk(agent=LlmAgent("root", model, tools=[execute]))
        assert (await at.ask("go", RunConfig(model_retries=3, retry_backoff_seconds=0))).outcome == "failed"
        assert codes == []
        assert (await at.ask("again")).outcome == "completed"
        await model.aclose()
        emulator.assert_done()
    assert codes == ["print(1)"]


async def test_a_reader_that_comes_later_sees_what_is_waited_for(desk: MakeDesk) -> None:
    """A page that is loaded again is shown the question, from its own position on, and can answer it (F125)."""

    async def pay() -> None:
        raise AssertionError("nobody confirmed it")

    at = desk(call("pay"), tools=[FunctionTool(pay, require_confirmation=True)])
    run = await at.start()
    first = [item async for item in run.stream(deltas=False)]
    again = [item async for item in run.stream(deltas=False)]
    assert first == again and isinstance(again[-1], Paused)
    tail = [item async for item in run.stream(after=first[-2].seq, deltas=False)]
    assert tail == first[-1:]
    (question,) = await at.runner.questions(user_id="ann", session_id="s")
    assert question.tool == "pay"


async def test_a_stopped_stream_costs_what_the_provider_counted_so_far(desk: MakeDesk) -> None:
    """The prompt as Gemini counted it, the answer at least by its length, and marked as an estimate (F126)."""
    async with Emulator((say("word " * 40), hang(), usage(1234, 500))) as emulator:
        model = Gemini("gemini-3-pro", api_key="k", base_url=emulator.google_url)
        at = desk(agent=LlmAgent("root", model))
        run = await at.start()
        async for item in run.stream():
            if isinstance(item, Delta):
                break
        report = await run.cancel()
        await asyncio.wait_for(emulator.exchanges[0].over(), 1)
        await model.aclose()
    assert (report.usage.input_tokens, report.usage.output_tokens, report.usage.estimated) == (1234, 50, True)
    assert (await at.endings())[0].usage == report.usage


async def test_what_an_agent_as_a_tool_had_found_outlives_its_time(desk: MakeDesk, store: Store) -> None:
    """Its finished calls and what it said are in the log, whatever becomes of it; its caller is told why (F157)."""
    clock = FakeClock()
    found: list[str] = []

    async def find(what: str) -> str:
        found.append(what)
        return f"all about {what}"

    door = gate()
    helper = LlmAgent("helper", ScriptedModel(call("find", what="a"), (say("So far"), door)), tools=[find])
    tool = AgentTool(helper)
    tool.timeout_seconds = 60
    at = desk(call("helper", request="find a"), say("I see."), tools=[tool], store=store, clock=clock)
    run = await at.start()
    await door.reached()
    await clock.advance(61)
    assert (await run.wait()).outcome == "completed"
    settled = await at.settled()
    assert (settled["find"].status, settled["find"].response) == ("succeeded", {"result": "all about a"})
    assert settled["helper"].status != "succeeded" and "60" in str(settled["helper"])
    kept = [message for message in await at.messages() if message.author == "helper"]
    assert "So far" in [text_of(message.parts) for message in kept]
