"""What a caller of a repair may know and wish, what is told of it, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import msgspec
import pytest
from anthropic.types import TextBlock, ToolUseBlock
from google.genai import types
from openai.types.chat import ChatCompletionMessage
from tests.repair.judge import refusal
from tests.repair.shapes import WRITERS, A, R, U, anthropic, asks, chat, gemini, numbered

from heaveto import RepairReport, repair, repair_dangling_tool_calls, validate
from heaveto.errors import ConfigError, InvalidHistoryError, UnknownFormatError
from heaveto.histories import REGISTRY, formats

OPEN = [U(), asks("c1", "c2"), R("c2", "real"), U("stop")]


# --- options ----------------------------------------------------------------------------------------------------------


def test_a_made_up_result_claims_nothing_that_is_not_known() -> None:
    """F34: neither that the call failed nor that it was stopped; that it may have taken effect, and to check."""
    told = json.loads(repair(chat(OPEN), "openai")[0][3]["content"])
    assert told["status"] == "unknown"
    assert "may or may not have taken effect" in told["error"]
    assert "Check before doing it again" in told["error"]


def test_words_can_be_others() -> None:
    """By why there is no result."""
    repaired, _ = repair(chat(OPEN), "openai", texts={"unknown": "Nobody knows."})
    assert json.loads(repaired[3]["content"]) == {"status": "unknown", "error": "Nobody knows."}


@pytest.mark.parametrize("provider", WRITERS)
def test_a_pending_call_is_told_as_pending_and_not_as_an_error(provider: str) -> None:
    """S13, F11: on the wire it has an answer; it is not closed for those who work on it."""
    repaired, _ = repair(WRITERS[provider]([U(), asks("c1"), U("how long?")]), provider, pending=["c1"])
    assert "pending" in str(repaired)
    assert "is_error" not in str(repaired)
    assert "'status': 'error'" not in str(repaired)
    assert refusal(repaired, provider) is None


def test_a_final_result_takes_the_place_of_a_pending_one() -> None:
    """S13: of several results for one call the last counts, where the first stood."""
    steps = [U(), asks("c1"), R("c1", "pending"), U("how long?"), A(text="soon"), R("c1", "final"), U("x")]
    repaired, report = repair(chat(steps), "openai")
    assert [message["content"] for message in repaired] == ["hello", None, "final", "how long?", "soon", "x"]
    assert {change.rule for change in report.changes} == {"O1", "O4"}


def test_the_same_result_twice_keeps_the_first() -> None:
    """F17, F18: what was sent before stays as it was sent; nothing moves."""
    history = chat([U(), asks("c1"), R("c1", "x"), R("c1", "x"), U("y")])
    repaired, report = repair(history, "openai")
    assert repaired[2] is history[2]
    assert "the same result" in report.changes[0].known


def test_an_awaited_call_stays_open_at_the_end_of_the_history() -> None:
    """The next input answers it; if words follow it instead, it is told as pending."""
    steps = [U(), asks("c1", "c2"), R("c2")]
    for provider in ("openai", "anthropic", "gemini-2.5", "openai-responses", "mistral", "bedrock"):
        history = WRITERS[provider](steps)
        kept, report = repair(history, provider, awaited=["c1"])
        if provider != "mistral":  # which takes neither of these ids
            assert kept is history
            assert report.is_clean
        assert "pending" not in str(kept)
        spoken, _ = repair([*history, *WRITERS[provider]([U("stop")])], provider, awaited=["c1"])
        assert "pending" in str(spoken)


@pytest.mark.parametrize("provider", WRITERS)
def test_results_that_the_caller_knows_are_used(provider: str) -> None:
    """A mapping or a function; of any JSON form."""
    history = WRITERS[provider](OPEN)
    known = {"c1": {"answer": 42}, "c2": "unused"}
    repaired, report = repair(history, provider, results=known)
    assert "42" in str(repaired)
    assert "unused" not in str(repaired)
    assert "No result was recorded" not in str(repaired)
    assert repair(history, provider, results=known.get) == (repaired, report)
    assert refusal(repaired, provider) is None


@pytest.mark.parametrize("provider", WRITERS)
def test_results_without_a_call_can_be_kept_as_words(provider: str) -> None:
    """F04: wherever they stand, also in the middle of a turn's results; accepted, and nothing to repair again."""
    for seed in range(300):
        repaired, _ = repair(WRITERS[provider](numbered(seed), joined=seed % 2 == 0), provider, orphans="quote")
        if repaired:
            assert refusal(repaired, provider) is None, seed
        assert repair(repaired, provider)[0] is repaired, seed
    steps = [U(), asks("c1", "c2"), R("c1"), R("c9", "keep me"), R("c2"), U("stop")]
    repaired, report = repair(WRITERS[provider](steps), provider, orphans="quote")
    assert "keep me" in str(repaired)
    assert "quoted" in [change.action for change in report.changes]


# --- the report -------------------------------------------------------------------------------------------------------


def test_the_report_is_for_machines_and_for_people() -> None:
    """F148: rule, index in the input, action, call and name of each change."""
    _, report = repair(chat(OPEN), "openai")
    assert report
    assert json.loads(report.to_json()) == {
        "provider": "openai",
        "changes": [
            {
                "rule": "O1",
                "index": 2,
                "action": "answered",
                "call_id": "c1",
                "name": "t",
                "known": "no result, unknown",
            }
        ],
    }
    assert msgspec.json.decode(report.to_json(), type=RepairReport) == report
    assert report.as_dict() == json.loads(report.to_json())
    assert str(report) == "openai: 1 change\n  O1 at 2: answered t c1 (no result, unknown)"
    assert not repair(chat([U()]), "openai")[1]


# --- what is refused, and what is read --------------------------------------------------------------------------------


def test_unknown_formats_are_refused_by_name() -> None:
    """The message lists those there are; aliases are known."""
    with pytest.raises(UnknownFormatError, match="known are anthropic"):
        repair([], "claude")
    with pytest.raises(UnknownFormatError, match=r"did you mean 'anthropic'\?"):
        repair([], "anthropic:claude-opus-5")
    for judge in (repair, validate):
        with pytest.raises(UnknownFormatError, match="unknown format"):
            judge([], ["openai"])  # type: ignore[arg-type, operator]
    assert set(formats()) == set(REGISTRY)
    for alias in ("openai-chat", "google", "dashscope", "moonshot"):
        assert repair([], alias)[1].provider in formats()


@pytest.mark.parametrize(
    ("history", "provider"),
    [
        ("hello", "openai"),
        (["hello"], "openai"),
        ([{"role": "assistant", "tool_calls": "x"}], "openai"),
        ([{"role": "assistant", "tool_calls": ["x"]}], "openai"),
        ([{"role": "user", "content": [1]}], "anthropic"),
        ([{"role": "user", "content": 5}], "anthropic"),
        ([{"role": "user", "parts": "x"}], "gemini"),
        ([{"role": "user", "content": 5}], "bedrock"),
        ([1], "openai-responses"),
        ({"input": []}, "openai"),
    ],
)
def test_what_is_no_history_is_refused_with_its_place(history: object, provider: str) -> None:
    """A repair mends conversations; it does not guess what an object means."""
    with pytest.raises(InvalidHistoryError):
        repair(history, provider)  # type: ignore[type-var]


FORMS = ("openai", "openai-responses", "anthropic", "gemini", "bedrock")


@pytest.mark.parametrize(("is_of", "said"), [pair for pair in product(FORMS, FORMS) if pair[0] != pair[1]])
def test_a_history_of_another_format_is_refused_and_not_emptied(is_of: str, said: str) -> None:
    """Read as what it is not, its calls are nothing: they would be dropped, or found to be in order."""
    for steps in (OPEN, [U(), asks("c1"), R("c1", "real"), U("go on")]):
        with pytest.raises(InvalidHistoryError, match=f"of another format than '{said}'; say provider='{is_of}'"):
            repair(WRITERS[is_of](steps), said)


def test_words_that_are_no_parts_are_refused_and_not_dropped() -> None:
    """To Gemini, a message of another format is a content without parts."""
    with pytest.raises(InvalidHistoryError, match="'content' where Gemini has 'parts'"):
        repair([{"role": "user", "content": "hello"}], "gemini")


def test_one_id_is_no_list_of_ids() -> None:
    """A text would be taken for the ids of its letters."""
    for name in ("pending", "awaited"):
        with pytest.raises(ConfigError, match=f"{name} is one id, 'c1'"):
            repair(chat(OPEN), "openai", **{name: "c1"})  # type: ignore[arg-type]


@pytest.mark.parametrize("provider", WRITERS)
def test_a_history_of_nothing_is_left_alone(provider: str) -> None:
    """There is nothing to repair in it."""
    history: list[object] = []
    assert repair(history, provider)[0] is history


def test_objects_of_sdks_are_read_and_come_back_as_they_were() -> None:
    """What was answered by a client's library may be put into the history as it is."""
    call = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    answer = ChatCompletionMessage.model_validate({"role": "assistant", "content": None, "tool_calls": [call]})
    history = [*chat([U()]), answer, *chat([U("stop")])]
    repaired, _ = repair(history, "openai")
    assert repaired[1] is answer
    assert repaired[2]["tool_call_id"] == "c1"
    blocks = [TextBlock(type="text", text="I look."), ToolUseBlock(type="tool_use", id="c1", name="t", input={})]
    message = {"role": "assistant", "content": blocks}
    claude = [*anthropic([U()]), message, *anthropic([U("stop")])]
    fixed, _ = repair(claude, "anthropic")
    assert fixed[1] is message
    assert fixed[2]["content"][0]["tool_use_id"] == "c1"
    assert repair(fixed, "anthropic")[0] is fixed


# --- in place, for google.genai ---------------------------------------------------------------------------------------


def contents_of(*steps: U | A | R) -> list[types.Content]:
    return [types.Content.model_validate(content) for content in gemini(steps)]


def test_dangling_calls_of_contents_are_answered_in_place() -> None:
    """Whatever the steps: valid afterwards, the number of results told, nothing to do again."""
    for seed in range(300):
        contents = [types.Content.model_validate(content) for content in gemini(_with_objects(numbered(seed)))]
        before = [content.model_copy(deep=True) for content in contents]
        added = repair_dangling_tool_calls(contents)
        assert repair_dangling_tool_calls(contents) == 0
        dumped = [content.model_dump(mode="json", by_alias=True, exclude_none=True) for content in contents]
        tail = [*dumped, *gemini([U()])]
        assert refusal(tail, "gemini-2.5") is None, seed
        made = str(dumped).count("No result was recorded")
        assert added == made
        if contents == before:
            assert added == 0


def _with_objects(steps: list[U | A | R]) -> list[U | A | R]:
    """The SDK's types hold nothing but objects as arguments."""
    return [
        replace(step, calls=tuple(replace(call, args="{}") for call in step.calls)) if isinstance(step, A) else step
        for step in steps
    ]


def test_contents_that_need_no_change_stay_the_same_objects() -> None:
    """Parts always do, signatures with them (F26)."""
    contents = contents_of(U(), asks("c1", thought="x"), U("stop"))
    question, answer, stop = contents
    assert repair_dangling_tool_calls(contents) == 1
    assert contents[0] is question
    assert contents[1] is answer
    assert contents[3] is stop
    assert contents[2].parts is not None
    response = contents[2].parts[0].function_response
    assert response is not None
    assert (response.id, response.name) == ("c1", "t")


def test_dicts_keep_their_way_of_writing_keys() -> None:
    """Snake case stays snake case."""
    contents = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [{"function_call": {"name": "t"}}]},
    ]
    assert repair_dangling_tool_calls(contents) == 1
    assert contents[2]["parts"][0]["function_response"]["name"] == "t"
