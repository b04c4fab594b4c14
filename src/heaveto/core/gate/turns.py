"""Who goes next: the rules of whose turn it is, and the order in which slots of a key will be given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from heaveto.core.gate.calls import Key, WaitingCall
from heaveto.core.gate.queues import Entry, Lane, Line, Post, Queues


def next_at(queues: Queues, key: Key) -> Entry | None:
    """Return who gets the next slot of a key, or None if nobody who waits for it can go."""
    post = queues.posts[key]
    if not post.waiting:
        return None
    if post.lines:  # a key of one user: its oldest call
        return min(filter(queues.fits, (line.head for line in post.lines)), key=_age, default=None)
    best: tuple[int, int, Entry] | None = None
    for lane in post.lanes:
        found = _candidate(queues, lane)
        if found is not None and (best is None or found < best):
            best = found
    if best is None or best[0] < 0:
        return best[2] if best is not None else None
    lines = queues.users[best[2].request.user]
    return min(filter(queues.fits, (line.head for line in lines if key in line.needs)), key=_age)


def _candidate(queues: Queues, lane: Lane) -> tuple[int, int, Entry] | None:
    """Return whose turn it is in a lane, with its rank; a call for which a slot is kept ranks first."""
    only: Entry | None = None
    for key, limit in lane.needs:
        post = queues.posts[key]
        if len(post.running) >= limit:
            return None
        kept_for = post.kept_for
        if kept_for is not None and not lane.inner and len(post.running) + 1 >= kept_for.needs[key]:
            only = kept_for
    if only is not None:
        return (-1, only.arrival, only) if only.line in lane.lines and queues.fits(only) else None
    line = _front(queues, lane)
    return (line.stamp, line.head.arrival, line.head) if line is not None else None


def _front(queues: Queues, lane: Lane) -> Line | None:
    """Return the line whose user's turn is next, of those whose own keys have room; the others are parked there.

    An entry of the heap may be older than its line's stamp, or its line gone: both are put right as they come up.
    """
    while lane.turns:
        stamp, _, line = lane.turns[0]
        if line not in lane.lines:
            heappop(lane.turns)
        elif stamp != line.stamp:
            heapreplace(lane.turns, (line.stamp, line.number, line))
        elif (full := _full_own_key(queues, line)) is not None:
            heappop(lane.turns)
            line.listed, line.parked_at = False, full
            full.parked[line] = None
        else:
            return line
    return None


def _full_own_key(queues: Queues, line: Line) -> Post | None:
    head = line.head
    for key in line.own:
        if not queues.posts[key].has_room(key, line.needs[key], head):
            return queues.posts[key]
    return None


def _age(entry: Entry) -> int:
    return entry.arrival


def positions(queues: Queues, key: Key) -> Iterator[WaitingCall]:
    """Return the calls that wait at a key, in the order in which its slots will be given if nobody comes or leaves."""
    post = queues.posts[key]
    waiting: dict[str, deque[Entry]] = {}
    for entry in post.waiting.values():
        waiting.setdefault(entry.request.user, deque()).append(entry)
    order: list[Entry] = []
    if post.kept_for is not None:
        order.append(waiting[post.kept_for.request.user].popleft())
    turns = [(_stamp_at(queues, user, key), user) for user, entries in waiting.items() if entries]
    heapify(turns)
    tick = queues.tick
    while turns:
        tick += 1
        user = turns[0][1]
        order.append(waiting[user].popleft())
        if waiting[user]:
            heapreplace(turns, (tick, user))
        else:
            heappop(turns)
    for position, entry in enumerate(order, 1):
        yield WaitingCall(entry.request.ref, entry.request.user, position, entry.since)


def _stamp_at(queues: Queues, user: str, key: Key) -> int:
    return min(line.stamp for line in queues.users[user] if key in line.needs)
