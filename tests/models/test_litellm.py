"""The adapter for LiteLLM, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.models.raw_server import HEAD, RawServer, chunk, event, events, whole

from heaveto.core.request import ModelRequest, ToolDeclaration, Turn
from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall, Text
from heaveto.events.records import Usage
from heaveto.ids import SystemIds
from heaveto.models.assemble import Assembled, Assembler
from heaveto.models.base import TextChunk
from heaveto.models.litellm import LiteLLM
from heaveto.models.prices import Prices
from heaveto.testing import settle

ASK = ModelRequest(
    turns=[Turn("user", (Text(text="hi"),))],
    instruction="Be brief.",
    tools=(ToolDeclaration("look", "looks", {"type": "object", "properties": {}}),),
)
CLOSED_WITHIN_SECONDS = 1.0
pytestmark = pytest.mark.filterwarnings("ignore")  # LiteLLM imports as it goes, and what it imports warns
STREAMS: dict[str, tuple[str, list[object]]] = {
    "openai/m": ("/v1", [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]}]),
    "gemini/gemini-2.5-flash": ("", [{"candidates": [{"content": {"parts": [{"text": "Hel"}], "role": "model"}}]}]),
    "anthropic/claude-sonnet-4-5": (
        "",
        [
            {
                "type": "message_start",
                "message": {
                    "id": "m",
                    "type": "message",
                    "role": "assistant",
                    "model": "m",
                    "content": [],
                    "usage": {"input_tokens": 1, "output_tokens": 1},
                },
            },
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        ],
    ),
}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")


def connect(server: RawServer, model: str = "openai/m", **options: Any) -> LiteLLM:
    return LiteLLM(model, api_key="k", base_url=server.url + STREAMS[model][0], **options)


async def ask(model: LiteLLM) -> Assembled:
    assembler = Assembler(SystemIds(), provider="litellm")
    async for part in model.generate(ASK):
        assembler.feed(part)
    return assembler.finish()


def delta(content: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "1", "choices": [{"index": 0, "delta": content, "finish_reason": finish}], **more}


async def test_text_calls_and_usage_arrive() -> None:
    """The request is OpenAI's, and so is what comes back of it."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    spent = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    answer = events(
        delta({"role": "assistant", "content": "I look."}),
        delta({"tool_calls": [call]}),
        delta({}, "tool_calls"),
        {"id": "1", "choices": [], "usage": spent},
    )
    async with RawServer([*answer[:-1], chunk(b"data: [DONE]\n\n"), answer[-1]]) as server:
        got = await ask(connect(server, prices=Prices(input=2.0, output=10.0), options={"temperature": 0.5}))
    text, made = got.parts
    assert text == Text(text="I look.")
    assert isinstance(made, FunctionCall) and (made.name, made.args, made.provider_id) == ("look", {"at": 1}, "c1")
    assert got.usage == Usage(10, 4, cost=(10 * 2.0 + 4 * 10.0) / 1e6)
    assert got.end is not None and (got.end.reason, got.is_cut) == ("tool_calls", False)
    (request,) = server.requests
    assert request.body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert (request.body["model"], request.body["temperature"]) == ("m", 0.5)


@pytest.mark.parametrize(("status", "retryable"), [(429, True), (503, True), (500, True), (401, False), (404, False)])
async def test_statuses_become_model_errors(status: int, retryable: bool) -> None:
    """And are asked once: the runtime owns retries."""
    body = {"error": {"message": "no", "type": "x", "code": None, "param": None}}
    async with RawServer(whole(body, status=status, headers="retry-after: 7\r\n")) as server:
        with pytest.raises(ModelError, match="no") as error:
            await ask(connect(server))
        assert len(server.requests) == 1
    assert (error.value.status, error.value.retryable) == (status, retryable)


async def test_a_stream_that_breaks_off_is_an_error_after_what_came() -> None:
    """What was received before it was handed on (F30, F61)."""
    received: list[object] = []
    async with RawServer([HEAD, event(delta({"content": "a"})), event(delta({"content": "b"})), "break"]) as server:
        with pytest.raises(ModelError) as error:
            async for part in connect(server).generate(ASK):
                received.append(part)
    assert received[:1] == [TextChunk("a")]
    assert error.value.retryable


async def closes(server: RawServer, stopped_at: float, phase: str) -> None:
    closed_at = await asyncio.wait_for(server.closed.get(), CLOSED_WITHIN_SECONDS)
    print(f"\n{phase}: the server saw the socket close after {(closed_at - stopped_at) * 1000:.1f} ms")


@pytest.mark.parametrize("model", STREAMS)
@pytest.mark.parametrize("way", ["cancel", "close"])
async def test_a_stop_in_mid_stream_closes_the_socket_of_these_providers(way: str, model: str) -> None:
    """Of those that were measured; a version of LiteLLM that forgets it shows here (F51)."""
    async with RawServer([HEAD, *map(event, STREAMS[model][1]), "hang"]) as server:
        stream = connect(server, model).generate(ASK)
        assert await anext(stream) == TextChunk("Hel")
        if way == "cancel":
            reading = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        stopped_at = time.monotonic()
        await stream.aclose()
        await closes(server, stopped_at, f"{model} mid-stream, by {way}")


@pytest.mark.parametrize("model", STREAMS)
@pytest.mark.parametrize("answer", [["hang"], [HEAD, "hang"]], ids=["before the headers", "before the first byte"])
async def test_a_stop_before_the_answer_closes_the_socket_of_these_providers(model: str, answer: list[Any]) -> None:
    """Cancelling the task is what works there (F51)."""
    async with RawServer(answer) as server:
        asking = asyncio.create_task(ask(connect(server, model)))
        await server.arrived.wait()
        await settle()
        stopped_at = time.monotonic()
        asking.cancel()
        await closes(server, stopped_at, f"{model} before the answer")
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_litellms_own_stream_leaves_the_socket_open_when_it_is_only_dropped() -> None:
    """Why the adapter closes it on every way out: if this fails, LiteLLM has become better."""
    import litellm

    async with RawServer([HEAD, *map(event, STREAMS["openai/m"][1]), "hang"]) as server:
        stream: Any = await litellm.acompletion(
            model="openai/m", api_base=f"{server.url}/v1", api_key="k", messages=[{"role": "user"}], stream=True
        )
        async for _ in stream:
            break
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.closed.get(), 0.2)
        await stream.aclose()
        await closes(server, time.monotonic(), "LiteLLM's own stream")


async def test_litellm_may_not_rewrite_messages_in_silence() -> None:
    """Deleted turns would break what the log says was sent."""
    import litellm

    litellm.modify_params = True
    async with RawServer(events(delta({"content": "a"}, "stop"))) as server:
        await ask(connect(server))
    assert litellm.modify_params is False
