"""Repair of a growing history: the same as from scratch, at the cost of what is new."""

from __future__ import annotations

import os
import random

import pytest
from tests.repair.shapes import WRITERS, A, R, U, asks, chat, numbered, whole

from heaveto import Repairer, repair
from heaveto.errors import InvalidHistoryError

_EACH = 300 if os.environ.get("CI") else 80


@pytest.mark.parametrize("provider", WRITERS)
def test_a_continued_repair_equals_one_from_scratch(provider: str) -> None:
    """Whatever is added, message by message: the same list and the same report, late and second results included."""
    for seed in range(_EACH):
        steps = [*whole(seed), *numbered(seed), *numbered(seed + 1)]
        history = WRITERS[provider](steps, joined=seed % 2 == 0)
        repairer = Repairer(provider)
        for end in range(1, len(history) + 1):
            assert repairer.repair(history[:end]) == repair(history[:end], provider), f"history {seed}, {end} messages"


@pytest.mark.parametrize("provider", WRITERS)
def test_a_history_that_is_handed_over_piece_by_piece_is_repaired_as_a_whole(provider: str) -> None:
    """Only what is new is given; list and report are those of the whole, where something refers back too."""
    for seed in range(_EACH):
        steps = [*whole(seed), *numbered(seed), *numbered(seed + 1)]
        history = WRITERS[provider](steps, joined=seed % 2 == 0)
        repairer, pieces = Repairer(provider), random.Random(seed)
        at = 0
        while at < len(history):
            start, at = at, at + pieces.randint(1, 3)
            assert repairer.extend(history[start:at]) == repair(history[:at], provider), (
                f"history {seed}, {at} messages"
            )


def test_both_ways_of_going_on_may_be_mixed() -> None:
    """A history is handed over whole, then its continuation alone."""
    history = chat([U(), asks("c1"), R("c1"), A(text="a"), U(), asks("c2"), U("x"), A(text="b"), U("y")])
    repairer = Repairer("openai")
    repairer.repair(history[:4])
    assert repairer.extend(history[4:7]) == repair(history[:7], "openai")
    assert repairer.repair(history[:8]) == repair(history[:8], "openai")
    assert repairer.extend(history[8:]) == repair(history, "openai")


def test_an_error_names_the_place_in_the_whole_history() -> None:
    """And it stands: what was handed over is not forgotten, so a later call raises it again."""
    repairer = Repairer("openai")
    repairer.extend(chat([*[U(), asks("c1"), R("c1"), A(text="a")] * 3, U()]))
    for _ in range(2):
        with pytest.raises(InvalidHistoryError) as raised:
            repairer.extend([{"role": "assistant", "tool_calls": "c2"}])
        assert raised.value.index == 13


def test_another_conversation_is_begun_anew() -> None:
    """What was seen counts only as long as the same objects stand there."""
    repairer = Repairer("openai")
    first, second = chat([U(), asks("c1"), R("c1"), A(text="a"), U()]), chat([asks("c2"), U("x")])
    repairer.repair(first)
    assert repairer.repair(second) == repair(second, "openai")
    assert repairer.repair(first) == repair(first, "openai")


def test_messages_that_were_settled_are_not_looked_at_again() -> None:
    """A repair of ten thousand messages touches only the new ones: the settled ones are replaced under its nose."""
    turn = [U(), asks("c1"), R("c1"), A(text="ok")]
    history = chat([*turn * 50, U("last")])
    repairer = Repairer("openai")
    assert repairer.repair(history)[0] is history
    history[1]["tool_calls"] = []  # forbidden, and not seen
    assert repairer.repair([*history, *chat([A(text="fine"), U("more")])])[1].is_clean
