"""Time limits of calls: what ends in time keeps its result, what does not is left behind, and the run goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.runner.desk import Desk, Held, HeldThread, states

from heaveto import RunConfig, ToolContext
from heaveto.errors import RunCancelled, ToolTimeoutError
from heaveto.events.records import CallSettled
from heaveto.stores.base import Store
from heaveto.testing import FakeClock, call, say, settle
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]
GRACE = RunConfig(cancel_grace_seconds=1)
SHORT = RunConfig(cancel_grace_seconds=0.02)


async def test_a_call_that_takes_too_long_is_stopped_and_its_run_goes_on(desk: MakeDesk, store: Store) -> None:
    """The limit ends the one call, in each store; the model is told why, and answers (F56, F139)."""
    held = Held()
    at = desk(call("held"), say("Too slow."), store=store, tools=[held.tool(timeout_seconds=0.01)])
    assert (await at.ask()).outcome == "completed"
    assert (held.interrupted, held.effects) == (1, 0)
    assert await at.settlements("held") == [("cancelled", "timeout", False)]
    assert "because its time limit passed" in at.told()


async def test_the_limit_is_measured_by_the_clock(desk: MakeDesk) -> None:
    """A moment before the limit nothing has happened."""
    clock, held = FakeClock(), Held()
    at = desk(call("held"), say("ok"), clock=clock, tools=[held.tool(timeout_seconds=30)])
    run = await at.start()
    await held.began.wait()
    await clock.advance(29.9)
    assert held.interrupted == 0
    await clock.advance(0.2)
    assert held.interrupted == 1
    assert (await run.wait()).outcome == "completed"


async def test_a_call_that_ends_in_time_leaves_no_timer(desk: MakeDesk) -> None:
    """Nobody waits for the limit of a call that has ended."""
    clock, held = FakeClock(), Held()
    at = desk(call("held"), say("ok"), clock=clock, tools=[held.tool(timeout_seconds=30)])
    run = await at.start()
    await held.began.wait()
    assert clock.sleepers == 1
    held.may_end.set()
    await run.wait()
    assert clock.sleepers == 0
    assert await at.settlements("held") == [("succeeded", None, False)]


async def test_a_tool_that_cleans_up_is_not_interrupted_in_that(desk: MakeDesk) -> None:
    """The limit interrupts once; what the tool does then has a quarter of the grace before it is interrupted again."""
    clock, cleaned, interrupted = FakeClock(), asyncio.Event(), 0
    began = asyncio.Event()

    async def work() -> str:
        nonlocal interrupted
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            interrupted += 1
            try:
                await clock.sleep(0.05)  # gives back what it had taken
                cleaned.set()
            except asyncio.CancelledError:
                interrupted += 1
                raise
            raise
        return "never"

    at = desk(call("work"), say("ok"), clock=clock, tools=[FunctionTool(work, timeout_seconds=5)])
    run = await at.start("go", GRACE)
    await began.wait()
    await clock.advance(5.01)
    await clock.advance(0.05)
    await run.wait()
    assert (cleaned.is_set(), interrupted) == (True, 1)


async def test_a_tool_that_swallows_its_limit_once_is_interrupted_again(desk: MakeDesk) -> None:
    """As a stop does, the limit insists (F151)."""
    clock, held = FakeClock(), Held(swallow=1)
    at = desk(call("held"), say("ok"), clock=clock, tools=[held.tool(timeout_seconds=5)])
    run = await at.start("go", GRACE)
    await held.began.wait()
    await clock.advance(5)
    await clock.advance(0.26)
    assert (await run.wait()).outcome == "completed"
    assert held.interrupted == 2
    assert await at.settlements("held") == [("cancelled", "timeout", False)]


@pytest.mark.parametrize("blocking", [False, True])
async def test_what_cannot_be_stopped_is_left_behind(desk: MakeDesk, store: Store, blocking: bool) -> None:
    """The run completes without it; the call is unknown, the report names it, and its late result is recorded (P2)."""
    held: Any = HeldThread("at last") if blocking else Held("at last", swallow=10**9)
    at = desk(
        call("held"), say("I go on."), say("I see."), store=store, tools=[held.tool("held", timeout_seconds=0.01)]
    )
    run = await at.start("go", SHORT)
    ended = await run.wait()
    assert ended.outcome == "completed"
    assert ended.report is not None
    assert states(ended.report) == {"held": "still_running"}
    assert await at.settlements("held") == [("unknown", "timeout", False)]
    assert "Check before doing it again" in at.told()
    held.may_end.set()
    late = await at.until_settled("held", late=True)
    # The value of a coroutine that was interrupted is kept, but it counts as stopped (F35).
    assert (late.status, late.response) == ("succeeded" if blocking else "cancelled", {"result": "at last"})
    await at.ask("and now?")
    assert "at last" in at.told()


async def test_a_late_result_that_comes_while_the_run_goes_on_is_recorded(desk: MakeDesk) -> None:
    """Left behind, and done before the run is: the late result stands in the log before the ending (P2)."""
    thread, held = HeldThread("late"), Held()
    at = desk(call("thread"), call("held"), say("ok"), tools=[thread.tool(timeout_seconds=0.01), held.tool()])
    run = await at.start("go", SHORT)
    await held.began.wait()
    thread.may_end.set()
    assert (await at.until_settled("thread", late=True)).status == "succeeded"
    held.may_end.set()
    ended = await run.wait()
    assert ended.report is None or states(ended.report)["thread"] == "finished"


async def test_a_polite_thread_ends_at_its_limit(desk: MakeDesk, store: Store) -> None:
    """A blocking function sees the limit as it sees a stop: its hooks are called, `raise_if_cancelled` raises."""
    thread = HeldThread(polite=True)
    at = desk(call("thread"), say("ok"), store=store, tools=[thread.tool(timeout_seconds=0.01)])
    assert (await at.ask("go", GRACE)).outcome == "completed"
    assert thread.effects == 0
    assert await at.settlements("thread") == [("cancelled", "timeout", False)]


async def test_a_value_that_comes_after_the_interruption_is_kept_as_stopped(desk: MakeDesk) -> None:
    """A coroutine that answers its interruption with a value counts as stopped, and its value is told (F35)."""

    async def work() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "half of it"

    at = desk(call("work"), say("ok"), tools=[FunctionTool(work, timeout_seconds=0.01)])
    await at.ask()
    settled = (await at.settled())["work"]
    assert (settled.status, settled.cause, settled.response) == ("cancelled", "timeout", {"result": "half of it"})


async def test_finish_lets_the_call_end_by_itself_within_the_grace(desk: MakeDesk) -> None:
    """A tool that is never interrupted keeps its real result if it comes in the grace behind the limit."""
    clock, held = FakeClock(), Held("whole")
    at = desk(call("held"), say("ok"), clock=clock, tools=[held.tool(on_cancel="finish", timeout_seconds=5)])
    run = await at.start("go", GRACE)
    await held.began.wait()
    await clock.advance(5.5)
    held.may_end.set()
    await run.wait()
    assert held.interrupted == 0
    assert await at.settlements("held") == [("succeeded", None, False)]


async def test_abandon_leaves_the_call_behind_at_once(desk: MakeDesk) -> None:
    """A tool that nobody waits for is left at its limit, without a grace."""
    clock, held = FakeClock(), Held("whole")
    at = desk(call("held"), say("ok"), clock=clock, tools=[held.tool(on_cancel="abandon", timeout_seconds=5)])
    run = await at.start("go", GRACE)
    await held.began.wait()
    await clock.advance(5)
    assert (await run.wait()).outcome == "completed"
    assert held.interrupted == 0
    held.may_end.set()
    assert (await at.until_settled("held", late=True)).status == "succeeded"


async def test_what_is_left_behind_can_do_nothing_any_more(desk: MakeDesk) -> None:
    """Behind its limit a thread's progress, state and artifacts are refused; its result counts (F57, F158)."""
    thread, refused = HeldThread(), list[str]()
    loop = asyncio.get_running_loop()

    def work(ctx: ToolContext) -> str:
        thread(ctx)
        ctx.state["theirs"] = "overwritten"
        ctx.output("nobody sees this")
        try:
            ctx.progress_from_thread({"done": 1})
        except RunCancelled:
            refused.append("progress")
        try:
            asyncio.run_coroutine_threadsafe(ctx.save_artifact("a.txt", "x"), loop).result()
        except RunCancelled:
            refused.append("artifact")
        return "late"

    at = desk(call("work"), say("ok"), tools=[FunctionTool(work, timeout_seconds=0.01)])
    await at.ask("go", SHORT)
    thread.may_end.set()
    late = await at.until_settled("work", late=True)
    assert (refused, late.response, await at.state()) == (["progress", "artifact"], {"result": "late"}, {})


async def test_the_end_and_the_limit_at_the_same_moment_are_one_settlement(desk: MakeDesk) -> None:
    """Whichever wins, there is one settlement, and it says what happened (F17)."""
    for tick in range(12):
        clock, held = FakeClock(), Held()
        at = desk(call("held"), say("ok"), clock=clock, tools=[held.tool(timeout_seconds=5)])
        run = await at.start("go", GRACE)
        await held.began.wait()
        passing = asyncio.ensure_future(clock.advance(5))
        for _ in range(tick):
            await asyncio.sleep(0)
        held.may_end.set()
        await passing
        assert (await run.wait()).outcome == "completed"
        (one,) = [record for record in await at.log() if isinstance(record, CallSettled)]
        expected = ("succeeded", None) if held.effects and not held.interrupted else ("cancelled", "timeout")
        assert (one.status, one.cause) == expected


async def test_a_callback_may_give_a_result_for_a_call_that_took_too_long(desk: MakeDesk) -> None:
    """`on_tool_error` is asked with `ToolTimeoutError`, a `TimeoutError`."""
    errors: list[Exception] = []

    def give(_tool: object, _args: object, _ctx: object, error: Exception) -> dict[str, Any]:
        errors.append(error)
        return {"result": "an older value"}

    held = Held()
    at = desk(call("held"), say("ok"), tools=[held.tool(timeout_seconds=0.01)], on_tool_error_callback=give)
    await at.ask()
    assert (await at.settled())["held"].response == {"result": "an older value"}
    (error,) = errors
    assert isinstance(error, ToolTimeoutError)
    assert isinstance(error, TimeoutError)


async def test_a_stop_of_the_run_while_a_limit_insists_is_settled_once(desk: MakeDesk) -> None:
    """The limit has interrupted, the tool swallows it, and then the user stops the run: one truth, told once (F17)."""
    clock, held = FakeClock(), Held("late", swallow=10**9)
    at = desk(call("held"), say("x"), clock=clock, tools=[held.tool(timeout_seconds=5)])
    run = await at.start("go", GRACE)
    await held.began.wait()
    await clock.advance(5.5)
    stopping = asyncio.ensure_future(run.cancel(by="ann"))
    await settle()
    await clock.advance(2)
    assert states(await stopping) == {"held": "still_running"}
    await settle()
    assert [status for status, _, _ in await at.settlements("held")] == ["unknown"]
    held.may_end.set()
    await at.until_settled("held", late=True)
    assert [status for status, _, _ in await at.settlements("held")] == ["unknown", "cancelled"]
