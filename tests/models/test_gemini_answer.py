"""Answers of Gemini as chunks, and parts back on the wire."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heaveto.core.project import project
from heaveto.core.request import ModelProfile, ModelRequest, Turn
from heaveto.core.validate import gemini as rules
from heaveto.errors import ModelError
from heaveto.events.contents import (
    Blob,
    Content,
    FileRef,
    FunctionCall,
    Opaque,
    Part,
    ProviderCall,
    ProviderResult,
    Text,
    Thought,
    text_of,
)
from heaveto.events.records import Message, Record, RunStarted, Usage
from heaveto.ids import SystemIds
from heaveto.models.assemble import Assembled, Assembler
from heaveto.models.base import UsageChunk
from heaveto.models.wire import gemini
from heaveto.models.wire.gemini_answer import GeminiAnswerReader


def said(*parts: dict[str, Any], finish: str = "", **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    return {"candidates": [{**candidate, "finishReason": finish} if finish else candidate], **more}


def read(*events: object) -> Assembled:
    assembler, reader = Assembler(SystemIds(), provider="gemini"), GeminiAnswerReader()
    for event in events:
        for chunk in reader.feed(event):
            assembler.feed(chunk)
    for chunk in reader.end():
        assembler.feed(chunk)
    return assembler.finish()


def failure(*events: object) -> ModelError:
    with pytest.raises(ModelError) as error:
        read(*events)
    return error.value


def sent(*parts: Part, **options: Any) -> list[dict[str, Any]]:
    """What of an answer is in the model's content of the next request."""
    records: list[Record] = [
        RunStarted(id="1", time=0.0, run_id="r", agent="a", input=Content.of("hi"), seq=1),
        Message(id="2", time=0.0, run_id="r", author="a", parts=parts, provider="gemini", seq=2),
    ]
    turns = project(records, "a", ModelProfile("gemini"))
    contents = gemini.encode(ModelRequest(turns=turns), **options)["contents"]
    (made,) = [content for content in contents if content["role"] == "model"]
    return made["parts"]  # type: ignore[no-any-return]


def test_a_signed_text_stays_a_part_of_its_own() -> None:
    """Merging it with its neighbours would move the signature (F26)."""
    parts = [{"text": "a"}, {"text": "b"}, {"text": "b", "thoughtSignature": "c2ln"}, {"text": "c"}]
    answer = read(*(said(part) for part in parts), said(finish="STOP"))
    assert [part.text for part in answer.parts if isinstance(part, Text)] == ["ab", "b", "c"]
    assert sent(*answer.parts) == [{"text": "ab"}, parts[2], {"text": "c"}]


def test_a_signed_text_is_streamed_before_it_is_whole() -> None:
    """Readers see it as they see any other, and once."""
    reader = GeminiAnswerReader()
    chunks = reader.feed(said({"text": "abc", "thoughtSignature": "c2ln"}))
    assert [type(chunk).__name__ for chunk in chunks] == ["TextChunk", "PartChunk"]


def test_a_signature_on_an_empty_text_is_sent_back_on_it() -> None:
    """Gemini 3 signs the end of a streamed answer so (F26)."""
    end = {"text": "", "thoughtSignature": "c2ln"}
    answer = read(said({"text": "So."}), said(end, finish="STOP"))
    assert answer.parts == (Text(text="So."), Opaque(provider="gemini", data=end))
    assert sent(*answer.parts) == [{"text": "So."}, end]
    request = gemini.encode(ModelRequest(turns=[_user(), Turn("model", answer.parts), _user()]))
    assert rules.validate(request) is None


def test_thoughts_are_shown_and_only_signed_ones_go_back() -> None:
    """Verbatim or not at all (F25, F27)."""
    signed = {"text": "c", "thought": True, "thoughtSignature": "c2ln"}
    thought, whole, text = read(said({"text": "ab", "thought": True}, signed, {"text": "So."}, finish="STOP")).parts
    assert isinstance(thought, Thought) and isinstance(whole, Thought)
    assert ((thought.text, thought.signature), (whole.text, whole.signature)) == (("ab", None), ("c", "c2ln"))
    assert sent(thought, whole, text) == [signed, {"text": "So."}]


def test_several_calls_of_one_event_are_several_calls() -> None:
    """With ids and without, in order; the signature stays on its own (G11)."""
    parts = [
        {"functionCall": {"name": "a", "args": {"x": 1}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "a", "args": {"x": 1}}},
        {"functionCall": {"name": "b", "id": "given"}},
    ]
    answer = read(said(*parts), said({"functionCall": {"name": "c"}}, finish="STOP"))
    calls = [part for part in answer.parts if isinstance(part, FunctionCall)]
    assert [(call.name, call.args, call.provider_id, call.defect) for call in calls] == [
        ("a", {"x": 1}, None, ""),
        ("a", {"x": 1}, None, ""),
        ("b", {}, "given", ""),
        ("c", {}, None, ""),
    ]
    back = sent(*answer.parts)
    assert [part.get("thoughtSignature") for part in back] == ["c2ln", None, None, None]
    assert back[2]["functionCall"]["id"] == "given"
    assert back[0]["functionCall"]["id"] == calls[0].call_id


def test_a_call_that_came_twice_is_one_call() -> None:
    """A stream that reconnected sent it again (F19)."""
    call = said({"functionCall": {"name": "a", "id": "1", "args": {}}})
    assert len(read(call, call, said(finish="STOP")).parts) == 1


def test_the_first_call_of_a_cut_answer_counts() -> None:
    """And the last one does not (F30)."""
    calls = [{"functionCall": {"name": name, "args": {"x": 1}}} for name in "ab"]
    answer = read(said(*calls, finish="MAX_TOKENS"))
    assert [part.defect for part in answer.parts if isinstance(part, FunctionCall)] == ["", "truncated"]
    assert answer.is_cut


def piece(path: str, will_continue: bool = False, **value: Any) -> dict[str, Any]:
    return {"jsonPath": path, **value, **({"willContinue": True} if will_continue else {})}


STREAMED = [
    {"name": "go", "id": "1", "willContinue": True},
    {"partialArgs": [piece("$.to", True, stringValue="Bos")], "willContinue": True},
    {"partialArgs": [piece("$.to", True, stringValue="ton"), piece("$.n", numberValue=2)], "willContinue": True},
    {"partialArgs": [piece("$.to", stringValue="")], "willContinue": True},
    {
        "partialArgs": [
            piece("$.stops[1].name", stringValue="b"),
            piece("$['a.b']", boolValue=True),
            piece("$.none", nullValue="NULL_VALUE"),
        ],
        "willContinue": True,
    },
    {},
]


def test_arguments_that_are_streamed_in_pieces_are_one_call() -> None:
    """Each piece says where it belongs; texts of one place are joined."""
    events = [said({"functionCall": call}) for call in STREAMED]
    events[0]["candidates"][0]["content"]["parts"][0]["thoughtSignature"] = "c2ln"
    answer = read(*events, said({"functionCall": {"name": "other", "args": {}}}, finish="STOP"))
    go, other = answer.parts
    assert isinstance(go, FunctionCall) and isinstance(other, FunctionCall)
    expected = {"to": "Boston", "n": 2, "stops": [None, {"name": "b"}], "a.b": True, "none": None}
    assert (go.name, go.provider_id, go.args, go.defect) == ("go", "1", expected, "")
    assert (go.data, other.name, other.args) == ({"thoughtSignature": "c2ln"}, "other", {})


def test_a_call_whose_pieces_were_cut_off_is_truncated() -> None:
    """It must not be executed (F30)."""
    (call,) = read(*(said({"functionCall": call}) for call in STREAMED[:3])).parts
    assert isinstance(call, FunctionCall) and (call.name, call.defect, call.args) == ("go", "truncated", {})


@pytest.mark.parametrize("path", ["to", "$", "$..to", "$.a[*]", "$.to.deeper", "$.to[0]", "$.l[123456789]"])
def test_a_piece_without_a_place_makes_the_call_invalid(path: str) -> None:
    """Without it, it would be another call (F31)."""
    pieces = [piece("$.to", stringValue="x"), piece(path, stringValue="y")]
    (call,) = read(said({"functionCall": {"name": "go", "partialArgs": pieces}}, finish="STOP")).parts
    assert isinstance(call, FunctionCall) and (call.defect, call.args) == ("invalid", {})


def test_what_the_provider_executed_itself_is_never_a_call_of_ours() -> None:
    """It goes back verbatim, in pairs (F23); older models refuse the newer form (G17)."""
    parts: list[dict[str, Any]] = [
        {"executableCode": {"language": "PYTHON", "code": "1+1"}, "thoughtSignature": "c2ln"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
        {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"q": "x"}}},
        {"toolResponse": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}},
        {"text": "2"},
    ]
    answer = read(said(*parts, finish="STOP"))
    assert [type(part) for part in answer.parts] == [ProviderCall, ProviderResult, ProviderCall, ProviderResult, Text]
    assert sent(*answer.parts) == parts
    assert sent(*answer.parts, signatures=False) == [parts[0], parts[1], parts[4]]
    cut = read(said(parts[0], parts[1], parts[2], {"text": "2"}))
    assert sent(*cut.parts) == [parts[0], parts[1], parts[4]]


def test_images_of_the_model_are_blobs_and_files_are_references() -> None:
    """With their signatures, and back as they came; what cannot be decoded is kept as it is."""
    parts: list[dict[str, Any]] = [
        {"inlineData": {"mimeType": "image/png", "data": "AAEC"}, "thoughtSignature": "c2ln"},
        {"fileData": {"fileUri": "gs://b/c", "mimeType": "video/mp4"}, "x": 1},
        {"inlineData": {"mimeType": "image/png", "data": "%"}},
        {"inlineData": {"mimeType": "image/png", "data": "AAEC"}, "thought": True},
        {"tomorrow": {"a": 1}},
    ]
    answer = read(said(*parts, finish="STOP"))
    assert [type(part) for part in answer.parts] == [Blob, FileRef, Opaque, Opaque, Opaque]
    blob = answer.parts[0]
    assert isinstance(blob, Blob) and (blob.content, blob.data) == (b"\0\1\2", {"thoughtSignature": "c2ln"})
    assert sent(*answer.parts) == parts


def test_grounding_and_fields_of_tomorrow_are_kept() -> None:
    """In the data of the end; the last value counts."""
    grounded = said({"text": "a"}, finish="STOP", responseId="r1", usageMetadata={"promptTokenCount": 1, "x": 2}, y=3)
    grounded["candidates"][0] |= {"groundingMetadata": {"webSearchQueries": ["q"]}, "avgLogprobs": -0.1}
    answer = read(said({"text": "a"}, y=1), grounded)
    assert answer.end is not None and answer.end.data == {
        "groundingMetadata": {"webSearchQueries": ["q"]},
        "avgLogprobs": -0.1,
        "responseId": "r1",
        "usageMetadata": {"promptTokenCount": 1, "x": 2},
        "y": 3,
    }


def test_usage_is_estimated_until_the_answer_is_finished() -> None:
    """Each event tells what was used so far (F126)."""
    reader = GeminiAnswerReader()
    begun = reader.feed(said({"text": "a" * 20}, usageMetadata={"promptTokenCount": 7, "toolUsePromptTokenCount": 1}))
    assert begun[-1] == UsageChunk(Usage(8, 5, estimated=True))
    counted = {"promptTokenCount": 7, "candidatesTokenCount": 6, "thoughtsTokenCount": 3}
    assert reader.feed({"usageMetadata": counted}) == [UsageChunk(Usage(7, 9, reasoning_tokens=3, estimated=True))]
    reader.feed(said({"text": "b"}, finish="STOP"))
    assert reader.end()[0] == UsageChunk(Usage(7, 9, reasoning_tokens=3))


@pytest.mark.parametrize(
    "reason", ["MAX_TOKENS", "SAFETY", "RECITATION", "LANGUAGE", "PROHIBITED_CONTENT", "CONTINUATION", "NEW_REASON"]
)
def test_an_answer_that_was_stopped_is_cut(reason: str) -> None:
    """What came of it is kept (F30)."""
    answer = read(said({"text": "So"}), said(finish=reason))
    assert (answer.is_cut, text_of(answer.parts)) == (True, "So")
    assert answer.end is not None and answer.end.reason == reason


@pytest.mark.parametrize(
    ("reason", "retryable"),
    [("SAFETY", False), ("PROHIBITED_CONTENT", False), ("RECITATION", False), ("OTHER", True), ("STOP", True)],
)
def test_an_answer_with_nothing_in_it_is_an_error(reason: str, retryable: bool) -> None:
    """Nobody could tell it from an answer; where it came by chance, the request is worth repeating."""
    error = failure(said(finish=reason))
    assert reason in str(error) and error.retryable is retryable


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_a_call_that_the_model_failed_to_write_is_an_error(reason: str) -> None:
    """Also behind text, which would be taken for the answer."""
    error = failure(
        said({"text": "I look."}), {"candidates": [{"finishReason": reason, "finishMessage": "bad: print("}]}
    )
    assert error.retryable and f"{reason} (bad: print()" in str(error)


@pytest.mark.parametrize("event", [{}, {"candidates": []}, {"usageMetadata": {"promptTokenCount": 3}}, "junk", None])
def test_no_candidates_are_an_error_that_may_pass(event: object) -> None:
    """There is nothing to keep."""
    assert failure(event).retryable


def test_an_answer_that_breaks_off_is_no_whole_one() -> None:
    """It has no end, and what came is kept (F30)."""
    answer = read(said({"text": "So"}))
    assert (answer.end, answer.is_cut, text_of(answer.parts)) == (None, True, "So")


def test_a_thought_alone_at_the_limit_is_kept() -> None:
    """All tokens went into thinking: a cut answer, no error."""
    answer = read(said({"text": "hm", "thought": True}), said(finish="MAX_TOKENS"))
    assert answer.is_cut and [type(part) for part in answer.parts] == [Thought]
    assert read(said(finish="MAX_TOKENS")).is_cut


def test_a_blocked_prompt_is_final() -> None:
    """The same words would be blocked again."""
    error = failure({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 1}})
    assert "PROHIBITED_CONTENT" in str(error) and not error.retryable and error.body["promptFeedback"]


@pytest.mark.parametrize(("code", "retryable"), [(503, True), (429, True), (400, False)])
def test_an_error_in_mid_stream_is_an_error(code: int, retryable: bool) -> None:
    """Alone, or in a list as streams without events have it."""
    body = {"error": {"code": code, "message": "no", "status": "WORD"}}
    for event in (body, [body]):
        error = failure(said({"text": "a"}), event)
        assert (str(error), error.status, error.retryable) == ("no (WORD)", code, retryable)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_NAMES = (
    "text", "thought", "thoughtSignature", "functionCall", "inlineData", "fileData", "executableCode", "toolResponse",
)  # fmt: skip
_CALL_FIELDS = ("name", "id", "args", "partialArgs", "willContinue")
calls = st.dictionaries(st.sampled_from(_CALL_FIELDS), junk | st.lists(st.just({"jsonPath": "$.a", "stringValue": 1})))
some_parts = st.lists(st.dictionaries(st.sampled_from(_NAMES), junk | calls, max_size=3) | junk, max_size=3)
candidates = st.fixed_dictionaries(
    {"content": st.fixed_dictionaries({"parts": some_parts}) | junk}, optional={"finishReason": junk | st.just("STOP")}
)
bodies = st.fixed_dictionaries(
    {"candidates": st.lists(candidates, max_size=2) | junk},
    optional={"usageMetadata": junk | st.just({"promptTokenCount": 1}), "promptFeedback": junk, "error": junk},
)


@given(st.lists(bodies | junk, max_size=4))
def test_junk_raises_nothing_but_a_model_error(events: list[object]) -> None:
    """A reader is total, and so are the parts that come of it on their way back (P1)."""
    try:
        answer = read(*events)
    except ModelError:
        return
    gemini.encode(ModelRequest(turns=[_user(), Turn("model", answer.parts), _user()]))


def _user() -> Turn:
    return Turn("user", (Text(text="hi"),))
