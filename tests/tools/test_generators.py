"""Generator functions as tools: their pieces are output, their end is a result, and they are closed on every path."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest
from tests.tools.listener import Listener, context

from heaveto.errors import NotSerializableError, RunCancelled, ToolDefinitionError
from heaveto.tools.base import ToolContext
from heaveto.tools.function import FunctionTool


async def count(to: int) -> AsyncIterator[str]:
    """Count."""
    for number in range(to):
        yield f"{number} "


def count_blocking(to: int) -> Iterator[str]:
    for number in range(to):
        yield f"{number} "


async def rows() -> AsyncIterator[dict[str, int] | str]:
    yield {"row": 1}
    yield "two"


def rows_blocking() -> Iterator[dict[str, int] | str]:
    yield {"row": 1}
    yield "two"


async def nothing() -> AsyncIterator[str]:
    for never in ():
        yield never


def nothing_blocking() -> Iterator[str]:
    yield from ()


class Counter:
    async def __call__(self, to: int) -> AsyncIterator[str]:
        async for piece in count(to):
            yield piece


def lazily(to: int) -> Iterator[str]:
    return (f"{number} " for number in range(to))


async def execute(func: Callable[..., Any], host: Listener | None = None, **args: Any) -> Any:
    """Execute a tool as the runtime does: in a thread, if it is blocking."""
    tool, ctx = FunctionTool(func), context(host or Listener())
    if tool.blocking:
        return await asyncio.to_thread(tool.run_blocking, args, ctx)
    return await tool.run(args, ctx)


@pytest.mark.parametrize(
    ("func", "args", "pieces", "result"),
    [
        (count, {"to": 3}, ["0 ", "1 ", "2 "], "0 1 2 "),
        (count_blocking, {"to": 3}, ["0 ", "1 ", "2 "], "0 1 2 "),
        (Counter(), {"to": 2}, ["0 ", "1 "], "0 1 "),
        (lazily, {"to": 2}, ["0 ", "1 "], "0 1 "),
        (rows, {}, [{"row": 1}, "two"], [{"row": 1}, "two"]),
        (rows_blocking, {}, [{"row": 1}, "two"], [{"row": 1}, "two"]),
        (nothing, {}, [], None),
        (nothing_blocking, {}, [], None),
    ],
)
async def test_pieces_are_put_out_and_are_the_result(
    func: Callable[..., Any], args: dict[str, Any], pieces: list[Any], result: Any
) -> None:
    """All text is one text, anything else a list, no pieces are no result; no context parameter is needed."""
    host = Listener()
    assert await execute(func, host, **args) == result
    assert host.pieces == pieces


async def test_what_a_generator_returns_is_its_result() -> None:
    """The pieces were shown all the same."""

    def work() -> Generator[str, None, dict[str, int]]:
        yield "half"
        return {"done": 2}

    host = Listener()
    assert await execute(work, host) == {"done": 2}
    assert host.pieces == ["half"]


async def test_a_generator_may_use_its_context() -> None:
    """Arguments and context are bound as for other functions."""

    async def work(city: str, ctx: ToolContext) -> AsyncIterator[str]:
        ctx.state["city"] = city
        yield ctx.call_id

    tool, ctx = FunctionTool(work), context(Listener())
    assert await tool.run(tool.bind({"city": "Oslo"}), ctx) == "c1"
    assert ctx.state["city"] == "Oslo" and not tool.blocking


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_a_generator_that_raises_has_shown_its_pieces(kind: str) -> None:
    """The error is the call's; so is that of a piece that is no JSON, after which the generator is closed."""
    closed: list[bool] = []

    async def fail(piece: str) -> AsyncIterator[Any]:
        try:
            yield "shown"
            if piece == "odd":
                yield object()
            raise ValueError(piece)
        finally:
            closed.append(True)

    def fail_blocking(piece: str) -> Iterator[Any]:
        try:
            yield "shown"
            if piece == "odd":
                yield object()
            raise ValueError(piece)
        finally:
            closed.append(True)

    func, host = {"async": fail, "blocking": fail_blocking}[kind], Listener()
    with pytest.raises(ValueError, match="bad"):
        await execute(func, host, piece="bad")
    with pytest.raises(NotSerializableError, match="object"):
        await execute(func, host, piece="odd")
    assert host.pieces == ["shown", "shown"] and closed == [True, True]


async def test_a_cancelled_generator_is_closed_before_its_call_ends() -> None:
    """At its await it gets the interruption, and its clean-up may await; what was shown stays."""
    closed: list[str] = []

    async def work() -> AsyncIterator[str]:
        try:
            yield "shown"
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            closed.append("cleaned up")

    host = Listener()
    task = asyncio.create_task(execute(work, host))
    await host.heard("shown")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert host.pieces == ["shown"] and closed == ["cleaned up"]


async def test_readers_that_fail_close_the_generator() -> None:
    """An error in showing a piece does not leave the generator to the garbage collector."""
    closed: list[bool] = []

    class Refusing(Listener):
        def output(self, piece: object) -> None:
            raise RunCancelled("r1", "lease_lost")

    async def work() -> AsyncIterator[str]:
        try:
            yield "refused"
        finally:
            closed.append(True)

    with pytest.raises(RunCancelled):
        await execute(work, Refusing())
    assert closed == [True]


async def test_a_blocking_generator_is_stopped_between_two_pieces() -> None:
    """It need not look by itself: its thread ends, with its clean-up done (F43)."""
    closed = threading.Event()

    def endless() -> Iterator[str]:
        try:
            while True:
                yield "piece"
        finally:
            closed.set()

    class StopsAtThird(Listener):
        def output(self, piece: Any) -> None:
            super().output(piece)
            if len(self.pieces) == 3:
                self.cancelled = "user"

    host = StopsAtThird()
    with pytest.raises(RunCancelled):
        await execute(endless, host)
    assert len(host.pieces) == 3 and closed.is_set()


async def test_a_blocking_generator_that_shall_finish_does_so() -> None:
    """`on_cancel="finish"` lets it go on to its end, though a stop was asked for."""
    host = Listener()
    host.stop()
    tool = FunctionTool(count_blocking, on_cancel="finish")
    assert await asyncio.to_thread(tool.run_blocking, {"to": 2}, context(host)) == "0 1 "


async def test_an_async_generator_in_disguise_is_refused() -> None:
    """A function that is not async cannot give one: it would never be awaited."""

    def disguised() -> Any:
        return count(3)

    with pytest.raises(ToolDefinitionError, match="make it async"):
        await execute(disguised)
