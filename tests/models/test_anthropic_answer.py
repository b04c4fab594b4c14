"""Anthropic's answers, from raw events as the API sends them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heaveto.core.request import ModelRequest, Turn
from heaveto.events.contents import FunctionCall, Opaque, Part, ProviderCall, ProviderResult, Text, Thought
from heaveto.events.records import Usage
from heaveto.ids import SystemIds
from heaveto.models.assemble import Assembled, Assembler, estimate_usage
from heaveto.models.base import Chunk, EndChunk, TextChunk, UsageChunk
from heaveto.models.wire.anthropic import encode
from heaveto.models.wire.anthropic_answer import AnthropicAnswerReader

Event = dict[str, Any]
ASKED = {"input_tokens": 100, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 20, "output_tokens": 1}
THOUGHT = {"type": "thinking", "thinking": "Let me see.", "signature": "EqQB+/=="}
HIDDEN = {"type": "redacted_thinking", "data": "b3BhcXVl"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "ü"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "encrypted_content": "xyz"}],
}
CITATION = {"type": "char_location", "cited_text": "so", "document_index": 0}
CITED = {"type": "text", "text": "It is so.", "citations": [CITATION]}


def begin(usage: Event | None = None) -> Event:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": []}
    return {"type": "message_start", "message": {**head, "stop_reason": None, "usage": usage or ASKED}}


def close(reason: str = "end_turn", output: int = 9, **more: Any) -> list[Event]:
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": output}},
        {"type": "message_stop"},
    ]


def block(index: int, start: Event, *deltas: Event, stop: bool = True) -> list[Event]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        *([{"type": "content_block_stop", "index": index}] if stop else []),
    ]


def text(words: str) -> Event:
    return {"type": "text_delta", "text": words}


def json_of(fragment: str) -> Event:
    return {"type": "input_json_delta", "partial_json": fragment}


def thinking(index: int = 0, *, signed: bool = True, stop: bool = True) -> list[Event]:
    deltas = [{"type": "thinking_delta", "thinking": words} for words in ("Let me ", "see.")]
    signature = [{"type": "signature_delta", "signature": "EqQB+/=="}] if signed else []
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas, *signature, stop=stop)


def read(*events: Event) -> tuple[Assembled, list[Chunk]]:
    reader = AnthropicAnswerReader()
    chunks = [chunk for event in events for chunk in reader.feed(event)] + reader.end()
    assembler = Assembler(SystemIds(), provider="anthropic")
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler.finish(), chunks


def sent_back(*parts: Part) -> list[Event]:
    """Return the blocks that a model turn goes back as."""
    hi, more = Turn("user", (Text(text="hi"),)), Turn("user", (Text(text="more"),))
    blocks: list[Event] = encode(ModelRequest(turns=[hi, Turn("model", parts), more]))["messages"][1]["content"]
    return blocks


def test_signed_thinking_is_whole_and_goes_back_as_it_came() -> None:
    """Its text and signature are one block, to the byte (F26, F27)."""
    answer, _ = read(begin(), *thinking(), *block(1, {"type": "text", "text": ""}, text("Yes.")), *close())
    assert answer.parts == (
        Thought(text="Let me see.", signature="EqQB+/==", provider="anthropic", data=THOUGHT),
        Text(text="Yes."),
    )
    assert sent_back(*answer.parts) == [THOUGHT, {"type": "text", "text": "Yes."}]


def test_thinking_that_was_cut_is_shown_and_never_sent_back() -> None:
    """There is no signature for half a thought (F25), and a turn without anything else vanishes (F28)."""
    answer, _ = read(begin(), *thinking(signed=False, stop=False))
    assert answer.parts == (Thought(text="Let me see.", provider="anthropic"),)
    assert answer.is_cut
    hi = Turn("user", (Text(text="hi"),))
    messages = encode(ModelRequest(turns=[hi, Turn("model", answer.parts), hi]))["messages"]
    assert [message["role"] for message in messages] == ["user"]


def test_thinking_between_calls_keeps_its_place() -> None:
    """Thoughts and calls alternate; neither is merged with its like (F26)."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    answer, _ = read(
        begin(),
        *thinking(0),
        *block(1, call, json_of("")),
        *block(2, HIDDEN),
        *thinking(3),
        *block(4, {**call, "id": "toolu_2"}, json_of('{"at": '), json_of('"b"}')),
        *close("tool_use"),
    )
    kinds = [type(part) for part in answer.parts]
    assert kinds == [Thought, FunctionCall, Opaque, Thought, FunctionCall]
    calls = [part for part in answer.parts if isinstance(part, FunctionCall)]
    assert [(made.provider_id, made.args, made.defect) for made in calls] == [
        ("toolu_1", {}, ""),
        ("toolu_2", {"at": "b"}, ""),
    ]


def test_thinking_without_words_is_kept_for_its_signature() -> None:
    """Where the provider does not show them."""
    start = {"type": "thinking", "thinking": "", "signature": ""}
    signature = {"type": "signature_delta", "signature": "c2ln"}
    answer, _ = read(begin(), *block(0, start, signature), *block(1, {"type": "text", "text": "Hi"}), *close())
    assert sent_back(*answer.parts)[0] == {"type": "thinking", "thinking": "", "signature": "c2ln"}


def test_server_tools_are_the_providers_own() -> None:
    """Their calls are not ours to execute (F23); with their results they go back verbatim."""
    start, cite = {**SEARCH, "input": {}}, {"type": "citations_delta", "citation": CITATION}
    answer, _ = read(
        begin(),
        *block(0, start, json_of('{"que'), json_of('ry": "ü"}')),
        *block(1, FOUND),
        *block(2, {"type": "text", "text": ""}, text("It is "), text("so."), cite),
        *close(),
    )
    assert answer.parts == (
        ProviderCall(id="srvtoolu_1", name="web_search", provider="anthropic", data=SEARCH),
        ProviderResult(id="srvtoolu_1", provider="anthropic", data=FOUND),
        Text(text="It is so.", provider="anthropic", data=CITED),
    )
    assert sent_back(*answer.parts) == [SEARCH, FOUND, CITED]


def test_a_server_call_that_a_stop_left_alone_does_not_go_back() -> None:
    """It would be refused without its result (A17, A19)."""
    answer, _ = read(begin(), *block(0, {"type": "text", "text": "Well:"}), *block(1, SEARCH))
    assert isinstance(answer.parts[1], ProviderCall)
    assert sent_back(*answer.parts) == [{"type": "text", "text": "Well:"}]


def test_texts_side_by_side_stay_blocks_of_their_own() -> None:
    """Signed thinking may be bound to the exact blocks before it (A15)."""
    answer, chunks = read(
        begin(),
        *block(0, {"type": "text", "text": ""}, text("One. ")),
        *block(1, {"type": "text", "text": ""}, text("Two.")),
        *block(2, CITED),
        *close(),
    )
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == "One. Two.It is so."
    assert sent_back(*answer.parts) == [{"type": "text", "text": "One. "}, {"type": "text", "text": "Two."}, CITED]


def test_blocks_that_nobody_knows_are_kept_with_all_they_have() -> None:
    """Whether they come at once or grow by deltas that nobody knows."""
    start = {"type": "compaction", "content": None, "list": [1]}
    grown = [{"type": "compaction_delta", "content": words, "list": [2]} for words in ("a", "b")]
    last = {"type": "text", "text": "Hi"}
    answer, _ = read(begin(), *block(0, start, *grown), *block(1, last), *close())
    whole = {"type": "compaction", "content": "ab", "list": [1, 2, 2]}
    assert answer.parts[0] == Opaque(provider="anthropic", data=whole)
    assert sent_back(*answer.parts)[0] == whole


def test_fields_of_a_call_that_nobody_knows_go_back_with_it() -> None:
    """A call made from code that the provider executes says so."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}, "caller": {"type": "code"}}
    answer, _ = read(begin(), *block(0, call, json_of('{"a": 1}')), *close("tool_use"))
    (made,) = answer.parts
    assert isinstance(made, FunctionCall) and made.data == {"caller": {"type": "code"}}
    assert sent_back(made)[0]["caller"] == {"type": "code"}


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_answers_that_were_cut_say_so(reason: str) -> None:
    """Then a call in them is not executed, whatever its arguments look like (F30)."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    answer, chunks = read(begin(), *block(0, call, json_of('{"at": "a"}')), *close(reason))
    (made,) = answer.parts
    assert isinstance(made, FunctionCall) and (made.defect, made.raw_args) == ("truncated", '{"at": "a"}')
    assert isinstance(chunks[-1], EndChunk) and (chunks[-1].reason, chunks[-1].cut) == (reason, True)


def test_arguments_that_are_not_json_make_an_invalid_call() -> None:
    """Also where the provider closed them (F31)."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    answer, _ = read(begin(), *block(0, call, json_of("[1")), *block(1, call), *close("tool_use"))
    first = answer.parts[0]
    assert isinstance(first, FunctionCall) and (first.defect, first.args) == ("invalid", {})


def test_usage_counts_caches_and_thinking() -> None:
    """The input is all of it; what is final at the end is no estimate."""
    _, chunks = read(begin(), *close(output=50))
    reports = [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)]
    assert reports == [
        Usage(150, 1, cached_tokens=30, cache_write_tokens=20, estimated=True),
        Usage(150, 50, cached_tokens=30, cache_write_tokens=20),
    ]
    details = {"output_tokens": 50, "output_tokens_details": {"thinking_tokens": 40}}
    (report,) = AnthropicAnswerReader().feed({"type": "message_delta", "delta": {"stop_reason": "x"}, "usage": details})
    assert report == UsageChunk(Usage(0, 50, reasoning_tokens=40))


def test_a_cut_answer_has_its_input_exactly_and_its_output_as_an_estimate() -> None:
    """The provider counts the input at once, and the output at the end (F126)."""
    answer, _ = read(begin(), *block(0, {"type": "text", "text": ""}, text("word " * 80), stop=False))
    estimate = estimate_usage(ModelRequest(turns=()), answer.parts, answer.usage)
    assert estimate == Usage(150, 100, cached_tokens=30, cache_write_tokens=20, estimated=True)


def test_what_the_message_says_of_itself_is_kept() -> None:
    """Its id, its container, why it was refused, and the provider's own count."""
    _, chunks = read(begin(), *close("refusal", stop_details={"category": "cyber"}, container={"id": "c1"}))
    (end,) = [chunk for chunk in chunks if isinstance(chunk, EndChunk)]
    assert end.model == "claude" and end.data is not None
    assert (end.data["id"], end.data["stop_details"], end.data["container"]) == (
        "msg_1",
        {"category": "cyber"},
        {"id": "c1"},
    )
    assert end.data["usage"] == {**ASKED, "output_tokens": 9}


def test_a_paused_answer_goes_on_as_one() -> None:
    """Blocks, indices and usage of both requests add up (F22)."""
    reader = AnthropicAnswerReader()
    assembler = Assembler(SystemIds(), provider="anthropic")
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    first = [begin(), *block(0, {"type": "text", "text": "Well:"}), *block(1, SEARCH), *close("pause_turn", 10)]
    second = [begin(), *block(0, FOUND), *block(1, call, json_of('{"at": "a"}')), *close("tool_use", 20)]
    for chunk in [chunk for event in first for chunk in reader.feed(event)]:
        assembler.feed(chunk)
    assert reader.is_paused
    assert reader.blocks == [{"type": "text", "text": "Well:"}, SEARCH]
    reader.go_on()
    assert not reader.is_finished
    for chunk in [chunk for event in second for chunk in reader.feed(event)] + reader.end():
        assembler.feed(chunk)
    answer = assembler.finish()
    assert [type(part) for part in answer.parts] == [Text, ProviderCall, ProviderResult, FunctionCall]
    assert answer.usage == Usage(300, 30, cached_tokens=60, cache_write_tokens=40)
    assert sent_back(*answer.parts)[:3] == [{"type": "text", "text": "Well:"}, SEARCH, FOUND]


def test_a_whole_message_reads_like_a_streamed_one() -> None:
    """But for the fragments."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "ü"}}
    content = [THOUGHT, HIDDEN, SEARCH, FOUND, CITED, call, {**call, "id": "toolu_2", "input": {}}]
    answer, _ = read({**begin()["message"], "content": content, "stop_reason": "tool_use"})
    assert [type(part) for part in answer.parts] == [
        Thought, Opaque, ProviderCall, ProviderResult, Text, FunctionCall, FunctionCall,
    ]  # fmt: skip
    assert sent_back(*answer.parts)[:5] == content[:5]
    assert [made.args for made in answer.parts if isinstance(made, FunctionCall)] == [{"at": "ü"}, {}]
    assert not answer.is_cut


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "index", "delta", "content_block", "content", "message", "usage", "text", "id"]),
            inner,
        )
    ),
    max_leaves=8,
)
kinds = st.sampled_from(["message", "message_start", "content_block_start", "content_block_delta", "message_delta"])


fields = st.sampled_from(["index", "delta", "content_block", "content", "message", "usage"])
events_of_some_kind = st.builds(lambda kind, more: {**more, "type": kind}, kinds, st.dictionaries(fields, junk))


@given(st.lists(junk | events_of_some_kind, max_size=5))
def test_junk_never_raises(events: list[object]) -> None:
    """A reader is total."""
    reader = AnthropicAnswerReader()
    for event in events:
        reader.feed(event)
    reader.end()
