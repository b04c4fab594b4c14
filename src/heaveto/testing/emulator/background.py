"""Responses that are made without their client: they go on when it leaves, and can be followed and cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from heaveto.clock import Clock
from heaveto.errors import ModelError
from heaveto.models.base import Chunk
from heaveto.testing.emulator.dialects.responses_answer import ResponsesAnswer
from heaveto.testing.emulator.playing import wait
from heaveto.testing.emulator.reply import Reply
from heaveto.testing.script import Action, Cut, Delay, Fault, Gate, Hang


class BackgroundJob:
    """Plays a script into a tape of events; the n-th frame has the sequence number n."""

    def __init__(
        self, actions: Sequence[Action], answer: ResponsesAnswer, clock: Clock, done: Callable[[], None]
    ) -> None:
        self.answer = answer
        self._actions, self._clock, self._done = actions, clock, done
        self._frames: list[bytes] = []
        self._is_over = False
        self._grown = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to make the response."""
        self._add(self.answer.opening())
        self.task = asyncio.create_task(self._run(), name=f"background {self.answer.id}")

    def cancel(self) -> None:
        """Stop making it; nothing if it is made."""
        if not self._is_over:
            self.answer.cancel()
            self._finish()
            if self.task is not None:
                self.task.cancel()

    async def follow(self, reply: Reply, after: int) -> None:
        """Stream the events behind this sequence number, and those that are still to come."""
        await reply.start(200, "text/event-stream; charset=utf-8")
        place = after + 1
        while True:
            grown = self._grown
            if place < len(self._frames):
                await reply.write(self._frames[place])
                place += 1
            elif self._is_over:
                break
            else:
                await grown.wait()
        await reply.end()

    async def _run(self) -> None:
        for action in self._actions:
            match action:
                case Delay() | Gate() | Hang():
                    await wait(action, self._clock)
                case Fault(error=error):
                    self._add(self.answer.failure(error))
                    break
                case Cut() if action.counts_bytes:
                    pass  # of the connection that asked for it, which may go while this goes on
                case Cut():
                    self._add(self.answer.failure(ModelError("the model was lost", status=500)))
                    break
                case _:
                    self._play(action)
        self._finish()

    def _play(self, chunk: Chunk) -> None:
        self._add(self.answer.feed(chunk))

    def _add(self, frames: list[bytes]) -> None:
        self._frames += frames
        self._wake()

    def _finish(self) -> None:
        self._is_over = True
        self._done()
        self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()
