"""Where a piece goes in a request that others have changed, and what is told in words where no place is found."""

from __future__ import annotations

import pytest
from google.genai import types
from tests.adk.world import call, result, shape, user

from heaveto.adk.complete import stand_in
from heaveto.adk.note import with_note
from heaveto.adk.splice import carry_over


def asked(name: str) -> types.Content:
    return types.Content(role="model", parts=[call(name)])


def lost(name: str) -> types.Content:
    return types.Content(role="user", parts=[result(name, **stand_in("unknown", {}))])


U1, U2, U3 = user("one"), user("two"), user("three")
BEFORE = [U1, U2, U3]
AFTER = [U1, asked("a"), lost("a"), U2, asked("b"), lost("b"), U3]
EXTRA = user("an instruction")


@pytest.mark.parametrize(
    ("request_now", "expected"),
    [
        ([U1, U2, U3], AFTER),
        ([U1, U2, EXTRA, U3], [*AFTER[:6], EXTRA, U3]),
        ([U1, EXTRA, U2, U3], [U1, asked("a"), lost("a"), EXTRA, *AFTER[3:]]),
        ([user("redacted"), U2, U3], [user("redacted"), *AFTER[1:]]),
        ([U2, U3], AFTER[3:]),
        ([U3], [U3]),
        (AFTER, AFTER),
        ([EXTRA, *AFTER], [EXTRA, *AFTER]),
    ],
    ids=["as it was", "with more", "with more in between", "reworded", "cut", "cut short", "done", "done, with more"],
)
def test_pieces_find_their_place(request_now: list[types.Content], expected: list[types.Content]) -> None:
    """Behind what stood before them; never twice; and not where the beginning was cut off."""
    spliced = carry_over(BEFORE, AFTER, request_now)
    assert shape(spliced.contents) == shape(expected)
    assert spliced.homeless == []


def test_an_incomplete_content_is_replaced_and_its_results_with_it() -> None:
    """google-adk dropped one of two calls of a message: the whole message comes back, with both results."""
    half = [U1, asked("a"), types.Content(role="user", parts=[result("a", n=1)]), U2]
    both = types.Content(role="model", parts=[call("a"), call("b")])
    results = types.Content(role="user", parts=[result("a", n=1), result("b", **stand_in("unknown", {}))])
    assert carry_over(half, [U1, both, results, U2], [EXTRA, *half]).contents == [EXTRA, U1, both, results, U2]


def test_the_same_words_again_and_again_do_not_mislead() -> None:
    """Equal contents are told apart by their order."""
    go = user("go")
    before = [go, go, go]
    after = [go, go, asked("a"), lost("a"), go]
    assert carry_over(before, after, before).contents == after


def test_what_finds_no_place_is_told_in_words() -> None:
    """Another plugin has put a summary in the place of everything: a note beside the user's words, once."""
    summary = [user("a summary")]
    spliced = carry_over(BEFORE, AFTER, summary)
    assert spliced.contents == summary
    noted = with_note(spliced.contents, spliced.homeless, {})
    words, note = [part.text or "" for part in noted[0].parts or ()]
    assert words == "a summary"
    assert note.count('"unknown"') >= 2 and "a({})" in note and "b({})" in note
    assert with_note(noted, spliced.homeless, {}) == noted


def test_a_note_stands_behind_results_in_a_content_of_its_own() -> None:
    """Results stand alone in their content (G9)."""
    contents = [asked("c"), types.Content(role="user", parts=[result("c", n=1)])]
    noted = with_note(contents, [[asked("a"), lost("a")]], {})
    assert noted[:2] == contents
    assert len(noted) == 3 and noted[2].role == "user"
