"""Answers of OpenAI Responses, read from raw events and from whole responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heaveto.events.contents import FunctionCall, Opaque, Text, Thought
from heaveto.events.records import Usage
from heaveto.ids import SystemIds
from heaveto.models.assemble import Assembled, Assembler
from heaveto.models.base import Chunk, EndChunk, TextChunk
from heaveto.models.wire.openai_responses_answer import ResponsesAnswerReader

FAMILY = "openai-responses"
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
    "encrypted_content": "gAAA",
}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
FUNCTION = {
    "type": "function_call",
    "id": "fc_1",
    "status": "completed",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"at": "ü"}',
    "namespace": "n",
}
CUSTOM = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "status": "completed",
    "call_id": "call_2",
    "name": "patch",
    "input": 'a "quoted"\n😀',
}
MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
}
UNKNOWN = {"type": "hologram", "id": "ho_1", "beams": [1, 2]}
OUTPUT = [REASONING, SEARCH, FUNCTION, CUSTOM, MESSAGE, UNKNOWN]
USAGE = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 20},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 8},
    "total_tokens": 42,
}
ASSEMBLED = (
    Thought(text="First.\n\nThen.", signature="gAAA", provider=FAMILY, data=REASONING),
    Opaque(provider=FAMILY, data=SEARCH),
    FunctionCall(
        call_id="", name="look", args={"at": "ü"}, provider_id="call_1", provider=FAMILY, data={"namespace": "n"}
    ),
    FunctionCall(
        call_id="",
        name="patch",
        args={"input": 'a "quoted"\n😀'},
        provider_id="call_2",
        provider=FAMILY,
        data={"type": "custom_tool_call"},
    ),
    Text(text="Hello."),
    Opaque(provider=FAMILY, data=UNKNOWN),
)


class NoIds(SystemIds):
    """Calls without ids of ours, so that answers can be compared."""

    def call_id(self) -> str:
        return ""


def response(status: str = "completed", output: Iterable[dict[str, Any]] = (), **more: Any) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "model": "gpt-x", "status": status}
    return {**head, "output": list(output), "usage": USAGE, **more}


def streamed(output: list[dict[str, Any]], *, end: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The events that the provider streams for these items."""
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response("in_progress", usage=None)},
        {"type": "response.in_progress", "response": response("in_progress", usage=None)},
    ]
    for index, item in enumerate(output):
        events += [{**event, "output_index": index} for event in _item_events(item)]
    return [*events, {"type": "response.completed", "response": response(output=output)} if end is None else end]


def _item_events(item: dict[str, Any]) -> list[dict[str, Any]]:
    empty = {"arguments": "", "input": "", "content": [], "summary": [], "encrypted_content": None}
    head = {**item, **{key: value for key, value in empty.items() if key in item}, "status": "in_progress"}
    deltas: list[dict[str, Any]] = []
    match item["type"]:
        case "reasoning":
            for number, part in enumerate(item["summary"]):
                deltas.append({"type": "response.reasoning_summary_part.added", "summary_index": number})
                deltas += _pieces("response.reasoning_summary_text", part["text"])
        case "function_call":
            deltas = _pieces("response.function_call_arguments", item["arguments"])
        case "custom_tool_call":
            deltas = _pieces("response.custom_tool_call_input", item["input"])
        case "message":
            deltas = [piece for part in item["content"] for piece in _pieces("response.output_text", part["text"])]
        case _:
            deltas = [{"type": f"response.{item['type']}.in_progress", "item_id": item["id"]}]
    done = {"type": "response.output_item.done", "item": item}
    return [{"type": "response.output_item.added", "item": head}, *deltas, done]


def _pieces(kind: str, text: str) -> list[dict[str, Any]]:
    return [*({"type": f"{kind}.delta", "delta": letter} for letter in text), {"type": f"{kind}.done", "text": text}]


def read(events: Iterable[object], **options: Any) -> tuple[list[Chunk], ResponsesAnswerReader]:
    reader = ResponsesAnswerReader(**options)
    chunks = [chunk for event in events for chunk in reader.feed(event)]
    return [*chunks, *reader.end()], reader


def assembled(chunks: Iterable[Chunk]) -> Assembled:
    assembler = Assembler(NoIds(), provider=FAMILY)
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler.finish()


@pytest.mark.parametrize("events", [streamed(OUTPUT), [response(output=OUTPUT)]], ids=["streamed", "whole"])
def test_all_kinds_of_items_arrive_in_order(events: list[dict[str, Any]]) -> None:
    """Reasoning with its item, what the provider executed and what is unknown verbatim, calls to execute (F23, F26)."""
    chunks, reader = read(events)
    answer = assembled(chunks)
    assert answer.parts == ASSEMBLED
    assert answer.usage == Usage(30, 12, cached_tokens=20, reasoning_tokens=8)
    assert answer.end == EndChunk(reason="completed", model="gpt-x", data={"id": "resp_1"})
    assert reader.is_finished


def test_items_that_were_not_streamed_are_read_from_the_end() -> None:
    """Some servers send nothing but the last event, or items without their pieces."""
    bare = [{"type": "response.completed", "response": response(output=OUTPUT)}]
    done = [
        {"type": "response.output_item.done", "output_index": index, "item": item} for index, item in enumerate(OUTPUT)
    ]
    assert assembled(read(bare)[0]).parts == ASSEMBLED
    assert assembled(read([*done, *bare])[0]).parts == ASSEMBLED


def test_a_message_with_a_phase_keeps_it() -> None:
    """Models that mark their messages want the mark back; the text is there once."""
    message = {**MESSAGE, "phase": "commentary"}
    (text,) = assembled(read(streamed([message]))[0]).parts
    assert text == Text(text="Hello.", provider=FAMILY, data={"phase": "commentary"})


def test_a_refusal_is_text() -> None:
    """The user sees what the model said, streamed or not."""
    refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "I can't."}]}
    assert read([response(output=[refusal])])[0][0] == TextChunk("I can't.")
    assert read([{"type": "response.refusal.delta", "delta": "I can't."}])[0] == [TextChunk("I can't.")]


@pytest.mark.parametrize("held", [True, False])
def test_a_complete_answer_says_that_it_is_held(held: bool) -> None:
    """Only where the provider was asked to store it."""
    (*_, end) = read([response()], held=held)[0]
    assert isinstance(end, EndChunk) and (end.data or {}).get("held", False) is held


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
def test_an_incomplete_answer_is_cut_and_not_held(reason: str) -> None:
    """Its last call must not be executed (F30), and nothing goes on from it."""
    cut_call = {**FUNCTION, "arguments": '{"at": "', "status": "incomplete"}
    last = response("incomplete", [cut_call], incomplete_details={"reason": reason})
    chunks, _ = read(streamed([cut_call], end={"type": "response.incomplete", "response": last}), held=True)
    answer = assembled(chunks)
    (call,) = answer.parts
    assert isinstance(call, FunctionCall) and (call.defect, call.raw_args) == ("truncated", '{"at": "')
    assert answer.end == EndChunk(reason=reason, cut=True, model="gpt-x", data={"id": "resp_1"})


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"code": "server_error", "message": "oops"}, True),
        ({"code": "rate_limit_exceeded", "message": "slow"}, True),
        ({"code": "invalid_prompt", "message": "no"}, False),
        ({}, True),
    ],
)
def test_a_failed_answer_is_an_error_with_its_usage(error: dict[str, Any], retryable: bool) -> None:
    """As the last event, as an error event and in a whole response; whether to try again is data."""
    failed = response("failed", error=error)
    for events in ([{"type": "response.failed", "response": failed}], [failed], [{"type": "error", **error}]):
        chunks, reader = read(events)
        assert reader.failure is not None and reader.failure.retryable is retryable
        assert not any(isinstance(chunk, EndChunk) for chunk in chunks)


def test_a_stream_that_breaks_gives_no_end_and_unsigned_thoughts() -> None:
    """Reasoning whose item did not come is for display only (F26, F30)."""
    events = streamed([REASONING])
    half = events[: events.index(next(event for event in events if event["type"] == "response.output_item.done"))]
    chunks, reader = read(half)
    answer = assembled(chunks)
    assert answer.parts == (Thought(text="First.\n\nThen.", provider=FAMILY),)
    assert answer.is_cut and not reader.is_finished


def test_reasoning_without_words_and_without_encrypted_content_is_nothing() -> None:
    """It cannot be shown and cannot be sent."""
    assert assembled(read([response(output=[{"type": "reasoning", "id": "rs_1", "summary": []}])])[0]).parts == ()


def test_a_custom_tools_text_may_be_split_anywhere() -> None:
    """Also within a character, and it may hold what JSON escapes."""
    halves = ['\\"', "\ud83d", "\ude00", "\n"]
    item = {**CUSTOM, "input": '\\"😀\n'}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "input": ""}},
        *({"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": half} for half in halves),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        response(output=[item]),
    ]
    (call,) = assembled(read(events)[0]).parts
    assert isinstance(call, FunctionCall) and call.args == {"input": '\\"😀\n'}


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("type", "object", "response", "output", "item", "delta", "output_index", "status")),
            inner | st.sampled_from((*(item["type"] for item in OUTPUT), *(event["type"] for event in streamed([])))),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(junk, max_size=6))
def test_junk_never_raises(events: list[object]) -> None:
    """A reader is total."""
    read(events)
