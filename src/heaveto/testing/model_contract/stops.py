"""Stops: the socket is closed at once, whatever the connector was about to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import cast

import pytest

from heaveto.agents.llm import LlmAgent
from heaveto.events.records import Delta, Message
from heaveto.models.base import Chunk
from heaveto.runner.runner import Runner
from heaveto.testing.clock import FakeClock, settle
from heaveto.testing.emulator.exchange import Exchange
from heaveto.testing.model_contract.asking import ASK, ask, next_text
from heaveto.testing.model_contract.suite import CERTAINLY_SECONDS, ModelSuite, cancelled, until
from heaveto.testing.script import fault, hang, say

MOMENTS = 40
"""At how many steps of the event loop after its start a request is cancelled, one after another."""


class StopContract(ModelSuite):
    """What a connector promises when it is stopped."""

    @pytest.mark.parametrize("early_headers", [False, True])
    async def test_a_stop_before_the_first_byte_closes_the_socket(self, early_headers: bool) -> None:
        """The provider must not go on generating, also where it has not said anything yet (F51)."""

        async def stop_one() -> float:
            async with self.connected(hang(), early_headers=early_headers) as (model, emulator):
                asking = asyncio.create_task(ask(model))
                exchange = await emulator.exchange(0)
                await settle()
                return await _closed_after(exchange, lambda: cancelled(asking))

        await self._closes(stop_one)

    async def test_a_stop_while_connecting_leaves_no_request_behind(self) -> None:
        """At every step of the loop from the start of a request on: no socket stays, nothing is asked again (F51)."""
        async with self.connected(say("warm"), hang(), strict=False) as (model, emulator):
            await ask(model)
            for moment in range(MOMENTS):
                asking = asyncio.create_task(ask(model))
                for _ in range(moment):
                    await asyncio.sleep(0)
                await cancelled(asking)
            for exchange in emulator.exchanges[1:]:
                await asyncio.wait_for(exchange.over(), CERTAINLY_SECONDS)
            assert len(emulator.exchanges) <= 1 + MOMENTS

    @pytest.mark.parametrize("way", ["cancel", "close"])
    async def test_a_stop_between_chunks_closes_the_socket(self, way: str) -> None:
        """Where the reader waits for more, and where it does something else and then stops reading (F51)."""
        self.needs(self.streams, "it does not stream")

        async def stop_one() -> float:
            async with self.connected((say("Hel"), hang())) as (model, emulator):
                stream = cast("AsyncGenerator[Chunk, None]", model.generate(ASK))
                await next_text(stream)
                exchange = await emulator.exchange(0)
                if way == "close":
                    return await _closed_after(exchange, stream.aclose)
                reading = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0)

                async def stop() -> None:
                    await cancelled(reading)
                    await stream.aclose()

                return await _closed_after(exchange, stop)

        await self._closes(stop_one)

    async def test_a_stop_in_the_readers_own_code_closes_the_socket(self) -> None:
        """The task is cancelled between two chunks, while it does something else (F51)."""
        self.needs(self.streams, "it does not stream")

        async def stop_one() -> float:
            async with self.connected((say("Hel"), hang())) as (model, emulator):
                busy = asyncio.Event()

                async def work() -> None:
                    async with aclosing(cast("AsyncGenerator[Chunk, None]", model.generate(ASK))) as stream:
                        await next_text(stream)
                        busy.set()
                        await asyncio.Event().wait()

                working = asyncio.create_task(work())
                await busy.wait()
                return await _closed_after(await emulator.exchange(0), lambda: cancelled(working))

        await self._closes(stop_one)

    async def test_nothing_is_asked_again_after_a_stop(self) -> None:
        """In the pause before a retry, which the runtime makes, a stop ends it (F159)."""
        clock = FakeClock()
        async with self.connected(fault("busy", status=503), strict=False) as (model, emulator):
            async with Runner(LlmAgent("root", model), clock=clock) as runner:
                run = await runner.start(user_id="u", session_id="s", new_message="hi")
                await (await emulator.exchange(0)).over()
                await until(lambda: clock.sleepers > 0)
                assert (await run.cancel()).outcome == "cancelled"
                await clock.advance(3600)
            assert len(emulator.exchanges) == 1

    async def test_a_stopped_answer_is_in_the_books(self) -> None:
        """What was generated is paid for, so it is recorded with the stop, as an estimate (F126, F127)."""
        self.needs(self.streams, "it does not stream")
        words = "word " * 50
        async with (
            self.connected((say(words, chunks=2), hang())) as (model, emulator),
            Runner(LlmAgent("root", model)) as runner,
        ):
            run = await runner.start(user_id="u", session_id="s", new_message="a question of some length")
            received = 0
            async for record in run.stream(deltas=True):
                received += len(record.text) if isinstance(record, Delta) else 0
                if received == len(words):
                    break
            report = await run.cancel()
            await asyncio.wait_for(emulator.exchanges[0].over(), CERTAINLY_SECONDS)
            records = [record async for record in run.stream(deltas=False)]
        (message,) = (record for record in records if isinstance(record, Message) and record.interrupted)
        assert report.usage.estimated and report.usage.input_tokens > 0 and report.usage.output_tokens > 10
        assert message.usage == report.usage

    async def _closes(self, stop_one: Callable[[], Awaitable[float]]) -> None:
        """Whether a socket closes in time. A busy machine may be late now and then, but not three times in a row."""
        best = min([await stop_one() for _ in range(3)])
        print(f"\n{type(self).__name__}: the server saw the socket close after {best * 1000:.1f} ms")  # noqa: T201
        assert best <= self.closed_within_seconds


async def _closed_after(exchange: Exchange, stop: Callable[[], Awaitable[None]]) -> float:
    """Stop, and return how many seconds later the server saw the socket close."""
    stopped_at = time.monotonic()
    await stop()
    await asyncio.wait_for(exchange.over(), CERTAINLY_SECONDS)
    assert exchange.closed_at is not None, "the answer was completed"
    return exchange.closed_at - stopped_at
