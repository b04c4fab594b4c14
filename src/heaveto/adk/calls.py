"""Which results belong to which calls in a session's events, and why a call has none. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.adk.events.event import Event
from google.genai.types import FunctionCall, FunctionResponse, Part

_CONFIRMATION = "adk_request_confirmation"
_CREDENTIAL = "adk_request_credential"
FRAMEWORK_CALLS = frozenset({_CONFIRMATION, _CREDENTIAL, "adk_framework"})
"""Calls that google-adk makes for itself, and shows to no model."""


@dataclass(eq=False)
class BoundCall:
    """A call, where it stands in the session, and the last result that belongs to it."""

    event_index: int
    part_index: int
    event: Event
    call: FunctionCall
    results: list[tuple[int, int, FunctionResponse]] = field(default_factory=list[tuple[int, int, FunctionResponse]])
    """Event index, part index and result; the last one counts, earlier ones were progress."""

    @property
    def result(self) -> FunctionResponse | None:
        """What the call returned; None while that is not recorded."""
        return self.results[-1][2] if self.results else None


def parts_of(event: Event) -> Sequence[Part]:
    """Return the parts of an event's content; empty if it has none."""
    return (event.content.parts if event.content else None) or ()


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


def bind(events: Sequence[Event]) -> list[list[BoundCall]]:
    """Return the calls of each live event that has some, with the results that belong to them.

    An ordered walk: a result binds to the newest event that has a call with its id, there to the first such call that
    is open. Where one side has no id, to the first open call of its name in the newest calls of its branch; results
    with an id go first (S7, S9, S10). A result that belongs to no call binds to none.
    """
    groups: list[list[BoundCall]] = []
    by_id: dict[str, list[BoundCall]] = {}
    newest: dict[str | None, list[BoundCall]] = {}
    for index in live_indexes(events):
        event = events[index]
        _bind_results(index, event, by_id, newest.get(event.branch, []))
        calls = [
            BoundCall(index, place, event, part.function_call)
            for place, part in enumerate(parts_of(event))
            if part.function_call and part.function_call.name not in FRAMEWORK_CALLS
        ]
        if not calls:
            continue
        groups.append(calls)
        newest[event.branch] = calls
        by_id.update({call_id: [c for c in calls if c.call.id == call_id] for call_id in _ids(calls)})
    return groups


def _bind_results(index: int, event: Event, by_id: dict[str, list[BoundCall]], newest: list[BoundCall]) -> None:
    unmatched: list[tuple[int, FunctionResponse]] = []
    for place, part in enumerate(parts_of(event)):
        result = part.function_response
        if result is None:
            continue
        same_id = by_id.get(result.id or "")
        if same_id is None:
            unmatched.append((place, result))
            continue
        owner = next((c for c in same_id if not c.results), same_id[-1])
        owner.results.append((index, place, result))
    for place, result in unmatched:
        for bound in newest:
            if _may_be_of(result, bound):
                bound.results.append((index, place, result))
                break


def _may_be_of(result: FunctionResponse, bound: BoundCall) -> bool:
    has_both_ids = bool(result.id and bound.call.id)
    return not has_both_ids and not bound.results and result.name == bound.call.name


def _ids(calls: Sequence[BoundCall]) -> Iterator[str]:
    return (bound.call.id for bound in calls if bound.call.id)


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
        found.update(covered for call in event.get_function_calls() if (covered := _covered_by(call)))
    return frozenset(found)


def _covered_by(request: FunctionCall) -> str | None:
    """Return the id of the call that a request for a confirmation or a credential was made for."""
    arguments = request.args or {}
    if request.name == _CONFIRMATION:
        original: Any = arguments.get("originalFunctionCall")
        return original.get("id") if isinstance(original, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if request.name == _CREDENTIAL:
        return arguments.get("functionCallId") or arguments.get("function_call_id")
    return None
