"""The quick look that spares what is in order a close one: never wrong, and seldom at a loss."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from tests.repair.shapes import WRITERS, A, History, R, Step, U, asks, gemini, numbered, whole
from tests.repair.test_total import anything

from heaveto.core.repair import Options
from heaveto.core.repair.decision import Carry
from heaveto.errors import InvalidHistoryError
from heaveto.histories.dangling import ContentsFormat, closely_repaired, repaired_in_parts
from heaveto.histories.glance import glance
from heaveto.histories.parts import Repaired
from heaveto.histories.profiles import profile_named
from heaveto.histories.repairing import repair_closely, repair_in_parts, sight_of
from heaveto.histories.work import Work

_EACH = 500 if os.environ.get("CI") else 150
_OPTIONS = (
    Options(),
    Options(quote_orphans=True),
    Options(awaited=frozenset(("c1", "X")), pending=frozenset(("c2",))),
)


def _long(seed: int) -> list[Step]:
    chance = random.Random(seed)
    numbers = [seed * 7 + number for number in range(chance.randint(2, 5))]
    return [step for number in numbers for step in (whole(number) if chance.random() < 0.6 else numbered(number))]


def _both_ways(history: History, provider: str, options: Options) -> tuple[Repaired | None, Repaired]:
    profile = profile_named(provider)
    parts, closely = (Work(profile, list(history), {}, origins=range(len(history))) for _ in range(2))
    return repair_in_parts(parts, history, options), repair_closely(closely, history, options, Carry())


def _difference(history: History, provider: str, options: Options) -> str | None:
    """Say in what a repair of parts differs from one of the whole; None also where it leaves the whole to the other."""
    parts, closely = _both_ways(history, provider, options)
    if parts is None:
        return None
    if parts.messages != closely.messages or (parts.messages is history) != (closely.messages is history):
        return f"{parts.messages}\nis not\n{closely.messages}"
    if parts.changes != closely.changes:
        return f"{parts.changes}\nis not\n{closely.changes}"
    mine, theirs = parts.carry, closely.carry
    told = {call_id for call_id in mine.call_ids if not call_id.startswith("\0")}
    same = (told, mine.calls, mine.has_open) == (theirs.call_ids, theirs.calls, theirs.has_open)
    return None if same else f"{mine} is not {theirs}"


@pytest.mark.parametrize("provider", WRITERS)
def test_parts_are_repaired_as_they_are_within_the_whole(provider: str) -> None:
    """Messages, report, and what a continuation is told: the same as if every message had been looked at closely."""
    for seed in range(_EACH):
        history = WRITERS[provider](_long(seed), joined=seed % 2 == 0)
        difference = _difference(history, provider, _OPTIONS[seed % 3])
        assert difference is None, f"history {seed}: {difference}"


def test_contents_are_repaired_in_parts_as_they_are_within_the_whole() -> None:
    """For objects of Gemini's SDK, put right in place, the same holds."""
    types = pytest.importorskip("google.genai.types", reason="an extra")
    in_parts = 0
    for seed in range(_EACH):
        steps = [step for step in _long(seed) if not (isinstance(step, A) and any(c.args != "{}" for c in step.calls))]
        contents = [types.Content.model_validate(content) for content in gemini(steps)]
        form = ContentsFormat(contents)
        parts, closely = repaired_in_parts(form, contents), closely_repaired(form, contents)
        if parts is not None:
            in_parts += 1
            assert parts.messages == closely.messages, f"history {seed}"
            assert {*parts.changes} == {*closely.changes}, f"history {seed}"
    assert in_parts > _EACH // 4


@pytest.mark.parametrize("provider", WRITERS)
def test_what_is_odd_is_not_taken_for_plain(provider: str) -> None:
    """Whatever stands in a message among whole turns: it is as if every message had been looked at closely."""
    compared = 0
    for seed in range(_EACH):
        chance = random.Random(seed)
        history = WRITERS[provider]([*whole(seed), *whole(seed + 1), *whole(seed + 2)])
        for _ in range(chance.randint(1, 3)):
            _spoil(history, chance)
        try:
            difference = _difference(history, provider, Options())
        except InvalidHistoryError:
            continue
        compared += 1
        assert difference is None, f"history {seed}: {difference}"
    assert compared > _EACH // 4


def _spoil(history: History, chance: random.Random) -> None:
    """Put a message of anything in, or anything in a message or one of its blocks."""
    place = chance.randrange(len(history))
    message: dict[str, Any] = history[place]
    blocks = message.get("content") or message.get("parts") or message.get("tool_calls")
    if chance.random() < 0.2:
        history.insert(place, {**anything(chance), "role": chance.choice(("user", "assistant", "model", "tool"))})
    elif isinstance(blocks, list) and blocks and isinstance(blocks[0], dict) and chance.random() < 0.7:
        blocks[0].update(anything(chance))
    else:
        message.update({key: value for key, value in anything(chance).items() if key != "role"})


@pytest.mark.parametrize("provider", WRITERS)
def test_ordinary_histories_are_seen_to_be_in_order(provider: str) -> None:
    """Else the quick look would be a waste: only both ends of a valid history are looked at closely."""
    turn = [U("do it"), asks("c%s00000", text="I will."), R("c%s00000"), asks("d%s00000", "e%s00000"), R("d%s00000")]
    history: History = []
    for number in range(100, 200):
        steps = [*turn, R("e%s00000"), A(text="done")]
        history += WRITERS[provider]([_named(step, number) for step in steps])
    if provider == "kimi":
        history = [{**message, "reasoning_content": "…"} for message in history]
    seen = glance(history, sight_of(profile_named(provider)))
    assert sum(map(len, seen.parts)) <= 2 * 7 + 3, seen.parts


def _named(step: Step, number: int) -> Step:
    match step:
        case R():
            return R(step.id % number)
        case A():
            return asks(*(call.id % number for call in step.calls), text=step.text)
        case U():
            return step


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "bedrock"])
def test_only_what_is_broken_is_looked_at_closely(provider: str) -> None:
    """A call without a result among whole turns costs the look at its own turn."""
    steps: list[Step] = []
    for number in range(100):
        steps += [U("do it"), asks(f"c{number}"), *([] if number == 50 else [R(f"c{number}")]), A(text="done")]
    seen = glance(WRITERS[provider](steps), sight_of(profile_named(provider)))
    assert len(seen.parts) == 3
    assert sum(map(len, seen.parts)) <= 14
