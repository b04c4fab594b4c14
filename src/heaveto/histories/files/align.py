"""Which element of a repaired list came from which of the list before: so that only what changed is written anew."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from heaveto.histories.files.json_text import Object

_BEFORE, _BEHIND = 20, 60
"""Among how many elements around a place the origin of a changed one is looked for: repairs move things a few steps."""


@dataclass(frozen=True, slots=True)
class Out:
    """An element of the repaired list. `origin`: its index in the list before; None: it is new."""

    value: Object
    origin: int | None
    is_changed: bool


@dataclass(slots=True)
class Weave:
    """The repaired list told as edits of the list before, so that what stands between its elements stays in place.

    `kept`: at its place, as it was or changed. An index that is not in it is taken out there. `after`: what is put
    behind an element that is kept; -1: before the first.
    """

    kept: dict[int, Out] = field(default_factory=dict[int, Out])
    after: dict[int, list[Out]] = field(default_factory=dict[int, "list[Out]"])


def aligned(before: Sequence[Object], after: Sequence[Object]) -> list[Out]:
    """Find the origin of each element: the same object, or the one with most in common that is left."""
    places = {id(value): index for index, value in enumerate(before)}
    untouched = {places[id(value)] for value in after if id(value) in places}
    left = [index for index in range(len(before)) if index not in untouched]
    found: list[Out] = []
    last = 0
    for value in after:
        if id(value) in places:
            last = places[id(value)]
            found.append(Out(value, last, is_changed=False))
            continue
        at = bisect_left(left, last)
        origin = _nearest(before, left[max(0, at - _BEFORE) : at + _BEHIND], value)
        if origin is not None:
            left.remove(origin)
            last = origin
        found.append(Out(value, origin, is_changed=True))
    return found


def _nearest(before: Sequence[Object], left: list[int], value: Object) -> int | None:
    best, most = None, 0
    for index in left:
        common = _in_common(before[index], value)
        if common > most:
            best, most = index, common
    return best


def _in_common(one: Object, other: Object) -> int:
    if one.get("role") != other.get("role") or one.get("type") != other.get("type"):
        return 0
    theirs = _blocks(other)
    return sum(block in theirs for block in _blocks(one))


def _blocks(message: Object) -> list[object]:
    found: list[object] = []
    for key in ("content", "parts", "tool_calls", "output", "arguments", "summary", "name"):
        value = message.get(key)
        found += cast("list[object]", value) if isinstance(value, list) else [value] if value else []
    return found


def woven(outs: Sequence[Out]) -> Weave:
    """Tell the repaired list as edits: as many elements as possible stay where they are."""
    fixed = _longest_run([out.origin for out in outs])
    weave = Weave()
    last = -1
    for place, out in enumerate(outs):
        if place in fixed and out.origin is not None:
            weave.kept[out.origin] = out
            last = out.origin
        else:
            weave.after.setdefault(last, []).append(out)
    return weave


def _longest_run(origins: Sequence[int | None]) -> set[int]:
    """Return the places of a longest rising run of the origins."""
    tails: list[int] = []
    places: list[int] = []
    previous: dict[int, int | None] = {}
    for place, origin in enumerate(origins):
        if origin is None:
            continue
        at = bisect_left(tails, origin)
        previous[place] = places[at - 1] if at else None
        tails[at : at + 1] = [origin]
        places[at : at + 1] = [place]
    run: set[int] = set()
    last = places[-1] if places else None
    while last is not None:
        run.add(last)
        last = previous[last]
    return run
