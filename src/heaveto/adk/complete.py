"""A session's events as a model should hear of them: every call with its result, in call order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.adk.events.event import Event
from google.genai.types import Content, FunctionCall, FunctionResponse, Part

from heaveto.adk.calls import BoundCall, bind, parts_of, pending_ids


class Standpoint(NamedTuple):
    """Who asks the model: calls that others have in the works in the same invocation are not lost."""

    invocation_id: str
    agent: str
    branch: str | None
    isolation_scope: str | None

    def can_tell(self, event: Event) -> bool:
        """Whether an open call of this event is lost, and not just being executed around the one who asks."""
        if event.invocation_id != self.invocation_id:
            return True
        return (event.author, event.branch, event.isolation_scope) == (self.agent, self.branch, self.isolation_scope)


@dataclass(frozen=True)
class Texts:
    """What a call without a result is answered with, by the reason that it has none."""

    interrupted: Mapping[str, Any]
    pending: Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """A call that is answered with a text: where it stands in the session, and whether it may still get a result."""

    event_index: int
    call: FunctionCall
    is_pending: bool
    response: Mapping[str, Any]


class Completed(NamedTuple):
    """The events, the same objects where nothing had to change; and what was done."""

    events: list[Event]
    told: tuple[Told, ...]
    renamed: tuple[BoundCall, ...]


def complete(events: Sequence[Event], standpoint: Standpoint, texts: Texts) -> Completed:
    """Return the events with a result for every call that lacks one; the events passed in stay as they are.

    google-adk itself moves late results up, drops results without a call and keeps the newest of several. It deletes a
    call without a result (so that the model may make it again), and goes wrong where an id is used twice, where the
    results of parallel calls came one by one, and where one event answers several turns. These are put in order
    here, where ids are not stripped yet (S1, S2, S7, S8, S10, S13, S18).
    """
    groups = bind(events)
    pending = pending_ids(events)
    edit = _Edit(events, shared=_shared_events(groups))
    taken: set[str] = set()
    for group in groups:
        ids = [_unused(bound, taken) for bound in group]
        told = _lost(group, standpoint, pending, texts)
        if told or ids != [bound.call.id for bound in group] or edit.is_scattered(group):
            edit.rewrite(group, [new or _made_up(b) for b, new in zip(group, ids, strict=True)], told)
    return Completed(edit.build(), tuple(edit.told), tuple(edit.renamed))


def _lost(group: list[BoundCall], at: Standpoint, pending: frozenset[str], texts: Texts) -> dict[int, Told]:
    """Return what is told of each call that has no result, by part."""
    found: dict[int, Told] = {}
    for bound in group:
        if bound.results or not at.can_tell(bound.event):
            continue
        waits = (bound.call.id or "") in pending
        response = texts.pending if waits else texts.interrupted
        found[bound.part_index] = Told(bound.event_index, bound.call, waits, response)
    return found


def _unused(bound: BoundCall, taken: set[str]) -> str | None:
    """Return the call's id, with a number if an earlier call has it; take it."""
    base = bound.call.id
    if not base:
        return base
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base[:36]}_{number}"
    taken.add(name)
    return name


def _made_up(bound: BoundCall) -> str:
    """Return an id for a call without one: the same each time, and stripped where google-adk strips its own."""
    return f"adk-{bound.event.id[:24]}-{bound.part_index}"


def _shared_events(groups: list[list[BoundCall]]) -> dict[int, int]:
    """Return, for each event with results, the newest call event that they belong to, where there are several."""
    owners: dict[int, set[int]] = {}
    for group in groups:
        for bound in group:
            for index, _, _ in bound.results:
                owners.setdefault(index, set()).add(bound.event_index)
    return {index: max(calls) for index, calls in owners.items() if len(calls) > 1}


@dataclass
class _Edit:
    """Changes to a list of events, made together at the end."""

    events: Sequence[Event]
    shared: dict[int, int]
    told: list[Told] = field(default_factory=list[Told])
    renamed: list[BoundCall] = field(default_factory=list[BoundCall])
    _calls: dict[int, Event] = field(default_factory=dict[int, Event])
    _gone: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    _behind: dict[int, list[Event]] = field(default_factory=dict[int, list[Event]])

    def is_scattered(self, group: list[BoundCall]) -> bool:
        """Whether the results stand in several events, in an event with others' results, or not in call order."""
        where = [bound.results[-1][:2] for bound in group if bound.results]
        indexes = {index for index, _ in where}
        return len(indexes) > 1 or where != sorted(where) or any(index in self.shared for index in indexes)

    def rewrite(self, group: list[BoundCall], ids: list[str], told: dict[int, Told]) -> None:
        """Give the calls these ids, and gather their results in one event, in call order."""
        event, index = group[0].event, group[0].event_index
        parts = list(parts_of(event))
        answers: list[Part] = []
        for bound, new_id in zip(group, ids, strict=True):
            if bound.call.id != new_id:
                self.renamed.append(bound)
                parts[bound.part_index] = _with_call_id(parts[bound.part_index], new_id)
            self._gone.update((i, place) for i, place, _ in bound.results)
            if bound.result is not None:
                original = parts_of(self.events[bound.results[-1][0]])[bound.results[-1][1]]
                answers.append(_with_result_id(original, bound.result, new_id))
            elif (lost := told.get(bound.part_index)) is not None:
                self.told.append(lost)
                response = FunctionResponse(id=new_id, name=bound.call.name, response=dict(lost.response))
                answers.append(Part(function_response=response))
        if any(bound.call.id != new_id for bound, new_id in zip(group, ids, strict=True)):
            self._calls[index] = _with_parts(event, parts)
        if answers:
            self._place(group, answers)

    def _place(self, group: list[BoundCall], answers: list[Part]) -> None:
        """Put the results where the last of them stood; behind the call if none did, or if newer calls' stand there.

        The last event of a session must stay the last if it has results: google-adk builds the request around it. The
        time stays that of the last result, as compaction goes by time.
        """
        event, index = group[0].event, group[0].event_index
        last = max((bound.results[-1][0] for bound in group if bound.results), default=None)
        if last is None:
            base = event.model_copy(update={"long_running_tool_ids": None})
            self._behind.setdefault(index, []).append(_with_parts(base, answers, role="user"))
            return
        at = last if self.shared.get(last, index) == index else index
        self._behind.setdefault(at, []).append(_with_parts(self.events[last], answers, role="user"))

    def build(self) -> list[Event]:
        """Return the new list; events that nothing was done to are the same objects."""
        built: list[Event] = []
        for index, event in enumerate(self.events):
            kept = self._without_gone(index, self._calls.get(index, event))
            if kept is not None:
                built.append(kept)
            built.extend(self._behind.get(index, ()))
        return built

    def _without_gone(self, index: int, event: Event) -> Event | None:
        parts = parts_of(event)
        kept = [part for place, part in enumerate(parts) if (index, place) not in self._gone]
        if len(kept) == len(parts):
            return event
        return _with_parts(event, kept) if kept else None


def _with_parts(event: Event, parts: list[Part], role: str | None = None) -> Event:
    content = event.content or Content()
    changed = content.model_copy(update={"parts": parts, "role": role or content.role})
    return event.model_copy(update={"content": changed})


def _with_call_id(part: Part, new_id: str) -> Part:
    assert part.function_call is not None
    return part.model_copy(update={"function_call": part.function_call.model_copy(update={"id": new_id})})


def _with_result_id(part: Part, result: FunctionResponse, new_id: str) -> Part:
    if result.id == new_id:
        return part
    return part.model_copy(update={"function_response": result.model_copy(update={"id": new_id})})
