"""Whether a provider accepts a history, in every way that is known; and the laws that a repair keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from tests.repair.shapes import WRITERS, A, History, R, Step, U, numbered

from heaveto import RepairReport, repair, validate
from heaveto.core.wire_names import NO_SIGNATURE

_ALL_WAYS: dict[str, list[dict[str, Any]]] = {
    "gemini": [{"vertex": True}],
    "gemini-3": [{"signatures": True, "vertex": True}],
    "gemini-2.5": [{"vertex": True}],
    "mistral": [{"version": version} for version in (13, 15)],
    "mistral-11": [{"version": version} for version in (7, 11)],
    "bedrock": [{"family": family} for family in ("anthropic", "nova", "qwen", "other")],
}
_FORMATS = {"gemini-2.5": "gemini", "gemini-3": "gemini", "mistral-11": "mistral"}
LENIENT = ("minimax-anthropic",)
"""Formats of which little is known: what nobody has reported their validators let pass, and a repair does not."""


def refusal(history: History, provider: str) -> str | None:
    """Return why a provider refuses a history, rules that nobody has confirmed included, or None."""
    for way in _ALL_WAYS.get(provider, [{}]):
        violation = validate(history, _FORMATS.get(provider, provider), strict_unconfirmed=True, **way)
        if violation is not None:
            return f"{violation} {way or ''}"
    return None


def broken_law(steps: Sequence[Step], provider: str, *, joined: bool = True) -> str | None:
    """Repair a history and return which law was broken, or None."""
    history = WRITERS[provider](steps, joined=joined)
    before = msgspec.json.encode(history)
    repaired, report = repair(history, provider)
    if msgspec.json.encode(history) != before:
        return "the input was changed"
    if repaired and (why := refusal(repaired, provider)) is not None:
        return f"refused: {why}"
    if repair(repaired, provider)[0] is not repaired:
        return "not idempotent"
    if (repaired is history) != report.is_clean:
        return "the report does not tell whether something was changed"
    has_ids = all(_ids(steps))
    is_judged = has_ids and provider not in LENIENT and not _is_beyond_mistral(history, provider, report)
    if repaired is not history and is_judged and refusal(history, provider) is None:
        return f"changed, though it was valid: {report}"
    if _thoughts(repaired) - _thoughts(history):
        return "signed thinking was changed"
    return _lost(steps, repaired, report)


def _is_beyond_mistral(history: History, provider: str, report: RepairReport) -> bool:
    """Whether a repair sees to what Mistral's validator does not look at, and its API may refuse.

    That is calls and results of a first message (M8), and arguments that are no JSON.
    """
    first = history[0] if history else {}
    is_uncounted = bool(first.get("tool_calls")) or first.get("role") == "tool"
    return provider.startswith("mistral") and (is_uncounted or any(change.rule == "A8" for change in report.changes))


def _thoughts(history: History) -> set[bytes]:
    """Return the blocks of thinking and the signatures in a history, byte for byte."""
    blocks = [block for message in history for block in _blocks_of(message)]
    thoughts = [block for block in blocks if block.get("type") == "thinking" or "reasoningContent" in block]
    signatures = [block.get("thoughtSignature") for block in blocks]
    real = [signature for signature in signatures if signature not in (None, NO_SIGNATURE)]
    return {msgspec.json.encode(value) for value in [*thoughts, *real]}


def _blocks_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = message.get("content") if isinstance(message.get("content"), list) else message.get("parts")
    return blocks or []


def prefix_change(seed: int, provider: str) -> str | None:
    """Repair a history that was sent and is continued, and return how what was sent differs now, or None."""
    sent = [*numbered(seed), U("end")]
    new = [A(text="go on"), *(_elsewhere(step) for step in numbered(seed + 1))]
    before, _ = repair(WRITERS[provider](sent), provider)
    after, _ = repair(WRITERS[provider]([*sent, *new]), provider)
    return None if after[: len(before)] == before else f"{before} became {after}"


def _elsewhere(step: Step) -> Step:
    """Give a step ids that the first part does not have, so that nothing in it refers back."""
    match step:
        case U():
            return step
        case R():
            return replace(step, id=f"n{step.id}")
        case A():
            return replace(step, calls=tuple(replace(call, id=f"n{call.id}") for call in step.calls))


def _ids(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the ids in a history: without them validators only count, and a repair looks at names too."""
    for step in steps:
        match step:
            case R():
                yield step.id
            case A():
                yield from (call.id for call in step.calls)
            case U():
                pass


def _lost(steps: Sequence[Step], repaired: History, report: RepairReport) -> str | None:
    sent = msgspec.json.encode(repaired).decode()
    gone = sum(change.action == "dropped" for change in report.changes)
    for step in steps:
        match step:
            case U(text=text) if text not in sent:
                return f"lost what the user said: {text}"
            case A(text=text) if text not in sent:
                return f"lost an answer: {text}"
            case R(value=value) if value not in sent:
                gone -= 1
            case _:
                pass
    if gone < 0:
        return "lost a result and did not say so"
    calls = sum(len(step.calls) for step in steps if isinstance(step, A))
    if calls != _count_calls(repaired):
        return "lost a call"
    return None


def _count_calls(history: History) -> int:
    count = 0
    for message in history:
        count += len(message.get("tool_calls") or ()) + (message.get("type") == "function_call")
        for block in _blocks_of(message):
            count += block.get("type") == "tool_use" or "toolUse" in block or "functionCall" in block
    return count
