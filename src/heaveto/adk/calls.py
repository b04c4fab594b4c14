"""The calls and results of a session's events, bound to each other, and which calls still wait. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from google.adk.events.event import Event
from google.genai.types import FunctionCall, Part

from heaveto.core.repair import GAP, Block, Call, Result, Turn
from heaveto.core.repair.binding import Binding, bind
from heaveto.core.repair.steps import LAST, Step

_CONFIRMATION = "adk_request_confirmation"
_CREDENTIAL = "adk_request_credential"
_FRAMEWORK = frozenset({_CONFIRMATION, _CREDENTIAL, "adk_framework"})
"""Calls that google-adk makes for itself, and shows to no model."""


def parts_of(event: Event) -> Sequence[Part]:
    """Return the parts of an event's content; empty if it has none."""
    return (event.content.parts if event.content else None) or ()


def bound(events: Sequence[Event]) -> Binding:
    """Return the calls of each event that has some, with the results that belong to them; and results of no call.

    A place is the index of the event, and that of the part in it. Wherever a result stands it may belong to its call:
    google-adk moves it up.
    """
    return bind(_steps(events), adjacent=False)


def _steps(events: Sequence[Event]) -> Iterator[Step]:
    for index in live_indexes(events):
        parts = parts_of(events[index])
        results = tuple(
            Result((index, place), result.id or "", result.name or "", result.response)
            for place, part in enumerate(parts)
            if (result := part.function_response) and result.name not in _FRAMEWORK
        )
        calls = tuple(
            Call((index, place), call.id or "", call.name or "")
            for place, part in enumerate(parts)
            if (call := part.function_call) and call.name not in _FRAMEWORK
        )
        if results:
            yield Block(results)
        if calls:
            yield Turn(calls, (index, LAST))
        if parts and not results and not calls:
            yield GAP


def live_indexes(events: Sequence[Event]) -> list[int]:
    """Return the indexes of the events that no rewind has taken back."""
    live: list[int] = []
    index = len(events) - 1
    while index >= 0:
        target = events[index].actions.rewind_before_invocation_id
        if target is None:
            live.append(index)
        else:
            first = next((i for i, event in enumerate(events) if event.invocation_id == target), index)
            index = min(first, index)
        index -= 1
    return live[::-1]


def pending_ids(events: Sequence[Event]) -> frozenset[str]:
    """Return the ids of calls that may still get a result, if they have none.

    Long-running ones; those that wait for a confirmation or a credential; and those whose work went on in a scope of
    its own, as with an agent that was given a task and asks the user something.
    """
    found: set[str] = set()
    for index in live_indexes(events):
        event = events[index]
        found.update(event.long_running_tool_ids or ())
        if event.isolation_scope:
            found.add(event.isolation_scope)
        found.update(_covered_by(call) for call in event.get_function_calls())
    return frozenset(found - {""})


def _covered_by(request: FunctionCall) -> str:
    """Return the id of the call that a request for a confirmation or a credential was made for."""
    arguments = request.args or {}
    covered: object = None
    if request.name == _CONFIRMATION:
        original: object = arguments.get("originalFunctionCall")
        covered = original.get("id") if isinstance(original, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    elif request.name == _CREDENTIAL:
        covered = arguments.get("functionCallId") or arguments.get("function_call_id")
    return covered if isinstance(covered, str) else ""
