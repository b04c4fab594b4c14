"""Calls in the background: answered at once, heard of when they end, stopped as their stop says, never told twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import SESSION, USER, Desk, Held, HeldThread, states
from tests.runner.test_store_trouble import TroubledStore, once

from heaveto import App, LlmAgent, MemoryStore, RunConfig, Runner, SqliteStore, ToolContext
from heaveto.errors import InputError, UnknownCallError
from heaveto.events.records import CallSettled, CancelRequested, Queued, Record, RunEnded, RunStarted
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryData
from heaveto.testing import ScriptedModel, call, gate, say, settle
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]
SHORT = RunConfig(cancel_grace_seconds=0.02)
PATIENT = RunConfig(cancel_grace_seconds=60)


def by_itself(held: Held, name: str = "job", **options: Any) -> FunctionTool:
    """A tool that goes into the background at once, and then works until it is let go."""

    async def job(ctx: ToolContext) -> Any:
        """Work."""
        await ctx.detach({"eta": "soon"})
        return await held()

    return FunctionTool(job, name=name, **options)


def triggers(log: list[Record]) -> list[str]:
    return [record.trigger for record in log if isinstance(record, RunStarted)]


def unended(log: list[Record]) -> set[str]:
    """Runs that wait or are not over."""
    known = {record.run_id for record in log if isinstance(record, (RunStarted, Queued))}
    return known - {record.run_id for record in log if isinstance(record, RunEnded)}


def outcomes(log: list[Record]) -> list[str]:
    return [record.status for record in log if isinstance(record, CallSettled)]


async def over(at: Desk, runs: int) -> list[Record]:
    """Wait until so many runs have ended."""
    return await at.until(lambda log: sum(isinstance(record, RunEnded) for record in log) == runs)


async def test_a_call_goes_into_the_background_and_its_run_goes_on(desk: MakeDesk, store: Store) -> None:
    """The model gets a handle at once; the run ends without the call; its outcome starts a run of its own (F138)."""
    held = Held("the report")
    at = desk(call("job"), say("It works."), say("Here it is."), store=store, tools=[by_itself(held)])
    assert (await at.ask()).outcome == "completed"
    assert "detached" in at.told()
    held.may_end.set()
    log = await over(at, 2)
    assert triggers(log) == ["message", "background"]
    assert await at.settlements("job") == [("detached", None, False), ("succeeded", None, True)]
    assert "the report" in at.told()


async def test_a_call_is_moved_into_the_background_from_outside(desk: MakeDesk, store: Store) -> None:
    """`Runner.detach` does so while it runs; twice is once; the handle is the call's id (F138)."""
    held = Held("the report")
    at = desk(call("held"), say("It works."), say("Here it is."), store=store, tools=[held.tool()])
    run = await at.start()
    await held.began.wait()
    call_id = await at.call_id("held")
    assert await at.runner.detach(run.run_id, call_id) == call_id
    assert (await run.wait()).outcome == "completed"
    assert await at.runner.detach(run.run_id, call_id) == call_id
    held.may_end.set()
    assert triggers(await over(at, 2)) == ["message", "background"]
    assert held.calls == 1


async def test_an_outcome_that_comes_while_the_run_goes_on_is_heard_in_it(desk: MakeDesk) -> None:
    """The agent hears of it before it is done, and no further run begins (F138)."""
    held, pause = Held("the report"), gate()
    at = desk(call("job"), (pause, say("Working on it.")), say("It is here."), tools=[by_itself(held)])
    run = await at.start()
    await pause.reached()
    held.may_end.set()
    await at.until_settled("job", late=True)
    pause.open()
    assert (await run.wait()).outcome == "completed"
    assert triggers(await at.log()) == ["message"]
    assert "the report" in at.told()


async def test_several_outcomes_are_all_told(desk: MakeDesk, store: Store) -> None:
    """However they fall together, none is lost and none is told twice."""
    jobs = {f"job{number}": Held(f"result {number}") for number in range(4)}
    calls = tuple(call(name) for name in jobs)
    model = ScriptedModel(calls, say("ok"), strict=False)
    at = desk(model=model, store=store, tools=[by_itself(held, name) for name, held in jobs.items()])
    await at.ask()
    for held in jobs.values():
        held.may_end.set()
    for name in jobs:
        await at.until_settled(name, late=True)
    await at.until(lambda log: not unended(log) and "result 3" in at.told())
    for number, name in enumerate(jobs):
        assert await at.settlements(name) == [("detached", None, False), ("succeeded", None, True)]
        assert f"result {number}" in at.told()


async def test_the_next_user_may_come_before_the_outcome(desk: MakeDesk) -> None:
    """Between the runs nothing is lost: the outcome comes into the run that is there."""
    held, pause = Held("the report"), gate()
    at = desk(call("job"), say("ok"), (pause, say("Hello.")), say("And the report."), tools=[by_itself(held)])
    await at.ask()
    run = await at.start("hello")
    await pause.reached()
    held.may_end.set()
    await at.until_settled("job", late=True)
    pause.open()
    await run.wait()
    await at.until(lambda log: not unended(log))
    assert "the report" in at.told()


@pytest.mark.parametrize("by_tool", [False, True])
async def test_the_end_and_the_move_at_the_same_moment(desk: MakeDesk, by_tool: bool) -> None:
    """Whichever is first: one outcome, and it is told (F17)."""
    for tick in range(14):
        held = Held("real")
        model = ScriptedModel(call("held"), say("ok"), strict=False)
        at = desk(model=model, tools=[by_itself(held, "held") if by_tool else held.tool()])
        run = await at.start()
        await held.began.wait()
        call_id = await at.call_id("held")
        held.may_end.set()
        for _ in range(tick):
            await asyncio.sleep(0)
        with suppress(UnknownCallError):
            await at.runner.detach(run.run_id, call_id)
        assert (await run.wait()).outcome == "completed"
        log = await at.until(lambda log: outcomes(log)[-1] == "succeeded")
        assert outcomes(log) in (["succeeded"], ["detached", "succeeded"])


async def test_a_blocking_call_that_is_moved_frees_its_lane(desk: MakeDesk) -> None:
    """Those that queued behind it go on, and so does the run (F138)."""
    first, second = HeldThread("first"), HeldThread("second")
    at = desk(
        (call("first"), call("second")), say("ok"), say("late"),
        tools=[first.tool("first", max_concurrency=1), second.tool("second")],
    )  # fmt: skip
    run = await at.start()
    await first.began.wait()
    await at.runner.detach(run.run_id, await at.call_id("first"))
    await second.began.wait()
    assert at.runner.concurrency() == []
    second.may_end.set()
    assert (await run.wait()).outcome == "completed"
    first.may_end.set()
    assert (await at.until_settled("first", late=True)).response == {"result": "first"}


# --- stops --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "works_on"), [("turn", True), ("children", False), ("everything", False)])
async def test_a_stop_reaches_as_far_as_its_scope_says(desk: MakeDesk, scope: Any, works_on: bool) -> None:
    """``turn`` leaves the background alone, ``children`` and ``everything`` stop it with the run (F47, F48)."""
    held, pause = Held("the report"), gate()
    at = desk(call("job"), (say("half"), pause), say("heard"), tools=[by_itself(held)])
    run = await at.start("go", SHORT)
    await pause.reached()
    report = await run.cancel(scope=scope)
    assert states(report)["job"] == ("still_running" if works_on else "stopped")
    assert held.left.is_set() is not works_on
    if works_on:
        held.may_end.set()
        await over(at, 2)
        assert (await at.settled())["job"].status == "succeeded"
    else:
        await settle()
        assert triggers(await at.log()) == ["message"]
        assert await at.settlements("job") == [("detached", None, False), ("cancelled", "user", True)]


async def test_a_scope_that_there_is_not_stops_nothing(desk: MakeDesk) -> None:
    """It is refused, before and after the run's end, and what works goes on."""
    held, pause = Held("the report"), gate()
    at = desk(call("job"), (say("half"), pause), say("heard"), tools=[by_itself(held)])
    run = await at.start("go", SHORT)
    nowhere: Any = "childern"
    await pause.reached()
    with pytest.raises(InputError, match="scope must be one of turn, children, everything"):
        await run.cancel(scope=nowhere)
    pause.open()
    assert (await run.wait()).outcome == "completed"
    with pytest.raises(InputError, match="scope must be one of"):
        await at.runner.cancel(run.run_id, scope=nowhere)
    assert not held.left.is_set()
    held.may_end.set()
    await over(at, 2)
    assert (await at.settled())["job"].status == "succeeded"


async def test_a_stop_after_the_end_reaches_what_works_on(desk: MakeDesk, store: Store) -> None:
    """Stop, then Stop again: the second is harmless, and stopped work starts no run (F47, F48)."""
    held = Held()
    at = desk(call("job"), say("ok"), store=store, tools=[by_itself(held)])
    run = await at.start("go", SHORT)
    await run.wait()
    report = await run.cancel()
    assert held.left.is_set()
    assert states(report) == {"job": "stopped"}
    length = len(await at.log())
    await run.cancel()
    await settle()
    assert len(await at.log()) == length
    assert triggers(await at.log()) == ["message"]


async def test_children_are_those_of_the_run_and_everything_is_the_session(desk: MakeDesk) -> None:
    """A stop of the second run leaves what the first has in the background; `everything` does not (F48)."""
    first, second = Held(), Held()
    at = desk(
        call("first"), say("ok"), call("second"), say("ok"),
        tools=[by_itself(first, "first"), by_itself(second, "second")],
    )  # fmt: skip
    await at.ask()
    run = await at.start("more", SHORT)
    await run.wait()
    await run.cancel(scope="children")
    assert (first.left.is_set(), second.left.is_set()) == (False, True)
    await run.cancel(scope="everything")
    assert first.left.is_set()


@pytest.mark.parametrize("kind", ["finishes", "deaf"])
async def test_stopped_work_starts_no_run_however_it_ends(desk: MakeDesk, kind: str) -> None:
    """Also where its stop was too late, or nobody knows whether it was: the user has pressed Stop (F47)."""
    held: Any = HeldThread("done all the same") if kind == "deaf" else Held("done all the same")
    on_cancel = "finish" if kind == "finishes" else "cancel"
    at = desk(call("held"), say("ok"), tools=[held.tool("held", on_cancel=on_cancel)])
    run = await at.start("go", SHORT if kind == "deaf" else PATIENT)
    await held.began.wait()
    call_id = await at.call_id("held")
    await at.runner.detach(run.run_id, call_id)
    await run.wait()
    stopping = asyncio.ensure_future(at.runner.cancel_call(run.run_id, call_id))
    if kind == "deaf":
        assert (await stopping).status == "unknown"  # type: ignore[union-attr]
    else:
        await at.until(lambda log: isinstance(log[-1], CancelRequested))
    held.may_end.set()
    await at.until(lambda log: isinstance(log[-1], CallSettled) and log[-1].status == "succeeded")
    await stopping
    await settle()
    assert triggers(await at.log()) == ["message"]


async def test_a_new_message_leaves_the_background_alone(desk: MakeDesk) -> None:
    """It interrupts the run, not the work that the run has handed off (F48)."""
    held, pause = Held("the report"), gate()
    at = desk(call("job"), (say("half"), pause), say("new"), say("heard"), tools=[by_itself(held)])
    first = await at.start("go", SHORT)
    await pause.reached()
    second = await at.start("this instead", RunConfig(busy_policy="interrupt", cancel_grace_seconds=0.02))
    assert (await first.wait()).cause == "superseded"
    await second.wait()
    assert not held.left.is_set()
    held.may_end.set()
    await at.until_settled("job", late=True)


async def test_an_effect_is_called_off_in_its_window(desk: MakeDesk) -> None:
    """A tool answers at once and sends later: until then the message can be recalled (F42)."""
    sent: list[str] = []
    window = asyncio.Event()

    async def send(ctx: ToolContext) -> str:
        """Send."""
        await ctx.detach({"sends_in": "30 s"})
        await window.wait()
        sent.append("mail")
        return "sent"

    at = desk(call("send"), say("It will go out."), say("Recalled."), tools=[send])
    run = await at.start()
    await run.wait()
    settled = await at.runner.cancel_call(run.run_id, await at.call_id("send"))
    assert settled is not None
    assert settled.status == "cancelled"
    window.set()
    await at.ask("Did it go out?")
    assert sent == []
    assert "stopped" in at.told() or "cancelled" in at.told()


# --- ends of processes --------------------------------------------------------------------------------------------


async def test_the_process_of_a_background_call_dies(desk: MakeDesk) -> None:
    """The next one to use the session says that nobody knows, and the model is told (P2)."""
    data, held = MemoryData(), Held()
    dead = MemoryStore(data)
    before = desk(call("job"), say("ok"), store=dead, tools=[by_itself(held)])
    await before.ask()
    await held.began.wait()
    dead.abandon()
    at = desk(say("Nobody knows."), store=MemoryStore(data), tools=[by_itself(Held())])
    await at.ask("well?")
    await at.until(lambda log: not unended(log))
    assert await at.settlements("job") == [("detached", None, False), ("unknown", "crash", True)]
    assert "unknown" in at.told()


async def test_closing_stops_background_calls_and_says_so(desk: MakeDesk, tmp_path: Path) -> None:
    """Their end is in the log before the store is closed; the next process hears of no crash."""
    held = Held()
    path = tmp_path / "s.db"
    before = desk(call("job"), say("ok"), store=SqliteStore(path), tools=[by_itself(held)])
    await before.ask()
    await held.began.wait()
    await before.runner.aclose()
    assert held.left.is_set()
    at = desk(say("fine"), store=SqliteStore(path), tools=[by_itself(Held())])
    assert await at.settlements("job") == [("detached", None, False), ("cancelled", "shutdown", True)]


async def test_closing_does_not_wait_for_ever_for_a_deaf_background_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left to the end of the process, as unknown."""
    monkeypatch.setattr("heaveto.runner.closing.RunConfig", lambda: SHORT)
    thread = HeldThread()
    data = MemoryData()
    agent = LlmAgent("root", ScriptedModel(call("thread"), say("ok")), tools=[thread.tool()])
    runner = Runner(app=App("desk", agent), store=MemoryStore(data))
    run = await runner.start(user_id=USER, session_id=SESSION, new_message="go", run_config=SHORT)
    await thread.began.wait()
    (call_id,) = [record.call_id for record in run.state.records if hasattr(record, "idempotency_key")]
    await runner.detach(run.run_id, call_id)
    await run.wait()
    async with asyncio.timeout(10):
        await runner.aclose()
    thread.may_end.set()
    reader = MemoryStore(data)
    settled = [record for record in await reader.read(run.session) if isinstance(record, CallSettled)]
    assert [one.status for one in settled] in (["detached"], ["detached", "unknown"])


async def test_an_erased_session_stops_its_background_calls(desk: MakeDesk, store: Store) -> None:
    """Nothing of them works on, and nothing comes back."""
    held = Held()
    at = desk(call("job"), say("ok"), store=store, tools=[by_itself(held)])
    await at.ask("go", SHORT)
    await held.began.wait()
    await at.runner.erase_session(user_id=USER, session_id=SESSION, by="dpo")
    assert held.left.is_set()
    assert await at.runner.get_session(user_id=USER, session_id=SESSION) is None


async def test_the_result_of_a_background_call_outlives_a_moment_of_store_trouble(desk: MakeDesk) -> None:
    """A result that could not be recorded at once is recorded when the store is back (P4)."""
    store, held = TroubledStore(), Held("the report")
    at = desk(call("job"), say("ok"), say("heard"), store=store, tools=[by_itself(held)])
    await at.ask()
    store.fails_append = once(CallSettled)
    held.may_end.set()
    assert (await at.until_settled("job", late=True)).response == {"result": "the report"}
