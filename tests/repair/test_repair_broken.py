"""Shapes of real programs that the numbered family does not make."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from tests.repair.judge import refusal
from tests.repair.shapes import WRITERS, A, C, R, U, anthropic, asks, bedrock, chat, gemini, numbered, responses

from heaveto import Repairer, repair, validate
from heaveto.core.wire_names import NO_SIGNATURE
from heaveto.errors import InvalidHistoryError
from heaveto.histories.files import repair_file

CACHE = {"cache_control": {"type": "ephemeral"}}
PENDING_SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}


# --- ids --------------------------------------------------------------------------------------------------------------


def _with_numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_numbers(item) for key, item in value.items()}
    return int(value) if isinstance(value, str) and value.isdecimal() else value


@pytest.mark.parametrize("provider", WRITERS)
def test_ids_that_are_numbers_bind_their_results(provider: str) -> None:
    """Not the order of the results: the second call's came first."""
    steps = [U(), asks("5", "6"), R("6", "of six"), R("5", "of five"), U("stop")]
    repaired, report = repair(_with_numbers(WRITERS[provider](steps)), provider)
    assert "mismatch" not in str(report)
    wanted, _ = repair(WRITERS[provider](steps), provider)
    assert repaired == wanted
    assert refusal(repaired, provider) is None


def test_a_suffix_that_is_taken_is_not_given_again() -> None:
    """Ids that were told apart before meet new ones that repeat (F20)."""
    steps = [U()]
    for call_id in ("c1", "c1_2", "c1", "c1", "c1_2"):
        steps += [asks(call_id), R(call_id, f"r{len(steps)}")]
    for provider in ("anthropic", "openai-responses"):
        repaired, _ = repair(WRITERS[provider]([*steps, U("stop")]), provider)
        assert refusal(repaired, provider) is None
        assert repair(repaired, provider)[0] is repaired


def test_ten_thousand_calls_with_one_id_are_told_apart_in_time() -> None:
    """Some servers have one id for all calls: no search from the first number on for each."""
    steps = [U(), *(step for number in range(5_000) for step in (asks("X"), R("X", f"r{number}"))), U("stop")]
    repaired, _ = repair(anthropic(steps), "anthropic")
    ids = [block["id"] for message in repaired for block in message["content"] if block["type"] == "tool_use"]
    assert ids[-1] == "X_5000"
    assert len(set(ids)) == 5_000


def test_a_result_without_an_id_leaves_the_call_with_an_id_alone() -> None:
    """S9: another result may come for that one; where there is one for each, their order counts."""
    calls = A((C("a"), C("")))
    repaired, _ = repair(gemini([U(), calls, R("", "mine"), U("stop")]), "gemini-2.5")
    given, mine = (part["functionResponse"] for part in repaired[2]["parts"])
    assert given["id"] == "a"
    assert given["response"]["status"] == "unknown"
    assert mine["response"] == {"output": "mine"}
    repaired, _ = repair(gemini([U(), calls, R("", "one"), R("", "two"), U("stop")]), "gemini-2.5")
    assert [part["functionResponse"]["response"]["output"] for part in repaired[2]["parts"]] == ["one", "two"]


# --- total ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["[" * 200_000, {"a": "\ud800"}, {"a": 2**80}, {("a", 1): 2}, '{"a":"\ud800"}'])
@pytest.mark.parametrize("provider", ["openai", "qwen", "openai-responses", "mistral"])
def test_arguments_that_no_encoder_takes_are_no_error(provider: str, arguments: Any) -> None:
    """Half a surrogate pair, numbers beyond 64 bits, keys that are no text, nesting without end (F31)."""
    history = WRITERS[provider]([U(), A((C("c1", "t", arguments),)), U("stop")])
    repaired, _ = repair(history, provider)
    assert refusal(repaired, provider) is None
    assert repair(repaired, provider)[0] is repaired


FOREIGN: dict[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
    "chat": (chat([U(), asks("c1", text="on it"), U()]), ("openai-responses", "anthropic", "bedrock", "gemini")),
    "anthropic": (anthropic([U(), asks("c1"), U()]), ("openai", "mistral", "openai-responses", "bedrock", "gemini")),
    "bedrock": (bedrock([U(), asks("c1"), U()]), ("openai", "openai-responses", "anthropic", "gemini")),
    "gemini": (gemini([U(), asks("c1"), U()]), ("openai", "openai-responses", "anthropic", "bedrock")),
}


@pytest.mark.parametrize("shape", FOREIGN)
def test_a_history_of_another_format_is_refused_and_not_emptied(shape: str) -> None:
    """The provider was forgotten, or is a wrong one: calls that are not understood would be dropped in silence."""
    history, providers = FOREIGN[shape]
    for provider in providers:
        with pytest.raises(InvalidHistoryError, match=r"^message \d: "):
            repair(history, provider)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "bedrock"])
def test_a_message_without_a_role_is_refused(provider: str) -> None:
    """Such as those of frameworks that call it otherwise."""
    with pytest.raises(InvalidHistoryError, match="role"):
        repair([{"type": "human", "content": "hello"}], provider)


# --- Chat -------------------------------------------------------------------------------------------------------------


def test_answers_that_consist_of_audio_or_a_legacy_call_need_no_content() -> None:
    """As OpenAI's guide sends audio back, and as `function_call` was."""
    user = {"role": "user", "content": "hello"}
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "t", "arguments": "{}"}}
    spoken = {"role": "assistant", "audio": {"id": "audio_1"}}
    history = [user, legacy, {"role": "function", "name": "t", "content": "done"}, spoken, user]
    assert validate(history, "openai", strict_unconfirmed=True) is None
    assert repair(history, "openai")[0] is history


def test_a_refusal_is_not_lost_where_only_content_counts() -> None:
    """Mistral knows no `refusal` (M6)."""
    history = [{"role": "user", "content": "?"}, {"role": "assistant", "content": None, "refusal": "I will not."}]
    repaired, _ = repair([*history, {"role": "user", "content": "!"}], "mistral")
    assert repaired[1]["content"] == "I will not."
    assert refusal(repaired, "mistral") is None


# --- Anthropic --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answered", [False, True])
def test_a_paused_answer_is_sent_back_as_it_is(answered: bool) -> None:
    """`pause_turn`: the provider goes on with its own call only if nothing stands behind it (A17, F22)."""
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    history = [
        {"role": "user", "content": "look it up"},
        {"role": "assistant", "content": [PENDING_SEARCH, result] if answered else [PENDING_SEARCH]},
    ]
    assert validate(history, "anthropic", strict_unconfirmed=True) is None
    assert repair(history, "anthropic")[0] is history


def test_the_newest_marks_for_the_cache_stay_where_there_are_too_many() -> None:
    """A26: frameworks that mark every turn; those of the system and the tools count."""
    history = [
        {"role": role, "content": [{"type": "text", "text": f"{role} {turn}", **CACHE}]}
        for turn in range(4)
        for role in ("user", "assistant")
    ]
    body = {
        "system": [{"type": "text", "text": "s", **CACHE}],
        "messages": [*history, {"role": "user", "content": "?"}],
    }
    repaired, report = repair(body, "anthropic")
    marked = [place for place, message in enumerate(repaired["messages"]) if "cache_control" in str(message)]
    assert marked == [5, 6, 7]
    assert {change.rule for change in report.changes} == {"A26"}
    assert repair(repaired, "anthropic")[0] is repaired


# --- Gemini -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("snake", [False, True])
def test_keys_that_are_null_are_as_if_they_were_not_there(snake: bool) -> None:
    """`model_dump()` of the SDK's types writes every field."""
    history = gemini([U(), A(text="so"), U(), asks("a", "b"), R("b"), U("stop")])
    names = {"functionCall": "function_call", "functionResponse": "function_response"} if snake else {}
    empty = dict.fromkeys(("text", names.get("functionCall", "functionCall"),
                           names.get("functionResponse", "functionResponse"), "thought"))  # fmt: skip
    dumped = [
        {
            **content,
            "parts": [{**empty, **{names.get(key, key): part[key] for key in part}} for part in content["parts"]],
        }
        for content in history
    ]
    repaired, report = repair(dumped, "gemini-2.5")
    assert len(report.changes) == 1
    assert refusal(repaired, "gemini-2.5") is None
    assert repaired[1] is dumped[1]


def test_a_role_that_gemini_has_not_keeps_calls_the_models() -> None:
    """G8: as others call it, or none at all; only the model calls."""
    for role in ("assistant", "agent", None):
        history = gemini([U(), asks("a"), R("a"), U("stop")])
        history[1] = {**history[1], "role": role}
        assert repair(history, "gemini-2.5")[0][1]["role"] == "model"
    results = [{**gemini([R("a")])[0], "role": "tool"}, *gemini([U("stop")])]
    assert repair(results, "gemini-2.5", orphans="quote")[0][0]["role"] == "user"


SIGNED, UNSIGNED = {"thoughtSignature": "c2ln"}, gemini([U(), asks("a"), R("a"), asks("b"), R("b")])


def _signatures(contents: list[dict[str, Any]]) -> list[str | None]:
    return [part.get("thoughtSignature") for content in contents for part in content["parts"] if "functionCall" in part]


def test_whether_calls_are_signed_is_told_by_the_models_name_or_by_other_calls() -> None:
    """G10, G13: a dump of Gemini 2.5 is valid as it is, and one of Gemini 3 shows that it signs."""
    assert repair(UNSIGNED, "gemini")[0] is UNSIGNED
    assert _signatures(repair(UNSIGNED, "gemini-3")[0]) == [NO_SIGNATURE, NO_SIGNATURE]
    for model, signature in (("gemini-3-pro", NO_SIGNATURE), ("models/gemini-2.5-pro", None)):
        body, _ = repair({"model": model, "contents": UNSIGNED}, "gemini")
        assert _signatures(body["contents"]) == [signature, signature]
    call = UNSIGNED[1]["parts"][0]
    first_signed = [UNSIGNED[0], {"role": "model", "parts": [{**call, **SIGNED}]}, *UNSIGNED[2:]]
    assert _signatures(repair(first_signed, "gemini")[0]) == ["c2ln", NO_SIGNATURE]
    assert repair(first_signed, "gemini-2.5")[0] is first_signed


def test_models_before_gemini_3_sign_the_first_part_and_not_the_call() -> None:
    """A text that is signed beside an unsigned call tells that this call was not to be signed."""
    words = {"role": "model", "parts": [{"text": "so", **SIGNED}, *UNSIGNED[1]["parts"]]}
    signed = {"role": "model", "parts": [{**UNSIGNED[3]["parts"][0], **SIGNED}]}
    history = [UNSIGNED[0], words, UNSIGNED[2], signed, UNSIGNED[4]]
    assert repair(history, "gemini")[0] is history


def test_a_known_result_may_hold_what_gemini_reads_as_a_reference() -> None:
    """G16: it is given as text, as one that stands in the history is."""
    repaired, _ = repair(gemini([U(), asks("a"), U("stop")]), "gemini-2.5", results={"a": {"$ref": "#/x"}})
    assert refusal(repaired, "gemini-2.5") is None


# --- growing histories ------------------------------------------------------------------------------------------------


def _grown(provider: str, history: list[dict[str, Any]], **options: Any) -> None:
    repairer = Repairer(provider, **options)
    for end in range(len(history) + 1):
        assert repairer.repair(history[:end]) == repair(history[:end], provider, **options), end


@pytest.mark.parametrize("provider", WRITERS)
def test_a_repairer_agrees_about_calls_that_are_awaited_or_pending(provider: str) -> None:
    """What waits at the end of a part waits no more when the model has gone on behind it."""
    for seed in range(40):
        _grown(provider, WRITERS[provider](numbered(seed)), awaited=["c1", "X"], pending=["c2"], orphans="quote")


def test_a_repairer_sees_what_an_answer_that_goes_no_longer_parts() -> None:
    """A17, A26, B6, R5: what stands at the end of the settled part may need the rest."""
    user = {"role": "user", "content": [{"type": "text", "text": "u", **CACHE}]}
    said = {
        "role": "assistant",
        "content": [{"type": "text", "text": "a"}, PENDING_SEARCH, *anthropic([asks("c")])[0]["content"]],
    }
    _grown("anthropic", [user, said, anthropic([R("c")])[0], said, *[user, anthropic([A(text="a")])[0]] * 5])
    words = {"role": "user", "content": [{"text": "u"}]}
    _grown("bedrock", [words, {"role": "assistant", "content": []}, words, *bedrock([A(text="a"), U()])])
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    _grown("deepseek-responses", [*responses([U(), asks("a")]), thought, *responses([R("z"), R("a"), asks("b"), U()])])


# --- large ------------------------------------------------------------------------------------------------------------


def test_long_loops_of_parallel_calls_lose_nothing() -> None:
    """Hundreds of calls at once, their results shuffled and some gone, in every format."""
    chance = random.Random(1)
    steps: list[Any] = [U()]
    for turn in range(6):
        ids = [f"c{turn}_{number}" for number in range(300)]
        given = chance.sample(ids, 280)
        steps += [asks(*ids), *(R(call_id, f"r.{call_id}.") for call_id in given)]
    for provider, write in WRITERS.items():
        repaired, report = repair(write([*steps, U("stop")]), provider)
        assert refusal(repaired, provider) is None, provider
        assert sum(change.action == "answered" for change in report.changes) == 120
        text = str(repaired)
        assert all(f"r.{step.id}." in text for step in steps if isinstance(step, R)), provider


def test_a_file_of_many_lines_takes_time_by_its_length() -> None:
    """No set is built anew for each line."""
    line = b'{"role": "user", "content": "hello"}\n'
    call = b'{"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": '
    data = call + b'{"name": "t", "arguments": "{}"}}]}\n' + line * 40_000
    found = repair_file(data)
    assert found.output.count(b"\n") == data.count(b"\n") + 1
    assert [change.rule for change in found.changes] == ["O1"]


def test_packed_files_are_told_by_their_first_bytes() -> None:
    """Packed files are named, not read as damaged lines."""
    for magic, name in ((b"\x1f\x8b\x08", "gzip"), (b"PK\x03\x04", "zip"), (b"BZh9", "bzip2")):
        found = repair_file(magic + bytes(100))
        assert found.output == magic + bytes(100)
        assert name in found.problems[0]


def test_what_is_repaired_once_is_the_same_in_every_order_of_calls() -> None:
    """The same call of `repair` gives equal values each time: nothing is kept between two."""
    for provider, write in WRITERS.items():
        histories = [write(numbered(seed)) for seed in range(20)]
        first = [repair(history, provider) for history in histories]
        assert first == [repair(history, provider) for history in histories], provider
        assert all(one[0] is not other[0] or not one[1] for one, other in pairwise(first))
