"""The broken shapes S1 to S19, in every format: what becomes of each, in neutral words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.repair.judge import broken_law
from tests.repair.shapes import WRITERS, A, C, History, R, Step, U, asks, gemini

from heaveto import repair

STOP = U("stop")
REAL = R("c1", "real")
# Behind the arrow: calls by number, =N:value its real result, ?N one made up, U the user's words, A an answer's.
SHAPES: dict[str, tuple[Sequence[Step], str]] = {
    "S1 an unanswered call, then the user": ([U(), asks("c1"), STOP], "U 1 ?1 U"),
    "S2 one of two answered": ([U(), asks("c1", "c2"), R("c2", "real"), STOP], "U 1 2 =2:real ?1 U"),
    "S3 a result without a call": ([U(), R("c9"), STOP], "U U"),
    "S4 two results": ([U(), asks("c1"), R("c1", "first"), R("c1", "last"), STOP], "U 1 =1:last U"),
    "S5 the user between call and result": ([U(), asks("c1"), STOP, REAL, U("x")], "U 1 =1:real U U"),
    "S6 an answer between too": ([U(), asks("c1"), STOP, A(text="ok"), REAL, U("x")], "U 1 =1:real U A U"),
    "S7 an id again, the second open": ([U(), asks("X"), R("X", "real"), asks("X"), STOP], "U 1 =1:real 2 ?2 U"),
    "S7b an id again, the first open": ([U(), asks("X"), U("y"), asks("X"), R("X"), STOP], "U 1 ?1 U 2 =2:done U"),
    "S7c an id again, both answered": (
        [U(), asks("X"), R("X", "one"), asks("X"), R("X", "two"), STOP], "U 1 =1:one 2 =2:two U"
    ),
    "S8 an id twice in one answer": (
        [U(), asks("X", "X"), R("X", "one"), R("X", "two"), STOP], "U 1 2 =1:one =2:two U"
    ),
    "S11 a result before its call": ([U(), REAL, asks("c1"), STOP], "U 1 =1:real U"),
    "S15 a result with a wrong id": ([U(), asks("c1"), R("c7", "real"), STOP], "U 1 =1:real U"),
    "S16 a second result a turn later": (
        [U(), asks("c1"), R("c1", "first"), A(text="ok"), U("y"), R("c1", "last"), STOP], "U 1 =1:last A U U"
    ),
    "S18 two calls, then both results": (
        [U(), asks("c1"), asks("c2"), R("c1", "one"), R("c2", "two"), STOP], "U 1 =1:one 2 =2:two U"
    ),
    "S19 words between parallel results": (
        [U(), asks("c1", "c2"), U("WAIT"), R("c1", "real"), STOP], "U 1 2 =1:real ?2 U U"
    ),
}  # fmt: skip
JOINED = ("anthropic", "bedrock", "deepseek-responses")
IN_A_ROW = "U 1 2 =1:one =2:two U"
"""S18 where answers in a row are one turn: results behind both are where they belong (A23)."""
ANYWHERE = {
    "S5": "U 1 U =1:real U",
    "S6": "U 1 U A =1:real U",
    "S16": "U 1 A U =1:last U",
    "S18": IN_A_ROW,
    "S19": "U 1 2 ?2 U =1:real U",
}
"""Responses take a result anywhere behind its call: what was valid stays (R4)."""


@pytest.mark.parametrize("provider", WRITERS)
@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_becomes_what_it_should_be(name: str, provider: str) -> None:
    """Real results go to their calls, what is missing says so, words stay (F03, F07, F08, F18, F20, F37)."""
    steps, expected = SHAPES[name]
    if name.startswith("S18") and provider in JOINED:
        expected = IN_A_ROW
    if provider == "openai-responses":
        expected = ANYWHERE.get(name.split(maxsplit=1)[0], expected)
    repaired, _ = repair(WRITERS[provider](steps), provider)
    assert told(repaired, provider) == in_order(expected, provider)
    assert broken_law(steps, provider) is None


def in_order(expected: str, provider: str) -> str:
    """Gemini's results stand in the order of the calls (G14)."""
    return expected.replace("=2:real ?1", "?1 =2:real") if provider.startswith("gemini") else expected


def told(history: History, provider: str) -> str:
    """Tell a repaired history in short; each result by the newest call with its id."""
    words: list[str] = []
    numbers: dict[str, int] = {}
    for kind, call_id, value in atoms(history):
        if kind == "call":
            numbers[call_id] = len([word for word in words if word.isdigit()]) + 1
            words.append(str(numbers[call_id]))
        elif kind == "result":
            words.append(
                f"?{numbers[call_id]}" if "No result was recorded" in value else f"={numbers[call_id]}:{value}"
            )
        elif value != "Understood." and call_id + value not in ("A.", "U."):
            words.append(call_id)
    return " ".join(words)


def atoms(history: History) -> Iterator[tuple[str, str, str]]:
    """Yield calls, results and what was said, in order."""
    for message in history:
        author = "A" if message.get("role") in ("assistant", "model") else "U"
        match message:
            case {"type": "function_call", "call_id": call_id} | {"functionCall": {"id": call_id}}:
                yield "call", call_id, ""
            case {"type": "function_call_output", "call_id": call_id, "output": value}:
                yield "result", call_id, value
            case {"tool_call_id": call_id, "content": value}:
                yield "result", call_id, value
            case {"tool_calls": calls}:
                yield from (("call", call["id"], "") for call in calls)
            case {"content": str(words)}:
                yield "said", author, words
            case {"content": list(blocks)} | {"parts": list(blocks)}:
                yield from (_atom(block, author) for block in blocks)
            case _:
                raise AssertionError(message)


def _atom(block: dict[str, Any], author: str) -> tuple[str, str, str]:
    match block:
        case {"type": "tool_use", "id": call_id} | {"toolUse": {"toolUseId": call_id}}:
            return "call", call_id, ""
        case {"functionCall": {"id": call_id}}:
            return "call", call_id, ""
        case {"tool_use_id": call_id, "content": value}:
            return "result", call_id, value
        case {"toolResult": {"toolUseId": call_id, "content": [{"text": value}]}}:
            return "result", call_id, value
        case {"functionResponse": {"id": call_id, "response": response}}:
            return "result", call_id, str(response.get("output") or response.get("error"))
        case {"text": words}:
            return "said", author, words
        case _:
            raise AssertionError(block)


def test_a_result_never_takes_a_call_that_another_one_answers_by_id() -> None:
    """S9: one call has an id and one has none; the result without an id is that of the call without one."""
    parts = gemini([U(), A((C("a"), C("")))], joined=True)
    history = [*parts, *gemini([R("", "second"), R("a", "first")]), {"role": "user", "parts": [{"text": "stop"}]}]
    assert repair(history, "gemini-2.5")[0] is history


def test_an_unanswered_call_beside_one_without_an_id_is_answered() -> None:
    """S9, S10: two calls of one name, only one answered: the first open one has the result, the other says so."""
    history = [*gemini([U(), A((C(""), C("")))]), *gemini([R("", "one")]), *gemini([STOP])]
    repaired, report = repair(history, "gemini-2.5")
    responses = [part["functionResponse"]["response"] for part in repaired[2]["parts"]]
    assert responses[0] == {"output": "one"}
    assert "No result was recorded" in responses[1]["error"]
    assert [change.rule for change in report.changes] == ["G1"]


def test_a_result_without_an_id_that_came_late_moves_to_its_call() -> None:
    """S10c: by its name, to the newest turn that has an open call of that name."""
    history = [
        *gemini([U(), A((C("", "a"),)), U("x"), A((C("", "b"),))]),
        *gemini([R("", "real", "a")]),
        *gemini([STOP]),
    ]
    repaired, _ = repair(history, "gemini-2.5")
    assert repaired[2]["parts"] == gemini([R("", "real", "a")])[0]["parts"]


def test_a_wrong_id_is_put_right_only_where_nothing_is_left_to_choose() -> None:
    """S15: two open calls and one strange result without a name: it might be of either, so it is of neither."""
    repaired, report = repair(WRITERS["openai"]([U(), asks("c1", "c2"), R("c7", "real"), STOP]), "openai")
    assert told(repaired, "openai") == "U 1 2 ?1 ?2 U"
    assert [(change.action, change.call_id) for change in report.changes if change.action == "dropped"] == [
        ("dropped", "c7")
    ]


def test_a_cut_off_call_at_the_start_is_preceded_by_a_user() -> None:
    """S17, F12: a window that begins with a call is no reason to drop it (G3)."""
    history = gemini([asks("c1"), R("c1"), U()])
    repaired, report = repair(history, "gemini-2.5")
    assert repaired == [{"role": "user", "parts": [{"text": "."}]}, *history]
    assert [change.rule for change in report.changes] == ["G3"]


def test_repeating_ids_are_paired_in_order_and_no_real_result_is_lost() -> None:
    """F20, F21: some servers have one id for all calls. Each call keeps its own result."""
    steps: list[Step] = [U()]
    for number in range(50):
        steps += [asks("X"), R("X", f"value {number}")]
    repaired, _ = repair(WRITERS["anthropic"]([*steps, STOP]), "anthropic")
    assert told(repaired, "anthropic") == "U " + " ".join(f"{n + 1} ={n + 1}:value {n}" for n in range(50)) + " U"
