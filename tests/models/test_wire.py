"""Requests on the wire: every format accepts what the encoders make of grammatical turns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from tests.effort import examples
from tests.models import grammar

from heaveto.core.request import Generation, ModelRequest, ToolDeclaration, Turn, Turns
from heaveto.core.wire_names import NO_SIGNATURE, wire_id, wire_name
from heaveto.events.contents import (
    Blob,
    FileRef,
    FunctionCall,
    FunctionResponse,
    Opaque,
    Part,
    ProviderCall,
    ProviderResult,
    Text,
    Thought,
)
from heaveto.models.wire import anthropic, gemini, openai_chat, openai_responses
from heaveto.testing.request_check import find_breach, wire_breach

ENCODERS = [openai_chat.encode, openai_responses.encode, anthropic.encode, gemini.encode]
PICTURE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def user(*parts: str | Part) -> Turn:
    return Turn("user", tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def model(*parts: str | Part) -> Turn:
    return Turn("model", user(*parts).parts)


def call(call_id: str, name: str = "t", **more: Any) -> FunctionCall:
    return FunctionCall(call_id=call_id, name=name, **more)


def result(call_id: str, response: dict[str, Any] | None = None, **more: Any) -> FunctionResponse:
    return FunctionResponse(call_id=call_id, name="t", response=response or {"result": 1}, **more)


def asked(*turns: Turn, **more: Any) -> ModelRequest:
    return ModelRequest(turns=turns, **more)


@settings(max_examples=examples(200), deadline=None)
@given(grammar.requests)
def test_every_format_accepts_every_grammatical_request(request: ModelRequest) -> None:
    """Weird ids and names, empty texts, attachments, foreign data: nothing is refused (P1, F20, F25, F28, F31)."""
    assert find_breach(request) is None


@settings(max_examples=examples(50), deadline=None)
@given(grammar.requests)
def test_encoding_is_deterministic_and_leaves_the_request_alone(request: ModelRequest) -> None:
    """The same turns give the same bytes, from a fresh encoder and from one that remembers (F21)."""
    before = repr(request)
    for encoder in (
        openai_chat.OpenAIChatEncoder(),
        openai_responses.OpenAIResponsesEncoder(),
        anthropic.AnthropicEncoder(),
        gemini.GeminiEncoder(),
    ):
        first = msgspec.json.encode(encoder.encode(request))
        assert msgspec.json.encode(encoder.encode(request)) == first
        assert msgspec.json.encode(type(encoder)().encode(request)) == first
    assert repr(request) == before


@settings(max_examples=examples(50), deadline=None)
@given(grammar.requests)
def test_the_users_words_and_all_results_are_sent(request: ModelRequest) -> None:
    """No text with something in it is lost, and each call has its result."""
    words = [
        part.text.strip()
        for turn in request.turns
        if turn.role == "user"
        for part in turn.parts
        if isinstance(part, Text)
    ]
    calls = sum(isinstance(part, FunctionCall) for turn in request.turns for part in turn.parts)
    for encode in ENCODERS:
        body = encode(request)
        sent = "\n".join(_strings(body))
        assert all(word in sent for word in words if word)
        assert sum(_is_result(value) for value in _objects(body)) == calls


def test_ids_that_every_provider_takes_are_sent_as_they_are() -> None:
    """Our own ids are; others are hashed the same way on both sides (O11, A6)."""
    assert wire_id("Ab3dEf9hI") == "Ab3dEf9hI"
    assert wire_id("a.b:c") == wire_id("a.b:c") != wire_id("a.b;c")
    assert len(wire_id("x" * 500)) <= 40


@pytest.mark.parametrize(
    ("name", "sent"), [("refund", "refund"), ("a.b c", "a_b_c"), ("", "unknown_tool"), ("2fa", "2fa")]
)
def test_names_are_kept_within_the_common_charset(name: str, sent: str) -> None:
    """What cannot be sent is replaced; long names keep a hash, so that two do not become one (O12, A7)."""
    assert wire_name(name) == sent
    assert len(wire_name("x" * 300)) == 64
    assert wire_name("x" * 300) != wire_name("x" * 301)


def test_chat_messages_look_as_openai_wants_them() -> None:
    """Instruction, user, calls, results in this order."""
    body = openai_chat.encode(
        asked(
            user("hi"),
            model("I look.", call("c1", args={"q": "ü"}), call("c2")),
            Turn("tool", (result("c1"), result("c2"))),
            instruction="Be brief.",
            tools=(ToolDeclaration("t", "does", {"type": "object"}),),
            generation=Generation(max_output_tokens=5, tool_choice="required", extra={"user": "u"}),
        )
    )
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "t", "arguments": '{"q":"ü"}'}},
                {"id": "c2", "type": "function", "function": {"name": "t", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"result":1}'},
        {"role": "tool", "tool_call_id": "c2", "content": '{"result":1}'},
    ]
    assert (body["max_completion_tokens"], body["tool_choice"], body["user"]) == (5, "required", "u")
    function = {"name": "t", "description": "does", "parameters": {"type": "object"}}
    assert body["tools"] == [{"type": "function", "function": function}]


def test_chat_remembers_turns_by_identity() -> None:
    """A second request encodes only what is new (P9)."""
    base = [user("hi"), model("hello")]
    encoder = openai_chat.OpenAIChatEncoder()
    first = encoder.encode(ModelRequest(turns=Turns(base, 2, (user("a"),))))["messages"]
    second = encoder.encode(ModelRequest(turns=Turns(base, 2, (user("b"),))))["messages"]
    assert first[0] is second[0] and first[1] is second[1]
    assert [message["content"] for message in (first[2], second[2])] == ["a", "b"]


def test_a_bounded_memory_changes_nothing() -> None:
    """What was forgotten is encoded again."""
    turns = [user("a"), model("b"), user("c")]
    small = openai_chat.OpenAIChatEncoder(remembered_turns=1)
    assert small.encode(asked(*turns)) == small.encode(asked(*turns)) == openai_chat.encode(asked(*turns))


def test_images_in_results_follow_the_results_on_chat() -> None:
    """Only users may send images, and only after the whole run of results (O14)."""
    messages = openai_chat.encode(
        asked(
            user("hi"),
            model(call("c1"), call("c2")),
            Turn("tool", (result("c1", {"content": [PICTURE]}), result("c2"))),
        )
    )["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert messages[4]["content"][0]["image_url"]["url"] == "data:image/png;base64,AAAA"
    assert "AAAA" not in messages[2]["content"]


def test_anthropic_merges_results_and_the_users_words_results_first() -> None:
    """They are one message (A1, A3)."""
    messages = anthropic.encode(
        asked(user("hi"), model(call("c1")), Turn("tool", (result("c1", is_error=True),)), user("and?"))
    )["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": '{"result":1}', "is_error": True},
        {"type": "text", "text": "and?"},
    ]


def test_only_signed_thinking_of_anthropic_goes_back_to_anthropic() -> None:
    """Unsigned thinking and that of others is for display only (F25, F26)."""
    mine = Thought(text="hm", signature="s", provider="anthropic")
    redacted = Opaque(provider="anthropic", data={"type": "redacted_thinking", "data": "x"})
    foreign = Thought(text="no", signature="s", provider="gemini")
    messages = anthropic.encode(asked(user("a"), model(Thought(text="u"), foreign, mine, redacted, "b"), user("c")))[
        "messages"
    ]
    assert messages[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "b"},
    ]


def test_a_turn_with_nothing_to_send_vanishes() -> None:
    """A stop while thinking leaves no empty message behind (F28)."""
    request = asked(user("a"), model(Thought(text="hm", signature="s", provider="anthropic")), user("b"))
    assert [message["role"] for message in openai_chat.encode(request)["messages"]] == ["user", "user"]
    assert anthropic.encode(request)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]


def test_the_providers_own_calls_go_back_in_pairs_or_not_at_all() -> None:
    """A server tool's call without its result would be refused (F23, A17, A18)."""
    use = ProviderCall(id="s1", name="web_search", provider="anthropic", data={"type": "server_tool_use", "id": "s1"})
    done = ProviderResult(
        id="s1", provider="anthropic", data={"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    )
    paired = asked(user("a"), model(use, done, "x"), user("b"))
    assert [block["type"] for block in anthropic.encode(paired)["messages"][1]["content"]] == [
        "server_tool_use",
        "web_search_tool_result",
        "text",
    ]
    assert wire_breach(paired) is None
    for part in (use, done):
        assert len(anthropic.encode(asked(user("a"), model(part, "x"), user("b")))["messages"][1]["content"]) == 1


def test_gemini_has_results_alone_in_their_content() -> None:
    """What the user says next is a content of its own (G9)."""
    contents = gemini.encode(asked(user("hi"), model(call("c1", "2fa")), Turn("tool", (result("c1"),)), user("and?")))[
        "contents"
    ]
    assert [sorted(part) for content in contents for part in content["parts"]] == [
        ["text"],
        ["functionCall"],
        ["functionResponse"],
        ["text"],
    ]
    assert contents[1]["parts"][0]["functionCall"]["name"] == "_2fa"


def test_gemini_signs_the_first_call_of_each_step_of_the_current_turn() -> None:
    """With the real signature, else the documented stand-in; siblings and earlier turns stay as they are (G10, G11)."""
    signed = call("c3", provider="gemini", data={"thoughtSignature": "cmVhbA=="})
    contents = gemini.encode(
        asked(
            user("old"),
            model(call("c0")),
            Turn("tool", (result("c0"),)),
            user("new"),
            model(call("c1"), call("c2")),
            Turn("tool", (result("c1"), result("c2"))),
            model(signed),
            Turn("tool", (result("c3"),)),
        )
    )["contents"]
    signatures = [
        part.get("thoughtSignature") for content in contents for part in content["parts"] if "functionCall" in part
    ]
    assert signatures == [None, NO_SIGNATURE, None, "cmVhbA=="]


def test_responses_sends_reasoning_only_before_what_it_produced() -> None:
    """A stop may have cut the unit of reasoning and call (R5)."""
    reasoning = Opaque(provider="openai-responses", data={"type": "reasoning", "id": "rs_1", "encrypted_content": "e"})
    whole = openai_responses.encode(asked(user("a"), model(reasoning, call("c1")), Turn("tool", (result("c1"),))))[
        "input"
    ]
    assert [item.get("type") for item in whole] == [None, "reasoning", "function_call", "function_call_output"]
    cut = openai_responses.encode(asked(user("a"), model("x", reasoning), user("b")))["input"]
    assert [item.get("role") for item in cut] == ["user", "assistant", "user"]


def test_provider_data_goes_only_to_its_provider() -> None:
    """Unknown fields of a call are sent back to who made them, and to nobody else (F27)."""
    request = asked(
        user("a"), model(call("c1", provider="openai", data={"extra_content": 1})), Turn("tool", (result("c1"),))
    )
    assert openai_chat.encode(request)["messages"][1]["tool_calls"][0]["extra_content"] == 1
    other = openai_chat.encode(request, provider="deepseek")
    assert "extra_content" not in other["messages"][1]["tool_calls"][0]


def test_attachments_are_sent_where_the_format_has_a_place_for_them() -> None:
    """Others are described in words, so that the model knows of them."""
    parts = (
        Blob(mime_type="image/png", content=b"p"),
        Blob(mime_type="text/csv", content=b"a,b"),
        Blob(mime_type="application/zip", content=b"zip"),
        FileRef(uri="https://x/y.png", mime_type="image/png"),
    )
    request = asked(user(*parts))
    kinds = [block["type"] for block in openai_chat.encode(request)["messages"][0]["content"]]
    assert kinds == ["image_url", "text", "text", "image_url"]
    assert [block["type"] for block in anthropic.encode(request)["messages"][0]["content"]] == [
        "image",
        "text",
        "text",
        "image",
    ]
    assert wire_breach(request) is None


def test_thinking_modes_that_want_their_field_get_it() -> None:
    """DeepSeek and Moonshot refuse a call without reasoning_content, and accept an empty one."""
    request = asked(user("a"), model(call("c1")), Turn("tool", (result("c1"),)))
    message = openai_chat.OpenAIChatEncoder(reasoning_content=True).encode(request)["messages"][1]
    assert message["reasoning_content"] == ""


def _objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(inner for item in value.values() for inner in _objects(item))]
    return [inner for item in value for inner in _objects(item)] if isinstance(value, list) else []


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _strings(item)]


def _is_result(value: dict[str, Any]) -> bool:
    return (
        value.get("role") == "tool"
        or (
            value.get("type") in ("function_call_output", "tool_result")
            and ("call_id" in value or "tool_use_id" in value)
        )
        or set(value) == {"functionResponse"}
    )
