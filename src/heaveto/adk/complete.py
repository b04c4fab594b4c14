"""A session's events as a model should hear of them: every call with its result, in call order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, cast

from google.adk.events.event import Event
from google.genai.types import Content, FunctionResponse, Part

from heaveto.adk.calls import bound, parts_of, pending_ids
from heaveto.core.notes import unrecorded
from heaveto.core.repair import Change, Result
from heaveto.core.repair.binding import BoundTurn, Slot
from heaveto.core.repair.report import Action
from heaveto.core.repair.rules import Why
from heaveto.core.repair.steps import Place
from heaveto.core.wire_names import unique

Texts: TypeAlias = Mapping[Why, str]


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


class Completed(NamedTuple):
    """The events, the same objects where nothing had to change, None if nowhere; and what is told, by event index."""

    events: list[Event] | None
    changes: tuple[Change, ...]


def complete(events: Sequence[Event], standpoint: Standpoint, texts: Texts) -> Completed:
    """Return the events with a result for every call that lacks one; the events passed in stay as they are.

    google-adk itself moves late results up, drops results without a call and keeps the newest of several. It deletes a
    call without a result (so that the model may make it again), and goes wrong where an id is used twice, where the
    results of parallel calls came one by one, and where one event answers several turns. These are put in order
    here, where ids are not stripped yet (S1, S2, S7, S8, S10, S11, S13, S15, S18).
    """
    binding = bound(events)
    turns = binding.turns
    edit = _Edit(events, _shared_events(turns))
    pending = pending_ids(events) if any(turn.open_slots for turn in turns) else frozenset[str]()
    taken: set[str] = set()
    for turn in turns:
        event = events[_index(turn)]
        ids = [_own_id(slot, taken) for slot in turn.slots]
        made = _stand_ins(turn, pending, texts) if standpoint.can_tell(event) else {}
        if made or edit.is_out_of_order(turn, ids):
            edit.rewrite(turn, [new or _made_up(slot, event) for slot, new in zip(turn.slots, ids, strict=True)], made)
    for loose in binding.loose:
        edit.drop(loose.result)
    return Completed(edit.build(), tuple(sorted(edit.changes, key=lambda change: change.index)))


def _index(turn: BoundTurn) -> int:
    return turn.slots[0].call.place[0]


def _own_id(slot: Slot, taken: set[str]) -> str:
    """Return the call's id, with a number if an earlier call has it; take it. Empty if it has none."""
    own = unique(slot.call.id, taken) if slot.call.id else ""
    taken.add(own)
    return own


def _made_up(slot: Slot, event: Event) -> str:
    """Return an id for a call without one: the same each time, and stripped where google-adk strips its own."""
    return f"adk-{event.id[:24]}-{slot.call.place[1]}"


def stand_in(why: Why, texts: Texts) -> dict[str, Any]:
    """Return what a call without a result is answered with."""
    return cast("dict[str, Any]", unrecorded(why, texts.get(why), None))


def _stand_ins(turn: BoundTurn, pending: frozenset[str], texts: Texts) -> dict[Place, Mapping[str, Any]]:
    """Return what is told of each call that has no result."""
    made: dict[Place, Mapping[str, Any]] = {}
    for slot in turn.open_slots:
        made[slot.call.place] = stand_in("pending" if slot.call.id in pending else "unknown", texts)
    return made


def _shared_events(turns: Sequence[BoundTurn]) -> dict[int, int]:
    """Return, for each event with results of several turns, the newest of the events with these turns."""
    owners: dict[int, set[int]] = {}
    for turn in turns:
        for place in _result_places(turn):
            owners.setdefault(place[0], set()).add(_index(turn))
    return {index: max(calls) for index, calls in owners.items() if len(calls) > 1}


def _result_places(turn: BoundTurn) -> list[Place]:
    """Return where the results of a turn stand, superseded ones too."""
    found = [result.place for slot in turn.slots for result in slot.superseded]
    return found + [slot.result.place for slot in turn.slots if slot.result is not None]


@dataclass
class _Edit:
    """Changes to a list of events, made together at the end."""

    events: Sequence[Event]
    shared: dict[int, int]
    changes: list[Change] = field(default_factory=list[Change])
    _calls: dict[int, Event] = field(default_factory=dict[int, Event])
    _gone: set[Place] = field(default_factory=set[Place])
    _behind: dict[int, list[Event]] = field(default_factory=dict[int, list[Event]])

    def is_out_of_order(self, turn: BoundTurn, ids: list[str]) -> bool:
        """Whether google-adk would get the results wrong.

        They stand in several events, in an event with other turns' results or with older ones of their own, before
        their call or not in call order; or ids or names, theirs or the calls', are missing or not the calls' own.
        """
        where = [slot.result.place for slot in turn.slots if slot.result is not None]
        indexes = {index for index, _ in where}
        is_misnamed = any(
            not own
            or slot.call.id != own
            or (slot.result and (slot.result.id, slot.result.name) != (own, slot.call.name))
            for slot, own in zip(turn.slots, ids, strict=True)
        )
        is_scattered = len(indexes) > 1 or where != sorted(where) or any(i < _index(turn) for i in indexes)
        has_older = any(result.place[0] in indexes for slot in turn.slots for result in slot.superseded)
        return is_misnamed or is_scattered or has_older or not indexes.isdisjoint(self.shared)

    def rewrite(self, turn: BoundTurn, ids: list[str], made: Mapping[Place, Mapping[str, Any]]) -> None:
        """Give the calls these ids, and gather their results in one event, in call order."""
        index = _index(turn)
        parts = list(parts_of(self.events[index]))
        answers: list[Part] = []
        for slot, own in zip(turn.slots, ids, strict=True):
            place = slot.call.place
            if slot.call.id != own:
                parts[place[1]] = _renamed_call(parts[place[1]], own)
            if slot.call.id and slot.call.id != own:
                self._report(slot, "S7", "renamed", f"an earlier call has the same id; now {own}")
            if slot.result is not None:
                at, part = slot.result.place
                answers.append(_renamed_result(parts_of(self.events[at])[part], own, slot.call.name))
            elif place in made:
                answers.append(_result_part(own, slot.call.name, made[place]))
                self._report(slot, "S1", "answered", str(made[place]["status"]))
        self._gone.update(_result_places(turn))
        if any(slot.call.id != own for slot, own in zip(turn.slots, ids, strict=True)):
            self._calls[index] = _with_parts(self.events[index], parts)
        if answers:
            self._place(turn, answers)

    def drop(self, result: Result) -> None:
        """Take out a result that belongs to no call, as newer versions of google-adk do (S3)."""
        self._gone.add(result.place)
        self.changes.append(Change("S3", result.place[0], "dropped", result.id, result.name, "no call is its own"))

    def _place(self, turn: BoundTurn, answers: list[Part]) -> None:
        """Put the results where the last of them stood; behind the call if none did, or if newer calls' stand there.

        The last event of a session must stay the last if it has results: google-adk builds the request around it. The
        time stays that of the last result, as compaction goes by time.
        """
        index = _index(turn)
        last = max((slot.result.place[0] for slot in turn.slots if slot.result is not None), default=None)
        if last is None:
            base, at = self.events[index].model_copy(update={"long_running_tool_ids": None}), index
        else:
            base = self.events[last]
            at = index if last < index or self.shared.get(last, index) != index else last
        self._behind.setdefault(at, []).append(_with_parts(base, answers, role="user"))

    def _report(self, slot: Slot, rule: str, action: Action, known: str) -> None:
        self.changes.append(Change(rule, slot.call.place[0], action, slot.call.id, slot.call.name, known))

    def build(self) -> list[Event] | None:
        """Return the new list, with the same objects where nothing was done; None if nothing was done at all."""
        if not (self._gone or self._calls or self._behind):
            return None
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


def _renamed_call(part: Part, own: str) -> Part:
    assert part.function_call is not None
    return part.model_copy(update={"function_call": part.function_call.model_copy(update={"id": own})})


def _renamed_result(part: Part, own: str, name: str) -> Part:
    assert part.function_response is not None
    renamed = part.function_response.model_copy(update={"id": own, "name": name})
    return part.model_copy(update={"function_response": renamed})


def _result_part(own: str, name: str, told: Mapping[str, Any]) -> Part:
    return Part(function_response=FunctionResponse(id=own, name=name, response=dict(told)))
