"""The emulated Anthropic Messages, read by Anthropic's own SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic

from heaveto.events.contents import Opaque, ProviderCall, Thought
from heaveto.testing import Emulator, call, cut, delay, fault, finish, give, hang, raw_call, say, think, usage

ASK: dict[str, Any] = {"model": "claude-any", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
TURN = (
    think("Let me see.", chunks=2),
    say("Both: ", chunks=2),
    call("a", x=1),
    call("b"),
    usage(30, 12, cached_tokens=10),
)


def client(emulator: Emulator) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=emulator.anthropic_url, api_key="any", max_retries=0)


async def whole(emulator: Emulator, stream: bool, **more: Any) -> anthropic.types.Message:
    async with client(emulator) as api:
        if not stream:
            return await api.messages.create(**ASK, **more)
        async with api.messages.stream(**ASK, **more) as events:
            return await events.get_final_message()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_of_all_kinds_is_read_by_the_sdk(stream: bool) -> None:
    """Streamed and whole, the SDK builds the same typed message."""
    async with Emulator(TURN) as emulator:
        message = await whole(emulator, stream)
        emulator.assert_done()
    thought, text, first, second = message.content
    assert (thought.type, text.type, first.type, second.type) == ("thinking", "text", "tool_use", "tool_use")
    assert (thought.thinking, bool(thought.signature), text.text) == ("Let me see.", True, "Both: ")
    assert (first.id, first.name, first.input) == ("toolu_1", "a", {"x": 1})
    assert (second.id, second.name, second.input) == ("toolu_2", "b", {})
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (20, 10)
    assert message.usage.output_tokens == 12


async def test_the_events_come_in_anthropics_order() -> None:
    """Each block opens, grows and closes; the end carries reason and usage."""
    async with Emulator(TURN) as emulator, client(emulator) as api:
        kinds = [event.type async for event in await api.messages.create(**ASK, stream=True)]
    block = ["content_block_start", "content_block_stop"]
    deltas = {"thinking": 3, "text": 2, "a": 3, "b": 3}
    expected = ["message_start"]
    for count in deltas.values():
        expected += [block[0], *["content_block_delta"] * count, block[1]]
    assert kinds == [*expected, "message_delta", "message_stop"]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("MAX_TOKENS", "max_tokens"),
        ("pause_turn", "pause_turn"),
        ("refusal", "refusal"),
        ("model_context_window_exceeded", "model_context_window_exceeded"),
    ],
)
async def test_stop_reasons(word: str, reason: str) -> None:
    """Anthropic's words, also where the script has those of another provider."""
    async with Emulator((say("So"), finish(word))) as emulator:
        assert (await whole(emulator, stream=True)).stop_reason == reason


BLOCKS = [
    {"type": "redacted_thinking", "data": "EmwKAhgB"},
    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "https://x", "title": "x", "encrypted_content": "eA=="}],
    },
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
async def test_given_blocks_are_sent_verbatim(stream: bool) -> None:
    """What a part carries of Anthropic's own is what the SDK gets."""
    parts = [
        Opaque(provider="anthropic", data=BLOCKS[0]),
        Thought(text="Hm.", signature="c2ln", provider="anthropic", data=BLOCKS[1]),
        ProviderCall(id="srvtoolu_1", name="web_search", provider="anthropic", data=BLOCKS[2]),
        Opaque(provider="anthropic", data=BLOCKS[3]),
        Opaque(provider="openai", data={"type": "reasoning"}),
    ]
    async with Emulator([give(part) for part in parts]) as emulator:
        message = await whole(emulator, stream)
    assert [block.to_dict(exclude_unset=True) for block in message.content] == BLOCKS


async def test_a_scripted_signature_is_on_the_wire() -> None:
    """Thinking that the script signs carries that signature, and no other."""
    async with Emulator((think("Hm.", signature="c2ln"), say("Ok"))) as emulator:
        message = await whole(emulator, stream=True)
    assert message.content[0].to_dict() == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, "invalid_request_error", anthropic.BadRequestError),
        (401, "authentication_error", anthropic.AuthenticationError),
        (429, "rate_limit_error", anthropic.RateLimitError),
        (529, "overloaded_error", anthropic.InternalServerError),
    ],
)
async def test_faults_before_the_answer_are_http_errors(
    status: int, kind: str, error: type[anthropic.APIStatusError]
) -> None:
    """With Anthropic's envelope, request id and wish."""
    async with Emulator(fault("busy", status=status, retry_after_seconds=7)) as emulator:
        with pytest.raises(error) as caught:
            await whole(emulator, stream=True)
    assert caught.value.body["error"] == {"type": kind, "message": "busy"}  # type: ignore[index]
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.request_id == "req_1"


async def test_a_fault_within_the_answer_is_an_error_event() -> None:
    """The SDK raises in mid-stream, with the status that the type stands for (F63)."""
    async with Emulator((say("Hel"), fault("Overloaded", status=529))) as emulator, client(emulator) as api:
        seen = []
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            async for event in await api.messages.create(**ASK, stream=True):
                seen.append(event.type)
    assert seen == ["message_start", "content_block_start", "content_block_delta"]


async def test_a_broken_history_is_refused_in_anthropics_words() -> None:
    """And no step is used."""
    history = [
        *ASK["messages"],
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
    ]
    async with Emulator(say("ok")) as emulator, client(emulator) as api:
        with pytest.raises(anthropic.BadRequestError, match="`tool_use` ids were found without `tool_result`"):
            await api.messages.create(**{**ASK, "messages": [*history, {"role": "user", "content": "and?"}]})
        with pytest.raises(anthropic.BadRequestError, match="max_tokens: Field required"):
            await api.post("/v1/messages", cast_to=object, body={"model": "m", "messages": ASK["messages"]})
        assert [exchange.violation and exchange.violation.rule for exchange in emulator.exchanges] == ["A1", "schema"]
        assert (await api.messages.create(**ASK)).content[0].to_dict() == {"type": "text", "text": "ok"}


async def test_options_of_the_validator_are_passed_on() -> None:
    """A model with prefill takes an assistant's last word."""
    prefilled = {**ASK, "messages": [*ASK["messages"], {"role": "assistant", "content": "So"}]}
    async with Emulator(say("on")) as emulator, client(emulator) as api:
        with pytest.raises(anthropic.BadRequestError, match="prefill"):
            await api.messages.create(**prefilled)
    async with Emulator(say("on"), rules={"anthropic": {"prefill": True}}) as emulator, client(emulator) as api:
        assert (await api.messages.create(**prefilled)).stop_reason == "end_turn"


async def test_arguments_that_are_no_json() -> None:
    """They are streamed as they are; a whole message has an empty input, for there must be one."""
    async with Emulator(raw_call("a", '{"x": 1', chunks=2), strict=False) as emulator, client(emulator) as api:
        pieces = [
            event.delta.partial_json
            async for event in await api.messages.create(**ASK, stream=True)
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta"
        ]
        assert "".join(pieces) == '{"x": 1'
        assert (await whole(emulator, stream=False)).content[0].input == {}  # type: ignore[union-attr]


async def test_early_headers_bring_the_start_of_the_message() -> None:
    """A stream that says nothing yet has begun: a stop then is one in mid-stream (F51)."""
    async with Emulator(hang(), early_headers=True) as emulator, client(emulator) as api:
        async with await api.messages.create(**ASK, stream=True) as events:
            first = await anext(aiter(events))
        assert first.type == "message_start"
        exchange = await emulator.exchange(0)
        async with asyncio.timeout(2):
            await exchange.over()
        assert (exchange.status, exchange.completed_at, exchange.closed_at is not None) == (200, None, True)


async def test_models_and_counts_are_answered() -> None:
    """Without the script; a model that is not there is a 404 in Anthropic's words."""
    async with Emulator(say("x"), models=["claude-a", "claude-b"]) as emulator, client(emulator) as api:
        assert [model.id async for model in api.models.list()] == ["claude-a", "claude-b"]
        count = await api.messages.count_tokens(model="claude-a", messages=ASK["messages"])
        assert 5 < count.input_tokens < 20
        with pytest.raises(anthropic.NotFoundError) as caught:
            await api.messages.create(**ASK)
        assert caught.value.body["error"] == {"type": "not_found_error", "message": "model: claude-any"}  # type: ignore[index]
        with pytest.raises(anthropic.NotFoundError):
            await api.get("/v1/nothing", cast_to=object)
        assert [other.path for other in emulator.others] == ["/v1/models", "/v1/messages/count_tokens", "/v1/nothing"]


async def test_a_cut_leaves_the_answer_without_an_end() -> None:
    """The SDK sees the connection break (F30)."""
    async with Emulator((say("Hel"), delay(0), cut())) as emulator, client(emulator) as api:
        with pytest.raises(httpx2.RemoteProtocolError):
            async for _ in await api.messages.create(**ASK, stream=True):
                pass
        assert emulator.exchanges[0].completed_at is None


async def test_thoughts_must_come_back_as_they_were() -> None:
    """With strict signatures a changed thought is refused, also one that was only streamed in part (A15, F27)."""
    steps = ((think("Hm.", chunks=2), call("a"), cut()), say("Done."))
    async with Emulator(*steps, strict_signatures=True) as emulator, client(emulator) as api:
        with pytest.raises(httpx2.RemoteProtocolError):
            async for event in await api.messages.create(**ASK, stream=True):
                if event.type == "content_block_delta" and event.delta.type == "signature_delta":
                    signature = event.delta.signature
        use = {"type": "tool_use", "id": "toolu_1", "name": "a", "input": {}}
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "1"}]}

        def history(text: str) -> dict[str, Any]:
            thought = {"type": "thinking", "thinking": text, "signature": signature}
            return {**ASK, "messages": [*ASK["messages"], {"role": "assistant", "content": [thought, use]}, result]}

        with pytest.raises(anthropic.BadRequestError, match=r"signature|thinking"):
            await api.messages.create(**history("Hum."))
        assert (await api.messages.create(**history("Hm."))).stop_reason == "end_turn"
