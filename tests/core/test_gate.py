"""Who goes through a gate: limits, turns, overtaking, calls inside calls, and that nothing waits for ever."""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.effort import examples

from heaveto.core.gate import Admission, CallRef, Key, SlotRequest
from heaveto.errors import InputError

APP: Key = ("app",)
A: Key = ("tool", "a")
B: Key = ("tool", "b")
LIMITS: dict[Key, int] = {APP: 3, A: 1, B: 2}
USERS = ("ann", "bob", "cy")
KEYS = st.sets(st.sampled_from(("app", "own", "a", "b")), min_size=1)


def request(call: str, user: str = "ann", *, inside: Sequence[str] = (), **slots: int) -> SlotRequest:
    """A request for slots of keys given by word: ``app=50, own=4, search=2``."""
    return ask(call, user, slots, tuple(map(ref, inside)))


def ask(call: str, user: str, slots: Mapping[str, int], inside: tuple[CallRef, ...] = ()) -> SlotRequest:
    named: dict[str, Key] = {"app": APP, "own": ("user", user)}
    keys = {named.get(word, ("tool", word)): limit for word, limit in slots.items()}
    return SlotRequest("run", call, user, keys, inside)


def names(granted: Iterable[SlotRequest]) -> list[str]:
    return [one.call_id for one in granted]


def ref(call: str) -> CallRef:
    return ("run", call)


# --- one rule each ------------------------------------------------------------------------------------------------


def test_a_call_gets_all_its_slots_or_none() -> None:
    """One that waits for its tool holds no slot of its user or its app."""
    gate = Admission()
    assert gate.enter(request("1", app=2, search=1))
    assert not gate.enter(request("2", "bob", app=2, own=1, search=1))
    assert gate.enter(request("3", "bob", app=2, own=1, mail=1))


def test_one_that_waits_for_another_tool_holds_nobody_back() -> None:
    """No head of line: of a thousand that wait for search, none delays a call of mail, not even of the same user."""
    gate = Admission()
    gate.enter(request("busy", app=50, own=4, search=1))
    for number in range(1000):
        gate.enter(request(f"s{number}", app=50, own=4, search=1))
    assert gate.enter(request("mail", app=50, own=4, mail=1))


def test_a_thousand_calls_of_one_user_delay_another_users_call_by_one() -> None:
    """Users take turns, however much each has queued."""
    gate = Admission()
    gate.enter(request("b", "bob", search=1))
    for number in range(1000):
        gate.enter(request(f"b{number}", "bob", search=1))
    gate.enter(request("a", "ann", search=1))
    assert names(gate.leave(ref("b"))) == ["b0"]
    assert names(gate.leave(ref("b0"))) == ["a"]
    assert names(gate.leave(ref("a"))) == ["b1"]


def test_users_take_turns_at_the_apps_slot_whatever_tools_they_call() -> None:
    """One who calls many tools gets no more of the app than one who calls one."""
    gate = Admission()
    gate.enter(request("b", "bob", app=1, t=9))
    for number in range(4):
        gate.enter(ask(f"b{number}", "bob", {"app": 1, f"t{number}": 9}))
    for number in range(2):
        gate.enter(request(f"a{number}", "ann", app=1, t=9))
    order = ["b"]
    for _ in range(6):
        order += names(gate.leave(ref(order[-1])))
    assert order[1:] == ["b0", "a0", "b1", "a1", "b2", "b3"]


def test_a_users_own_calls_go_first_come_first_served() -> None:
    """At the user's own limit age decides, over all tools."""
    gate = Admission()
    gate.enter(request("0", own=1, a=9))
    for call, tool in (("1", "a"), ("2", "b"), ("3", "a")):
        gate.enter(ask(call, "ann", {"own": 1, tool: 9}))
    order = ["0"]
    for _ in range(3):
        order += names(gate.leave(ref(order[-1])))
    assert order == ["0", "1", "2", "3"]


def test_a_call_that_needs_two_tools_is_not_starved_by_those_that_need_one() -> None:
    """Never both free at once: after its patience one slot is kept, then the other, and it goes."""
    gate = Admission(patience=3)
    gate.enter(request("a0", "bob", a=1))
    gate.enter(request("b0", "cy", b=1))
    gate.enter(request("both", a=1, b=1))
    running = {"a": "a0", "b": "b0"}
    for number in range(1, 50):
        tool = "ab"[number % 2]
        granted = names(gate.leave(ref(running[tool])))
        if "both" in granted:
            break
        running[tool] = f"{tool}{number}"
        gate.enter(ask(running[tool], "bob" if tool == "a" else "cy", {tool: 1}))
    else:
        pytest.fail("it was overtaken for ever")
    assert number <= 2 * (3 + 2)


def test_giving_up_frees_what_was_kept() -> None:
    """The slot that was kept for a call goes to the others when it waits no more."""
    gate = Admission(patience=0)
    gate.enter(request("a0", a=1))
    gate.enter(request("b0", b=1))
    gate.enter(request("both", a=1, b=1))
    gate.leave(ref("b0"))
    gate.enter(request("b1", b=1))
    gate.leave(ref("b1"))
    assert not gate.enter(request("b2", b=1))
    assert names(gate.leave(ref("both"))) == ["b2"]


def test_who_goes_at_last_lets_those_go_whom_its_kept_slot_held_back() -> None:
    """A slot was kept by a lower limit than another call asks with: when the first goes, the other has room."""
    gate = Admission(patience=0)
    for call, slots in (("y0", {"y": 1}), ("x0", {"x": 2}), ("x1", {"x": 2})):
        gate.enter(ask(call, "ann", slots))
    assert not gate.enter(request("both", x=2, y=1))
    gate.leave(ref("x0"))
    assert gate.enter(request("x2", x=2))
    assert not gate.enter(request("third", x=3))
    gate.leave(ref("x1"))
    assert names(gate.leave(ref("y0"))) == ["both", "third"]


def test_a_call_inside_another_does_not_count_again() -> None:
    """An agent that works as a tool has the only slot of app and user; its inner call goes all the same."""
    gate = Admission()
    gate.enter(request("agent", app=1, own=1, researcher=1))
    assert gate.enter(request("inner", app=1, own=1, search=1, inside=["agent"]))
    assert gate.enter(request("innermost", app=1, own=1, researcher=1, inside=["agent", "inner"]))
    assert not gate.enter(request("second", app=1, own=1, search=1, inside=["agent"]))
    assert names(gate.leave(ref("inner"))) == ["second"]


def test_inner_calls_that_would_wait_in_a_circle_go_beyond_the_limit() -> None:
    """Two agents as tools, each of which calls the other: the second one would wait for what waits for it."""
    gate = Admission()
    gate.enter(request("x", x=1))
    gate.enter(request("y", "bob", y=1))
    assert not gate.enter(request("y in x", y=1, inside=["x"]))
    assert gate.enter(request("x in y", "bob", x=1, inside=["y"]))


def test_a_circle_with_a_way_out_is_waited_for() -> None:
    """Where one of those who have a slot can end, the limit holds."""
    gate = Admission()
    gate.enter(request("x", x=2))
    gate.enter(request("plain", x=2))
    gate.enter(request("y", "bob", y=1))
    assert not gate.enter(request("y in x", y=1, inside=["x"]))
    assert not gate.enter(request("x in y", "bob", x=2, inside=["y"]))
    assert names(gate.leave(ref("plain"))) == ["x in y"]


def test_an_end_beyond_the_limit_frees_no_slot_and_is_no_way_out() -> None:
    """Where a key is over its limit, one who ends does not let another go: the circle is still a circle."""
    gate = Admission()
    gate.enter(request("x", x=1))
    gate.enter(request("y", "bob", y=1))
    gate.enter(request("y in x", y=1, inside=["x"]))
    assert gate.enter(request("x in y", "bob", x=1, inside=["y"]))
    assert gate.enter(request("x in y again", "bob", x=1, inside=["y"]))


def test_a_slot_that_is_kept_does_not_hold_back_an_inner_call() -> None:
    """The one it is kept for may wait for the very call that the inner one is inside of."""
    gate = Admission(patience=0)
    gate.enter(request("agent", a=1))
    gate.enter(request("b0", b=1))
    gate.enter(request("both", "bob", a=1, b=1))
    gate.leave(ref("b0"))
    gate.enter(request("b1", b=1))
    gate.leave(ref("b1"))
    assert not gate.enter(request("b2", b=1))
    assert gate.enter(request("inner", b=1, inside=["agent"]))


@pytest.mark.parametrize("slots", [{APP: 0}, {("user", "bob"): 1}])
def test_a_request_that_could_not_be_granted_is_refused(slots: dict[Key, int]) -> None:
    """A limit of nothing, and another user's slot."""
    with pytest.raises(InputError):
        SlotRequest("run", "1", "ann", slots)


def test_a_call_is_at_the_gate_once() -> None:
    """The same call again is a fault of the caller, whether it runs or waits."""
    gate = Admission()
    gate.enter(request("1", a=1))
    gate.enter(request("2", a=1))
    for call in "12":
        with pytest.raises(ValueError, match="already"):
            gate.enter(request(call, a=1))


def test_a_snapshot_shows_who_has_a_slot_and_who_waits() -> None:
    """Each key with its limit, its calls, and its queue in the order of turns."""
    gate = Admission()
    for number in range(3):
        gate.enter(request(f"b{number}", "bob", app=9, search=1), now=float(number))
    gate.enter(request("a", app=9, search=1), now=3.0)
    app, search = gate.snapshot()
    assert (app.key, app.limit, app.running) == (APP, 9, (ref("b0"),))
    assert (search.key, search.limit, search.running) == (("tool", "search"), 1, (ref("b0"),))
    seen = [(one.ref[1], one.user, one.position, one.since) for one in search.waiting]
    assert seen == [("b1", "bob", 1, 1.0), ("a", "ann", 2, 3.0), ("b2", "bob", 3, 2.0)]


@given(st.lists(st.tuples(st.sampled_from(USERS), st.booleans()), max_size=12), st.integers(0, 5))
def test_positions_are_the_order_in_which_calls_go(queue: Sequence[tuple[str, bool]], before: int) -> None:
    """Whatever has queued at a key, over different tools and after some turns: its queue is served as it was shown."""
    gate = Admission()
    gate.enter(request("0", "dan", app=1))
    for number, (user, a) in enumerate(queue, 1):
        gate.enter(ask(str(number), user, {"app": 1, "own": 9, "a" if a else "b": 9}))
    running = "0"
    for _ in range(min(before, len(queue))):
        (running,) = names(gate.leave(ref(running)))
    shown = [one.ref[1] for one in next(row for row in gate.snapshot() if row.key == APP).waiting]
    order: list[str] = []
    while granted := names(gate.leave(ref(running))):
        (running,) = granted
        order.append(running)
    assert order == shown


# --- all rules at once --------------------------------------------------------------------------------------------


class Waiter:
    """What the model knows of a call."""

    def __init__(self, asked: SlotRequest, running: Mapping[CallRef, Waiter]) -> None:
        outer = [running[ref].request.slots for ref in asked.inside if ref in running]
        self.request: SlotRequest = asked
        self.needs = {key: n for key, n in asked.slots.items() if not any(key in slots for slots in outer)}


class GateMachine(RuleBasedStateMachine):
    """Calls come, go and give up; a plain model judges each decision by the promises, and knows no heaps or lanes."""

    patience = 1

    def __init__(self) -> None:
        super().__init__()
        self.gate = Admission(patience=self.patience)
        self.running: dict[CallRef, Waiter] = {}
        self.waiting: dict[CallRef, Waiter] = {}
        self.beyond: set[CallRef] = set()
        self.counts: dict[Key, tuple[CallRef, int, int]] = {}
        self.number = 0

    # --- steps ---

    @rule(user=st.sampled_from(USERS), keys=KEYS, more=st.integers(0, 1))
    def come(self, user: str, keys: set[str], more: int) -> None:
        self.enter(self.make(user, keys, more, ()))

    @precondition(lambda self: self.running)
    @rule(keys=KEYS, more=st.integers(0, 1), data=st.data())
    def come_inside(self, keys: set[str], more: int, data: st.DataObject) -> None:
        outer = self.running[data.draw(st.sampled_from(list(self.running)))].request
        self.enter(self.make(outer.user, keys, more, (*outer.inside, outer.ref)))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.leave(data.draw(st.sampled_from(list(self.running))))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.leave(data.draw(st.sampled_from(list(self.waiting))))

    # --- what must hold of each ---

    @invariant()
    def nobody_waits_without_a_reason(self) -> None:
        for ref, one in self.waiting.items():
            assert any(self.is_full(key, one) or self.is_kept(key, ref, one) for key in one.needs)

    @invariant()
    def the_snapshot_is_true(self) -> None:
        rows = {row.key: row for row in self.gate.snapshot()}
        assert set(rows) == {key for one in (*self.running.values(), *self.waiting.values()) for key in one.needs}
        for key, row in rows.items():
            assert set(row.running) == {ref for ref, one in self.running.items() if key in one.needs}
            assert {one.ref for one in row.waiting} == {ref for ref, one in self.waiting.items() if key in one.needs}

    def teardown(self) -> None:
        """Whatever the state: if no call comes any more and those that can end do, all go, and nothing is left."""
        while self.running:
            self.leave(next(ref for ref in self.running if not self.inner(ref)))
        assert not self.waiting
        assert self.gate.is_idle

    # --- the model ---

    def make(self, user: str, words: set[str], more: int, inside: tuple[CallRef, ...]) -> SlotRequest:
        """A request; `more` is added to its limits, since they may change while others wait."""
        self.number += 1
        named: dict[str, Key] = {"app": APP, "own": ("user", user), "a": A, "b": B}
        slots = {named[word]: LIMITS.get(named[word], 2) + more for word in ("app", "own", "a", "b") if word in words}
        return SlotRequest("run", str(self.number), user, slots, inside)

    def enter(self, one: SlotRequest) -> None:
        waiter = Waiter(one, self.running)
        if self.gate.enter(one):
            if any(self.is_full(key, waiter) for key in waiter.needs):
                assert self.is_deadlock(waiter)
                self.beyond.add(one.ref)
            self.take(waiter)
        else:
            self.waiting[one.ref] = waiter
            self.recount(waiter)
            assert not (one.inside and self.is_deadlock(waiter))

    def leave(self, ref: CallRef) -> None:
        gone = self.running.pop(ref, None) or self.waiting.pop(ref)
        self.beyond.discard(ref)
        self.recount(gone)
        for granted in self.gate.leave(ref):
            waiter = self.waiting.pop(granted.ref)
            assert not any(self.is_full(key, waiter) for key in waiter.needs)
            assert not any(self.is_same_queue(waiter, other) for other in self.older(waiter))
            self.recount(waiter)
            self.take(waiter)

    def take(self, waiter: Waiter) -> None:
        self.running[waiter.request.ref] = waiter
        for key in waiter.needs:
            oldest, count, allowance = self.counts.get(key, (("", ""), 0, 0))
            if waiter.request.inside or key not in self.counts:
                continue
            younger = int(oldest[1]) < int(waiter.request.call_id)
            if younger and self.count(key) >= self.waiting[oldest].needs[key]:
                assert count < allowance, "overtaken too often"
                self.counts[key] = (oldest, count + 1, allowance)

    def recount(self, changed: Waiter) -> None:
        """Begin to count anew where another call is the oldest now."""
        for key in changed.needs:
            queue = [one for one in self.waiting.values() if key in one.needs]
            if not queue:
                self.counts.pop(key, None)
            elif self.counts.get(key, (None,))[0] != queue[0].request.ref:
                users = {one.request.user for one in queue}
                self.counts[key] = (queue[0].request.ref, 0, self.patience + len(users))

    def count(self, key: Key) -> int:
        return sum(key in one.needs for one in self.running.values())

    def is_full(self, key: Key, one: Waiter) -> bool:
        return self.count(key) >= one.needs[key]

    def is_kept(self, key: Key, ref: CallRef, one: Waiter) -> bool:
        oldest, count, allowance = self.counts[key]
        is_due = oldest != ref and count >= allowance and not one.request.inside
        return is_due and self.count(key) + 1 >= self.waiting[oldest].needs[key]

    def older(self, waiter: Waiter) -> list[Waiter]:
        return [one for one in self.waiting.values() if int(one.request.call_id) < int(waiter.request.call_id)]

    def is_same_queue(self, one: Waiter, other: Waiter) -> bool:
        same = one.request.user == other.request.user and one.needs == other.needs
        return same and bool(one.request.inside) == bool(other.request.inside)

    def inner(self, outer: CallRef) -> bool:
        return any(outer in one.request.inside for one in (*self.running.values(), *self.waiting.values()))

    def is_deadlock(self, new: Waiter) -> bool:
        """Whether `new`, if it waits, still waits when all that can end has ended: played through, step by step."""
        running, waiting = dict(self.running), {**self.waiting, new.request.ref: new}
        while new.request.ref in waiting:
            busy = {outer for one in (*running.values(), *waiting.values()) for outer in one.request.inside}
            ended = [ref for ref in running if ref not in busy]
            for ref in ended:
                del running[ref]
            ready = [ref for ref, one in waiting.items() if one.request.inside and self.goes(one, running)]
            ready = ready or [ref for ref, one in waiting.items() if self.goes(one, running)]
            if not ended and not ready:
                return True
            if ready:
                running[ready[0]] = waiting.pop(ready[0])
        return False

    def goes(self, one: Waiter, running: Mapping[CallRef, Waiter]) -> bool:
        return all(sum(key in other.needs for other in running.values()) < n for key, n in one.needs.items())


GateMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestGate = GateMachine.TestCase


# --- turns, and the cost --------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(USERS), min_size=1, max_size=40))
def test_between_two_calls_of_one_user_each_other_user_who_waits_has_a_turn(queue: Sequence[str]) -> None:
    """Whoever waits all along for a slot is passed by each other user at most once."""
    gate = Admission(patience=0)
    gate.enter(request("0", "dan", search=1))
    for number, user in enumerate(queue, 1):
        gate.enter(request(str(number), user, search=1))
    left = list(queue)
    passed: dict[str, list[str]] = {user: [] for user in USERS}
    running = "0"
    while granted := gate.leave(ref(running)):
        running, user = granted[0].call_id, granted[0].user
        left.remove(user)
        passed[user] = []
        for other in set(left) - {user}:
            assert user not in passed[other]
            passed[other].append(user)
    assert not left


def test_a_grant_costs_little_more_with_ten_thousand_waiting() -> None:
    """With 100 times as many waiting calls, of as many users, a grant takes at most twice the steps."""
    few, many = steps_of_a_grant(100), steps_of_a_grant(10_000)
    assert many < 2 * few


def test_a_gate_forgets_those_who_gave_up() -> None:
    """A thousand users who came, waited and left again leave no trace that grows, though the slot was never free."""
    gate = Admission()
    gate.enter(request("0", "dan", app=1, search=1))
    gate.enter(request("still here", "dan", app=1, search=1))
    sizes: list[int] = []
    for number in range(1, 1001):
        gate.enter(request(str(number), f"u{number}", app=1, own=1, search=1))
        gate.leave(ref(str(number)))
        sizes.append(len(pickle.dumps(gate)))
    assert max(sizes[500:]) < 2 * max(sizes[:50])


def test_a_free_slot_costs_the_same_however_many_wait_for_others() -> None:
    """To come and to go at keys of which none is full takes the same steps, with ten or a thousand at another tool."""
    assert steps_of_a_free_call(10) == steps_of_a_free_call(1000)


def steps_of_a_free_call(waiting: int) -> int:
    gate = Admission()
    for number in range(waiting + 1):
        gate.enter(request(str(number), f"u{number}", app=2, own=4, search=1))
    mail = request("mail", app=2, own=4, mail=1)
    return count_steps(lambda: gate.enter(mail)) + count_steps(lambda: gate.leave(mail.ref))


def steps_of_a_grant(waiting: int) -> float:
    """How many functions are called for a `leave` that lets one go, on average."""
    gate = Admission()
    for number in range(waiting + 1):
        gate.enter(request(str(number), f"u{number}", app=1, own=4, search=1))
    return sum(count_steps(partial(gate.leave, ref(str(number)))) for number in range(40)) / 40


def count_steps(work: Callable[[], object]) -> int:
    """How many functions `work` calls, Python's own included: a measure of time that no busy machine changes."""
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # what earlier tests left would be counted when it is finalised
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return counted
