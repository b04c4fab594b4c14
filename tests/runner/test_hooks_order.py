"""Callbacks: their order, what their answers do, and the one end hook of every run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.runner.desk import QUICK, SESSION, USER, Desk, Ends, Held

from heaveto import Content, Plugin, RunConfig, ToolFatalError
from heaveto.events.records import Record, RunEnded
from heaveto.runner import services
from heaveto.stores.base import Store
from heaveto.testing import call, fault, gate, hang, say, settle, usage

MakeDesk = Callable[..., Desk]
POINTS = ("before_run", "before_agent", "before_model", "after_model", "before_tool", "after_tool", "after_agent",
          "after_run", "on_user_message", "on_model_error", "on_tool_error")  # fmt: skip


def noting(seen: list[str], name: str) -> Plugin:
    def method(point: str) -> Any:
        async def note(_self: object, *_: object) -> None:
            seen.append(f"{name} {point}")

        return note

    return type(name, (Plugin,), {point: method(point) for point in POINTS})()


def own(seen: list[str]) -> dict[str, Any]:
    def note(point: str) -> Any:
        return lambda *_: seen.append(f"own {point}")

    points = ("before_agent", "after_agent", "before_model", "after_model", "before_tool", "after_tool",
              "on_model_error", "on_tool_error")  # fmt: skip
    return {f"{point}_callback": note(point) for point in points}


async def test_plugins_come_first_at_every_point(desk: MakeDesk) -> None:
    """At each point plugins are asked in order of registration, then the agent's own callbacks (ADK's order)."""
    seen: list[str] = []
    done = Held()
    done.may_end.set()
    at = desk(call("t"), say("ok"), tools=[done.tool("t")], plugins=[noting(seen, "p"), noting(seen, "q")], **own(seen))
    await at.ask()
    assert [entry for entry in seen if entry.startswith("p ")] == [
        f"p {point}"
        for point in ("on_user_message", "before_run", "before_agent", "before_model", "after_model", "before_tool",
                      "after_tool", "before_model", "after_model", "after_agent", "after_run")
    ]  # fmt: skip
    groups = [seen[i : i + 3] for i in range(4, len(seen) - 2, 3)]
    assert all([entry.split()[0] for entry in group] == ["p", "q", "own"] for group in groups)


async def test_what_before_agent_says_replaces_the_agent(desk: MakeDesk) -> None:
    """A content from before_agent is the agent's answer; its model is not asked."""
    at = desk(before_agent_callback=lambda ctx: "closed on Sundays")
    run = await at.start()
    assert await run.result() == "closed on Sundays"
    assert at.model.calls == 0


async def test_before_model_replaces_answer_or_request(desk: MakeDesk) -> None:
    """A content from before_model is the answer, a request replaces the request."""
    at = desk(before_model_callback=lambda ctx, request: Content.of("cached"))
    assert await (await at.start()).result() == "cached"
    other = desk(say("ok"), before_model_callback=lambda ctx, request: replace(request, instruction="be brief"))
    await other.ask()
    assert other.model.requests[0].instruction == "be brief"


async def test_after_model_replaces_the_answer(desk: MakeDesk) -> None:
    """What after_model returns is what is recorded; a callback's error fails the run, the text seen is kept."""
    at = desk(say("damn"), after_model_callback=lambda ctx, answer: Content.of("****"))
    assert await (await at.start()).result() == "****"

    def broken(*_: object) -> None:
        raise ValueError("bug")

    other = desk(say("the text"), after_model_callback=broken)
    assert (await other.ask()).outcome == "failed"
    assert [message.interrupted for message in await other.messages()] == ["error"]


async def test_on_model_error_may_answer(desk: MakeDesk) -> None:
    """on_model_error's content is the answer; what had been shown before the error is kept before it."""
    at = desk(
        (say("Hello wor"), fault("gone", status=400)), say("next"),
        on_model_error_callback=lambda ctx, request, error: Content.of("Sorry."),
    )  # fmt: skip
    run = await at.start()
    assert await run.result() == "Sorry."
    assert [(m.interrupted, m.parts[0].text) for m in await at.messages()] == [  # type: ignore[union-attr]
        ("error", "Hello wor"), (None, "Sorry."),
    ]  # fmt: skip
    assert (await at.ask("and?")).outcome == "completed"


async def test_tool_callbacks_replace_results(desk: MakeDesk) -> None:
    """before_tool's dict replaces the call, after_tool's its result, on_tool_error's its error."""
    held = Held()
    at = desk(call("held"), say("ok"), tools=[held.tool()], before_tool_callback=lambda *_: {"cached": 1})
    await at.ask()
    assert ((await at.settled())["held"].response, held.calls) == ({"cached": 1}, 0)
    held.may_end.set()
    at = desk(call("held"), say("ok"), tools=[held.tool()], after_tool_callback=lambda *_: {"masked": True})
    await at.ask()
    assert (await at.settled())["held"].response == {"masked": True}
    bad = Held(error=ValueError("x"))
    bad.may_end.set()
    at = desk(call("bad"), say("ok"), tools=[bad.tool("bad")], on_tool_error_callback=lambda *_: {"fallback": 1})
    await at.ask()
    assert ((await at.settled())["bad"].status, (await at.settled())["bad"].response) == ("succeeded", {"fallback": 1})


async def test_a_before_tool_callback_that_raises_refuses_the_call(desk: MakeDesk) -> None:
    """An error of before_tool keeps the tool from running and is told to the model; a fatal one fails the run."""

    def refuse(*_: object) -> None:
        raise PermissionError("not you")

    held = Held()
    at = desk(call("held"), say("ok"), tools=[held.tool()], before_tool_callback=refuse)
    assert (await at.ask()).outcome == "completed"
    assert (held.calls, (await at.settled())["held"].status) == (0, "failed")

    def forbid(*_: object) -> None:
        raise ToolFatalError("never")

    at = desk(call("held"), tools=[held.tool()], before_tool_callback=forbid)
    assert (await at.ask()).outcome == "failed"
    assert held.calls == 0


async def test_an_after_tool_callback_that_raises_does_not_cost_the_result(desk: MakeDesk) -> None:
    """A bug in after_tool fails the run, and the tool's real result is in the log (P4)."""

    def broken(*_: object) -> None:
        raise ValueError("bug")

    held = Held("real")
    held.may_end.set()
    at = desk(call("held"), tools=[held.tool()], after_tool_callback=broken)
    ended = await at.ask()
    assert ended.error is not None and ended.error.type == "ValueError"
    assert (await at.settled())["held"].response == {"result": "real"}


async def test_after_run_comes_on_completion_only(desk: MakeDesk) -> None:
    """after_run is called for a completed run, not for a stopped or failed one (ADK's rule)."""
    seen: list[str] = []
    at = desk(say("ok"), fault("no", status=400), hang(), plugins=[noting(seen, "p")])
    await at.ask()
    assert seen.count("p after_run") == 1
    await at.ask()
    run = await at.start()
    await settle()
    await run.cancel()
    assert seen.count("p after_run") == 1


# --- the one end ------------------------------------------------------------------------------------------------------


async def test_every_end_is_told_once(desk: MakeDesk, store: Store) -> None:
    """Success, error, stop, closed stream, deadline: exactly one on_run_end each, with its outcome (F128, F130)."""
    ends = Ends()
    at = desk(
        say("ok"), fault("no", status=400), hang(), (say("Hel"), hang()), hang(), store=store, plugins=[ends]
    )  # fmt: skip
    await at.ask()
    await at.ask()
    run = await at.start()
    await settle()
    await run.cancel()
    stream = at.runner.run_async(user_id=USER, session_id=SESSION, new_message="go", run_config=QUICK)
    await anext(stream)
    await stream.aclose()
    await at.ask("go", RunConfig(deadline=1_600_000_000.0, cancel_grace_seconds=0.02))
    await ends.come(5)
    assert ends.outcomes == [
        ("completed", None), ("failed", None), ("cancelled", "user"), ("cancelled", "disconnect"),
        ("cancelled", "deadline"),
    ]  # fmt: skip
    assert len({end.run_id for end in ends.ends}) == 5


@pytest.mark.parametrize("error", [ValueError("bug"), asyncio.CancelledError()])
async def test_an_end_hook_that_raises_changes_nothing(desk: MakeDesk, error: BaseException) -> None:
    """An error in on_run_end, CancelledError included, is logged; other plugins hear of the end, the next run runs."""

    class Broken(Plugin):
        async def on_run_end(self, end: object) -> None:
            raise error

    ends = Ends()
    at = desk(say("a"), say("b"), plugins=[Broken(), ends])
    assert (await at.ask()).outcome == "completed"
    assert (await at.ask()).outcome == "completed"
    await ends.come(2)


async def test_an_end_hook_that_never_returns_is_left_behind(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """on_run_end is bounded in time, also where it swallows its cancellation."""
    monkeypatch.setattr(services, "END_HOOK_SECONDS", 0.01)
    may_end = asyncio.Event()

    class Stuck(Plugin):
        async def on_run_end(self, end: object) -> None:
            while not may_end.is_set():
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    continue

    at = desk(say("a"), say("b"), plugins=[Stuck()])
    assert (await at.ask()).outcome == "completed"
    assert (await at.ask()).outcome == "completed"
    may_end.set()
    await settle()


# --- on_event ---------------------------------------------------------------------------------------------------------


class Observer(Plugin):
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ended = asyncio.Event()

    async def on_event(self, record: Record) -> None:
        await asyncio.sleep(0)
        self.records.append(record)
        if isinstance(record, RunEnded):
            self.ended.set()


async def test_observers_hear_every_record_in_order(desk: MakeDesk, store: Store) -> None:
    """on_event is told each record of a run once, in the order of the log, with parallel tools too."""
    observer = Observer()
    tools = [Held(i) for i in range(3)]
    for tool in tools:
        tool.may_end.set()
    at = desk(
        tuple(call(f"t{i}") for i in range(3)), say("ok"), store=store, plugins=[observer],
        tools=[tool.tool(f"t{i}") for i, tool in enumerate(tools)],
    )  # fmt: skip
    await at.ask()
    await observer.ended.wait()
    assert observer.records == await at.log()


async def test_an_observer_that_raises_changes_nothing(desk: MakeDesk) -> None:
    """An error in on_event neither fails the run nor keeps on_run_end from being told (F128)."""

    class Broken(Plugin):
        async def on_event(self, record: Record) -> None:
            raise ValueError(type(record).__name__)

    ends = Ends()
    at = desk(say("ok"), plugins=[Broken(), ends])
    assert (await at.ask()).outcome == "completed"
    await ends.come(1)


async def test_an_observer_that_hangs_holds_up_no_stop(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop is over as soon as its ending is durable, whatever on_event does (F151)."""
    monkeypatch.setattr(services, "END_HOOK_SECONDS", 0.01)
    asked = asyncio.Event()

    class Stuck(Plugin):
        async def on_event(self, record: Record) -> None:
            asked.set()
            await asyncio.Event().wait()

    at = desk(say("ok"), plugins=[Stuck()])
    run = await at.start()
    await asked.wait()
    assert (await run.cancel()).outcome == "cancelled"


# --- accounting -------------------------------------------------------------------------------------------------------


async def test_a_stopped_stream_is_in_the_books(desk: MakeDesk) -> None:
    """A stream that is stopped before its usage came is recorded at once, with an estimate (F126)."""
    door = gate()
    at = desk((say("word " * 50), door, usage(10, 1000)))
    run = await at.start("a question of some length")
    await door.reached()
    report = await run.cancel()
    assert report.usage.estimated
    assert report.usage.output_tokens > 10
    assert report.usage.input_tokens > 0
    ended = (await at.endings())[0]
    assert (ended.usage, ended.llm_calls) == (report.usage, 1)


async def test_completed_steps_are_in_the_books_of_a_stopped_run(desk: MakeDesk, store: Store) -> None:
    """Usage is recorded per model call, independent of readers and of how the run ends (F127)."""
    held, ends = Held(), Ends()
    at = desk((call("held"), usage(100, 20)), store=store, tools=[held.tool()], plugins=[ends])
    run = await at.start()
    await held.began.wait()
    await run.cancel()
    ended = next(record for record in await at.log() if isinstance(record, RunEnded))
    assert (ended.usage.input_tokens, ended.usage.output_tokens, ended.usage.estimated) == (100, 20, False)
    await ends.come(1)
    assert ends.ends[0].usage == ended.usage


async def test_a_refused_request_costs_nothing(desk: MakeDesk) -> None:
    """A request that failed before anything came is not in the books as an estimate (F126)."""
    ended = await desk(fault("bad key", status=401)).ask()
    assert ended.outcome == "failed"
    assert ended.usage.total_tokens == 0
