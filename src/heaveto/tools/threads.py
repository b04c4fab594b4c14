"""Blocking work in a thread of its own, and waiting for it whatever happens to the task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def in_thread(function: Callable[[], _T], *, name: str) -> Future[_T]:
    """Call a blocking function in a daemon thread of its own, whatever other threads are busy with."""
    future: Future[_T] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - handed over, whatever it is
            future.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


async def wait_through_cancels(work: Future[_T]) -> bool:
    """Wait for the end of a thread's work; return whether this task was cancelled meanwhile, however often.

    The caller raises `asyncio.CancelledError` if so, when it has made use of the result.
    """
    interrupted = False
    waiter = asyncio.wrap_future(work)
    waiter.add_done_callback(lambda done: done.exception())  # looked at: the caller asks the thread's own future
    while not waiter.done():
        try:
            await asyncio.wait({waiter})
        except asyncio.CancelledError:
            interrupted = True
    return interrupted
