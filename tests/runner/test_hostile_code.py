"""Code of tools, callbacks and plugins that behaves as badly as code can: runs, their stops and the session survive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.runner.desk import QUICK, SESSION, USER, Desk, Held, states

from heaveto import LlmAgent
from heaveto.errors import SessionErasedError
from heaveto.events.contents import Content, FunctionCall
from heaveto.events.records import Message, SessionKey
from heaveto.runner.application.hooks import Plugin
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, say, settle
from heaveto.tools.base import ToolContext
from heaveto.tools.function import FunctionTool


class Quit(BaseException):
    """A signal as test frameworks and other schedulers raise them."""


class Unspeakable(Exception):
    """An error whose message is none."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


def raising(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        """Act."""
        raise error

    return act


async def test_a_stop_gets_through_to_tools_that_record_something_all_the_time(
    desk: Callable[..., Desk], store: Store
) -> None:
    """Twenty tools record progress in tight loops, so that the log always moves: the stop ends them (P3)."""
    counted = asyncio.Event()

    async def count(ctx: ToolContext) -> None:
        """Count."""
        number = 0
        while True:
            await ctx.progress(number)
            number += 1
            if number == 3:
                counted.set()

    one = desk(tuple(call("count") for _ in range(20)), say("Next."), store=store, tools=[count])
    run = await one.start()
    await counted.wait()
    async with asyncio.timeout(10):
        report = await run.cancel()
    assert [operation.state for operation in report.operations] == ["stopped"] * 20
    assert (await one.ask("and now?")).outcome == "completed"


async def test_a_stop_ends_though_tools_swallow_it_and_record_on(desk: Callable[..., Desk], store: Store) -> None:
    """A tool that swallows every interruption and records progress for ever does not keep its run open (F151)."""

    counted = asyncio.Event()

    async def count(ctx: ToolContext) -> None:
        """Count."""
        while True:
            try:
                await ctx.progress(1)
                counted.set()
            except asyncio.CancelledError:
                continue

    one = desk((call("count"), call("count")), store=store, tools=[count])
    run = await one.start()
    await counted.wait()
    async with asyncio.timeout(10):
        assert (await run.cancel()).outcome == "cancelled"


async def test_a_cancel_hook_that_raises_a_signal_does_not_hold_up_the_stop(desk: Callable[..., Desk]) -> None:
    """`ctx.on_cancel(ctx.raise_if_cancelled)` is wrong, and no reason to leave a run without an ending (P7)."""
    held = Held()

    async def work(ctx: ToolContext) -> Any:
        """Work."""
        ctx.on_cancel(ctx.raise_if_cancelled)
        ctx.on_cancel(raising(Quit()))
        return await held()

    one = desk(call("work"), tools=[work])
    run = await one.start()
    await held.began.wait()
    async with asyncio.timeout(10):
        assert states(await run.cancel()) == {"work": "stopped"}


@pytest.mark.parametrize("signal", [Quit(), GeneratorExit(), asyncio.CancelledError(), SystemExit(1)], ids=repr)
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_signal_from_a_tool_is_a_failed_call(
    desk: Callable[..., Desk], signal: BaseException, blocking: bool
) -> None:
    """Whatever a tool raises ends that call, as failed: it is known how it ended (P2)."""
    act = raising(signal)

    async def act_async() -> Any:
        """Act."""
        act()

    tool = FunctionTool(act if blocking else act_async, name="act")
    one = desk(call("act"), say("I see."), tools=[tool])
    assert (await one.ask()).outcome == "completed"
    settled = (await one.settled())["act"]
    assert settled.status == "failed"
    assert type(signal).__name__ in str(settled.response)


@pytest.mark.parametrize("error", [ValueError("caf\udce9"), Unspeakable()], ids=["surrogate", "no message"])
async def test_an_error_whose_text_no_log_can_hold_is_recorded_all_the_same(
    desk: Callable[..., Desk], store: Store, error: Exception
) -> None:
    """A message with half a character, or with none, fails the call or the run that it comes from, and nothing more."""
    asked = 0

    def check(*_: object) -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise error

    one = desk(call("act"), say("I see."), store=store, tools=[raising(error)], before_model_callback=check)
    assert (await one.ask()).outcome == "completed"
    assert (await one.settled())["act"].status == "failed"
    ended = await one.ask()
    assert ended.error is not None
    assert (ended.outcome, ended.error.type) == ("failed", type(error).__name__)


async def test_a_signal_behind_a_tool_does_not_lose_its_result(desk: Callable[..., Desk]) -> None:
    """An after-tool callback that raises a signal fails the run; the tool's real result is in the log (P4)."""

    def after(*_: object) -> None:
        raise Quit

    def book() -> str:
        """Book."""
        return "booked"

    one = desk(call("book"), tools=[book], after_tool_callback=after)
    assert (await one.ask()).outcome == "failed"
    assert (await one.settled())["book"].response == {"result": "booked"}


async def test_a_signal_before_a_run_is_told_to_its_sender(desk: Callable[..., Desk]) -> None:
    """An on_user_message that raises a signal refuses that message; the next one is taken."""

    class Refuses(Plugin):
        async def on_user_message(self, key: SessionKey, message: Content) -> Content | None:
            if message == Content.of("bad"):
                raise Quit
            return None

    one = desk(say("Hello."), plugins=[Refuses()])
    with pytest.raises(RuntimeError, match="ended itself with Quit"):
        await one.start("bad")
    assert (await one.ask("good")).outcome == "completed"


async def test_a_run_may_be_handed_over_and_back(desk: Callable[..., Desk]) -> None:
    """root hands over to billing, billing back to root, root to billing again: each begins anew where it takes over."""
    model = ScriptedModel(
        call("transfer_to_agent", agent_name="billing"),
        call("transfer_to_agent", agent_name="root"),
        call("transfer_to_agent", agent_name="billing"),
        say("Paid."),
    )
    one = desk(agent=LlmAgent("root", model, sub_agents=[LlmAgent("billing", model)]), model=model)
    assert (await one.ask(config=QUICK)).outcome == "completed"
    said = [record.author for record in await one.log() if isinstance(record, Message)]
    assert said == ["root", "billing", "root", "billing"]


async def test_a_tool_may_erase_its_own_session(desk: Callable[..., Desk], store: Store) -> None:
    """The erasure stops the run that asked for it, and goes on to its end all the same."""

    async def forget_me() -> None:
        """Forget the user."""
        await one.runner.erase_session(user_id=USER, session_id=SESSION, by="ann")

    one = desk(call("forget_me"), store=store, tools=[forget_me])
    run = await one.start()
    with suppress(SessionErasedError):
        await run.wait()  # it ended just before, or its log is gone
    while await store.tombstone(run.session) is None:
        await settle()
    with pytest.raises(SessionErasedError):
        await one.start()
    await one.runner.aclose()


@pytest.mark.parametrize("point", ["before_model_callback", "after_model_callback"])
async def test_calls_that_a_callback_makes_have_ids_of_their_own(desk: Callable[..., Desk], point: str) -> None:
    """A callback that uses one id for all its calls doubles no idempotency key, so no service drops the second (P5)."""
    keys: list[str] = []

    def book(ctx: ToolContext) -> None:
        """Book."""
        keys.append(ctx.idempotency_key)

    made = 0

    def make(*_: object) -> Content | None:
        nonlocal made
        made += 1
        call_of_callback = FunctionCall(call_id="c1", name="book", args={})
        return Content((call_of_callback, call_of_callback)) if made < 3 else None

    one = desk(model=ScriptedModel(say("Done."), strict=False), tools=[book], **{point: make})
    assert (await one.ask()).outcome == "completed"
    assert len(keys) == len(set(keys)) == 4
