"""The models and the tool of these benchmarks: no network, no latency but where it is the point."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.models.base import CallChunk, Chunk, EndChunk, Model, TextChunk


async def f(x: int) -> dict[str, int]:
    """Return x."""
    return {"x": x}


class InstantModel(Model):
    """Calls the tool once, then says that it is done."""

    name = "instant"
    profile = ModelProfile("fake")

    async def generate(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        if request.turns[-1].role == "tool":
            yield TextChunk("done")
        else:
            yield CallChunk(0, "f", "id", '{"x":1}')
        yield EndChunk()


class NotingModel(InstantModel):
    """Notes when it is asked to go on behind a tool's result."""

    name = "noting"
    asked_at = 0.0

    async def generate(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.asked_at = time.perf_counter()
        async for chunk in super().generate(request):
            yield chunk


class AskingModel(Model):
    """Makes `messages` messages with `calls` calls each, then says that it is done."""

    name = "asking"
    profile = ModelProfile("fake")
    messages = 1
    calls = 1

    async def generate(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        if sum(turn.role == "tool" for turn in request.turns) < self.messages:
            for index in range(self.calls):
                yield CallChunk(index, "f", f"id{index}", '{"x":1}')
        else:
            yield TextChunk("done")
        yield EndChunk()


class BusyModel(Model):
    """Calls a tool and gives it the user's text, as its `begun` or, to an agent, as its `request`."""

    name = "busy"
    profile = ModelProfile("fake")

    def __init__(self, tool: str) -> None:
        self._tool = tool

    async def generate(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        text = request.turns[-1].parts[-1].text or ""
        word = "request" if self._tool == "agent" else "begun"
        yield CallChunk(0, self._tool, "id", json.dumps({word: text}))
        yield EndChunk()


class EndlessModel(Model):
    """Streams a word about every millisecond until it is stopped."""

    name = "endless"
    profile = ModelProfile("fake")

    async def generate(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        while True:
            yield TextChunk("word ")
            await asyncio.sleep(0.001)


class WaitingModel(Model):
    """Answers nothing until its gate opens; `all_waiting` is set when `expected` requests wait."""

    name = "waiting"
    profile = ModelProfile("fake")

    def __init__(self, expected: int) -> None:
        self.gate = asyncio.Event()
        self.all_waiting = asyncio.Event()
        self._missing = expected

    async def generate(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self._missing -= 1
        if self._missing == 0:
            self.all_waiting.set()
        await self.gate.wait()
        yield TextChunk("done")
        yield EndChunk()


class PacedModel(Model):
    """Streams a word every 100 ms, without end: about as fast as a slow model writes."""

    name = "paced"
    profile = ModelProfile("fake")

    async def generate(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        while True:
            yield TextChunk("word ")
            await asyncio.sleep(0.1)
