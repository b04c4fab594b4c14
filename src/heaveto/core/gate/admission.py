"""Which calls may run when some things may run only so many at a time: who waits, and who goes next.

A call asks for all its slots at once: one of the app, one of its user, one of its tool. It gets all of them or none, so
nobody sits on one slot while waiting for another.

    1. A call goes at once if each of its keys has a free slot. One that waits for another key holds nobody back.
    2. A slot that becomes free goes to the user whose last turn is longest ago; of that user's calls to the oldest that
       can go. A turn is a call that takes the last slot of a key; a user who comes anew has its turn last. So users
       take turns, however much each of them has queued.
    3. Rules 1 and 2 alone could starve a call that needs several keys, if these are never free at the same time. So the
       oldest waiting call of a key may be overtaken only so often: by one call for each user who waits there when it
       becomes the oldest, and `patience` more. Only calls that take the key's last slot count. From then on a slot of
       that key is kept for it. Age is the same order at all keys, so two calls never keep each other waiting; and the
       oldest of all goes at the latest when what runs by then has ended.
    4. A call inside another (the calls of an agent that works as a tool) does not count at the keys at which an
       enclosing call has a slot: that one waits for it. It may use kept slots; and where it would wait in a circle,
       for calls that wait for it in turn, it goes beyond the limit instead.

Everything here is deterministic; times are only carried along. Granting a call costs the logarithm of the number that
waits, times the number of different sets of shared keys that are waited for.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias

from heaveto.errors import InputError

Key: TypeAlias = tuple[str, ...]
"""What may run only so often at the same time, such as ``("tool", "search")``.

One that begins with ``("user", NAME)`` may be asked for by that user only.
"""

CallRef: TypeAlias = tuple[str, str]
"""A run id and the id of one of its calls."""

PATIENCE = 64


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """What a call needs in order to run.

    Attributes:
        run_id, call_id: which call; no two are at a gate with the same ids.
        user: whose turn it uses.
        slots: how many calls may run at the same time, this one included, for each key.
        inside: the calls that this one is inside of, which wait for it.
    """

    run_id: str
    call_id: str
    user: str
    slots: Mapping[Key, int]
    inside: tuple[CallRef, ...] = ()

    def __post_init__(self) -> None:
        for key, limit in self.slots.items():
            if limit < 1:
                raise InputError(
                    f"the limit of {' '.join(key)} is {limit}: nothing could ever run; it must be positive"
                )
            if key[0] == "user" and key[1] != self.user:
                raise InputError(f"user {self.user!r} asks for a slot of {' '.join(key)}, which is not theirs")

    @property
    def ref(self) -> CallRef:
        return (self.run_id, self.call_id)


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits at a key. `position` counts from 1, in the order in which slots of this key will be given."""

    ref: CallRef
    user: str
    position: int
    since: float


@dataclass(frozen=True, slots=True)
class GateState:
    """One key: its limit as last asked for, the calls that have a slot, and those that wait, the next one first."""

    key: Key
    limit: int
    running: tuple[CallRef, ...]
    waiting: tuple[WaitingCall, ...]


class _Entry:
    """A call at the gate, and the slots that count for it."""

    __slots__ = ("arrival", "line", "needs", "request", "since")

    def __init__(self, request: SlotRequest, needs: Mapping[Key, int], arrival: int, since: float) -> None:
        self.request, self.needs, self.arrival, self.since = request, needs, arrival, since
        self.line: _Line | None = None


class _Line:
    """The waiting calls of one user that need exactly the same: strictly first come, first served."""

    __slots__ = ("entries", "lane", "listed", "needs", "number", "own", "parked_at", "stamp", "user")

    def __init__(self, user: str, needs: Mapping[Key, int], lane: _Lane, stamp: int) -> None:
        self.user, self.needs, self.lane = user, needs, lane
        self.own = [key for key in needs if _is_own(key, user)]
        self.number = self.stamp = stamp
        self.entries: OrderedDict[CallRef, _Entry] = OrderedDict()
        self.listed = False
        self.parked_at: _Post | None = None

    @property
    def head(self) -> _Entry:
        return next(iter(self.entries.values()))


class _Lane:
    """The lines that need the same shared keys: they are free or blocked together. `turns` is a heap; see `_front`.

    Calls inside others have lanes of their own, since slots that are kept do not hold them back.
    """

    __slots__ = ("inner", "lines", "needs", "turns")

    def __init__(self, needs: tuple[tuple[Key, int], ...], inner: bool) -> None:
        self.needs, self.inner = needs, inner
        self.lines: dict[_Line, None] = {}
        self.turns: list[tuple[int, int, _Line]] = []

    def put(self, line: _Line) -> None:
        if not line.listed:
            line.listed = True
            heappush(self.turns, (line.stamp, line.number, line))

    def tidy(self) -> None:
        """Forget the entries of lines that are gone, once they are the majority."""
        if len(self.turns) > 2 * len(self.lines) + 16:
            self.turns = [(line.stamp, line.number, line) for *_, line in self.turns if line in self.lines]
            heapify(self.turns)


class _Post:
    """One key: who has a slot, who waits in order of age, and how often the oldest of these was overtaken."""

    __slots__ = ("allowance", "lanes", "limit", "lines", "overtaken", "parked", "running", "users", "waiting")

    def __init__(self) -> None:
        self.limit = self.overtaken = self.allowance = 0
        self.running: dict[CallRef, None] = {}
        self.waiting: OrderedDict[CallRef, _Entry] = OrderedDict()
        self.users: dict[str, int] = {}
        self.lanes: dict[_Lane, None] = {}
        self.lines: dict[_Line, None] = {}
        self.parked: dict[_Line, None] = {}

    @property
    def oldest(self) -> _Entry | None:
        return next(iter(self.waiting.values()), None)

    @property
    def kept_for(self) -> _Entry | None:
        return self.oldest if self.waiting and self.overtaken >= self.allowance else None

    def has_room(self, key: Key, limit: int, entry: _Entry) -> bool:
        count = len(self.running)
        if count >= limit or not self.waiting:
            return count < limit
        kept_for = self.kept_for
        return kept_for is None or kept_for is entry or bool(entry.request.inside) or count + 1 < kept_for.needs[key]


class Admission:
    """Decides who may go. Of use on one thread; `enter` and `leave` are all that changes it."""

    def __init__(self, *, patience: int = PATIENCE) -> None:
        self._patience = patience
        self._tick = 0
        self._posts: dict[Key, _Post] = {}
        self._running: dict[CallRef, _Entry] = {}
        self._waiting: dict[CallRef, _Entry] = {}
        self._lines: dict[tuple[str, frozenset[tuple[Key, int]], bool], _Line] = {}
        self._lanes: dict[tuple[frozenset[tuple[Key, int]], bool], _Lane] = {}
        self._users: dict[str, dict[_Line, None]] = {}
        self._inner: dict[CallRef, dict[CallRef, _Entry]] = {}

    def enter(self, request: SlotRequest, now: float = 0.0) -> bool:
        """Return whether the call may run now; if not, it waits from now on, until a `leave` returns its request.

        Raises:
            ValueError: the call is at the gate already.
        """
        ref = request.ref
        if ref in self._running or ref in self._waiting:
            raise ValueError(f"call {request.call_id} of run {request.run_id} is at the gate already")
        needs = self._needs(request)
        entry = _Entry(request, needs, self._next_tick(), now)
        for key, limit in needs.items():
            self._post(key).limit = limit
        if self._fits(entry) or (request.inside and self._closes_circle(entry)):
            self._take(entry)
            return True
        self._enqueue(entry)
        return False

    def leave(self, ref: CallRef) -> list[SlotRequest]:
        """A call has ended, or waits no more; return the requests of those that may run now, in order.

        Harmless for one that is not at the gate.
        """
        entry = self._running.pop(ref, None)
        if entry is not None:
            return self._give_back(entry)
        entry = self._waiting.get(ref)
        if entry is None:
            return []
        granted = self._hand_out(self._dequeue(entry))
        self._forget_unused(entry.needs)
        return granted

    def is_waiting(self, ref: CallRef) -> bool:
        return ref in self._waiting

    @property
    def is_idle(self) -> bool:
        """Whether nothing is remembered: no call runs or waits."""
        return not any((self._posts, self._running, self._waiting, self._lines, self._lanes, self._users, self._inner))

    def snapshot(self) -> list[GateState]:
        """Return the state of each key that is in use, in the order of the keys."""
        return [
            GateState(key, post.limit, tuple(post.running), tuple(self._positions(key, post)))
            for key, post in sorted(self._posts.items())
        ]

    def _post(self, key: Key) -> _Post:
        post = self._posts.get(key)
        if post is None:
            post = self._posts[key] = _Post()
        return post

    # --- who may go -----------------------------------------------------------------------------------------------

    def _fits(self, entry: _Entry) -> bool:
        for key, limit in entry.needs.items():  # noqa: SIM110 - `all` would make a generator, for each call of a tool
            if not self._posts[key].has_room(key, limit, entry):
                return False
        return True

    def _is_contested(self, key: Key, limit: int) -> bool:
        post = self._posts[key]
        return len(post.running) + (post.kept_for is not None) >= limit

    def _give_back(self, entry: _Entry) -> list[SlotRequest]:
        ref, needs = entry.request.ref, entry.needs
        # Nobody waits: nothing to order, and nothing to hand out.
        keys = sorted(needs, key=lambda key: not self._is_contested(key, needs[key])) if self._waiting else list(needs)
        for key in keys:
            del self._posts[key].running[ref]
        granted = self._hand_out(keys) if self._waiting else []
        self._forget_unused(keys)
        return granted

    def _forget_unused(self, keys: Iterable[Key]) -> None:
        for key in keys:
            post = self._posts[key]
            if not post.running and not post.waiting:
                del self._posts[key]

    def _hand_out(self, keys: Iterable[Key]) -> list[SlotRequest]:
        """Let everyone go who can, now that slots of `keys` are free. Contested keys come first: their turns decide."""
        granted: list[SlotRequest] = []
        todo = deque(keys)
        for key in todo:
            self._unpark(key)
        while todo:
            entry = self._next_at(todo[0])
            if entry is None:
                todo.popleft()
                continue
            for key in self._dequeue(entry):
                self._unpark(key)
                todo.append(key)
            self._take(entry)
            granted.append(entry.request)
        return granted

    def _next_at(self, key: Key) -> _Entry | None:
        """Return who gets the next slot of a key, or None if nobody who waits for it can go."""
        post = self._posts[key]
        if not post.waiting:
            return None
        if post.lines:  # a key of one user: its oldest call
            return min(filter(self._fits, (line.head for line in post.lines)), key=_age, default=None)
        best: tuple[int, int, _Entry] | None = None
        for lane in post.lanes:
            found = self._candidate(lane)
            if found is not None and (best is None or found < best):
                best = found
        if best is None or best[0] < 0:
            return best[2] if best is not None else None
        lines = self._users[best[2].request.user]
        return min(filter(self._fits, (line.head for line in lines if key in line.needs)), key=_age)

    def _candidate(self, lane: _Lane) -> tuple[int, int, _Entry] | None:
        """Return whose turn it is in a lane, with its rank; a call for which a slot is kept ranks first."""
        only: _Entry | None = None
        for key, limit in lane.needs:
            post = self._posts[key]
            if len(post.running) >= limit:
                return None
            kept_for = post.kept_for
            if kept_for is not None and not lane.inner and len(post.running) + 1 >= kept_for.needs[key]:
                only = kept_for
        if only is not None:
            return (-1, only.arrival, only) if only.line in lane.lines and self._fits(only) else None
        line = self._front(lane)
        return (line.stamp, line.head.arrival, line.head) if line is not None else None

    def _front(self, lane: _Lane) -> _Line | None:
        """Return the line whose user's turn is next, of those whose own keys have room; the others are parked there.

        An entry of the heap may be older than its line's stamp, or its line gone: both are put right as they come up.
        """
        while lane.turns:
            stamp, _, line = lane.turns[0]
            if line not in lane.lines:
                heappop(lane.turns)
            elif stamp != line.stamp:
                heapreplace(lane.turns, (line.stamp, line.number, line))
            elif (full := self._full_own_key(line)) is not None:
                heappop(lane.turns)
                line.listed, line.parked_at = False, full
                full.parked[line] = None
            else:
                return line
        return None

    def _full_own_key(self, line: _Line) -> _Post | None:
        head = line.head
        for key in line.own:
            if not self._posts[key].has_room(key, line.needs[key], head):
                return self._posts[key]
        return None

    # --- what changes when one comes, goes, or gives up -----------------------------------------------------------

    def _next_tick(self) -> int:
        self._tick += 1
        return self._tick

    def _take(self, entry: _Entry) -> None:
        ref, user = entry.request.ref, entry.request.user
        self._running[ref] = entry
        for key, limit in entry.needs.items():
            post = self._posts[key]
            post.running[ref] = None
            oldest = post.oldest if post.waiting else None
            if oldest is None:
                continue
            if len(post.running) >= limit:
                self._end_turn(user, key)
            overtakes = oldest.arrival < entry.arrival and not entry.request.inside
            if overtakes and len(post.running) >= oldest.needs[key]:
                post.overtaken += 1

    def _end_turn(self, user: str, key: Key) -> None:
        stamp = self._next_tick()
        for line in self._users.get(user, ()):
            if key in line.needs:
                line.stamp = stamp

    def _enqueue(self, entry: _Entry) -> None:
        ref, user = entry.request.ref, entry.request.user
        self._waiting[ref] = entry
        for outer in entry.request.inside:
            self._inner.setdefault(outer, {})[ref] = entry
        line = entry.line = self._line(user, entry.needs, bool(entry.request.inside))
        line.entries[ref] = entry
        for key in entry.needs:
            post = self._posts[key]
            post.users[user] = post.users.get(user, 0) + 1
            post.waiting[ref] = entry
            if len(post.waiting) == 1:
                self._start_counting(post)

    def _dequeue(self, entry: _Entry) -> list[Key]:
        """Take a call out of all queues; return the keys of which a slot was kept for it."""
        ref, user, line = entry.request.ref, entry.request.user, entry.line
        assert line is not None
        del self._waiting[ref]
        for outer in entry.request.inside:
            del self._inner[outer][ref]
            if not self._inner[outer]:
                del self._inner[outer]
        kept = [key for key in entry.needs if self._posts[key].kept_for is entry]
        del line.entries[ref]
        if not line.entries:
            self._drop_line(line)
        for key in entry.needs:
            post = self._posts[key]
            was_oldest = post.oldest is entry
            del post.waiting[ref]
            post.users[user] -= 1
            if not post.users[user]:
                del post.users[user]
            if was_oldest:
                self._start_counting(post)
        return kept

    def _start_counting(self, post: _Post) -> None:
        post.overtaken, post.allowance = 0, self._patience + len(post.users)

    def _line(self, user: str, needs: Mapping[Key, int], inner: bool) -> _Line:
        signature = (user, frozenset(needs.items()), inner)
        line = self._lines.get(signature)
        if line is None:
            line = self._lines[signature] = _Line(user, needs, self._lane(user, needs, inner), self._next_tick())
            line.lane.lines[line] = None
            line.lane.put(line)
            self._users.setdefault(user, {})[line] = None
            for key in line.own:
                self._posts[key].lines[line] = None
        return line

    def _lane(self, user: str, needs: Mapping[Key, int], inner: bool) -> _Lane:
        shared = tuple((key, limit) for key, limit in needs.items() if not _is_own(key, user))
        signature = (frozenset(shared), inner)
        lane = self._lanes.get(signature)
        if lane is None:
            lane = self._lanes[signature] = _Lane(shared, inner)
            for key, _ in shared:
                self._posts[key].lanes[lane] = None
        return lane

    def _drop_line(self, line: _Line) -> None:
        lane = line.lane
        del self._lines[line.user, frozenset(line.needs.items()), lane.inner]
        del lane.lines[line]
        del self._users[line.user][line]
        if not self._users[line.user]:
            del self._users[line.user]
        for key in line.own:
            del self._posts[key].lines[line]
        if line.parked_at is not None:
            del line.parked_at.parked[line]
        lane.tidy()
        if not lane.lines:
            del self._lanes[frozenset(lane.needs), lane.inner]
            for key, _ in lane.needs:
                del self._posts[key].lanes[lane]

    def _unpark(self, key: Key) -> None:
        post = self._posts[key]
        for line in post.parked:
            line.parked_at = None
            line.lane.put(line)
        post.parked.clear()

    # --- calls inside calls ---------------------------------------------------------------------------------------

    def _needs(self, request: SlotRequest) -> Mapping[Key, int]:
        """Return the slots that count: not those of which an enclosing call has one, or was excused from having one."""
        if not request.inside:
            return request.slots
        outer = [self._running[ref] for ref in request.inside if ref in self._running]
        return {k: limit for k, limit in request.slots.items() if not any(k in one.request.slots for one in outer)}

    def _closes_circle(self, entry: _Entry) -> bool:
        """Whether a call that begins to wait would wait for ever: for calls that wait for it in turn.

        Only a call inside another can close a circle, and only as it begins to wait: whoever gets a slot later has no
        call inside it that waits. Of all that hangs together with it, those are struck out that can go on, until no
        more can.
        """
        stuck = self._behind(entry)
        if not stuck:
            return False
        stuck[entry.request.ref] = entry
        while free := [ref for ref, one in stuck.items() if not self._is_stuck(one, entry, stuck)]:
            for ref in free:
                del stuck[ref]
        return entry.request.ref in stuck

    def _behind(self, entry: _Entry) -> dict[CallRef, _Entry]:
        """Return the waiting calls that stand in the way of those who have what `entry` waits for, and so on.

        Empty if none of this leads back to a call that `entry` is inside of.
        """
        found: dict[CallRef, _Entry] = {}
        holders: set[CallRef] = set()
        todo = [entry]
        while todo:
            for post, _ in self._full_posts(todo.pop()):
                for ref in post.running:
                    if ref not in holders:
                        holders.add(ref)
                        todo += [one for inner, one in self._inner.get(ref, {}).items() if inner not in found]
                        found |= self._inner.get(ref, {})
        return found if not holders.isdisjoint(entry.request.inside) else {}

    def _full_posts(self, entry: _Entry) -> Iterator[tuple[_Post, int]]:
        for key, limit in entry.needs.items():
            post = self._posts[key]
            if len(post.running) >= limit:
                yield post, limit

    def _is_stuck(self, one: _Entry, new: _Entry, stuck: Mapping[CallRef, _Entry]) -> bool:
        """Whether all slots of some key that `one` waits for are with calls inside which one is stuck."""
        mine = new.request.inside if new.request.ref in stuck else ()

        def is_held(ref: CallRef) -> bool:
            return ref in mine or not stuck.keys().isdisjoint(self._inner.get(ref, ()))

        return any(sum(map(is_held, post.running)) >= limit for post, limit in self._full_posts(one))

    # --- what is seen of it ---------------------------------------------------------------------------------------

    def _positions(self, key: Key, post: _Post) -> Iterator[WaitingCall]:
        queues: dict[str, deque[_Entry]] = {}
        for entry in post.waiting.values():
            queues.setdefault(entry.request.user, deque()).append(entry)
        order: list[_Entry] = []
        if post.kept_for is not None:
            order.append(queues[post.kept_for.request.user].popleft())
        turns = [(self._stamp_at(user, key), user) for user, queue in queues.items() if queue]
        heapify(turns)
        tick = self._tick
        while turns:
            tick += 1
            user = turns[0][1]
            order.append(queues[user].popleft())
            if queues[user]:
                heapreplace(turns, (tick, user))
            else:
                heappop(turns)
        for position, entry in enumerate(order, 1):
            yield WaitingCall(entry.request.ref, entry.request.user, position, entry.since)

    def _stamp_at(self, user: str, key: Key) -> int:
        return min(line.stamp for line in self._users[user] if key in line.needs)


def _is_own(key: Key, user: str) -> bool:
    return len(key) > 1 and key[0] == "user" and key[1] == user


def _age(entry: _Entry) -> int:
    return entry.arrival
