"""How a scripted answer becomes bytes in time: waits, breaks, frames."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from heaveto.clock import Clock
from heaveto.errors import ModelError
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, Chunk, EndChunk, PartChunk, TextChunk, ThoughtChunk, UsageChunk
from heaveto.testing.emulator.dialects.base import Answer, Asked, Dialect, tokens
from heaveto.testing.emulator.reply import Reply
from heaveto.testing.script import Action, Cut, Delay, Fault, Gate, Hang


@dataclass(frozen=True, slots=True)
class Performance:
    """A request, the dialect that answers it, and what the script says to it."""

    dialect: Dialect
    asked: Asked
    actions: Sequence[Action]
    answer: Answer
    clock: Clock

    async def whole(self, reply: Reply) -> None:
        """Answer in one piece, once all waits are over."""
        if await self._play(self._keep, reply):
            body = self.answer.whole()
            self.dialect.answered(self.asked, body)
            await reply.json(200, body)

    async def stream(self, reply: Reply, *, early_headers: bool) -> None:
        """Answer in frames, each at its time."""
        if early_headers:
            await self._open(reply)
        if await self._play(self._send, reply):
            await reply.end()

    async def _play(self, take: Callable[[Chunk, Reply], Awaitable[None]], reply: Reply) -> bool:
        """Do what the script says, and return whether the answer got to its end."""
        for action in self.actions:
            match action:
                case Delay() | Gate() | Hang():
                    await wait(action, self.clock)
                case Cut() if action.counts_bytes:
                    reply.limit(action)
                case Cut() | Fault():
                    await self._break(action, reply)
                    return False
                case _:
                    await take(action, reply)
        return True

    async def _keep(self, chunk: Chunk, reply: Reply) -> None:
        self.answer.feed(chunk)

    async def _send(self, chunk: Chunk, reply: Reply) -> None:
        if not reply.is_started:
            await self._open(reply)
        frames = self.answer.feed(chunk)
        if isinstance(chunk, EndChunk):
            self.dialect.answered(self.asked, self.answer.whole())
        for frame in frames:
            await reply.write(frame)

    async def _open(self, reply: Reply) -> None:
        await reply.start(200, self.dialect.stream_type(self.asked))
        for frame in self.answer.opening():
            await reply.write(frame)

    async def _break(self, action: Cut | Fault, reply: Reply) -> None:
        if isinstance(action, Cut) or action.error.status is None:
            reply.break_off()
        elif reply.is_started:
            for frame in self.answer.failure(action.error):
                await reply.write(frame)
            await reply.end()
        else:
            await self._refuse(action.error, action.error.status, reply)

    async def _refuse(self, error: ModelError, status: int, reply: Reply) -> None:
        wish = error.retry_after_seconds
        body = error.body or self.dialect.error(status, str(error), retry_after=wish)
        told = self.dialect.envelope(self.asked, body)
        await reply.json(status, told, {} if wish is None else self.dialect.retry_headers(wish))


async def wait(action: Delay | Gate | Hang, clock: Clock) -> None:
    """Wait as a script says."""
    match action:
        case Delay(seconds=seconds):
            await clock.sleep(seconds)
        case Gate():
            await action.passed()
        case Hang():
            await asyncio.Event().wait()


def cost(asked: Asked, dialect: Dialect, actions: Sequence[Action], cached_tokens: int) -> Usage:
    """Return what the script says that an answer costs, else about that: providers always report some."""
    for action in actions:
        if isinstance(action, UsageChunk):
            return action.usage
    spent = sum(tokens(item) for item in dialect.prompt(asked))
    said = -(-sum(_length(action) for action in actions) // 4)
    thought = sum(len(action.text) for action in actions if isinstance(action, ThoughtChunk)) // 4
    return Usage(spent, said, cached_tokens=cached_tokens, reasoning_tokens=thought)


def _length(action: Action) -> int:
    match action:
        case TextChunk(text=text) | ThoughtChunk(text=text):
            return len(text)
        case CallChunk(name=name, args=args):
            return len(name) + len(args)
        case PartChunk():
            return 4
        case _:
            return 0
