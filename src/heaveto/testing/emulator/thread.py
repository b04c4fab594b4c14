"""The emulator for programs that are not asynchronous, or that block their loop."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any

from heaveto.testing.emulator.server import Emulator
from heaveto.testing.script import Step


class EmulatorThread:
    """An `Emulator` in a thread with a loop of its own. Takes the same arguments; use it with ``with``.

    `emulator` may be read from any thread; its waiting methods, and gates, belong to its own loop.
    """

    def __init__(self, *steps: Step, **options: Any) -> None:
        self._steps, self._options = steps, options
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="emulator", daemon=True)
        self._emulator: Emulator | None = None

    @property
    def emulator(self) -> Emulator:
        """The emulator, once the thread runs."""
        if self._emulator is None:
            raise RuntimeError("the emulator runs only inside of its `with`")
        return self._emulator

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI's SDKs."""
        return self.emulator.openai_url

    base_url = openai_url

    @property
    def anthropic_url(self) -> str:
        """The base URL for Anthropic's SDKs."""
        return self.emulator.anthropic_url

    @property
    def google_url(self) -> str:
        """The base URL for Google's SDKs."""
        return self.emulator.google_url

    def __enter__(self) -> EmulatorThread:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - the edge of the thread: raised by who started it
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with Emulator(*self._steps, **self._options) as self._emulator:
            self._ready.set()
            await self._stop.wait()
