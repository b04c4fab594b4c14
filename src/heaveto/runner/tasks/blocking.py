"""Blocking functions, each in a thread of its own, so that they never hold up the event loop (F43)."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_T = TypeVar("_T")


def run_in_thread(function: Callable[[], _T], *, name: str) -> asyncio.Future[_T]:
    """Start a blocking function in a daemon thread; return a future of this loop for its result.

    Cancelling the future does not stop the thread. A daemon thread, because one that never ends must not keep the
    interpreter from exiting.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(settle: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop was closed while the function worked: nobody is left to be told
            loop.call_soon_threadsafe(settle)

    def work() -> None:
        try:
            value = context.run(function)
        except BaseException as error:  # noqa: BLE001 - handed over to the loop, whatever it is
            failure = error
            if isinstance(error, (StopIteration, GeneratorExit)):  # a coroutine that awaits cannot be given these
                failure = RuntimeError(f"the function raised {type(error).__name__}")
            deliver(lambda: None if future.done() else future.set_exception(failure))
        else:
            deliver(lambda: None if future.done() else future.set_result(value))

    threading.Thread(target=work, name=name, daemon=True).start()
    return future
