"""The runner for code without an event loop: a loop of its own, on a background thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from heaveto.errors import ConfigError
from heaveto.runner.handle import RunStream, StreamItem

_T = TypeVar("_T")


class Background:
    """An event loop on a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="heaveto background", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """Run a coroutine function on the loop and wait for it. Ctrl-C cancels it, waits for that, and goes on up.

        Raises:
            ConfigError: the calling thread runs an event loop, which the wait would block.
        """
        _refuse_inside_loop()

        async def work() -> _T:
            return await function()

        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Begin a coroutine on the loop and return its future, for which any thread may wait."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def iterate(self, make_stream: Callable[[], RunStream]) -> Iterator[StreamItem]:
        """Yield a stream's items; the run is stopped, and its ending awaited, however the iteration is left."""
        _refuse_inside_loop()
        return self._iterate(make_stream)

    def _iterate(self, make_stream: Callable[[], RunStream]) -> Iterator[StreamItem]:
        stream = make_stream()
        try:
            while True:
                try:
                    yield self.call(lambda: anext(stream))
                except StopAsyncIteration:
                    return
        finally:
            self.call(stream.aclose)

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _refuse_inside_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError("Runner.run blocks, and an event loop is running in this thread: use run_async here")
