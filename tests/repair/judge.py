"""Whether a provider accepts a history, in every way that is known; and the laws that a repair keeps."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.repair.shapes import WRITERS, A, History, R, Step, U

from heaveto import RepairReport, repair, validate

_ALL_WAYS: dict[str, list[dict[str, Any]]] = {
    "gemini": [{"signatures": True, "vertex": True}],
    "gemini-2.5": [{"vertex": True}],
    "mistral": [{"version": version} for version in (7, 11, 13, 15)],
    "bedrock": [{"family": family} for family in ("anthropic", "nova", "qwen", "other")],
}
_FORMATS = {"gemini-2.5": "gemini"}
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
    before = copy.deepcopy(history)
    repaired, report = repair(history, provider)
    if history != before:
        return "the input was changed"
    if repaired and (why := refusal(repaired, provider)) is not None:
        return f"refused: {why}"
    if repair(repaired, provider)[0] is not repaired:
        return "not idempotent"
    if (repaired is history) != report.is_clean:
        return "the report does not tell whether something was changed"
    has_ids = provider.startswith("gemini") or all(_ids(steps))
    if repaired is not history and has_ids and provider not in LENIENT and refusal(history, provider) is None:
        return f"changed, though it was valid: {report}"
    return _lost(steps, repaired, report)


def _ids(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the ids in a history: calls without one are no valid ones, whatever is known of the provider."""
    for step in steps:
        match step:
            case R():
                yield step.id
            case A():
                yield from (call.id for call in step.calls)
            case U():
                pass


def _lost(steps: Sequence[Step], repaired: History, report: RepairReport) -> str | None:
    sent = json.dumps(repaired)
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
        blocks = message.get("content") if isinstance(message.get("content"), list) else message.get("parts")
        for block in blocks or ():
            count += block.get("type") == "tool_use" or "toolUse" in block or "functionCall" in block
    return count
