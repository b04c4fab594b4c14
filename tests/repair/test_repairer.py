"""Repair of a growing history: the same as from scratch, at the cost of what is new."""

from __future__ import annotations

import os

import pytest
from tests.repair.shapes import WRITERS, A, R, U, asks, chat, numbered, whole

from heaveto import Repairer, repair

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
