"""The calls at the gate: who has which slots, who waits where, and in which order those who wait came.

Bookkeeping only: whose turn it is, `turns` says; who waits in a circle, `circles`; what follows, `admission`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappush

from heaveto.core.gate.calls import CallRef, Key, SlotRequest


class Entry:
    """A call at the gate, and the slots that count for it."""

    __slots__ = ("arrival", "line", "needs", "request", "since")

    def __init__(self, request: SlotRequest, needs: Mapping[Key, int], arrival: int, since: float) -> None:
        self.request, self.needs, self.arrival, self.since = request, needs, arrival, since
        self.line: Line | None = None


class Line:
    """The waiting calls of one user that need exactly the same: strictly first come, first served."""

    __slots__ = ("entries", "lane", "listed", "needs", "number", "own", "parked_at", "stamp", "user")

    def __init__(self, user: str, needs: Mapping[Key, int], lane: Lane, stamp: int) -> None:
        self.user, self.needs, self.lane = user, needs, lane
        self.own = [key for key in needs if _is_own(key, user)]
        self.number = self.stamp = stamp
        self.entries: OrderedDict[CallRef, Entry] = OrderedDict()
        self.listed = False
        self.parked_at: Post | None = None

    @property
    def head(self) -> Entry:
        return next(iter(self.entries.values()))


class Lane:
    """The lines that need the same shared keys: they are free or blocked together.

    `turns` is a heap of (stamp, number, line), whose entries may be out of date; see `turns.front`. Calls inside others
    have lanes of their own, since slots that are kept do not hold them back.
    """

    __slots__ = ("inner", "lines", "needs", "turns")

    def __init__(self, needs: tuple[tuple[Key, int], ...], inner: bool) -> None:
        self.needs, self.inner = needs, inner
        self.lines: dict[Line, None] = {}
        self.turns: list[tuple[int, int, Line]] = []

    def put(self, line: Line) -> None:
        if not line.listed:
            line.listed = True
            heappush(self.turns, (line.stamp, line.number, line))

    def tidy(self) -> None:
        """Forget the entries of lines that are gone, once they are the majority."""
        if len(self.turns) > 2 * len(self.lines) + 16:
            self.turns = [(line.stamp, line.number, line) for *_, line in self.turns if line in self.lines]
            heapify(self.turns)


class Post:
    """One key: who has a slot, who waits in order of age, and how often the oldest of these was overtaken.

    Attributes:
        limit: as last asked for.
        allowance: how often the oldest may be overtaken before a slot is kept for it.
        users: how many calls of each user wait here.
        lanes: those in which this key is shared; a key has lanes or lines, never both.
        lines: those of the one user whose own key this is.
        parked: lines that are out of their lane's turns until a slot of this key, their user's own, becomes free.
    """

    __slots__ = ("allowance", "lanes", "limit", "lines", "overtaken", "parked", "running", "users", "waiting")

    def __init__(self) -> None:
        self.limit = self.overtaken = self.allowance = 0
        self.running: dict[CallRef, None] = {}
        self.waiting: OrderedDict[CallRef, Entry] = OrderedDict()
        self.users: dict[str, int] = {}
        self.lanes: dict[Lane, None] = {}
        self.lines: dict[Line, None] = {}
        self.parked: dict[Line, None] = {}

    @property
    def oldest(self) -> Entry | None:
        return next(iter(self.waiting.values()), None)

    @property
    def kept_for(self) -> Entry | None:
        """The call that has been overtaken so often that a slot is kept for it."""
        return self.oldest if self.waiting and self.overtaken >= self.allowance else None

    def has_room(self, key: Key, limit: int, entry: Entry) -> bool:
        count = len(self.running)
        if count >= limit or not self.waiting:
            return count < limit
        kept_for = self.kept_for
        return kept_for is None or kept_for is entry or bool(entry.request.inside) or count + 1 < kept_for.needs[key]


class Queues:
    """All posts, and the calls at them. Time is counted in ticks.

    Attributes:
        posts: the keys that are in use.
        running, waiting: the calls that have their slots, and those that wait, by their ids.
        users: the lines in which calls of a user wait.
        inner: the waiting calls that are inside of a call.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self.tick = 0
        self.posts: dict[Key, Post] = {}
        self.running: dict[CallRef, Entry] = {}
        self.waiting: dict[CallRef, Entry] = {}
        self.users: dict[str, dict[Line, None]] = {}
        self.inner: dict[CallRef, dict[CallRef, Entry]] = {}
        self._lines: dict[tuple[str, frozenset[tuple[Key, int]], bool], Line] = {}
        self._lanes: dict[tuple[frozenset[tuple[Key, int]], bool], Lane] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered."""
        return not any((self.posts, self.running, self.waiting, self._lines, self._lanes, self.users, self.inner))

    def arrived(self, request: SlotRequest, needs: Mapping[Key, int], now: float) -> Entry:
        """Return the entry of a call that has just come, with a post for each key that counts for it."""
        entry = Entry(request, needs, self._next_tick(), now)
        for key, limit in needs.items():
            post = self.posts.get(key)
            if post is None:
                post = self.posts[key] = Post()
            post.limit = limit
        return entry

    def fits(self, entry: Entry) -> bool:
        """Whether each key of a call has room for it now."""
        for key, limit in entry.needs.items():  # noqa: SIM110 - `all` would make a generator, for each call of a tool
            if not self.posts[key].has_room(key, limit, entry):
                return False
        return True

    def is_contested(self, key: Key, limit: int) -> bool:
        """Whether no slot of a key is free for all."""
        post = self.posts[key]
        return len(post.running) + (post.kept_for is not None) >= limit

    def forget_unused(self, keys: Iterable[Key]) -> None:
        """Drop the posts at which nobody is any more."""
        for key in keys:
            post = self.posts[key]
            if not post.running and not post.waiting:
                del self.posts[key]

    # --- having slots ---------------------------------------------------------------------------------------------

    def take(self, entry: Entry) -> None:
        """Give a call its slots. Where it takes the last one, that ends its user's turn and overtakes who is older."""
        ref, user = entry.request.ref, entry.request.user
        self.running[ref] = entry
        for key, limit in entry.needs.items():
            post = self.posts[key]
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
        for line in self.users.get(user, ()):
            if key in line.needs:
                line.stamp = stamp

    def _next_tick(self) -> int:
        self.tick += 1
        return self.tick

    # --- waiting --------------------------------------------------------------------------------------------------

    def enqueue(self, entry: Entry) -> None:
        """Let a call wait, behind all that wait already."""
        ref, user = entry.request.ref, entry.request.user
        self.waiting[ref] = entry
        for outer in entry.request.inside:
            self.inner.setdefault(outer, {})[ref] = entry
        line = entry.line = self._line(user, entry.needs, bool(entry.request.inside))
        line.entries[ref] = entry
        for key in entry.needs:
            post = self.posts[key]
            post.users[user] = post.users.get(user, 0) + 1
            post.waiting[ref] = entry
            if len(post.waiting) == 1:
                self._start_counting(post)

    def dequeue(self, entry: Entry) -> list[Key]:
        """Take a call out of all queues; return the keys of which a slot was kept for it."""
        ref, user, line = entry.request.ref, entry.request.user, entry.line
        assert line is not None
        del self.waiting[ref]
        for outer in entry.request.inside:
            del self.inner[outer][ref]
            if not self.inner[outer]:
                del self.inner[outer]
        kept = [key for key in entry.needs if self.posts[key].kept_for is entry]
        del line.entries[ref]
        if not line.entries:
            self._drop_line(line)
        for key in entry.needs:
            post = self.posts[key]
            was_oldest = post.oldest is entry
            del post.waiting[ref]
            post.users[user] -= 1
            if not post.users[user]:
                del post.users[user]
            if was_oldest:
                self._start_counting(post)
        return kept

    def unpark(self, key: Key) -> None:
        """Put the lines that waited for a slot of their user's own key back among the turns."""
        post = self.posts[key]
        for line in post.parked:
            line.parked_at = None
            line.lane.put(line)
        post.parked.clear()

    def _start_counting(self, post: Post) -> None:
        post.overtaken, post.allowance = 0, self._patience + len(post.users)

    def _line(self, user: str, needs: Mapping[Key, int], inner: bool) -> Line:
        signature = (user, frozenset(needs.items()), inner)
        line = self._lines.get(signature)
        if line is None:
            line = self._lines[signature] = Line(user, needs, self._lane(user, needs, inner), self._next_tick())
            line.lane.lines[line] = None
            line.lane.put(line)
            self.users.setdefault(user, {})[line] = None
            for key in line.own:
                self.posts[key].lines[line] = None
        return line

    def _lane(self, user: str, needs: Mapping[Key, int], inner: bool) -> Lane:
        shared = tuple((key, limit) for key, limit in needs.items() if not _is_own(key, user))
        signature = (frozenset(shared), inner)
        lane = self._lanes.get(signature)
        if lane is None:
            lane = self._lanes[signature] = Lane(shared, inner)
            for key, _ in shared:
                self.posts[key].lanes[lane] = None
        return lane

    def _drop_line(self, line: Line) -> None:
        lane = line.lane
        del self._lines[line.user, frozenset(line.needs.items()), lane.inner]
        del lane.lines[line]
        del self.users[line.user][line]
        if not self.users[line.user]:
            del self.users[line.user]
        for key in line.own:
            del self.posts[key].lines[line]
        if line.parked_at is not None:
            del line.parked_at.parked[line]
        lane.tidy()
        if not lane.lines:
            del self._lanes[frozenset(lane.needs), lane.inner]
            for key, _ in lane.needs:
                del self.posts[key].lanes[lane]


def _is_own(key: Key, user: str) -> bool:
    return len(key) > 1 and key[0] == "user" and key[1] == user
