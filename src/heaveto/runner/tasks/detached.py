"""Work that goes on although its waiter is cancelled, and that its waiter hears of without delay."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")


def detach(work: Coroutine[Any, Any, _T], *, name: str | None = None) -> tuple[asyncio.Task[None], asyncio.Future[_T]]:
    """Start work in a task of its own; return the task, and a future that has the work's outcome.

    As with `asyncio.shield`, cancelling the future (by cancelling a task that awaits it) leaves the work alone. Unlike
    there, the future is resolved in the same step of the event loop in which the work ends.
    """
    outcome: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(_carry(work, outcome), name=name)

    def leave(_: asyncio.Task[None]) -> None:
        if not outcome.done():
            outcome.cancel()
        work.close()  # a task that is cancelled before its first step never begins its work

    task.add_done_callback(leave)
    return task, outcome


async def to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Do work, and wait for its end although the waiter is cancelled, however often.

    For what belongs to a call: a stop does not wait for that beyond its grace.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    return task.result()


async def _carry(work: Coroutine[Any, Any, _T], outcome: asyncio.Future[_T]) -> None:
    try:
        result = await work
    except asyncio.CancelledError:
        outcome.cancel()
        raise
    except BaseException as error:  # noqa: BLE001 - handed over to whoever waits
        if not outcome.done():
            outcome.set_exception(error)
            outcome.exception()  # looked at: where nobody waits any more, it is not a warning
    else:
        if not outcome.done():
            outcome.set_result(result)
