"""Stopping a run: whoever asks, whenever, from wherever; it always stops, once, and says so."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.runner.desk import QUICK, SESSION, USER, Desk, Ends, Held, kinds, states

from heaveto import Plugin, RunCancelled, RunConfig, Runner, ToolContext
from heaveto.agents.base import BaseAgent
from heaveto.agents.context import AgentContext
from heaveto.errors import ModelError, RunnerClosedError, StoreClosedError, UnknownRunError
from heaveto.events.contents import Text
from heaveto.events.records import CallSettled, CancelRequested, Message, RunEnded, RunStarted
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryData, MemoryStore
from heaveto.testing import FakeClock, ScriptedModel, call, fault, gate, hang, say, settle
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]


@pytest.mark.parametrize("step", [hang(), (say("Hel"), hang())], ids=["before the first token", "in mid-stream"])
async def test_the_stream_is_closed_at_once(desk: MakeDesk, step: Any) -> None:
    """A stop closes the model's stream before it returns, before the first token as well as behind it (F51)."""
    at = desk(step)
    run = await at.start()
    await settle()
    assert at.model.active == 1
    await run.cancel()
    assert (at.model.active, at.model.closed) == (0, 1)


async def test_a_stop_before_the_start_is_kept(desk: MakeDesk, store: Store) -> None:
    """Cancelled before it began, a run never begins; other runs do (F54, F165)."""
    at = desk(say("hi"), store=store)
    await at.runner.cancel("early", user_id=USER, session_id=SESSION, by="ann")
    ended = await at.ask("go", run_id="early")
    assert (ended.outcome, ended.cause, ended.by) == ("cancelled", "user", "ann")
    assert at.model.calls == 0
    assert (await at.ask("another")).outcome == "completed"


async def test_a_stop_during_a_cold_start_is_obeyed(desk: MakeDesk) -> None:
    """A stop that comes while the session is still being opened keeps the run from starting (F54, F164)."""

    class SlowToOpen(MemoryStore):
        async def claim(self, key: Any) -> Any:
            opening.set()
            await opened.wait()
            return await super().claim(key)

    opening, opened = asyncio.Event(), asyncio.Event()
    at = desk(say("hi"), store=SlowToOpen())
    starting = asyncio.ensure_future(at.start("go", run_id="r"))
    await opening.wait()
    stopping = asyncio.ensure_future(at.runner.cancel("r", user_id=USER, session_id=SESSION))
    await settle()
    opened.set()
    await stopping
    assert (await (await starting).wait()).outcome == "cancelled"
    assert at.model.calls == 0


async def test_a_stop_from_another_task_of_the_loop(desk: MakeDesk) -> None:
    """`cancel` suspends its caller and never blocks the loop (F59)."""
    at = desk(hang())
    run = await at.start()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    assert (await run.cancel()).outcome == "cancelled"
    assert ticks > 1
    ticking.cancel()


async def test_a_stop_from_another_thread(desk: MakeDesk) -> None:
    """`cancel_soon` may be called from any thread, and returns at once (F59)."""
    at = desk(hang())
    run = await at.start()
    thread = threading.Thread(target=run.cancel_soon, kwargs={"by": "watchdog", "reason": "too hot"})
    thread.start()
    ended = await run.wait()
    thread.join()
    assert (ended.outcome, ended.by, ended.reason) == ("cancelled", "watchdog", "too hot")


@pytest.mark.parametrize("way", ["context", "handle", "runner", "soon"])
async def test_a_tool_may_stop_its_own_run(desk: MakeDesk, way: str) -> None:
    """A stop from inside a tool of the run does not wait for itself (F59)."""

    async def stop(ctx: ToolContext) -> None:
        match way:
            case "context":
                await ctx.cancel_run(by="tool", reason="enough")
            case "handle":
                await run.cancel(by="tool", reason="enough")
            case "runner":
                await at.runner.cancel(ctx.run_id, by="tool", reason="enough")
            case _:
                run.cancel_soon(by="tool", reason="enough")
        await asyncio.Event().wait()

    at = desk(call("stop"), tools=[FunctionTool(stop)])
    run = await at.start()
    ended = await run.wait()
    assert (ended.outcome, ended.cause, ended.by, ended.reason) == ("cancelled", "user", "tool", "enough")


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_tool_that_stops_its_run_and_obeys(desk: MakeDesk, blocking: bool) -> None:
    """A tool that notices the stop by itself counts as stopped, although nobody interrupted it yet (F35, F59)."""

    async def coroutine(ctx: ToolContext) -> None:
        await ctx.cancel_run()
        ctx.raise_if_cancelled()

    def thread(ctx: ToolContext) -> None:
        run.cancel_soon()
        while True:
            ctx.raise_if_cancelled()

    at = desk(call("t"), tools=[FunctionTool(thread if blocking else coroutine, name="t")])
    run = await at.start("go", RunConfig(cancel_grace_seconds=10))
    ended = await run.wait()
    assert ended.report is not None
    assert states(ended.report) == {"t": "stopped"}


async def test_a_stop_is_idempotent(desk: MakeDesk, store: Store) -> None:
    """Stopped again, during or after, a run has one request, one ending and the same report (P7)."""
    ends = Ends()
    at = desk(hang(), store=store, plugins=[ends])
    run = await at.start()
    reports = await asyncio.gather(*(run.cancel(by=f"client {i}") for i in range(5)))
    reports.append(await run.cancel(by="late"))
    assert len({report.by for report in reports}) == 1
    assert all(report == reports[0] for report in reports)
    await settle()
    assert kinds(await at.log()).count("CancelRequested") == 1
    assert kinds(await at.log()).count("RunEnded") == 1
    assert len(ends.ends) == 1


async def test_a_stop_of_a_run_that_completed_changes_nothing(desk: MakeDesk, store: Store) -> None:
    """A stop that is too late reports the completion and writes nothing; it never hits a newer run (F151)."""
    door = gate()
    at = desk(say("done"), (door, say("second")), store=store)
    first = await at.start()
    await first.wait()
    second = await at.start()
    await door.reached()
    before = await at.log()
    assert (await first.cancel()).outcome == "completed"
    assert await at.log() == before
    door.open()
    assert (await second.wait()).outcome == "completed"


async def test_a_stop_of_an_unknown_run_is_an_error(desk: MakeDesk, store: Store) -> None:
    """A stop addressed to a run that nobody knows says so."""
    at = desk(say("done"), store=store)
    await at.ask()
    with pytest.raises(UnknownRunError):
        await at.runner.cancel("nobody")


async def test_stop_from_another_runner_on_the_same_store() -> None:
    """Handler B, in another process, stops what handler A runs; refresh in between stops nothing (F136)."""
    data, model = MemoryData(), ScriptedModel((say("Hel"), hang()), say("ok"))
    from heaveto import LlmAgent

    a = Runner(LlmAgent("root", model), app_name="desk", store=MemoryStore(data))
    b = Runner(LlmAgent("root", ScriptedModel()), app_name="desk", store=MemoryStore(data))
    run = await a.start(user_id=USER, session_id=SESSION, new_message="go", run_config=QUICK)
    reader = run.stream()
    await anext(reader)
    await reader.aclose()
    assert run.status == "running"
    again = (await a.attach(run.run_id)).stream()
    assert isinstance(await anext(again), RunStarted)
    report = await b.cancel(run.run_id, by="handler B")
    assert (report.outcome, report.by, report.text_kept) == ("cancelled", "handler B", 3)
    assert model.active == 0
    rest = [item async for item in again]
    assert isinstance(rest[-1], RunEnded)
    await a.aclose()
    await b.aclose()


async def test_cancelling_is_seen_while_it_lasts(desk: MakeDesk) -> None:
    """Between request and ending the run's status is cancelling, and the request is durable (F150)."""
    clock = FakeClock()
    held = Held(swallow=10**9)
    at = desk(call("held"), tools=[held.tool()], clock=clock)
    run = await at.start("go", RunConfig(cancel_grace_seconds=1))
    await held.began.wait()
    stopping = asyncio.ensure_future(run.cancel())
    await settle()
    assert run.status == "cancelling"
    assert any(isinstance(record, CancelRequested) for record in await at.log())
    await clock.advance(1)
    await stopping
    assert run.status == "cancelled"
    held.may_end.set()
    await held.left.wait()


async def test_a_stop_during_back_off_settles_at_once(desk: MakeDesk) -> None:
    """529 with retry-after 60 s, stopped at 5 s: the run ends then, and asks no more (F152, F159)."""
    clock = FakeClock()
    at = desk(fault("overloaded", status=529, retry_after_seconds=60), say("never"), clock=clock)
    run = await at.start()
    await settle()
    await clock.advance(5)
    ended_at = clock.time()
    await run.cancel()
    assert clock.time() == ended_at
    await clock.advance(120)
    assert at.model.calls == 1


async def test_a_stop_is_not_an_error_in_the_log(desk: MakeDesk, caplog: pytest.LogCaptureFixture) -> None:
    """What a user stopped logs no warning and no error (F37, F134)."""
    caplog.set_level(logging.INFO)
    held = Held()
    at = desk((say("Hm"), call("held")), tools=[held.tool()])
    run = await at.start()
    await held.began.wait()
    await run.cancel()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# --- code that absorbs the stop ---------------------------------------------------------------------------------------


async def _absorb(asked: asyncio.Event, may_go_on: asyncio.Event) -> None:
    asked.set()
    while not may_go_on.is_set():
        try:
            await may_go_on.wait()
        except BaseException:
            may_go_on.set()


@pytest.mark.parametrize(
    "point", ["before_run", "before_agent", "after_agent", "before_model", "after_model", "before_tool", "after_tool",
              "on_event", "after_run"],
)  # fmt: skip
async def test_no_hook_absorbs_a_stop(desk: MakeDesk, point: str) -> None:
    """A plugin that swallows the cancellation and goes on does not let the run complete (F151, F153)."""
    asked, may_go_on = asyncio.Event(), asyncio.Event()

    async def absorb(_self: object, *_: object) -> None:
        await _absorb(asked, may_go_on)

    plugin = type("Absorbing", (Plugin,), {point: absorb})()
    done = Held("done")
    done.may_end.set()
    at = desk(call("t"), say("the end"), tools=[done.tool("t")], plugins=[plugin])
    run = await at.start("go", RunConfig(cancel_grace_seconds=10))
    await asked.wait()
    report = await run.cancel()
    assert report.outcome == "cancelled"
    assert at.model.calls <= 2


async def test_an_agent_that_absorbs_the_stop_is_named(desk: MakeDesk) -> None:
    """Code of an agent that cannot be stopped is in the report as still running, and can write nothing more (P3)."""
    asked, may_go_on, left = asyncio.Event(), asyncio.Event(), asyncio.Event()
    refused: list[BaseException] = []

    class Stubborn(BaseAgent):
        async def run(self, ctx: AgentContext) -> None:
            asked.set()
            while not may_go_on.is_set():
                with suppress(asyncio.CancelledError):
                    await may_go_on.wait()
            try:
                await ctx.say("I go on")
            except RunCancelled as error:
                refused.append(error)
            left.set()

    at = desk(agent=Stubborn("stubborn"))
    run = await at.start()
    await asked.wait()
    report = await run.cancel()
    before = await at.log()
    may_go_on.set()
    await left.wait()
    assert states(report) == {"stubborn": "still_running"}
    await settle()
    assert await at.log() == before
    assert len(refused) == 1


async def test_a_slow_message_hook_does_not_hold_up_a_stop(desk: MakeDesk) -> None:
    """A run whose on_user_message callback does not return can be stopped; it never starts (F54, F151)."""

    class Slow(Plugin):
        async def on_user_message(self, *_: object) -> None:
            asked.set()
            await asyncio.Event().wait()

    asked = asyncio.Event()
    at = desk(say("never"), plugins=[Slow()])
    starting = asyncio.ensure_future(at.start(run_id="r"))
    await asked.wait()
    report = await at.runner.cancel("r", user_id=USER, session_id=SESSION)
    assert report.outcome == "cancelled"
    assert at.model.calls == 0
    await starting


# --- guardrails -------------------------------------------------------------------------------------------------------


async def test_a_guardrail_is_a_stop(desk: MakeDesk) -> None:
    """A callback that stops the run does what a cancel does, with its own cause; no tool is executed (F155)."""

    async def trip(ctx: AgentContext, _answer: object) -> None:
        await ctx.stop(reason="secrets")

    held = Held()
    at = desk((say("the code is 1234"), call("held")), say("ok"), tools=[held.tool()], after_model_callback=trip)
    ended = await at.ask()
    assert (ended.outcome, ended.cause, ended.by, ended.reason) == ("cancelled", "guardrail", "root", "secrets")
    assert held.calls == 0


async def test_blocked_text_is_not_told_again(desk: MakeDesk) -> None:
    """An answer that a guardrail stopped stays in the log and is left out of later requests (F155)."""
    trips = 0

    async def trip(ctx: AgentContext, _answer: object) -> None:
        nonlocal trips
        trips += 1
        if trips == 1:
            await ctx.stop(reason="secrets")

    at = desk(say("the code is 1234"), say("ok"), after_model_callback=trip)
    await at.ask("tell me")
    assert any("1234" in part.text for message in await at.messages() for part in message.parts
               if isinstance(part, Text))  # fmt: skip
    await at.ask("and?")
    assert "1234" not in at.told()
    assert "guardrail" in at.told()


async def test_a_guardrail_beside_the_model_stops_the_stream(desk: MakeDesk) -> None:
    """A check that runs in parallel and trips while the answer streams stops it before its call starts (F155)."""
    door = gate()
    held = Held()
    at = desk((say("Let me"), call("held"), door), tools=[held.tool()])
    run = await at.start()
    await door.reached()
    report = await run.cancel(cause="guardrail", by="input check")
    assert (report.cause, states(report)["held"]) == ("guardrail", "not_started")
    assert held.calls == 0


# --- the caller goes away ---------------------------------------------------------------------------------------------


async def test_a_break_and_a_collection_stop_the_run(desk: MakeDesk, store: Store) -> None:
    """`async for … break` stops the run as soon as the stream is dropped (F58, F131)."""
    at = desk((say("Hel"), hang()), store=store)
    async for item in at.runner.run_async(user_id=USER, session_id=SESSION, new_message="go", run_config=QUICK):
        if type(item).__name__ == "Delta":
            break
    del item
    gc.collect()
    run_id = (await at.log())[0].run_id
    ended = await (await at.runner.attach(run_id)).wait()
    assert (ended.outcome, ended.cause) == ("cancelled", "disconnect")
    assert at.model.active == 0


async def test_a_stream_may_be_dropped_in_another_task(desk: MakeDesk, caplog: pytest.LogCaptureFixture) -> None:
    """Begun in one task, closed by the collector in another: nothing complains of a different context (F131, F132)."""
    at = desk((say("Hel"), hang()), say("ok"))
    streams: list[Any] = []

    async def begin() -> None:
        streams.append(at.runner.run_async(user_id=USER, session_id=SESSION, new_message="go", run_config=QUICK))
        await anext(streams[0])

    async def drop() -> None:
        streams.clear()
        gc.collect()
        await settle()

    await asyncio.create_task(begin())
    await asyncio.create_task(drop())
    run_id = (await at.log())[0].run_id
    assert (await (await at.runner.attach(run_id)).wait()).cause == "disconnect"
    assert (await at.ask()).outcome == "completed"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_timeout_of_the_caller_stops_the_run(desk: MakeDesk) -> None:
    """Cancelling the task that iterates stops the run, like any other way of leaving (F128)."""
    at = desk((say("Hel"), hang()))

    async def consume() -> None:
        async for _ in at.runner.run_async(user_id=USER, session_id=SESSION, new_message="go", run_config=QUICK):
            pass

    task = asyncio.create_task(consume())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run_id = (await at.log())[0].run_id
    assert (await (await at.runner.attach(run_id)).wait()).cause == "disconnect"


async def test_closing_a_stream_waits_for_the_ending(desk: MakeDesk, store: Store) -> None:
    """When `aclose` returns, also behind a cancelled iteration, the ending is durable (F58)."""
    at = desk((say("Hel"), hang()), store=store)
    stream = at.runner.run_async(user_id=USER, session_id=SESSION, new_message="go", run_config=QUICK)
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    while at.model.active == 0 or not waiting.done():
        if waiting.done():
            waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        if at.model.active and kinds(await at.log()) == ["RunStarted"]:
            break
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await stream.aclose()
    assert isinstance((await at.log())[-1], RunEnded)


async def test_dropping_a_handle_or_a_reader_stops_nothing(desk: MakeDesk) -> None:
    """A handle and its readers only look; the run goes on without them (F136)."""
    door = gate()
    at = desk((say("Hel"), door, say("lo")))
    run = await at.start()
    run_id = run.run_id
    reader = run.stream()
    await anext(reader)
    del run, reader
    gc.collect()
    door.open()
    assert (await (await at.runner.attach(run_id)).wait()).outcome == "completed"


# --- leaks ------------------------------------------------------------------------------------------------------------


async def _in_use() -> tuple[int, int, int]:
    """Tasks, threads and open files, once the lanes have given their sessions back."""
    lanes = {task for task in asyncio.all_tasks() if task.get_name().startswith("heaveto")}
    if lanes:
        await asyncio.wait(lanes, timeout=10)
    await settle()
    gc.collect()
    return len(asyncio.all_tasks()), threading.active_count(), len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("swept")
async def test_a_thousand_stops_leave_nothing_behind(desk: MakeDesk, store: Store) -> None:
    """1000 runs started and stopped: tasks, threads and open files are back where they were (F135)."""
    model = ScriptedModel((say("Hel"), hang()), strict=False, check=False, keep_requests=False)
    at = desk(model=model, store=store)

    async def once(session: str) -> None:
        run = await at.runner.start(user_id=USER, session_id=session, new_message="go", run_config=QUICK)
        await run.cancel()

    await asyncio.gather(*(once(f"warm{i}") for i in range(20)))
    before = await _in_use()
    for batch in range(20):
        await asyncio.gather(*(once(f"{batch}-{i}") for i in range(50)))
    assert await _in_use() == before
    assert model.active == 0


# --- the end of the runner --------------------------------------------------------------------------------------------


async def test_closing_stops_what_runs_and_keeps_what_waits(store: Store) -> None:
    """Closing: no new runs, cause shutdown for the running one, endings durable, waiting messages stay (F164)."""
    ends = Ends()
    at = Desk((say("Hel"), hang()), store=store, plugins=[ends])
    running = await at.start("one")
    waiting = await at.start("two")
    reader = running.stream()
    seen = [await anext(reader) for _ in range(2)]
    await at.runner.aclose()
    with pytest.raises(RunnerClosedError):
        await at.start("three")
    assert ends.outcomes == [("cancelled", "shutdown")]
    with pytest.raises((RunnerClosedError, StoreClosedError)):
        await waiting.wait()
    assert running.status == "cancelled"
    assert [kinds([item])[0] for item in seen] == ["RunStarted", "Delta"]


async def test_waiting_messages_outlive_a_shutdown() -> None:
    """What waited when the runner closed is carried out by the next one (F164)."""
    data = MemoryData()
    first = Desk(hang(), store=MemoryStore(data))
    await first.start("one")
    await first.start("two")
    await first.runner.aclose()
    second = Desk(say("two it is"), store=MemoryStore(data))
    await second.runner.recover()
    assert [ended.outcome for ended in await second.endings()] == ["cancelled", "completed"]
    assert "two" in second.told()
    await second.runner.aclose()


async def test_a_waiting_run_can_be_taken_back(desk: MakeDesk, store: Store) -> None:
    """A queued run is cancelled without a trace in the conversation; the running one does not notice (F164)."""
    door = gate()
    at = desk((door, say("one done")), say("three done"), store=store)
    first, second, third = [await at.start(text) for text in ("one", "two", "three")]
    assert (await second.cancel()).outcome == "cancelled"
    door.open()
    assert (await first.wait()).outcome == "completed"
    assert (await third.wait()).outcome == "completed"
    assert at.model.calls == 2
    assert "two" not in at.told()


# --- a message during a run -------------------------------------------------------------------------------------------


async def test_queue_waits_for_the_running_tool(desk: MakeDesk) -> None:
    """A message with policy queue runs when the run before it has ended (F140)."""
    held = Held("tool result")
    at = desk(call("held"), say("one done"), say("two done"), tools=[held.tool()])
    first = await at.start("one")
    await held.began.wait()
    second = await at.start("two")
    assert second.status == "queued"
    held.may_end.set()
    assert (await second.wait()).outcome == "completed"
    assert first.status == "completed"
    assert [type(r).__name__ for r in await at.log() if isinstance(r, RunStarted | RunEnded)] == [
        "RunStarted", "RunEnded", "RunStarted", "RunEnded",
    ]  # fmt: skip


async def test_interrupt_stops_the_running_tool(desk: MakeDesk) -> None:
    """A message with policy interrupt stops the run as superseded, and then runs (F140)."""
    held = Held()
    at = desk(call("held"), say("two done"), tools=[held.tool()])
    first = await at.start("one")
    await held.began.wait()
    second = await at.start("two", RunConfig(busy_policy="interrupt", cancel_grace_seconds=0.02))
    assert (await second.wait()).outcome == "completed"
    ended = await first.wait()
    assert (ended.outcome, ended.cause, ended.by) == ("cancelled", "superseded", second.run_id)
    assert "the user sent another message" in at.told()


async def test_steer_reaches_the_running_run_at_its_next_step(desk: MakeDesk) -> None:
    """A message with policy steer is in the next request of the run that is running (F140, F156)."""
    held = Held("tool result")
    at = desk(call("held"), say("steered"), tools=[held.tool()])
    first = await at.start("one")
    await held.began.wait()
    second = await at.start("left, please", RunConfig(busy_policy="steer"))
    assert second.run_id == first.run_id
    held.may_end.set()
    assert (await second.wait()).outcome == "completed"
    assert "left, please" in at.told()
    assert at.model.calls == 2


# --- what a stop keeps ------------------------------------------------------------------------------------------------


async def test_prompt_and_half_answer_survive(desk: MakeDesk, store: Store) -> None:
    """The message is durable before the first token, the text shown is kept and marked as cut (F60, F61)."""
    door = gate()
    at = desk((door, say("The answer is"), hang()), say("else"), store=store)
    run = await at.start("a long prompt")
    await door.reached()
    assert [type(record) for record in await at.log()] == [RunStarted]
    reader = run.stream(deltas=True)
    door.open()
    async for item in reader:
        if type(item).__name__ == "Delta":
            break
    report = await run.cancel()
    assert report.text_kept == len("The answer is")
    message = next(record for record in await at.log() if isinstance(record, Message))
    assert (message.interrupted, message.parts[0].text) == ("user", "The answer is")  # type: ignore[union-attr]
    await at.ask("continue with something else")
    assert "[Your answer above was cut off there because the user stopped the run.]" in at.told()


async def test_a_stop_before_any_text_leaves_no_empty_answer(desk: MakeDesk) -> None:
    """Nothing received, nothing recorded: the next request holds the prompt and no empty turn (F60)."""
    at = desk(hang(), say("ok"))
    run = await at.start("a prompt")
    await settle()
    await run.cancel()
    assert "Message" not in kinds(await at.log())
    await at.ask("and?")
    assert "a prompt" in at.told()


async def test_the_ending_comes_after_the_save(desk: MakeDesk) -> None:
    """A reader sees the ending only when a slow store has it; stopping the reader does not cut the save (F67, F158)."""
    reached, may_land = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def append(self, key: Any, records: Any, **options: Any) -> int:
            if any(isinstance(record, RunEnded) for record in records):
                reached.set()
                await may_land.wait()
            return await super().append(key, records, **options)

    at = desk(say("the whole answer"), store=Slow())
    run = await at.start()
    reading = asyncio.ensure_future(run.wait())
    await reached.wait()
    await settle()
    assert not reading.done()
    reading.cancel()
    stopping = asyncio.ensure_future(run.cancel())
    await settle()
    may_land.set()
    assert (await stopping).outcome == "completed"
    assert kinds(await at.log())[-1] == "RunEnded"
    assert any(isinstance(record, Message) for record in await at.log())


async def test_a_failed_model_call_does_not_lose_what_was_shown(desk: MakeDesk) -> None:
    """A stream that breaks after some text fails the run; text and settled results stay, and no retry doubles (F63)."""
    at = desk((say("Hello wor"), fault("reset", status=500)), say("ok"))
    ended = await at.ask()
    assert ended.outcome == "failed"
    assert ended.error is not None and ended.error.type == ModelError.__name__
    assert at.model.calls == 1
    message = next(record for record in await at.log() if isinstance(record, Message))
    assert message.interrupted == "error"
    await at.ask("again")
    assert "the run failed" in at.told()


async def test_results_settle_once(desk: MakeDesk) -> None:
    """However a stop and a result race, a call has one settlement before the ending (P7)."""
    for ticks in range(12):
        held = Held("r")
        at = desk(call("held"), say("ok"), tools=[held.tool()])
        run = await at.start()
        await held.began.wait()
        held.may_end.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        await run.cancel()
        records = await at.log()
        assert sum(isinstance(record, CallSettled) for record in records) == 1
