"""What calls return and put out: large results, results that cannot be stored, output that readers see, and stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.runner.desk import SESSION, USER, Desk, Held, HeldThread

from heaveto import RunConfig, ToolContext
from heaveto.errors import NotSerializableError
from heaveto.events.records import Delta, SessionKey
from heaveto.stores.base import Store
from heaveto.testing import call, say, settle
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]
SHORT = RunConfig(cancel_grace_seconds=0.02)
KEY = SessionKey("desk", USER, SESSION)


def response_of(settled: Any) -> dict[str, Any]:
    assert settled.response is not None
    return settled.response


# --- large results ------------------------------------------------------------------------------------------------


async def test_a_huge_result_becomes_an_artifact(desk: MakeDesk, store: Store) -> None:
    """Fifty megabytes: the log and the model get a stub that names it; the whole of it can be loaded."""
    text = "0123456789abcdef" * (50 * 2**20 // 16)

    def read() -> str:
        """Read."""
        return text

    at = desk(call("read"), say("ok"), store=store, tools=[read])
    assert (await at.ask()).outcome == "completed"
    stub = response_of((await at.settled())["read"])
    assert stub["size_bytes"] == len(text)
    assert len(str(stub)) < 2_000
    blob = await at.runner._services.artifacts.load(KEY, stub["artifact"], stub["version"])  # pyright: ignore[reportPrivateUsage]
    assert blob is not None
    assert blob.content.decode() == text


class Troubled:
    """Artifacts whose storing is held up, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.saving, self.may_save, self._error = asyncio.Event(), asyncio.Event(), error

    async def save(self, *_: Any, **__: Any) -> int:
        self.saving.set()
        await self.may_save.wait()
        if self._error is not None:
            raise self._error
        return 0


async def test_a_huge_result_that_cannot_be_stored_is_told_as_such(desk: MakeDesk) -> None:
    """The tool ran: that is said, with a preview. Whatever kind of error the storage raises, the run goes on (P2)."""
    artifacts = Troubled(OSError("no space left"))
    artifacts.may_save.set()
    at = desk(
        call("read"), say("ok"), artifacts=artifacts,
        tools=[FunctionTool(lambda: "x" * 100_000, name="read", description="Read.", max_result_bytes=1_000)],
    )  # fmt: skip
    assert (await at.ask()).outcome == "completed"
    told = response_of((await at.settled())["read"])
    assert "The tool ran" in told["error"]
    assert "no space left" in told["error"]
    assert told["preview"].startswith("xxx")


@pytest.mark.parametrize("whom", ["run", "call"])
async def test_a_stop_does_not_lose_a_result_that_is_being_stored(desk: MakeDesk, whom: str) -> None:
    """The tool has finished: its result is kept, whatever is stopped meanwhile (P4)."""
    artifacts = Troubled()
    at = desk(
        call("read"), say("ok"), artifacts=artifacts,
        tools=[FunctionTool(lambda: "x" * 100_000, name="read", description="Read.", max_result_bytes=1_000)],
    )  # fmt: skip
    run = await at.start("go", RunConfig(cancel_grace_seconds=60))
    await artifacts.saving.wait()
    call_id = await at.call_id("read")
    stop = run.cancel() if whom == "run" else at.runner.cancel_call(run.run_id, call_id)
    stopping = asyncio.ensure_future(stop)
    await settle()
    artifacts.may_save.set()
    await stopping
    await run.wait()
    settled = (await at.settled())["read"]
    assert (settled.status, response_of(settled)["size_bytes"]) == ("succeeded", 100_000)


@pytest.mark.parametrize(
    "value",
    [float("nan"), object(), {"open": threading.Lock()}, 2**80, "caf\udce9"],
    ids=["nan", "object", "lock", "too large a number", "lone surrogate"],
)
async def test_a_result_that_json_cannot_say_is_told_as_such(desk: MakeDesk, value: Any) -> None:
    """The tool ran, and may have had its effect: so the model is not told that it failed to run (P2)."""
    at = desk(call("get"), say("ok"), tools=[FunctionTool(lambda: value, name="get", description="Get.")])
    assert (await at.ask()).outcome == "completed"
    assert "The tool ran, but its result cannot be recorded" in at.told()


async def test_a_late_result_that_json_cannot_say_is_told_as_such(desk: MakeDesk) -> None:
    """Also where it comes late, it is not said that the call was stopped: it ran to its end (P2)."""
    thread = HeldThread(object())
    at = desk(call("thread"), say("ok"), tools=[thread.tool(timeout_seconds=0.01)])
    await at.ask("go", SHORT)
    thread.may_end.set()
    late = await at.until_settled("thread", late=True)
    assert late.status == "failed"
    assert "The tool ran, but its result cannot be recorded" in response_of(late)["error"]


# --- output -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocking", [False, True])
async def test_output_is_shown_while_the_call_works(desk: MakeDesk, blocking: bool) -> None:
    """Readers get it piece by piece, before the settlement that replaces it."""
    may_end, loop = asyncio.Event(), asyncio.get_running_loop()

    async def work(ctx: ToolContext) -> str:
        ctx.output("one ")
        ctx.output("two")
        await may_end.wait()
        return "done"

    def work_in_thread(ctx: ToolContext) -> str:
        ctx.output("one ")
        ctx.output("two")
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result(20)
        return "done"

    tool = FunctionTool(work_in_thread if blocking else work, name="work")
    at = desk(call("work"), say("ok"), tools=[tool])
    run = await at.start()
    shown = ""
    kinds: list[str] = []
    async for item in run.stream():
        if isinstance(item, Delta):
            if item.kind == "output":
                shown += item.text
                assert item.call_id == await at.call_id("work")
        else:
            kinds.append(type(item).__name__)
        if shown == "one two":
            may_end.set()
    assert shown == "one two"
    assert response_of((await at.settled())["work"]) == {"result": "done"}


@pytest.mark.parametrize("how", ["run stopped", "call stopped", "time limit", "left behind"])
async def test_output_is_kept_where_no_result_comes(desk: MakeDesk, store: Store, how: str) -> None:
    """What was put out stands in the settlement, and the model is told it (P4)."""
    said, thread = asyncio.Event(), HeldThread()

    async def work(ctx: ToolContext) -> str:
        ctx.output("half a page")
        said.set()
        await asyncio.Event().wait()
        return "never"

    def deaf(ctx: ToolContext) -> str:
        ctx.output("half a page")
        return thread(ctx)

    seconds = 0.01 if how in ("time limit", "left behind") else None
    tool = FunctionTool(deaf if how == "left behind" else work, name="work", timeout_seconds=seconds)
    at = desk(call("work"), say("ok"), say("more"), store=store, tools=[tool])
    run = await at.start("go", SHORT)
    if how == "run stopped":
        await said.wait()
        await run.cancel()
    elif how == "call stopped":
        await said.wait()
        await at.runner.cancel_call(run.run_id, await at.call_id("work"))
    await run.wait()
    assert (await at.settled())["work"].response == {"output": "half a page"}
    if how == "run stopped":
        await at.ask("and?")
    assert "half a page" in at.told()


async def test_of_a_long_output_the_beginning_and_the_end_are_kept(desk: MakeDesk) -> None:
    """64 kB of it, whatever it was; how much was left out is said."""
    said = asyncio.Event()

    async def work(ctx: ToolContext) -> None:
        ctx.output("BEGIN")
        for _ in range(5_000):
            ctx.output("x" * 100)
        ctx.output("END")
        said.set()
        await asyncio.Event().wait()

    at = desk(call("work"), tools=[FunctionTool(work)])
    run = await at.start("go", SHORT)
    await said.wait()
    await run.cancel()
    kept = response_of((await at.settled())["work"])["output"]
    assert kept.startswith("BEGIN")
    assert kept.endswith("END")
    assert len(kept) < 70_000
    assert "characters left out" in kept


async def test_a_slow_reader_does_not_hold_up_a_call_that_puts_out_a_lot(desk: MakeDesk) -> None:
    """It misses pieces, and memory stays bounded; records come to it all the same."""

    async def work(ctx: ToolContext) -> str:
        for number in range(20_000):
            ctx.output(f"{number}\n")
            if number % 1_000 == 0:
                await asyncio.sleep(0)
        return "done"

    at = desk(call("work"), say("ok"), tools=[FunctionTool(work)])
    run = await at.start()
    reader = run.stream()
    first = await anext(reader)
    assert type(first).__name__ == "RunStarted"
    async with asyncio.timeout(20):
        assert (await run.wait()).outcome == "completed"
    rest = [item async for item in reader]
    assert type(rest[-1]).__name__ == "RunEnded"


async def test_output_that_json_cannot_say_fails_where_it_is_put_out(desk: MakeDesk) -> None:
    """The tool sees the error at its own line, in a coroutine and in a thread; the event loop does not."""
    failures: list[str] = []

    async def work(ctx: ToolContext) -> str:
        for value in (object(), {"open": threading.Lock()}):
            try:
                ctx.output(value)  # type: ignore[arg-type]
            except NotSerializableError as error:
                failures.append(type(error).__name__)
        return "done"

    at = desk(call("work"), say("ok"), tools=[FunctionTool(work)])
    assert (await at.ask()).outcome == "completed"
    assert len(failures) == 2


async def test_a_piece_that_a_thread_puts_out_and_json_cannot_say_is_told_to_the_thread(
    desk: MakeDesk, caplog: pytest.LogCaptureFixture
) -> None:
    """Not to the event loop, where nobody could say whose it was."""

    def work(ctx: ToolContext) -> str:
        try:
            ctx.output(object())  # type: ignore[arg-type]
        except NotSerializableError:
            return "told"
        return "not told"

    at = desk(call("work"), say("ok"), tools=[FunctionTool(work)])
    await at.ask()
    assert response_of((await at.settled())["work"]) == {"result": "told"}
    assert "Exception in callback" not in caplog.text


async def test_what_a_call_puts_out_with_surrogates_does_not_fail_the_run(desk: MakeDesk) -> None:
    """Bytes of a broken file name are no reason to lose the outcome."""
    said = asyncio.Event()

    async def work(ctx: ToolContext) -> None:
        ctx.output("caf\udce9 and more")
        said.set()
        await asyncio.Event().wait()

    at = desk(call("work"), tools=[FunctionTool(work)])
    run = await at.start("go", SHORT)
    await said.wait()
    assert (await run.cancel()).outcome == "cancelled"
    assert "and more" in str((await at.settled())["work"].response)


async def test_the_output_of_a_call_in_the_background_is_bounded_by_its_life(desk: MakeDesk) -> None:
    """Output behind the end of its run disturbs nothing."""
    held = Held("result")

    async def job(ctx: ToolContext) -> Any:
        await ctx.detach()
        ctx.output("early ")
        value = await held()
        ctx.output("late")
        return value

    at = desk(call("job"), say("ok"), say("heard"), tools=[job])
    await at.ask()
    held.may_end.set()
    assert (await at.until_settled("job", late=True)).response == {"result": "result"}
