"""Failures: refusals, lost connections and answers that break off."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from heaveto.agents.llm import LlmAgent
from heaveto.core.request import Turn
from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall, Text
from heaveto.models.base import Chunk, EndChunk, TextChunk
from heaveto.runner.runner import Runner
from heaveto.testing.clock import settle
from heaveto.testing.emulator import Emulator
from heaveto.testing.model_contract.asking import ASK, ask, assembled, read, with_turns
from heaveto.testing.model_contract.suite import ModelSuite
from heaveto.testing.script import cut, fault, finish, raw_call, say


class FailureContract(ModelSuite):
    """What a connector promises when it gets no whole answer."""

    async def test_nothing_is_sent_before_the_first_iteration(self) -> None:
        """A request that nobody reads costs nothing."""
        async with self.connected() as (model, emulator):
            stream = cast("AsyncGenerator[Chunk, None]", model.generate(ASK))
            await settle()
            await stream.aclose()
            assert (emulator.exchanges, emulator.open_connections) == ([], 0)

    @pytest.mark.parametrize(
        ("status", "retryable"),
        [(429, True), (500, True), (503, True), (400, False), (401, False), (403, False), (404, False)],
    )
    async def test_statuses_become_model_errors(self, status: int, retryable: bool) -> None:
        """Whether and when to try again is data; the connector itself never does."""
        async with self.connected(fault("no such luck", status=status, retry_after_seconds=7)) as (model, emulator):
            with pytest.raises(ModelError, match="no such luck") as error:
                await ask(model)
            assert len(emulator.exchanges) == 1
        assert (error.value.status, error.value.retryable) == (status, retryable)
        if retryable:
            assert error.value.retry_after_seconds == 7.0

    async def test_a_broken_request_is_refused_with_the_providers_words(self) -> None:
        """The error is final, and has the provider's body."""
        lonely = Turn("model", (FunctionCall(call_id="c1", name="look"),))
        async with self.connected(say("never")) as (model, emulator):
            with pytest.raises(ModelError) as error:
                await ask(model, with_turns(lonely, *ASK.turns))
            assert emulator.exchanges[0].violation is not None
        assert (error.value.status, error.value.retryable) == (400, False)

    async def test_nobody_listening_is_a_retryable_error(self) -> None:
        """Without a status, because there was no answer."""
        async with Emulator() as emulator:
            model = self.connect(emulator)
        with pytest.raises(ModelError) as error:
            await ask(model)
        await model.aclose()
        assert (error.value.status, error.value.retryable) == (None, True)

    @pytest.mark.parametrize("where", ["before the answer", "within it", "an error within it"])
    async def test_an_answer_that_breaks_off_has_no_end(self, where: str) -> None:
        """What came before was handed on; then there is a retryable error, or just no end (F30, F61)."""
        within = {"within it": cut(after_chunks=2), "an error within it": fault("busy", status=503, after_chunks=2)}
        step = (say("abcd", chunks=4), within[where]) if where in within else cut()
        async with self.connected(step) as (model, _):
            chunks, error = await read(model)
        assert error is None or error.retryable
        assert not any(isinstance(chunk, EndChunk) for chunk in chunks)
        if self.streams:
            assert "abcd".startswith("".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)))
            assert where == "before the answer" or assembled(model, chunks).parts == (Text(text="ab"),)
        if where == "an error within it" and self.streams:
            assert error is not None

    async def test_truncated_arguments_are_never_executed(self) -> None:
        """Whatever they look like, a call that the provider did not close is no call (F30)."""
        looked: list[str] = []

        def look(at: str) -> str:
            looked.append(at)
            return "seen"

        half = (raw_call("look", '{"at": "a"}'), cut())
        limited = (raw_call("look", '{"at": "a'), finish("length", cut=True))
        for step in (half, limited):
            async with (
                self.connected(step, say("Sorry."), strict=False) as (model, _),
                Runner(LlmAgent("root", model, tools=[look])) as runner,
            ):
                run = await runner.start(user_id="u", session_id="s", new_message="hi")
                await run.wait()
        assert looked == []
