"""Connectors against servers, proxies and moments that nobody planned for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from tests.models.raw_server import HEAD, RawServer, Step, chunk, whole

from heaveto.agents.llm import LlmAgent
from heaveto.core.request import ModelRequest
from heaveto.errors import ConfigError, ModelError
from heaveto.events.contents import Opaque, Part, ProviderCall, Text, Thought
from heaveto.events.records import Message, RunEnded, Usage
from heaveto.ids import SystemIds
from heaveto.models.anthropic_messages import AnthropicMessages
from heaveto.models.assemble import Assembled, Assembler
from heaveto.models.base import EndChunk, Model, PartChunk
from heaveto.models.gemini import Gemini
from heaveto.models.litellm import LiteLLM
from heaveto.models.openai_chat import OpenAIChat
from heaveto.models.openai_responses import OpenAIResponses
from heaveto.models.sdk import retry_after_seconds
from heaveto.models.storable import storable_part
from heaveto.models.wire.reading import as_count
from heaveto.runner.application.config import RunConfig
from heaveto.runner.runner import Runner
from heaveto.testing import FakeClock, settle
from heaveto.testing.emulator import Emulator
from heaveto.testing.model_contract import ASK
from heaveto.testing.script import finish, give, hang, raw_call, say

Connect = Callable[[str, bool], Model]
CONNECTORS: dict[str, Connect] = {
    "chat": lambda url, stream: OpenAIChat("m", base_url=f"{url}/v1", stream=stream),
    "responses": lambda url, stream: OpenAIResponses("m", base_url=f"{url}/v1", stream=stream),
    "anthropic": lambda url, stream: AnthropicMessages("m", base_url=url, stream=stream),
    "gemini": lambda url, stream: Gemini("m", base_url=url, api_key="k", stream=stream),
}
connectors = pytest.mark.parametrize("connect", CONNECTORS.values(), ids=CONNECTORS)
JSON = "content-type: application/json\r\n"
HTML = "content-type: text/html\r\n"


def streamed(*bodies: bytes) -> list[Step]:
    """A stream of these events, named by their types as Anthropic's must be."""
    sent = b": hello\n\n"
    for body in bodies:
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            sent += f"event: {json.loads(body)['type']}\n".encode()
        sent += b"data: " + body + b"\n\n"
    return [HEAD, chunk(sent), b"0\r\n\r\n"]


async def answered(connect: Connect, answer: Sequence[Step], *, stream: bool = True) -> Assembled:
    assembler = Assembler(SystemIds())
    async with RawServer(answer) as server:
        model = connect(server.url, stream)
        try:
            async for piece in model.generate(ASK):
                assembler.feed(piece)
        finally:
            await model.aclose()
    return assembler.finish()


async def run_it(connect: Connect, *answers: Sequence[Step], retries: int = 0) -> tuple[RunEnded, list[Message]]:
    config = RunConfig(model_retries=retries, retry_backoff_seconds=0)
    async with RawServer(*answers) as server:
        model = connect(server.url, True)
        async with Runner(LlmAgent("root", model)) as runner:
            run = await runner.start(user_id="u", session_id="s", new_message="hi", run_config=config)
            ended = await run.wait()
            records = [record async for record in run.stream(deltas=False)]
        await model.aclose()
    return ended, [record for record in records if isinstance(record, Message)]


# --- what is no answer ------------------------------------------------------------------------------------------------

UNREADABLE: dict[str, list[Step]] = {
    "nested-too-deeply": streamed(b'{"type":"message_start","x":' + b"[" * 100_000),
    "not-utf-8": streamed(b'{"type":"x\xff\xfe"}'),
    "not-json": streamed(b"{oops"),
    "an-endless-number": streamed(b'{"x":' + b"9" * 5000 + b"}"),
    "broken-gzip": [b"HTTP/1.1 400 X\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\nabcde"],
    "a-refusal-cut-short": [b"HTTP/1.1 400 X\r\ncontent-length: 100\r\n\r\nabc", "break"],
    "not-http": [b"\x16\x03\x01 not http at all\r\n\r\n", "break"],
}


@connectors
@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_read_is_a_model_error_or_nothing(connect: Connect, answer: list[Step]) -> None:
    """No error of an SDK, a decoder or an HTTP library gets past the one seam; SDKs skip events of no known type."""
    try:
        assembled = await answered(connect, answer)
    except ModelError:
        return
    assert (assembled.parts, assembled.end) == ((), None)


INSTEAD: dict[str, list[Step]] = {
    "a-page": whole(b"<html><body>Sign in</body></html>", headers=HTML),
    "nothing": whole(b"", headers=JSON),
    "null": whole(b"null", headers=JSON),
    "no-content": [b"HTTP/1.1 204 No Content\r\n\r\n"],
    "a-stream-of-nothing": streamed(),
    "events-of-no-object": streamed(b"1", b"null", b'"x"', b"[]"),
}
HELLO: dict[str, list[Step]] = {
    "chat": streamed(b'{"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}'),
    "responses": streamed(
        b'{"type":"response.output_text.delta","output_index":0,"delta":"hello"}',
        b'{"type":"response.completed","response":{"id":"r","status":"completed"}}',
    ),
    "anthropic": streamed(
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"hello"}}',
        b'{"type":"content_block_stop","index":0}',
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
    ),
    "gemini": streamed(b'{"candidates":[{"content":{"parts":[{"text":"hello"}]},"finishReason":"STOP"}]}'),
}


@pytest.mark.parametrize(
    ("api", "instead"),
    # Gemini's connector takes no status but 200 for an answer, and no other than that is asked again.
    [(api, instead) for api in CONNECTORS for instead in INSTEAD if (api, instead) != ("gemini", "no-content")],
)
async def test_a_status_of_200_without_an_answer_is_asked_again(api: str, instead: str) -> None:
    """A login page of a proxy is not an answer that says nothing: the run must not be called completed by it."""
    broken = INSTEAD[instead]
    ended, messages = await run_it(CONNECTORS[api], broken, HELLO[api], retries=1)
    assert (ended.outcome, [message.parts[0] for message in messages if message.parts]) == (
        "completed", [Text(text="hello")],
    )  # fmt: skip
    ended, messages = await run_it(CONNECTORS[api], broken)
    assert ended.error is not None and ended.error.type == "ModelError"
    assert (ended.outcome, messages) == ("failed", [])


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
HALF: dict[str, list[Step]] = {
    "responses": streamed(b'{"type":"response.output_text.delta","output_index":0,"delta":"hel"}'),
    "anthropic": streamed(b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"hel"}}'),
    "gemini": streamed(b'{"candidates":[{"content":{"parts":[{"text":"hel"}]}}]}'),
}


@pytest.mark.parametrize("api", HALF)
async def test_half_an_answer_in_a_whole_response_is_not_the_answer(api: str) -> None:
    """A proxy that gives up closes the response properly. These providers always say how an answer ended."""
    ended, messages = await run_it(CONNECTORS[api], HALF[api])
    assert ended.error is not None and ended.error.type == "ModelError"
    assert (ended.outcome, messages[0].parts[0]) == ("failed", Text(text="hel"))
    assert messages[0].interrupted is not None


BEHIND_200 = [
    (OVERLOADED, "Overloaded", True),
    ({"error": {"message": "boom", "code": 503}}, "boom", True),
    ({"error": {"message": "no such model", "code": 404}}, "no such model", False),
    ({"error": "boom"}, "boom", True),
]


@connectors
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("body", "words", "retryable"), BEHIND_200)
async def test_an_error_behind_a_status_of_200_is_told(
    connect: Connect, stream: bool, body: Any, words: str, retryable: bool
) -> None:
    """Gateways do that, also to who asked for a stream. It is no empty answer, and its words are not lost."""
    with pytest.raises(ModelError) as caught:
        await answered(connect, whole(body, headers=JSON), stream=stream)
    assert words in str(caught.value)
    assert caught.value.retryable is retryable


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
async def test_a_whole_answer_instead_of_a_stream_is_an_answer(api: str) -> None:
    """Servers that cannot stream answer whole, whatever they are asked for."""
    body = {
        "chat": {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]},
        "responses": {
            "object": "response", "id": "r", "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "hello"}]}],
        },
        "anthropic": {
            "type": "message", "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn",
        },
    }[api]  # fmt: skip
    assembled = await answered(CONNECTORS[api], whole(body, headers=JSON))
    assert (assembled.parts, assembled.is_cut) == ((Text(text="hello"),), False)


@pytest.mark.parametrize(
    "wish", ["1 Jan 99999999999999999999999 00:00:00 GMT", "Wed, 21 Oct 2015 07:28:00 +9999999999", "soon", "-5", "nan"]
)
def test_no_wish_to_wait_breaks_the_error(wish: str) -> None:
    """Whatever stands in the header, it is a number of seconds that is not negative, or none."""
    seconds = retry_after_seconds({"retry-after": wish}, FakeClock())
    assert seconds is None or seconds >= 0


# --- what the user got wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base_url", ["localhost:11434/v1", "", "ftp://x/", "http://", "http://[::x", "http://x:99999", "http://x\0", "x"]
)
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses, AnthropicMessages, Gemini, LiteLLM])
def test_an_address_that_is_none_is_refused_where_it_is_given(kind: Any, base_url: str) -> None:
    """Each SDK has an error of its own for it, at the first request, and some call it one that may pass."""
    with pytest.raises(ConfigError, match="base_url"):
        kind("m", base_url=base_url)


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
async def test_a_key_that_http_cannot_say_is_a_final_error(kind: Any) -> None:
    """It is the request that cannot be sent, and asking again does not help."""
    model = kind("m", base_url="http://127.0.0.1:1", api_key="schlüssel")
    with pytest.raises(ModelError, match="cannot be sent") as caught:
        async for _ in model.generate(ASK):
            pass
    assert not caught.value.retryable
    await model.aclose()


# --- what no log can hold ---------------------------------------------------------------------------------------------

UNSTORABLE = {
    "half-an-emoji": b'"\\ud83d"',
    "a-long-integer": b"123456789012345678901234567890",
    "infinity": b"1e999",
    "nested": b"[" * 900 + b"]" * 900,
}
KINDS = {
    "chat": (b'{"id":%s,"choices":[{"delta":{"content":"hello","odd":%s},"finish_reason":"stop"}],"model":%s}',),
    "responses": (
        b'{"type":"response.output_item.done","output_index":0,"item":{"type":"odd","x":%s,"y":%s}}',
        b'{"type":"response.output_text.delta","output_index":1,"delta":"hello"}',
        b'{"type":"response.completed","response":{"id":"r","status":"completed","model":%s}}',
    ),
    "anthropic": (
        b'{"type":"content_block_start","index":0,"content_block":{"type":"x_tool_result","tool_use_id":%s,"y":%s}}',
        b'{"type":"content_block_stop","index":0}',
        b'{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"hello"}}',
        b'{"type":"content_block_stop","index":1}',
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn","odd":%s}}',
    ),
    "gemini": (
        b'{"candidates":[{"content":{"parts":[{"odd":%s},{"text":"hello"}]},"finishReason":"STOP","x":%s}],"y":%s}',
    ),
}


@pytest.mark.parametrize("api", CONNECTORS)
@pytest.mark.parametrize("value", UNSTORABLE.values(), ids=UNSTORABLE)
async def test_data_that_no_log_can_hold_does_not_cost_the_answer(api: str, value: bytes) -> None:
    """A provider quotes a page with half an emoji at its cut: the run goes on, the answer is in the log."""
    bodies = b"\0".join(KINDS[api]).replace(b"%s", value).split(b"\0")
    ended, messages = await run_it(CONNECTORS[api], streamed(*bodies))
    assert (ended.outcome, ended.error) == ("completed", None)
    assert "hello" in "".join(part.text for part in messages[-1].parts if isinstance(part, Text))


@pytest.mark.parametrize(
    ("value", "kept"), [("so\ud83d", "so�"), (2**64, float(2**64)), (-(10**400), None), (float("inf"), None)]
)
def test_what_cannot_be_stored_is_replaced_in_its_place(value: Any, kept: Any) -> None:
    """All else of the data stays as it came."""
    assembler = Assembler(SystemIds())
    assembler.feed(PartChunk(Opaque(provider="p", data={"a": [value], "b": "ü"})))
    assembler.feed(EndChunk(reason="stop", data={"a": [value], "b": "ü"}))
    done = assembler.finish()
    assert done.end is not None
    assert done.parts == (Opaque(provider="p", data={"a": [kept], "b": "ü"}),)
    assert done.end.data == {"a": [kept], "b": "ü"}


def test_data_that_can_be_stored_is_the_same_object() -> None:
    """Nothing is copied, and nothing changed, of what providers send every day."""
    part = Opaque(provider="p", data={"a": [1, 2.5, None, "🌍", {"b": True}]})
    assert storable_part(part) is part


def test_a_changed_thought_loses_its_signature() -> None:
    """The provider would refuse it: unsigned it is shown, and never sent (F25)."""
    data = {"type": "thinking", "thinking": "so\ud83d", "signature": "c2ln"}
    assembler = Assembler(SystemIds())
    assembler.feed(PartChunk(Thought(text="so\ud83d", signature="c2ln", provider="p", data=data)))
    assert assembler.partial() == (Thought(text="so�", provider="p"),)


@pytest.mark.parametrize(
    ("value", "count"),
    [(7, 7), (12.0, 12), (-3, 0), (True, 0), (2**70, 0), (float("nan"), 0), (float("inf"), 0), ("7", 0), (None, 0)],
)
def test_counts_are_whole_numbers_that_a_log_can_hold(value: object, count: int) -> None:
    """Some servers count in floats, broken ones in anything."""
    assert as_count(value) == count


# --- pauses, stops ----------------------------------------------------------------------------------------------------


async def test_a_paused_answer_is_sent_back_without_its_empty_texts() -> None:
    """The provider gives empty texts, and refuses them (A10)."""
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    empty: Part = Opaque(provider="anthropic", data={"type": "text", "text": ""})
    searching = give(ProviderCall(id="srvtoolu_1", name="web_search", provider="anthropic", data=search))
    async with Emulator(
        (give(empty), searching, finish("pause_turn")), say("So."), strict_unconfirmed=True
    ) as emulator:
        web = {"type": "web_search_20260209", "name": "web_search"}
        model = AnthropicMessages("m", base_url=emulator.anthropic_url, provider_tools=[web])
        pieces = [piece async for piece in model.generate(ASK)]
        await model.aclose()
    assert emulator.exchanges[1].body["messages"][-1]["content"] == [search]
    assert isinstance(pieces[-1], EndChunk)
    emulator.assert_done()


async def asked_until(model: Model, request: ModelRequest, steps: int) -> None:
    """Ask, and be cancelled after so many steps of the event loop."""

    async def ask() -> None:
        async for _ in model.generate(request):
            pass

    task = asyncio.create_task(ask())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})


@connectors
async def test_no_stop_leaves_a_socket_whenever_it_comes(connect: Connect) -> None:
    """At each of the first steps of a request: also in the one in which httpcore 1.0 forgets its connection (F51)."""
    async with Emulator((say("Hel"), hang()), strict=False) as emulator:
        model = connect(emulator.google_url, True)
        await asked_until(model, ASK, 10_000 if connect is CONNECTORS["gemini"] else 2000)  # the SDK is imported
        for steps in range(120):
            await asked_until(model, ASK, steps)
        for exchange in emulator.exchanges:
            await exchange.over()
        await settle()
        assert emulator.open_connections == 0
        assert all(exchange.is_over for exchange in emulator.exchanges)
        await model.aclose()


async def test_usage_that_is_no_count_is_none() -> None:
    """Books hold what was counted, and nothing made up."""
    usage = b'{"prompt_tokens":12.0,"completion_tokens":-4}'
    odd = b'{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"usage":' + usage + b"}"
    assembled = await answered(CONNECTORS["chat"], streamed(odd))
    assert assembled.usage == Usage(12, 0)


@pytest.mark.parametrize("provider_id", ["c" * 41, "c" * 50, "c" * 64])
async def test_a_held_call_with_a_long_id_is_answered_by_its_own_id(provider_id: str) -> None:
    """Responses takes 64 characters (R10), and knows the call that it holds only by its own id (F20)."""

    def look() -> str:
        return "ok"

    async with Emulator(raw_call("look", "{}", provider_id=provider_id), say("done")) as emulator:
        model = OpenAIResponses("m", base_url=emulator.openai_url, held=True)
        async with Runner(LlmAgent("root", model, tools=[look])) as runner:
            run = await runner.start(user_id="u", session_id="s", new_message="hi")
            ended = await run.wait()
        await model.aclose()
        assert ended.outcome == "completed"
        assert [exchange.violation for exchange in emulator.exchanges] == [None, None]
        assert [item["call_id"] for item in emulator.exchanges[1].body["input"]] == [provider_id]


async def test_held_calls_whose_ids_repeat_are_answered_by_them() -> None:
    """Some servers have one id for all calls: the provider holds both, the log tells them apart (F20)."""

    def look() -> str:
        return "ok"

    steps = (raw_call("look", "{}", provider_id="same"), raw_call("look", "{}", provider_id="same"), say("done"))
    async with Emulator(*steps) as emulator:
        model = OpenAIResponses("m", base_url=emulator.openai_url, held=True)
        async with Runner(LlmAgent("root", model, tools=[look])) as runner:
            run = await runner.start(user_id="u", session_id="s", new_message="hi")
            assert await run.result() == "done"
        await model.aclose()
        sent = [exchange.body["input"] for exchange in emulator.exchanges[1:]]
        assert [[item["call_id"] for item in items] for items in sent] == [["same"], ["same"]]
        assert [exchange.violation for exchange in emulator.exchanges] == [None, None, None]
