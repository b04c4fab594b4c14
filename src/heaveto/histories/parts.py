"""Parts of a history that were repaired by themselves, and the rest that was left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heaveto.core.repair import Change
from heaveto.core.repair.decision import Carry
from heaveto.core.repair.report import change_at
from heaveto.histories.glance import Glance


@dataclass(slots=True)
class Repaired:
    """A repaired list; `reaches_back` tells that it cannot stand behind what `before` described.

    `origins` has, where something was changed, the index in the input at or behind which each message stands.
    """

    messages: list[Any]
    changes: list[Change]
    carry: Carry
    reaches_back: bool = False
    origins: Sequence[int] = ()


def carry_of(seen: Glance) -> Carry:
    """Return what the quiet stretches tell a continuation."""
    ids = set(seen.ids)
    return Carry(ids, ids, calls=len(seen.ids))


def is_apart(done: Repaired, seen: Glance) -> bool:
    """Whether what was repaired has no id of the rest, and none that counts all calls of a history."""
    carry = done.carry
    is_counted = any(change.action == "renamed" and not change.call_id for change in done.changes)
    ids = (carry.call_ids, carry.unmatched_ids, carry.used_ids)
    return not is_counted and all(some.isdisjoint(seen.ids) for some in ids)


def put_back(history: list[Any], seen: Glance, done: Repaired) -> Repaired:
    """Put the repaired parts of a history in the place of what they were; the same list if nothing was changed."""
    done.carry.add(carry_of(seen))
    if not done.changes:
        return Repaired(history, [], done.carry)
    places = [index for part in seen.parts for index in part]
    messages: list[Any] = []
    at = done_to = 0
    for part in seen.parts:
        messages += history[at : part.start]
        at = part.stop
        while done_to < len(done.origins) and places[done.origins[done_to]] < at:
            messages.append(done.messages[done_to])
            done_to += 1
    changes = [change_at(places[change.index], change) for change in done.changes]
    return Repaired([*messages, *history[at:]], changes, done.carry)
