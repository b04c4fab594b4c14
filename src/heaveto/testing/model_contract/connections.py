"""Connections: used again after a whole answer, apart from each other, and closed with the model."""

from __future__ import annotations

import asyncio
from typing import Any

from heaveto.events.contents import text_of
from heaveto.testing.model_contract.asking import ask, said
from heaveto.testing.model_contract.bodies import texts_in
from heaveto.testing.model_contract.suite import ModelSuite, cancelled, until
from heaveto.testing.script import hang, say

STREAMS_AT_ONCE = 100


class ConnectionContract(ModelSuite):
    """What a connector promises of its connections."""

    async def test_a_connection_is_used_again_after_a_whole_answer(self) -> None:
        """Reading to the end leaves it open and clean."""
        async with self.connected(say("a"), say("b")) as (model, emulator):
            await ask(model)
            await ask(model)
            assert emulator.open_connections == 1

    async def test_a_request_after_a_stop_is_answered(self) -> None:
        """A stop spoils nothing but its own request."""
        async with self.connected(hang(), say("b")) as (model, emulator):
            asking = asyncio.create_task(ask(model))
            await emulator.exchange(0)
            await cancelled(asking)
            assert text_of((await ask(model)).parts) == "b"

    async def test_many_answers_at_once_do_not_mix(self) -> None:
        """Each reader gets its own answer, and no other's (F65)."""

        def echo(body: Any) -> Any:
            word = next(text for text in texts_in(body) if text.startswith("number "))
            return say(word, chunks=4)

        async with self.connected(*[echo] * STREAMS_AT_ONCE) as (model, emulator):
            wanted = [f"number {place}" for place in range(STREAMS_AT_ONCE)]
            answers = await asyncio.gather(*(ask(model, said(word)) for word in wanted))
        assert [text_of(answer.parts) for answer in answers] == wanted
        emulator.assert_done()

    async def test_closing_twice_does_no_harm_and_closes_the_connections(self) -> None:
        """`aclose` is idempotent."""
        async with self.connected(say("a")) as (model, emulator):
            await ask(model)
            await model.aclose()
            await model.aclose()
            await until(lambda: emulator.open_connections == 0)

    async def test_a_model_that_was_never_asked_closes(self) -> None:
        """Closing does not connect."""
        async with self.connected() as (model, emulator):
            await model.aclose()
            assert emulator.open_connections == 0
