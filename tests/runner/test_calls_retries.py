"""Retries: attempts of one call with one key, on the clock, never against a stop, never where that is unsafe."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.runner.desk import Desk, Held, HeldThread, states

from heaveto import LlmAgent, Retry, RunConfig, Tool, ToolContext
from heaveto.core.request import ToolDeclaration
from heaveto.errors import InDoubtError, RunCancelled, ToolDefinitionError, ToolFatalError
from heaveto.events.contents import Json
from heaveto.events.records import CallProgress
from heaveto.stores.base import Store
from heaveto.testing import FakeClock, ScriptedModel, call, say, settle
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]
GRACE = RunConfig(cancel_grace_seconds=1)
SHORT = RunConfig(cancel_grace_seconds=0.02)
AT_ONCE = Retry(attempts=3, backoff_seconds=0)


class Flaky:
    """Fails so often, and then succeeds."""

    def __init__(self, failures: int, error: type[Exception] = ConnectionError) -> None:
        self.seen: list[tuple[int, str]] = []
        self._failures, self._error = failures, error
        self.failed = asyncio.Event()

    async def __call__(self, ctx: ToolContext) -> str:
        """Try."""
        self.seen.append((ctx.attempt, ctx.idempotency_key))
        ctx.state[f"attempt{ctx.attempt}"] = True
        if len(self.seen) <= self._failures:
            self.failed.set()
            raise self._error("not now")
        return "done"

    def tool(self, retry: Retry | int = AT_ONCE, **options: Any) -> FunctionTool:
        return FunctionTool(self, name="flaky", retry=retry, **{"replay": "idempotent", **options})


async def test_retries_are_attempts_of_one_call_with_one_key(desk: MakeDesk, store: Store) -> None:
    """Each attempt has a durable start that tells how the one before ended; all have the same key (F16, P5)."""
    flaky = Flaky(2)
    at = desk(call("flaky"), say("ok"), store=store, tools=[flaky.tool()])
    await at.ask()
    starts = await at.starts("flaky")
    assert [attempt for attempt, _ in flaky.seen] == [1, 2, 3]
    assert {key for _, key in flaky.seen} == {start.idempotency_key for start in starts}
    ends = [start.previous.type if start.previous else "" for start in starts]
    assert ends == ["", "ConnectionError", "ConnectionError"]
    assert await at.settlements("flaky") == [("succeeded", None, False)]


async def test_what_a_failed_attempt_has_set_is_not_recorded(desk: MakeDesk) -> None:
    """State belongs to the attempt that counts."""
    at = desk(call("flaky"), say("ok"), tools=[Flaky(1).tool()])
    await at.ask()
    assert await at.state() == {"attempt2": True}


async def test_the_last_failure_is_told(desk: MakeDesk) -> None:
    """After the last attempt the model is told the error, and the call failed once."""
    flaky = Flaky(9)
    at = desk(call("flaky"), say("ok"), tools=[flaky.tool()])
    await at.ask()
    assert len(flaky.seen) == 3
    assert await at.settlements("flaky") == [("failed", None, False)]
    assert "ConnectionError: not now" in at.told()


async def test_only_the_named_errors_are_retried(desk: MakeDesk) -> None:
    """`Retry.on` says which."""
    flaky = Flaky(9, ValueError)
    at = desk(call("flaky"), say("ok"), tools=[flaky.tool(Retry(3, 0, on=(ConnectionError,)))])
    await at.ask()
    assert len(flaky.seen) == 1


async def test_the_pauses_are_on_the_clock_and_grow(desk: MakeDesk) -> None:
    """Half a second, then one; nothing happens before its time."""
    clock, flaky = FakeClock(), Flaky(2)
    at = desk(call("flaky"), say("ok"), clock=clock, tools=[flaky.tool(Retry(3, 0.5))])
    run = await at.start()
    await flaky.failed.wait()
    await settle()
    for seconds, attempts in ((0.4, 1), (0.2, 2), (0.8, 2), (0.3, 3)):
        await clock.advance(seconds)
        assert len(flaky.seen) == attempts
    assert (await run.wait()).outcome == "completed"


async def test_a_fatal_error_is_not_retried(desk: MakeDesk) -> None:
    """The tool has said that the run shall fail."""
    flaky = Flaky(9, ToolFatalError)
    at = desk(call("flaky"), say("ok"), tools=[flaky.tool()])
    assert (await at.ask()).outcome == "failed"
    assert len(flaky.seen) == 1


def test_a_tool_that_must_not_be_executed_twice_cannot_declare_retries() -> None:
    """A mistake of its author is told where it was made, for functions and for tools of one's own (P5)."""

    async def act() -> None:
        """Act."""

    class Own(Tool):
        name, description = "own", "Its own."
        retry = Retry(3)

        def declaration(self) -> ToolDeclaration:
            return ToolDeclaration(self.name, self.description, {"type": "object"})

        def bind(self, args: dict[str, Json]) -> dict[str, Any]:
            return args

    with pytest.raises(ToolDefinitionError, match="retry needs a tool"):
        FunctionTool(act, retry=3)
    with pytest.raises(ToolDefinitionError, match="retry needs a tool"):
        LlmAgent("root", ScriptedModel(), tools=[Own()])


# --- stops --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whom", ["run", "call"])
async def test_a_stop_during_an_attempt_is_the_last(desk: MakeDesk, store: Store, whom: str) -> None:
    """No layer of retries absorbs a stop (F152)."""
    held = Held()
    tool = held.tool(replay="safe", retry=AT_ONCE)
    at = desk(call("held"), say("ok"), store=store, tools=[tool])
    run = await at.start("go", SHORT)
    await held.began.wait()
    if whom == "run":
        await run.cancel()
    else:
        await at.runner.cancel_call(run.run_id, await at.call_id("held"))
    await run.wait()
    assert held.calls == 1
    assert await at.settlements("held") == [("cancelled", "user", False)]


@pytest.mark.parametrize("whom", ["run", "call"])
async def test_a_stop_during_the_pause_ends_it_at_once(desk: MakeDesk, whom: str) -> None:
    """Time need not pass; the call is told as it ended, with its error (F152, P2)."""
    clock, flaky = FakeClock(), Flaky(9)
    at = desk(call("flaky"), say("ok"), clock=clock, tools=[flaky.tool(Retry(3, 60, 60))])
    run = await at.start("go", GRACE)
    await flaky.failed.wait()
    await settle()
    async with asyncio.timeout(10):
        if whom == "run":
            await run.cancel()
        else:
            settled = await at.runner.cancel_call(run.run_id, await at.call_id("flaky"))
            assert settled is not None
            assert settled.status == "failed"
        await run.wait()
    assert len(flaky.seen) == 1
    assert await at.settlements("flaky") == [("failed", None, False)]
    assert clock.sleepers == 0


async def test_a_stop_between_two_attempts_lets_none_begin(desk: MakeDesk) -> None:
    """However the stop falls between failure, pause and the next start: started is what was recorded as started."""
    for tick in range(40):
        flaky = Flaky(9)
        at = desk(call("flaky"), tools=[flaky.tool(Retry(9, 0))])
        run = await at.start("go", SHORT)
        await flaky.failed.wait()
        for _ in range(tick):
            await asyncio.sleep(0)
        await run.cancel()
        seen = len(flaky.seen)
        await settle()
        assert len(flaky.seen) == seen
        assert seen <= len(await at.starts("flaky")) <= seen + 1
        assert len(await at.settlements("flaky")) == 1


# --- with time limits ---------------------------------------------------------------------------------------------


async def test_a_time_limit_is_retried_as_a_timeout_error(desk: MakeDesk) -> None:
    """`Retry.on` may name `TimeoutError`; each attempt has the whole limit."""
    clock, held = FakeClock(), Held()
    tool = held.tool(replay="safe", timeout_seconds=5, retry=Retry(2, 0, on=(TimeoutError,)))
    at = desk(call("held"), say("ok"), clock=clock, tools=[tool])
    run = await at.start("go", GRACE)
    await held.began.wait()
    await clock.advance(5)
    assert held.calls == 2
    await clock.advance(4)
    held.may_end.set()
    await run.wait()
    assert await at.settlements("held") == [("succeeded", None, False)]


async def test_an_attempt_that_is_left_behind_is_fenced(desk: MakeDesk, store: Store) -> None:
    """What the first attempt does behind its limit changes nothing that the second one has done (F17, F57, F158)."""
    first, second = HeldThread("from the first"), HeldThread("from the second")
    refused: list[str] = []
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(ctx: ToolContext) -> str:
        if ctx.attempt == 2:
            ctx.progress_from_thread("second")
            ctx.state["by"] = "second"
            return second(ctx)
        first(ctx)
        ctx.state["by"] = "first"
        ctx.output("from the first")
        try:
            ctx.progress_from_thread("first")
        except RunCancelled:
            refused.append("progress")
        loop.call_soon_threadsafe(ended.set)
        return "from the first"

    tool = FunctionTool(work, replay="idempotent", timeout_seconds=0.05, retry=Retry(2, 0))
    at = desk(call("work"), say("ok"), store=store, tools=[tool])
    run = await at.start("go", SHORT)
    await second.began.wait()
    second.may_end.set()
    assert (await run.wait()).outcome == "completed"
    first.may_end.set()
    await ended.wait()
    await settle()
    assert refused == ["progress"]
    assert await at.settlements("work") == [("succeeded", None, False)]
    assert (await at.settled())["work"].response == {"result": "from the second"}
    assert await at.state() == {"by": "second"}
    assert [record.value for record in await at.log() if isinstance(record, CallProgress)] == ["second"]


async def test_only_the_last_attempt_that_is_left_behind_gives_a_late_result(desk: MakeDesk) -> None:
    """Both attempts hang, and both end later: one late result, that of the last (F17)."""
    threads = [HeldThread("first"), HeldThread("second")]

    def work(ctx: ToolContext) -> str:
        return threads[ctx.attempt - 1](ctx)

    tool = FunctionTool(work, replay="idempotent", timeout_seconds=0.02, retry=Retry(2, 0))
    at = desk(call("work"), say("ok"), tools=[tool])
    ended = await at.ask("go", SHORT)
    assert ended.report is not None
    assert states(ended.report) == {"work": "still_running"}
    threads[0].may_end.set()
    await threads[0].left.wait()
    threads[1].may_end.set()
    assert (await at.until_settled("work", late=True)).response == {"result": "second"}
    assert [status for status, _, _ in await at.settlements("work")] == ["unknown", "succeeded"]


async def test_a_stop_in_the_pause_behind_a_left_attempt_tells_the_truth_of_that(desk: MakeDesk) -> None:
    """The attempt that swallowed its interruption ends late with a value: it counts as stopped, as it was (F35)."""
    clock, held = FakeClock(), Held("late", swallow=10**9)
    tool = held.tool(replay="safe", timeout_seconds=5, retry=Retry(3, 60, 60))
    at = desk(call("held"), say("ok"), clock=clock, tools=[tool])
    run = await at.start("go", GRACE)
    await held.began.wait()
    await clock.advance(7)
    await at.runner.cancel_call(run.run_id, await at.call_id("held"))
    await run.wait()
    assert await at.settlements("held") == [("unknown", "timeout", False)]
    held.may_end.set()
    late = await at.until_settled("held", late=True)
    assert (late.status, late.response) == ("cancelled", {"result": "late"})


# --- probes -------------------------------------------------------------------------------------------------------


class Probed:
    """A tool that loses the response of its first attempt, and its probe."""

    def __init__(self, *answers: Any) -> None:
        self.calls, self.probed, self._answers = 0, list[int](), list(answers)

    async def __call__(self, ctx: ToolContext) -> str:
        """Pay."""
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("the response was lost")
        return "paid by a further attempt"

    async def probe(self, ctx: ToolContext) -> Any:
        self.probed.append(ctx.attempt)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tool(self) -> FunctionTool:
        return FunctionTool(self, name="pay", probe=self.probe, retry=AT_ONCE)


async def test_a_probe_is_asked_before_a_further_attempt(desk: MakeDesk) -> None:
    """The effect was made and only its response was lost: it is not made again (P5, F16)."""
    pay = Probed({"receipt": 7})
    at = desk(call("pay"), say("ok"), tools=[pay.tool()])
    await at.ask()
    assert (pay.calls, pay.probed) == (1, [1])
    settled = (await at.settled())["pay"]
    assert (settled.status, settled.response) == ("succeeded", {"receipt": 7})


async def test_a_probe_that_finds_nothing_lets_the_next_attempt_begin(desk: MakeDesk) -> None:
    """None means that it had no effect."""
    pay = Probed(None)
    at = desk(call("pay"), say("ok"), tools=[pay.tool()])
    await at.ask()
    assert (pay.calls, pay.probed) == (2, [1])
    assert await at.settlements("pay") == [("succeeded", None, False)]


async def test_a_probe_that_cannot_tell_leaves_the_call_unknown(desk: MakeDesk) -> None:
    """Nobody knows, so nothing is done twice, and the model is told to check (P2, P5)."""
    pay = Probed(ConnectionError("still down"))
    at = desk(call("pay"), say("ok"), tools=[pay.tool()])
    await at.ask()
    assert pay.calls == 1
    assert await at.settlements("pay") == [("unknown", None, False)]
    assert "Check before doing it again" in at.told()


async def test_what_is_left_behind_is_not_started_again_because_a_probe_found_nothing_yet(desk: MakeDesk) -> None:
    """An attempt that still works may have its effect after the probe has looked (P5)."""
    thread, probed = HeldThread("late"), list[int]()

    async def probe(ctx: ToolContext) -> None:
        probed.append(ctx.attempt)

    tool = FunctionTool(thread, name="pay", probe=probe, retry=AT_ONCE, timeout_seconds=0.01)
    at = desk(call("pay"), say("ok"), tools=[tool])
    await at.ask("go", SHORT)
    assert (thread.calls, probed) == (1, [])
    thread.may_end.set()
    assert (await at.until_settled("pay", late=True)).status == "succeeded"


async def test_a_stop_ends_a_probe_that_hangs(desk: MakeDesk) -> None:
    """The call is unknown: it was executed, and nobody could say what it did."""
    asking = asyncio.Event()

    async def pay() -> str:
        """Pay."""
        raise ConnectionError("lost")

    async def probe() -> str:
        asking.set()
        await asyncio.Event().wait()
        return "never"

    at = desk(call("pay"), say("ok"), tools=[FunctionTool(pay, probe=probe, retry=AT_ONCE)])
    run = await at.start("go", SHORT)
    await asking.wait()
    settled = await at.runner.cancel_call(run.run_id, await at.call_id("pay"))
    assert settled is not None
    assert (settled.status, settled.cause) == ("unknown", "user")
    assert (await run.wait()).outcome == "completed"


async def test_an_error_that_leaves_the_outcome_open_is_unknown_without_retries(desk: MakeDesk) -> None:
    """`InDoubtError` is no failure: the model is told that the effect may be there (P2)."""
    at = desk(call("flaky"), say("ok"), tools=[Flaky(9, InDoubtError).tool(1)])
    await at.ask()
    assert [status for status, _, _ in await at.settlements("flaky")] == ["unknown"]
    assert "It may have taken effect" in at.told() or "Check before doing it again" in at.told()
