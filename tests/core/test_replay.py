"""What recovery decides: about a call in doubt, and about a run whose process died. Every case of both tables."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from heaveto.core.replay import may_resume, recover_call
from heaveto.events.records import Replay

POLICIES: tuple[Replay, ...] = get_args(Replay)
PAIRS = list(product(POLICIES, (None, *POLICIES)))

TABLE = {
    # stored:        declared:  None       never      safe       idempotent  probe
    "never": dict(zip((None, *POLICIES), ("unknown", "unknown", "unknown", "unknown", "unknown"), strict=True)),
    "safe": dict(zip((None, *POLICIES), ("unknown", "unknown", "execute", "execute", "probe"), strict=True)),
    "idempotent": dict(zip((None, *POLICIES), ("unknown", "unknown", "execute", "execute", "probe"), strict=True)),
    "probe": dict(zip((None, *POLICIES), ("unknown", "unknown", "unknown", "unknown", "probe"), strict=True)),
}


@pytest.mark.parametrize(("stored", "declared"), PAIRS)
def test_both_must_allow_it(stored: Replay, declared: Replay | None) -> None:
    """Then and now, the whole table: a call is repeated or looked into only where the policy in force at its start and
    the tool's present one both allow it; a tool that is gone allows nothing (F106)."""
    assert recover_call(stored, declared) == TABLE[stored][declared]


@pytest.mark.parametrize(("stored", "declared"), PAIRS)
def test_nothing_is_repeated_that_was_never_to_be(stored: Replay, declared: Replay | None) -> None:
    """Whatever the rest of the table says: one ``never``, and it is not executed, nor is its tool asked (F106)."""
    if "never" in (stored, declared):
        assert recover_call(stored, declared) == "unknown"


def test_a_stopped_run_is_never_resumed() -> None:
    """A stop that was asked for is final, whatever else is wished (F107)."""
    assert not may_resume(on_crash="resume", stopped=True, fruitless=0, max_fruitless=1000)
    assert may_resume(on_crash="resume", stopped=False, fruitless=0, max_fruitless=1000)


def test_a_run_that_shall_be_sealed_is_not_resumed() -> None:
    """Who chose to have crashed runs closed has them closed."""
    assert not may_resume(on_crash="seal", stopped=False, fruitless=0, max_fruitless=1000)


@pytest.mark.parametrize("limit", range(4))
def test_fruitless_attempts_are_bounded(limit: int) -> None:
    """So many attempts in a row that bring nothing are made, and no more; with a limit of none, not one (F107)."""
    made = [
        fruitless
        for fruitless in range(10)
        if may_resume(on_crash="resume", stopped=False, fruitless=fruitless, max_fruitless=limit)
    ]
    assert made == list(range(limit))
