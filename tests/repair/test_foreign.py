"""Messages of another format: who changes providers leaves them behind, and nothing of them may be lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from tests.repair.judge import refusal
from tests.repair.shapes import WRITERS, A, C, History, R, U, asks, numbered, whole
from tests.repair.test_glance import _difference

from heaveto import Repairer, repair, validate
from heaveto.core.repair import Options
from heaveto.errors import InvalidHistoryError

FORMATS = ("openai", "openai-responses", "anthropic", "gemini-3", "bedrock")
PAIRS = list(permutations(FORMATS, 2))
TURN = [U("do it"), A((C("c1", args='{"q": 1}'), C("c2")), "I will."), R("c1", "paid-one"), R("c2", "paid-two")]
pairs = pytest.mark.parametrize(("was", "now"), PAIRS)


def said(history: History) -> str:
    return " ".join(str(message) for message in history)


@pairs
def test_a_conversation_goes_on_with_another_provider(was: str, now: str) -> None:
    """Words, calls with their arguments, and results: the new provider accepts them, and is told the same."""
    history = WRITERS[was]([*TURN, A(text="Done."), U("and now?")])
    result, report = repair(history, now, foreign="convert")
    assert refusal(result, now) is None
    told = said(result)
    for words in ("do it", "I will.", "paid-one", "paid-two", "Done.", "and now?", "c1", "c2"):
        assert words in told, words
    assert "No result was recorded" not in told
    assert "converted" in {change.action for change in report.changes}
    assert repair(result, now)[0] is result


@pairs
def test_of_mixed_formats_nothing_is_lost(was: str, now: str) -> None:
    """What one provider's client left behind stands before, between and behind the other's."""
    old = WRITERS[was]([U("old"), asks("o1"), R("o1", "old result"), A(text="old answer"), U("old end")])
    new = WRITERS[now]([U("new"), asks("n1"), R("n1", "new result"), A(text="new answer"), U("new end")])
    for history in ([*old, *new], [*new, *old, *new], [*new, *old]):
        assert validate(history, now.removesuffix("-3"), strict_unconfirmed=True) is not None
        result, report = repair(history, now)
        assert refusal(result, now) is None
        told = said(result)
        for words in ("old result", "old answer", "old end", "new result", "new answer", "new end"):
            assert words in told, words
        assert {change.rule for change in report.changes if change.action == "converted"} <= {
            "O0", "R0", "A0", "G0", "B0",
        }  # fmt: skip
        assert repair(result, now)[0] is result
        changed = [message for message in new if not any(message is one for one in result)]
        assert not changed or now == "bedrock", "own messages stay the same objects; Bedrock's may be merged (B6)"


@pairs
def test_a_call_of_one_format_is_answered_in_another(was: str, now: str) -> None:
    """The run was stopped between the two: the result is the new client's, the call the old one's."""
    history = [
        *WRITERS[now]([U("u"), asks("n1"), R("n1")]),
        *WRITERS[was]([asks("c1")]),
        *WRITERS[now]([R("c1", "real"), U("x")]),
    ]
    result, _ = repair(history, now)
    assert refusal(result, now) is None
    assert "real" in said(result)
    assert "No result was recorded" not in said(result)


@pairs
def test_a_history_that_is_wholly_of_another_format_is_named(was: str, now: str) -> None:
    """The provider is a wrong one, as "openai" for items of Responses: to convert it, one must want it."""
    history = WRITERS[was](TURN)
    with pytest.raises(InvalidHistoryError) as raised:
        repair(history, now)
    assert f"provider={was.removesuffix('-3')!r}" in str(raised.value)
    assert "foreign='convert'" in str(raised.value)


ONLY_TEXT: dict[str, tuple[History, str]] = {
    "responses": ([{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}], "openai-responses"),
    "reasoning": ([{"type": "reasoning", "id": "rs_1", "summary": []}], "openai-responses"),
    "gemini": ([{"role": "user", "parts": [{"text": "hi"}]}], "gemini"),
    "bedrock": ([{"role": "user", "content": [{"text": "hi"}]}], "bedrock"),
}


@pytest.mark.parametrize("shape", ONLY_TEXT)
def test_words_alone_tell_their_format_where_they_can(shape: str) -> None:
    """A first message of the user is enough to see that the provider is a wrong one."""
    history, own = ONLY_TEXT[shape]
    for provider in FORMATS:
        if provider.removesuffix("-3") == own:
            repair(history, provider)
            continue
        with pytest.raises(InvalidHistoryError, match=f"provider='{own}'"):
            repair(history, provider)


@pytest.mark.parametrize(
    ("body", "provider", "named"),
    [
        ({"input": []}, "openai", "openai-responses"),
        ({"messages": []}, "openai-responses", "openai"),
        ({"messages": WRITERS["anthropic"](TURN)}, "gemini", "anthropic"),
        ({"contents": WRITERS["gemini"](TURN)}, "anthropic", "gemini"),
    ],
)
def test_a_body_of_another_format_is_named(body: dict[str, Any], provider: str, named: str) -> None:
    """By where it has its messages, and what stands in them."""
    with pytest.raises(InvalidHistoryError, match=f"provider='{named}'"):
        repair(body, provider)


def test_what_no_other_format_has_is_named_as_left_out() -> None:
    """Thinking is signed for the one who made it; an image stands there as words (A15, R13, G12)."""
    seen = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    old = [
        {"role": "user", "content": [{"type": "text", "text": "see"}, seen]},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "I see."}]},
    ]
    result, report = repair([*WRITERS["gemini"](TURN), *old, *WRITERS["gemini"]([U("so?")])], "gemini")
    assert "c2ln" not in str(result)
    assert result[-3]["parts"][0]["text"] == "see"
    assert "left out: image" in str(report)
    assert "left out: thinking" in str(report)


def test_arguments_that_are_no_json_are_quoted_in_the_new_format_too() -> None:
    """A8: the call has an empty object, and its missing result tells the raw text."""
    history = WRITERS["openai"]([U(), A((C("c1", args='{"q": "hel'),)), U("stop")])
    result, _ = repair(history, "anthropic", foreign="convert")
    assert refusal(result, "anthropic") is None
    assert "hel" in str(result[2])


def test_what_the_old_provider_executed_is_quoted() -> None:
    """It cannot be answered by anybody, and what was found must not be lost."""
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "Paris"}]}
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "capital"}}
    history = [{"role": "user", "content": "?"}, {"role": "assistant", "content": [search, found]}]
    result, _ = repair(
        [*history, *WRITERS["anthropic"](TURN), *WRITERS["anthropic"]([U("x")])], "openai", foreign="convert"
    )
    assert refusal(result, "openai") is None
    assert "Paris" in result[1]["content"]
    assert "capital" in result[1]["content"]


def _mix(seed: int, provider: str, write: Callable[..., History]) -> History:
    chance = random.Random(seed)
    mixed: History = []
    for part in range(4):
        steps = whole(seed + part) if chance.random() < 0.5 else numbered(seed + part)
        mixed += (WRITERS[provider] if chance.random() < 0.6 else write)(steps)
    return mixed


@pairs
def test_mixes_are_repaired_in_parts_and_piece_by_piece_as_they_are_whole(was: str, now: str) -> None:
    """A glance never takes a foreign message for a plain one, and a repairer gives what the function gives."""
    for seed in range(25):
        history = _mix(seed, now, WRITERS[was])
        difference = _difference(history, now, Options())
        assert difference is None, f"history {seed}: {difference}"
        repairer = Repairer(now)
        for end in range(1, len(history) + 1):
            assert outcome(repairer.repair, history[:end]) == outcome(lambda part: repair(part, now), history[:end])
        result, _ = repair(history, now, foreign="convert")
        assert refusal(result, now) is None, seed
        assert repair(result, now)[0] is result, seed


def outcome(do: Callable[[History], Any], history: History) -> Any:
    try:
        return do(history)
    except InvalidHistoryError as error:
        return str(error)
