"""What the suite is run on: how a model is connected, and what it can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from heaveto.events.contents import Part
from heaveto.models.base import Model
from heaveto.testing.emulator import Emulator

CERTAINLY_SECONDS = 2.0
"""By when a socket must be closed whatever the machine is busy with."""


class ModelSuite:
    """What a subclass says of its connector, and what the tests make of it.

    Attributes:
        streams: the model asks for streams: text comes in fragments, and can be stopped between them.
        thinks: thoughts come out of it.
        signature: one as the provider gives them to thoughts that it wants back; None if it does not sign.
        verbatim: parts with provider data of every kind that the provider has: each must go back as it came.
        closed_within_seconds: how soon after a stop the server must see the socket closed.
    """

    streams: ClassVar[bool] = True
    thinks: ClassVar[bool] = True
    signature: ClassVar[str | None] = None
    verbatim: ClassVar[tuple[Part, ...]] = ()
    closed_within_seconds: ClassVar[float] = 0.05

    def connect(self, emulator: Emulator) -> Model:
        """Return a model at this emulator's address, not connected yet."""
        raise NotImplementedError

    @asynccontextmanager
    async def connected(self, *steps: Any, **options: Any) -> AsyncGenerator[tuple[Model, Emulator], None]:
        """An emulator that plays these steps, and a model that asks it."""
        async with Emulator(*steps, **options) as emulator:
            model = self.connect(emulator)
            try:
                yield model, emulator
            finally:
                await model.aclose()

    def needs(self, has: bool, reason: str) -> None:
        """Skip the test for a connector that has not what it is about."""
        if not has:
            pytest.skip(f"{type(self).__name__}: {reason}")


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so that the other end of a socket brings about."""
    async with asyncio.timeout(CERTAINLY_SECONDS):
        while not is_so():  # noqa: ASYNC110 - it is not ours, so there is no event for it
            await asyncio.sleep(0.001)


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait until it is over."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
