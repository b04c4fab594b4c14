"""The laws of repair, over a hundred thousand histories that others may have left behind."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.repair.judge import broken_law, prefix_change
from tests.repair.shapes import WRITERS, A, C, R, Step, U, numbered, whole

from heaveto import repair

_EACH = 8_000 if os.environ.get("CI") else 400


@pytest.mark.parametrize("provider", WRITERS)
def test_whatever_others_left_behind_is_accepted_after_repair(provider: str) -> None:
    """Accepted by every validator, unconfirmed rules included; idempotent; nothing lost in silence (F148)."""
    for seed in range(_EACH):
        broken = broken_law(numbered(seed), provider, joined=seed % 2 == 0)
        assert broken is None, f"history {seed}: {broken}"


@pytest.mark.parametrize("provider", WRITERS)
def test_a_valid_history_comes_back_as_the_same_object(provider: str) -> None:
    """Nobody pays for a repair that was not needed, and no cache is missed."""
    for seed in range(_EACH // 8):
        history = WRITERS[provider](whole(seed))
        assert repair(history, provider)[0] is history, f"history {seed}"


@pytest.mark.parametrize("provider", WRITERS)
def test_what_was_sent_stays_as_it_was_sent(provider: str) -> None:
    """Caches and signed thinking bind to the prefix: what comes later changes it only where it refers back (A15)."""
    for seed in range(_EACH // 8):
        change = prefix_change(seed, provider)
        assert change is None, f"history {seed}: {change}"


_ids = st.sampled_from(["c1", "c2", "X", "a.b:c", ""])
_names = st.sampled_from(["t", "s", ""])
_answers = st.builds(
    A,
    st.lists(st.builds(C, _ids, _names, st.sampled_from(["{}", '{"a'])), max_size=3).map(tuple),
    st.sampled_from(["", "said"]),
    st.sampled_from(["", "th"]),
)
_steps = st.lists(
    st.one_of(_answers, st.builds(R, _ids, st.sampled_from(["one", "two"]), _names), st.builds(U, st.just("words"))),
    max_size=9,
)


@given(steps=_steps, joined=st.booleans())
@example(steps=[A((C("c1"),)), U("words")], joined=False)
def test_the_laws_hold_for_what_the_numbered_family_does_not_reach(steps: list[Step], joined: bool) -> None:
    """The same laws where an example that breaks one is made as short as can be."""
    for provider in WRITERS:
        assert broken_law(steps, provider, joined=joined) is None, provider
