"""Failures and stops that connectors share, beyond what their contract asks: over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall
from heaveto.models.anthropic_messages import AnthropicMessages
from heaveto.models.base import Model, TextChunk
from heaveto.models.gemini import Gemini
from heaveto.models.openai_chat import OpenAIChat
from heaveto.models.openai_responses import OpenAIResponses
from heaveto.testing import Emulator, cut, fault, finish, raw_call, say
from heaveto.testing.model_contract import ASK, ask

Connect: TypeAlias = Callable[..., Model]

CLOSED_WITHIN_SECONDS = 1.0
OPENAI: list[Connect] = [OpenAIChat, OpenAIResponses]
ALL: list[Connect] = [*OPENAI, AnthropicMessages, Gemini]

of_openai = pytest.mark.parametrize("connect", OPENAI, ids=lambda connect: connect.__name__)
asked_either_way = pytest.mark.parametrize("stream", [True, False])


@of_openai
@asked_either_way
@pytest.mark.parametrize(
    ("status", "retryable"), [(429, True), (503, True), (529, True), (408, True), (401, False), (404, False)]
)
async def test_statuses_become_model_errors(connect: Connect, stream: bool, status: int, retryable: bool) -> None:
    """Whether and when to try again is data; the connector itself never repeats a request."""
    async with Emulator(fault("no", status=status, retry_after_seconds=7)) as emulator:
        model = connect("m", base_url=emulator.openai_url, stream=stream)
        with pytest.raises(ModelError, match="no") as error:
            await ask(model)
        await model.aclose()
    assert (error.value.status, error.value.retryable, error.value.retry_after_seconds) == (status, retryable, 7.0)
    assert len(emulator.exchanges) == 1


@of_openai
@pytest.mark.parametrize(
    "broken", [cut(after_chunks=2), fault(after_chunks=2), fault("busy", status=529, after_chunks=2)]
)
async def test_a_stream_that_breaks_off_is_an_error_after_what_came(connect: Connect, broken: Any) -> None:
    """What was received before it was handed on (F30, F61)."""
    received: list[str] = []
    async with Emulator((say("abcd", chunks=4), broken)) as emulator:
        model = connect("m", base_url=emulator.openai_url)
        with pytest.raises(ModelError) as error:
            async for chunk in model.generate(ASK):
                assert isinstance(chunk, TextChunk)
                received.append(chunk.text)
        await model.aclose()
    assert (received, error.value.retryable) == (["a", "b"], True)
    assert len(emulator.exchanges) == 1


@of_openai
@asked_either_way
async def test_what_was_received_of_a_call_that_a_limit_cut_is_kept(connect: Connect, stream: bool) -> None:
    """It can be seen, and must not be executed (F30)."""
    async with Emulator((raw_call("look", '{"at": "a'), finish("length", cut=True))) as emulator:
        model = connect("m", base_url=emulator.openai_url, stream=stream)
        answer = await ask(model)
        await model.aclose()
    (part,) = answer.parts
    assert isinstance(part, FunctionCall) and (part.defect, part.raw_args) == ("truncated", '{"at": "a')
    assert answer.is_cut and answer.end is not None
    assert answer.end.reason == {OpenAIChat: "length", OpenAIResponses: "max_output_tokens"}[type(model)]


@pytest.mark.parametrize("connect", ALL, ids=lambda connect: connect.__name__)
async def test_a_stop_while_the_server_does_not_even_accept_closes_the_socket(connect: Connect) -> None:
    """The connection was made by the kernel, the request waits in its queue (F51)."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        model = connect("m", api_key="k", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        asking = asyncio.create_task(ask(model))
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(listener)
        with connection:
            connection.setblocking(False)
            assert await loop.sock_recv(connection, 100_000)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            async with asyncio.timeout(CLOSED_WITHIN_SECONDS):
                while await loop.sock_recv(connection, 100_000):
                    pass
        await model.aclose()
