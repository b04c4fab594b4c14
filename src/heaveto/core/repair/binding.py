"""Which result belongs to which call: an ordered walk, because ids repeat.

A call arms its id, a result consumes it. Invariants of what `bind` returns: every result of the input is in exactly one
of these lists: kept by one slot, superseded in one slot, loose. Every call has exactly one slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from heaveto.core.repair.steps import GAP, Call, Place, Result, Step, Turn

How: TypeAlias = Literal["id", "name", "position"]


class Slot(msgspec.Struct, eq=False, gc=False):
    """A call, and the result that is kept for it.

    Attributes:
        at_home: the result stands where the format takes it.
        how: what bound it; anything but the id means that the result had none, or another one.
        superseded: further results for the call, which go.
        turn: the number of its turn; no reference, so that slots are in no cycle.
    """

    call: Call
    turn: int
    result: Result | None = None
    at_home: bool = False
    how: How = "id"
    superseded: tuple[Result, ...] = ()

    def take(self, result: Result, *, at_home: bool, how: How = "id") -> None:
        """Keep a result. Of several the last one counts; one that says the same again is no news (F18)."""
        if self.result is None:
            self.result, self.at_home, self.how = result, at_home, how
        elif self.result.value == result.value:
            self.superseded = (*self.superseded, result)
        else:
            self.superseded = (*self.superseded, self.result)
            self.result, self.at_home = result, at_home


class BoundTurn(msgspec.Struct, eq=False, gc=False):
    """A turn's slots in the order of its calls; `end` is the last place of its home, where more results may follow."""

    number: int
    end: Place
    slots: list[Slot]

    @property
    def open_slots(self) -> list[Slot]:
        """The calls without a result, in order."""
        return [slot for slot in self.slots if slot.result is None]


@dataclass(slots=True, eq=False)
class Loose:
    """A result that no id binds. `home` is the turn directly behind which it stands, `turns` how many come before."""

    result: Result
    home: BoundTurn | None
    turns: int
    is_bound: bool = False


@dataclass(slots=True)
class Binding:
    """All calls with their results, and what is left. `tail` is the turn behind which nothing but results stands."""

    turns: list[BoundTurn]
    loose: list[Loose]
    unmatched_ids: set[str]
    tail: BoundTurn | None


def bind(steps: Iterable[Step], *, adjacent: bool) -> Binding:
    """Bind results to calls: by id in order, then what stands at home by name or position, then from afar."""
    binding = _walk(steps, adjacent=adjacent)
    if binding.loose:
        call_ids = {slot.call.id for turn in binding.turns for slot in turn.slots if slot.call.id}
        binding.unmatched_ids = {loose.result.id for loose in binding.loose if loose.result.id}
        _pin_at_home(binding, call_ids)
        _take_from_afar(binding)
        binding.loose = [loose for loose in binding.loose if not loose.is_bound]
    return binding


def _walk(steps: Iterable[Step], *, adjacent: bool) -> Binding:
    """A result goes to the oldest open call with its id in the newest turn that has the id, else it is one more."""
    turns: list[BoundTurn] = []
    loose: list[Loose] = []
    newest: dict[str, list[Slot]] = {}
    home: BoundTurn | None = None
    for step in steps:
        if step == GAP:
            home = None
        elif isinstance(step, Turn):
            home = _arm(step, len(turns), newest)
            turns.append(home)
        else:
            for result in step.results:
                slots = newest.get(result.id) if result.id else None
                if slots is None:
                    loose.append(Loose(result, home, len(turns)))
                else:
                    slot = (
                        slots[0] if len(slots) == 1 else next((one for one in slots if one.result is None), slots[-1])
                    )
                    is_home = not adjacent or (home is not None and slot.turn == home.number)
                    if slot.result is None:
                        slot.result, slot.at_home = result, is_home
                    else:
                        slot.take(result, at_home=is_home)
                if home is not None:
                    home.end = result.place
    return Binding(turns, loose, set(), home)


def _arm(step: Turn, number: int, newest: dict[str, list[Slot]]) -> BoundTurn:
    slots: list[Slot] = []
    for call in step.calls:
        slot = Slot(call, number)
        slots.append(slot)
        if call.id:
            same = newest.get(call.id)
            if same is not None and same[0].turn == number:
                same.append(slot)
            else:
                newest[call.id] = [slot]
    return BoundTurn(number, step.end, slots)


def _pin_at_home(binding: Binding, call_ids: set[str]) -> None:
    """Bind results directly behind their turn that have no id, or one that no call has (S9, S10, S15)."""
    at_home: dict[int, list[Loose]] = {}
    for loose in binding.loose:
        if loose.home is not None and loose.result.id not in call_ids:
            at_home.setdefault(loose.home.number, []).append(loose)
    for number, found in at_home.items():
        turn = binding.turns[number]
        _pin_nameable(turn, [loose for loose in found if not loose.result.id])
        for loose in found:
            if loose.result.id:
                _pin(loose, _first_named([slot for slot in turn.open_slots if not slot.call.id], loose.result.name))
        _pin_strange(turn, [loose for loose in found if loose.result.id and not loose.is_bound])


def _pin_nameable(turn: BoundTurn, found: list[Loose]) -> None:
    """Results without an id, by name and then by position; where calls are left over, those with an id are (S9)."""
    for name in sorted({loose.result.name for loose in found}, reverse=True):  # what has no name comes last
        group = [loose for loose in found if loose.result.name == name]
        slots = [slot for slot in turn.open_slots if not name or slot.call.name == name]
        if len(group) < len(slots):
            slots.sort(key=lambda slot: bool(slot.call.id))
        for loose, slot in zip(group, slots, strict=False):
            _pin(loose, slot)


def _first_named(slots: Sequence[Slot], name: str) -> Slot | None:
    return next((slot for slot in slots if not name or slot.call.name == name), None)


def _pin(loose: Loose, slot: Slot | None) -> None:
    if slot is not None:
        slot.take(loose.result, at_home=True, how="name" if loose.result.name else "position")
        loose.is_bound = True


def _pin_strange(turn: BoundTurn, strange: list[Loose]) -> None:
    """A wrong id is put right only where nothing is left to choose: as many results as open calls of that name."""
    for name in dict.fromkeys(loose.result.name for loose in strange):
        found = [loose for loose in strange if loose.result.name == name]
        slots = [slot for slot in turn.open_slots if not name or slot.call.name == name]
        if len(found) == len(slots):
            for loose, slot in zip(found, slots, strict=True):
                _pin(loose, slot)


def _take_from_afar(binding: Binding) -> None:
    """Bind results that came before their call (S11), and results without an id that came late (S10)."""
    early = _slots_by(binding, lambda slot: slot.call.id if slot.call.id in binding.unmatched_ids else "")
    late = _slots_by(binding, lambda slot: "" if slot.result is not None else slot.call.name)
    for loose in binding.loose:
        if loose.is_bound:
            continue
        if loose.result.id:
            slot = next((slot for slot in early.get(loose.result.id, ()) if slot.turn >= loose.turns), None)
        else:
            before = reversed(late.get(loose.result.name, ()))
            slot = _oldest_of_newest(slot for slot in before if slot.turn < loose.turns and slot.result is None)
        if slot is not None and slot.result is None:
            slot.take(loose.result, at_home=False, how="id" if loose.result.id else "name")
            loose.is_bound = True


def _slots_by(binding: Binding, key: Callable[[Slot], str]) -> dict[str, list[Slot]]:
    found: dict[str, list[Slot]] = {}
    for turn in binding.turns:
        for slot in turn.slots:
            if name := key(slot):
                found.setdefault(name, []).append(slot)
    return found


def _oldest_of_newest(newest_first: Iterable[Slot]) -> Slot | None:
    """Of slots from the newest to the oldest, return the oldest of the newest turn."""
    chosen: Slot | None = None
    for slot in newest_first:
        if chosen is not None and slot.turn != chosen.turn:
            break
        chosen = slot
    return chosen
