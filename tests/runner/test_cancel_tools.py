"""A stop in the midst of tools: what was done is kept, what was not is said, and nothing works on unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.runner.desk import QUICK, Desk, Ends, Held, HeldThread, kinds, states

from heaveto import RunConfig, ToolContext
from heaveto.core.project import project
from heaveto.core.request import ModelProfile
from heaveto.events.records import CallSettled, CallStarted, Message, Record, RunEnded
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryStore
from heaveto.testing import FakeClock, call, hang, say, settle
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]
PARALLEL = RunConfig(cancel_grace_seconds=0.02, tool_execution_mode="PARALLEL_SUBSCRIBE")
SEQUENTIAL = RunConfig(cancel_grace_seconds=0.02, tool_execution_mode="SEQUENTIAL")


async def test_the_message_after_a_stop_in_a_tool_is_accepted(desk: MakeDesk, store: Store) -> None:
    """A stop settles the open call before it reports, so that the next request pairs every call (F02, F06, F28)."""
    held = Held()
    at = desk(call("held"), say("Fine."), store=store, tools=[held.tool()])
    run = await at.start("do it")
    await held.began.wait()
    report = await run.cancel(by="ann")
    assert (report.outcome, report.cause, report.by) == ("cancelled", "user", "ann")
    assert states(report)["held"] == "stopped"
    assert held.left.is_set()
    assert (await at.settled())["held"].status == "cancelled"
    assert (await at.ask("do something else")).outcome == "completed"
    assert "because the user stopped the run" in at.told()


@pytest.mark.parametrize("siblings_done", [0, 1])
async def test_the_window_does_not_matter(desk: MakeDesk, siblings_done: int) -> None:
    """An interrupted call is told alike whether a sibling had finished before the stop or not (F06)."""
    slow, quick = Held(), Held("quick result")
    at = desk((call("slow"), call("quick")), say("ok"), tools=[slow.tool("slow"), quick.tool("quick")])
    run = await at.start()
    await asyncio.gather(slow.began.wait(), quick.began.wait())
    if siblings_done:
        quick.may_end.set()
        await quick.left.wait()
        await settle()
    await run.cancel()
    await at.ask("x")
    assert (await at.settled())["slow"].status == "cancelled"
    assert (await at.settled())["quick"].status == ("succeeded" if siblings_done else "cancelled")
    assert "It may have had partial effect" in at.told()


async def test_finished_running_and_unstarted_calls_are_told_apart(desk: MakeDesk, store: Store) -> None:
    """Of three calls one finished, one ran, one never began: three different facts in one turn (F10, F34, F168)."""
    done, running, waiting = Held("the result"), Held(), Held()
    at = desk(
        (call("done"), call("running"), call("waiting")), say("ok"), store=store,
        tools=[done.tool("done"), running.tool("running"), waiting.tool("waiting")],
    )  # fmt: skip
    run = await at.start("go", SEQUENTIAL)
    await done.began.wait()
    done.may_end.set()
    await running.began.wait()
    report = await run.cancel()
    assert states(report) == {"done": "finished", "running": "stopped", "waiting": "not_started"}
    assert waiting.calls == 0
    settled = await at.settled()
    assert {name: record.status for name, record in settled.items()} == {
        "done": "succeeded", "running": "cancelled", "waiting": "not_started",
    }  # fmt: skip
    await at.ask("and?")
    told = at.told()
    assert "the result" in told
    assert "It may have had partial effect" in told
    assert "was not started because the user stopped the run. It had no effect" in told


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("user", "the user stopped the run"),
        ("deadline", "the run's deadline passed"),
        ("guardrail", "a guardrail stopped the run"),
        ("shutdown", "the service was shutting down"),
        ("disconnect", "the client went away"),
    ],
)
async def test_the_model_is_told_the_true_cause(desk: MakeDesk, cause: Any, words: str) -> None:
    """A stopped call names who or what stopped it, never one sentence for all (F34)."""
    held = Held()
    at = desk(call("held"), say("ok"), tools=[held.tool()])
    run = await at.start()
    await held.began.wait()
    await run.cancel(cause=cause)
    await at.ask("go on")
    assert words in at.told()


async def test_an_abort_error_is_not_a_result(desk: MakeDesk) -> None:
    """A tool that turns its interruption into an ordinary value is still recorded as cancelled (F35)."""

    async def wrapped() -> dict[str, str]:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"error": "operation aborted"}
        return {}

    began = asyncio.Event()
    at = desk(call("wrapped"), say("ok"), tools=[wrapped])
    run = await at.start()
    await began.wait()
    report = await run.cancel()
    settled = (await at.settled())["wrapped"]
    assert (settled.status, settled.response) == ("cancelled", {"error": "operation aborted"})
    assert states(report)["wrapped"] == "stopped"


async def test_a_tool_that_raises_its_own_error_when_interrupted_counts_as_stopped(desk: MakeDesk) -> None:
    """What ended because of the stop is judged by the stop, not by the exception's type (F35)."""

    async def wrapped() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("aborted") from None

    began = asyncio.Event()
    at = desk(call("wrapped"), tools=[wrapped])
    run = await at.start()
    await began.wait()
    assert states(await run.cancel())["wrapped"] == "stopped"
    assert (await at.settled())["wrapped"].status == "cancelled"


async def test_the_next_message_is_not_taken_for_a_side_note(desk: MakeDesk) -> None:
    """Behind a stopped task stands a visible boundary before the next text of the user (F36)."""
    done, held = Held("ok"), Held()
    at = desk(call("done"), call("held"), say("4"), tools=[done.tool("done"), held.tool()])
    done.may_end.set()
    run = await at.start("task A")
    await held.began.wait()
    await run.cancel()
    await at.ask("what is 2+2?")
    last = at.model.requests[-1].turns[-1]
    assert last.role == "user"
    texts = [part.text for part in last.parts if hasattr(part, "text")]
    assert texts == ["[The user stopped the task above. Do not go on with it unless asked to.]", "what is 2+2?"]


async def test_every_later_request_is_valid_whatever_stands_between(desk: MakeDesk) -> None:
    """Repair looks at the whole history: stops, half answers and results of old turns stay paired for ever (F37)."""
    tools = [Held() for _ in range(3)]
    at = desk(
        *(step for i in range(3) for step in ((say("Well"), call(f"t{i}")), say(f"answer {i}"))),
        tools=[tool.tool(f"t{i}") for i, tool in enumerate(tools)],
    )
    for tool in tools:
        run = await at.start("again")
        await tool.began.wait()
        await run.cancel()
        assert (await at.ask("and?")).outcome == "completed"
    at.model.assert_done()


async def test_def_and_async_def_have_one_contract(desk: MakeDesk) -> None:
    """Cancel returns with every started tool settled or named as still running, blocking or not (F43)."""
    coroutine, thread = Held(), HeldThread("late result")
    at = desk((call("held"), call("thread")), say("ok"), say("ok"), tools=[coroutine.tool(), thread.tool()])
    run = await at.start()
    await asyncio.gather(coroutine.began.wait(), thread.began.wait())
    report = await run.cancel()
    assert states(report) == {"held": "stopped", "thread": "still_running"}
    assert [operation.name for operation in report.still_running] == ["thread"]
    assert (await at.settled())["thread"].status == "unknown"
    await at.ask("what now?")
    assert "It may have taken effect, and may still do so" in at.told()
    thread.may_end.set()
    late = await at.until_settled("thread", late=True)
    assert (late.status, late.late, late.response) == ("succeeded", True, {"result": "late result"})
    await at.ask("and now?")
    assert "Late result of the earlier call" in at.told()
    assert "late result" in at.told()


async def test_a_polite_thread_is_stopped(desk: MakeDesk) -> None:
    """A blocking tool that looks at its context ends with the run: its hook is called, its call is cancelled (F43)."""
    thread = HeldThread(polite=True)
    at = desk(call("thread"), tools=[thread.tool()])
    run = await at.start("go", RunConfig(cancel_grace_seconds=10))
    await thread.began.wait()
    report = await run.cancel()
    assert states(report) == {"thread": "stopped"}
    assert thread.effects == 0


async def test_no_tool_works_after_the_end_of_a_failed_run(desk: MakeDesk) -> None:
    """When one of two parallel tools fails the run, the other is stopped before the ending is written (F52)."""
    from heaveto import ToolFatalError

    fatal, writer = Held(error=ToolFatalError("disk gone")), Held()
    at = desk((call("fatal"), call("writer")), tools=[fatal.tool("fatal"), writer.tool("writer")])
    run = await at.start()
    await asyncio.gather(fatal.began.wait(), writer.began.wait())
    fatal.may_end.set()
    await fatal.left.wait()
    await settle()
    writer.may_end.set()
    ended = await run.wait()
    assert ended.outcome == "failed"
    assert ended.error is not None and ended.error.type == "ToolFatalError"
    before = await at.log()
    await settle()
    assert await at.log() == before


@pytest.mark.parametrize("error", [asyncio.CancelledError(), ValueError("no")])
async def test_a_failing_sibling_does_not_cost_the_others(desk: MakeDesk, error: BaseException) -> None:
    """A tool that raises, be it CancelledError itself, gets an error result; its sibling keeps its own (F52, F53)."""
    good, bad = Held("A's result"), Held(error=error)
    at = desk((call("good"), call("bad")), say("Both told."), tools=[good.tool("good"), bad.tool("bad")])
    good.may_end.set()
    bad.may_end.set()
    assert (await at.ask()).outcome == "completed"
    settled = await at.settled()
    assert (settled["good"].status, settled["good"].response) == ("succeeded", {"result": "A's result"})
    assert settled["bad"].status == "failed"


async def test_a_tool_that_cancels_its_own_task_is_a_failed_tool(desk: MakeDesk) -> None:
    """A tool cannot stop its run by cancelling the task that it runs in (F52, F154)."""

    async def suicide() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    at = desk(call("suicide"), say("I see."), tools=[suicide])
    assert (await at.ask()).outcome == "completed"
    assert (await at.settled())["suicide"].status == "failed"


async def test_a_tool_that_swallows_one_cancellation_is_interrupted_again(desk: MakeDesk) -> None:
    """A stop is a level, not an edge: who swallows it gets it again, within the grace (F151)."""
    clock = FakeClock()
    held = Held(swallow=2)
    at = desk(call("held"), tools=[held.tool()], clock=clock)
    run = await at.start("go", RunConfig(cancel_grace_seconds=2))
    await held.began.wait()
    stopping = asyncio.ensure_future(run.cancel())
    await settle()
    assert not stopping.done()
    await clock.advance(1.6)
    report = await stopping
    assert states(report) == {"held": "stopped"}
    assert held.interrupted == 3


async def test_a_tool_that_swallows_every_cancellation_cannot_hold_up_the_stop(desk: MakeDesk) -> None:
    """After the grace the run ends all the same, and the report names what still works (F151)."""
    clock = FakeClock()
    held = Held("at last", swallow=10**9)
    at = desk(call("held"), tools=[held.tool()], clock=clock)
    run = await at.start("go", RunConfig(cancel_grace_seconds=2))
    await held.began.wait()
    stopping = asyncio.ensure_future(run.cancel())
    await settle()
    await clock.advance(1.9)
    assert not stopping.done()
    await clock.advance(0.2)
    assert states(await stopping) == {"held": "still_running"}
    held.may_end.set()
    await held.left.wait()
    await settle()
    assert (await at.settled())["held"].late


async def test_what_gives_in_after_the_grace_is_told_as_cancelled(desk: MakeDesk) -> None:
    """A straggler that ends because of the stop settles its unknown call late, as cancelled (P2)."""
    clock = FakeClock()
    held = Held(swallow=6)
    at = desk(call("held"), tools=[held.tool()], clock=clock)
    run = await at.start("go", RunConfig(cancel_grace_seconds=1))
    await held.began.wait()
    stopping = asyncio.ensure_future(run.cancel())
    await settle()
    await clock.advance(1)
    assert states(await stopping) == {"held": "still_running"}
    while not held.left.is_set():
        next(iter(task for task in asyncio.all_tasks() if task.get_name().startswith("heaveto call"))).cancel()
        await settle()
    await settle()
    late = (await at.settled())["held"]
    assert (late.status, late.late) == ("cancelled", True)


async def test_a_retrying_tool_does_not_retry_after_a_stop(desk: MakeDesk) -> None:
    """A stop is terminal for every layer of retries: one attempt began, none follows (F152)."""
    attempts = 0

    async def flaky(ctx: ToolContext) -> str:
        nonlocal attempts
        for _ in range(5):
            attempts += 1
            began.set()
            try:
                await asyncio.Event().wait()
            except Exception:
                continue
        return "gave up"

    began = asyncio.Event()
    errors: list[Exception] = []

    def retry(_tool: object, _args: object, _ctx: object, error: Exception) -> None:
        errors.append(error)

    at = desk(call("flaky"), tools=[flaky], on_tool_error_callback=retry)
    run = await at.start()
    await began.wait()
    await run.cancel()
    assert (attempts, errors) == (1, [])
    assert at.model.calls == 1


async def test_a_slow_permission_does_not_start_the_tool_after_a_stop(desk: MakeDesk) -> None:
    """A before-tool hook that ignores the stop and says yes in the end starts nothing (F153)."""
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def permission(*_: object) -> None:
        asked.set()
        while not may_answer.is_set():
            try:
                await may_answer.wait()
            except asyncio.CancelledError:
                may_answer.set()

    held = Held()
    at = desk(call("held"), tools=[held.tool()], before_tool_callback=permission)
    run = await at.start()
    await asked.wait()
    report = await run.cancel()
    assert held.calls == 0
    assert states(report) == {"held": "not_started"}
    assert "CallStarted" not in kinds(await at.log())


class _Slow(MemoryStore):
    """Holds the append of a record type until it is let go."""

    def __init__(self, kind: type[Any]) -> None:
        super().__init__()
        self.reached, self.may_go_on = asyncio.Event(), asyncio.Event()
        self._kind = kind

    async def append(self, key: Any, records: Any, **options: Any) -> int:
        if any(isinstance(record, self._kind) for record in records):
            self.reached.set()
            await self.may_go_on.wait()
        return await super().append(key, records, **options)


async def test_a_stop_while_a_start_is_being_recorded_waits_for_it(desk: MakeDesk) -> None:
    """A stop lands behind a start that is under way, never between: the tool is interrupted before it has an effect."""
    store = _Slow(CallStarted)
    held = Held()
    held.may_end.set()
    at = desk(call("held"), (say("half"), hang()), say("ok"), tools=[held.tool()], store=store)
    run = await at.start()
    await store.reached.wait()
    stopping = asyncio.ensure_future(run.cancel())
    await settle()
    assert not stopping.done()
    store.may_go_on.set()
    report = await stopping
    settled = (await at.settled())["held"]
    assert (states(report)["held"], settled.status) in {("stopped", "cancelled"), ("finished", "succeeded")}
    assert (settled.status == "succeeded") == (held.effects == 1)
    assert (await run.wait()).outcome == "cancelled"


async def test_a_result_that_is_being_recorded_survives_the_stop(desk: MakeDesk) -> None:
    """A tool that had finished when the stop came keeps its real result, although its append was under way (F53)."""
    store = _Slow(CallSettled)
    held = Held("real")
    at = desk(call("held"), hang(), tools=[held.tool()], store=store)
    run = await at.start()
    await held.began.wait()
    held.may_end.set()
    await store.reached.wait()
    stopping = asyncio.ensure_future(run.cancel())
    await settle()
    store.may_go_on.set()
    report = await stopping
    assert states(report)["held"] == "finished"
    assert (await at.settled())["held"].response == {"result": "real"}


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_result_survives_a_stop_in_the_callback_behind_it(desk: MakeDesk, blocking: bool) -> None:
    """A stop while an after-tool callback works neither waits for it nor loses the result that it was given (P4)."""
    asked = asyncio.Event()

    async def censor(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    tool: Held | HeldThread = HeldThread("real") if blocking else Held("real")
    tool.may_end.set()
    at = desk(call("t"), tools=[tool.tool("t")], after_tool_callback=censor)
    run = await at.start("go", RunConfig(cancel_grace_seconds=20))
    await asked.wait()
    report = await run.cancel()
    assert states(report) == {"t": "finished"}
    assert (await at.settled())["t"].response == {"result": "real"}


async def test_a_failure_survives_a_stop_in_its_error_callback(desk: MakeDesk) -> None:
    """A stop while an on-tool-error callback works keeps the tool's own error as the call's outcome (P4)."""
    asked = asyncio.Event()

    async def consider(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    held = Held(error=ValueError("no such order"))
    held.may_end.set()
    at = desk(call("held"), tools=[held.tool()], on_tool_error_callback=consider)
    run = await at.start("go", RunConfig(cancel_grace_seconds=20))
    await asked.wait()
    await run.cancel()
    settled = (await at.settled())["held"]
    assert (settled.status, settled.response) == ("failed", {"error": "ValueError: no such order"})


async def test_finish_lets_a_coroutine_end_by_itself(desk: MakeDesk) -> None:
    """on_cancel="finish": the tool is not interrupted, the stop waits for it, and its result is kept."""
    held = Held("finished work")
    at = desk(call("held"), tools=[held.tool(on_cancel="finish")])
    run = await at.start("go", RunConfig(cancel_grace_seconds=20))
    await held.began.wait()
    stopping = asyncio.ensure_future(run.cancel())
    await settle()
    assert not stopping.done()
    assert held.interrupted == 0
    held.may_end.set()
    assert states(await stopping) == {"held": "finished"}
    assert (await at.settled())["held"].status == "succeeded"


async def test_abandon_does_not_wait(desk: MakeDesk) -> None:
    """on_cancel="abandon": the stop does not wait, the tool becomes a straggler, its late result is recorded (F45)."""
    held = Held("later")
    at = desk(call("held"), tools=[held.tool(on_cancel="abandon")])
    run = await at.start("go", RunConfig(cancel_grace_seconds=10**6))
    await held.began.wait()
    assert states(await run.cancel()) == {"held": "still_running"}
    assert held.interrupted == 0
    held.may_end.set()
    await held.left.wait()
    await settle()
    late = (await at.settled())["held"]
    assert (late.status, late.late, late.response) == ("succeeded", True, {"result": "later"})


async def test_the_way_to_stop_belongs_to_the_one_call(desk: MakeDesk) -> None:
    """A tool that may be abandoned does not lend that to the tools of an agent that works for it (F45)."""
    from heaveto import AgentTool, LlmAgent
    from heaveto.testing import ScriptedModel

    inner = Held()
    child = LlmAgent("child", ScriptedModel(call("inner")), tools=[inner.tool("inner")])
    delegate = AgentTool(child)
    delegate.on_cancel = "abandon"
    at = desk(call("child", request="do"), tools=[delegate])
    run = await at.start("go", RunConfig(cancel_grace_seconds=20))
    await inner.began.wait()
    report = await run.cancel()
    assert states(report)["inner"] == "stopped"
    assert inner.left.is_set()


async def test_a_run_waits_for_stragglers_if_told_to(desk: MakeDesk) -> None:
    """straggler_wait_seconds: the next run begins when the work that an earlier stop left has ended."""
    thread = HeldThread("late")
    at = desk(call("thread"), say("ok"), tools=[thread.tool()])
    run = await at.start()
    await thread.began.wait()
    await run.cancel()
    starting = asyncio.ensure_future(at.start("next", RunConfig(straggler_wait_seconds=20)))
    await settle()
    assert not starting.done()
    thread.may_end.set()
    assert (await (await starting).wait()).outcome == "completed"
    order = kinds(await at.log())
    assert order.index("CallSettled", order.index("RunEnded")) < len(order) - 1 - order[::-1].index("RunStarted")
    assert "late" in at.told()


async def test_a_stop_has_a_list_of_what_was_done(desk: MakeDesk, store: Store) -> None:
    """A stopped run owes its user the committed payment, what is in flight, and what it cost (F168)."""
    paid, mail = Held("receipt 7"), Held()
    ends = Ends()
    at = desk(call("pay"), call("mail"), store=store, tools=[paid.tool("pay"), mail.tool("mail")], plugins=[ends])
    paid.may_end.set()
    run = await at.start()
    await mail.began.wait()
    report = await run.cancel(by="ann", reason="changed my mind")
    assert states(report) == {"pay": "finished", "mail": "stopped"}
    ended = (await at.endings())[0]
    assert (ended.report, ended.reason, ended.llm_calls) == (report, "changed my mind", 2)
    await settle()
    assert ends.ends[0].report == report


async def test_a_settled_effect_is_never_forgotten(desk: MakeDesk) -> None:
    """A booking whose follow-up was interrupted is in the next request, so that it is not booked twice (F68)."""
    from heaveto.testing import gate

    door = gate()
    booking = Held("booked #1")
    booking.may_end.set()
    at = desk(call("book"), (door, say("done")), say("It is booked."), tools=[booking.tool("book")])
    run = await at.start("book it")
    await door.reached()
    await run.cancel()
    await at.ask("ok?")
    assert "booked #1" in at.told()
    assert booking.calls == 1


async def test_the_answer_is_durable_before_its_first_tool(desk: MakeDesk, store: Store) -> None:
    """Message, start and result each are in the store before the next effect begins (F105, F141, P5)."""
    seen: dict[str, list[str]] = {}

    async def spy(name: str) -> str:
        records = await store.read(at.runner._key("ann", "s"))  # pyright: ignore[reportPrivateUsage]
        seen[name] = kinds(records)
        return name

    at = desk((call("spy", name="a"), call("spy", name="b")), say("ok"), store=store, tools=[spy])
    await at.ask("go", SEQUENTIAL)
    assert seen["a"] == ["RunStarted", "Message", "CallStarted"]
    assert seen["b"] == ["RunStarted", "Message", "CallStarted", "CallSettled", "CallStarted"]


async def test_a_result_does_not_wait_for_its_slowest_sibling(desk: MakeDesk, store: Store) -> None:
    """Each result of a parallel batch is durable when its tool ends (F105, F141)."""
    quick, slow = Held("q"), Held("s")
    at = desk((call("quick"), call("slow")), say("ok"), store=store, tools=[quick.tool("quick"), slow.tool("slow")])
    run = await at.start()
    quick.may_end.set()
    async for record in run.stream():
        if isinstance(record, CallSettled):
            break
    assert [record.name for record in await at.log() if isinstance(record, CallSettled)] == ["quick"]
    assert not slow.left.is_set()
    slow.may_end.set()
    await run.wait()


async def test_the_same_facts_are_stored_in_every_mode(desk: MakeDesk, store: Store) -> None:
    """Started and cancelled is told apart from never started, however the calls are executed (F163)."""
    for config in (PARALLEL, SEQUENTIAL, QUICK):
        fast, slow = Held("f"), Held()
        at = desk((call("fast"), call("slow")), store=store, tools=[fast.tool("fast"), slow.tool("slow")])
        fast.may_end.set()
        run = await at.runner.start(user_id="ann", session_id=f"{id(config)}", new_message="go", run_config=config)
        await slow.began.wait()
        await settle()
        await run.cancel()
        records: list[Record] = await at.runner.records(user_id="ann", session_id=f"{id(config)}")
        facts = {record.name: record.status for record in records if isinstance(record, CallSettled)}
        assert facts == {"fast": "succeeded", "slow": "cancelled"}
        assert isinstance(records[-1], RunEnded)


async def test_a_loaded_log_projects_alike(desk: MakeDesk, store: Store) -> None:
    """What the next request says depends on the stored log alone, not on the process that wrote it (P1, F163)."""
    held = Held()
    at = desk(call("held"), say("ok"), store=store, tools=[held.tool()])
    run = await at.start()
    await held.began.wait()
    await run.cancel()
    await at.ask("next")
    records = await at.log()
    last = max(index for index, record in enumerate(records) if isinstance(record, Message))
    again = project(records[: records[last].seq - 1], "root", ModelProfile(name="scripted"))
    assert list(again) == list(at.model.requests[-1].turns)


async def test_an_on_cancel_hook_that_fails_changes_nothing(desk: MakeDesk, caplog: pytest.LogCaptureFixture) -> None:
    """A tool's own cancel hook may raise: it is logged, and the stop goes on."""
    began = asyncio.Event()

    async def hooked(ctx: ToolContext) -> None:
        def broken() -> None:
            raise OSError("socket is gone")

        ctx.on_cancel(broken)
        began.set()
        await asyncio.Event().wait()

    at = desk(call("hooked"), tools=[FunctionTool(hooked)])
    run = await at.start()
    await began.wait()
    assert states(await run.cancel()) == {"hooked": "stopped"}
    assert "on_cancel hook" in caplog.text
