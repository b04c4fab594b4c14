"""What becomes of the calls and results of a history. Pure: the same steps give the same plan."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from heaveto.core import notes
from heaveto.core.repair.binding import Binding, BoundTurn, Loose, Slot, bind
from heaveto.core.repair.report import Action, Change
from heaveto.core.repair.rules import Fault, Options, Policy, Why
from heaveto.core.repair.steps import Insert, Made, Moved, Place, Plan, Quoted, Result, Step
from heaveto.core.wire_names import unique

_QUOTED_LENGTH = 2_000


@dataclass(slots=True)
class Carry:
    """What a continuation must know of the history before it.

    Attributes:
        used_ids: what stands on the wire.
        call_ids: ids of calls, as the input has them: a result for one of them reaches back.
        unmatched_ids: ids of results that no call had: a call with one of them reaches back.
        calls: how many there were.
        has_open: some had no result: one without an id might be theirs.
    """

    used_ids: set[str] = field(default_factory=set[str])
    call_ids: set[str] = field(default_factory=set[str])
    unmatched_ids: set[str] = field(default_factory=set[str])
    calls: int = 0
    has_open: bool = False

    def add(self, more: Carry) -> None:
        """Take in what came since."""
        self.used_ids |= more.used_ids
        self.call_ids |= more.call_ids
        self.unmatched_ids |= more.unmatched_ids
        self.calls += more.calls
        self.has_open = self.has_open or more.has_open


_NOTHING_BEFORE = Carry()


@dataclass(slots=True)
class Decision:
    """A plan, the changes it makes, and what a continuation must know of these steps."""

    plan: Plan
    changes: list[Change]
    carry: Carry


def decide(steps: Iterable[Step], policy: Policy, options: Options, before: Carry = _NOTHING_BEFORE) -> Decision:
    """Return what is to be done with these steps, which follow those that `before` knows of."""
    binding = bind(steps, adjacent=policy.adjacent)
    work = _Deciding(policy, options, before, binding)
    for turn in binding.turns:
        work.see_to(turn)
    for loose in binding.loose:
        work.see_to_loose(loose)
    work.plan.reaches_back = work.reaches_back()
    return Decision(work.plan, work.changes, work.carry)


class _Deciding:
    def __init__(self, policy: Policy, options: Options, before: Carry, binding: Binding) -> None:
        self._policy, self._options, self._before, self._binding = policy, options, before, binding
        self.plan, self.changes = Plan(), list[Change]()
        self.carry = Carry(unmatched_ids=binding.unmatched_ids)
        self._taken = _Taken(before.used_ids, self.carry.used_ids)

    def see_to(self, turn: BoundTurn) -> None:
        """Give each call of a turn its id and its one result."""
        if self._policy.unique_in == "turn":
            self._taken = _Taken((), set())
        open_slots = False
        inserted = False
        for slot in turn.slots:
            slot_id = self._name_call(slot)
            if slot.result is None:
                open_slots = True
            else:
                self._name_result(slot, slot.result, slot_id)
                inserted = inserted or not slot.at_home
            if slot.superseded:
                self._drop_superseded(slot)
        if open_slots or inserted:
            self._fill(turn)

    def _name_call(self, slot: Slot) -> str:
        call, policy = slot.call, self._policy
        self.carry.calls += 1
        if call.id:
            self.carry.call_ids.add(call.id)
        elif not policy.ids_required:
            return ""
        fitting = policy.ids.fit(call.id or f"call_{self._before.calls + self.carry.calls}")
        final = unique(fitting, self._taken, fit=policy.ids.fit, counts=self._taken.counts)
        self._taken.own.add(final)
        if final != call.id:
            self.plan.ids[call.place] = final
            fault, known = _why_renamed(call.id, is_taken=final != fitting)
            rule = policy.rules.get(fault, fault)
            self.changes.append(Change(rule, call.place[0], "renamed", call.id, call.name, f"{known}; now {final}"))
        return final

    def _name_result(self, slot: Slot, result: Result, final: str) -> None:
        call, policy = slot.call, self._policy
        if result.id != final and (policy.ids_required or (result.id and final)):
            self.plan.ids[result.place] = final
        if policy.results_named and not result.name:
            self.plan.names[result.place] = call.name
            self._report("unnamed", result, "edited", "the result had no name; it has its call's now", slot)
        if slot.how != "id" and result.place in self.plan.ids:
            known = "it had no id" if not result.id else f"its id {result.id} is of no call"
            self._report("mismatch", result, "renamed", f"{known}; bound by {slot.how}", slot)

    def _drop_superseded(self, slot: Slot) -> None:
        for result in slot.superseded:
            self.plan.removed.add(result.place)
            same = slot.result is not None and slot.result.value == result.value
            known = "the same result stands there already" if same else "a later result of the call is kept"
            self._report("duplicate", result, "dropped", known, slot)

    def _fill(self, turn: BoundTurn) -> None:
        """Put results behind a turn: those that came elsewhere, then those that are missing."""
        moved: list[Insert] = []
        made: list[Insert] = []
        for slot in turn.slots:
            final = self.plan.ids.get(slot.call.place, slot.call.id)
            if slot.result is None:
                answer = self._answer(slot, final)
                if answer is not None:
                    made.append(answer)
            elif not slot.at_home:
                self.plan.removed.add(slot.result.place)
                moved.append(Moved(slot.result, slot.call, final))
                known = "it stood before its call" if slot.result.place < slot.call.place else "it stood further below"
                self._report("misplaced", slot.result, "moved", known, slot)
        if self._policy.in_call_order and (moved or made):
            moved, made = self._in_call_order(turn, [*moved, *made]), []
        if moved or made:
            self.plan.inserts.setdefault(turn.end, []).extend([*moved, *made])

    def _in_call_order(self, turn: BoundTurn, inserts: list[Insert]) -> list[Insert]:
        answers = {insert.call.place: insert for insert in inserts if not isinstance(insert, Quoted)}
        ordered: list[Insert] = []
        for slot in turn.slots:
            answer = answers.get(slot.call.place)
            if answer is None and slot.result is not None:
                self.plan.removed.add(slot.result.place)
                answer = Moved(slot.result, slot.call, self.plan.ids.get(slot.call.place, slot.call.id))
            if answer is not None:
                ordered.append(answer)
        return ordered

    def _answer(self, slot: Slot, final: str) -> Made | None:
        """Make up for a missing result: by what the caller knows, else by saying what is not known."""
        call, options = slot.call, self._options
        self.carry.has_open = True
        if call.id in options.awaited and self._is_tail(slot):
            self.plan.left_open.add(call.place)
            return None
        index, rule = self._binding.turns[slot.turn].end[0], self._policy.rules.get("unanswered", "unanswered")
        given = options.results(call.id) if call.id else None
        if given is not None:
            self.changes.append(Change(rule, index, "answered", call.id, call.name, "the caller knew its result"))
            return Made(call, final, given, is_error=False)
        is_pending = call.id in options.pending or call.id in options.awaited
        why: Why = "pending" if is_pending else "unknown" if call.raw_args is None else "malformed"
        raw = None if call.raw_args is None else _shortened(call.raw_args)
        self.changes.append(Change(rule, index, "answered", call.id, call.name, f"no result, {why}"))
        told = notes.unrecorded(why, options.texts.get(why), raw)
        return Made(call, final, told, is_error=not is_pending)

    def _is_tail(self, slot: Slot) -> bool:
        tail = self._binding.tail
        return tail is not None and tail.number == slot.turn

    def see_to_loose(self, loose: Loose) -> None:
        """Drop or quote a result without a call."""
        result, policy = loose.result, self._policy
        if policy.orphans_allowed and result.id:
            return
        self.plan.removed.add(result.place)
        quote = self._options.quote_orphans
        if quote:
            end: Place = loose.home.end if loose.home is not None else result.place
            self.plan.inserts.setdefault(end, []).append(Quoted(result))
        self._report("orphan", result, "quoted" if quote else "dropped", "no call in the history is its own", None)

    def _report(self, fault: Fault, result: Result, action: Action, known: str, slot: Slot | None) -> None:
        rule = self._policy.rules.get(fault, fault)
        call_id = slot.call.id if slot is not None else result.id
        name = slot.call.name if slot is not None else result.name
        self.changes.append(Change(rule, result.place[0], action, call_id, name, known))

    def reaches_back(self) -> bool:
        """Whether something here belongs to what came before these steps."""
        before, loose = self._before, self._binding.unmatched_ids
        return bool(
            (loose and not loose.isdisjoint(before.call_ids))
            or (before.unmatched_ids and not before.unmatched_ids.isdisjoint(self.carry.call_ids))
            or (before.has_open and any(not loose.result.id for loose in self._binding.loose))
        )


class _Taken:
    """The ids that are used up: before these steps, and in them."""

    def __init__(self, before: Container[str], own: set[str]) -> None:
        self.before, self.own = before, own
        self.counts: dict[str, int] = {}

    def __contains__(self, call_id: object, /) -> bool:
        return isinstance(call_id, str) and (call_id in self.own or call_id in self.before)


def _why_renamed(call_id: str, *, is_taken: bool) -> tuple[Fault, str]:
    if is_taken:
        return "reused", "an earlier call has the same id"
    return ("id", "the format does not take the id") if call_id else ("unnamed", "it had no id")


def _shortened(raw: str) -> str:
    return raw if len(raw) <= _QUOTED_LENGTH else f"{raw[:_QUOTED_LENGTH]}… ({len(raw)} characters)"
