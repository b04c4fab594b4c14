"""Calls inside calls: which slots count for one, and whether it would wait for calls that wait for it in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heaveto.core.gate.calls import CallRef, Key, SlotRequest
from heaveto.core.gate.queues import Entry, Post, Queues


def slots_that_count(queues: Queues, request: SlotRequest) -> Mapping[Key, int]:
    """Return what a call needs without the slots that an enclosing call has, or was excused from having."""
    if not request.inside:
        return request.slots
    outer = [queues.running[ref] for ref in request.inside if ref in queues.running]
    return {k: limit for k, limit in request.slots.items() if not any(k in one.request.slots for one in outer)}


def closes_circle(queues: Queues, entry: Entry) -> bool:
    """Whether a call that begins to wait would wait for ever: for calls that wait for it in turn.

    Only a call inside another can close a circle, and only as it begins to wait: whoever gets a slot later has no
    call inside it that waits. Of all that hangs together with it, those are struck out that can go on, until no
    more can.
    """
    stuck = _behind(queues, entry)
    if not stuck:
        return False
    stuck[entry.request.ref] = entry
    while free := [ref for ref, one in stuck.items() if not _is_stuck(queues, one, entry, stuck)]:
        for ref in free:
            del stuck[ref]
    return entry.request.ref in stuck


def _behind(queues: Queues, entry: Entry) -> dict[CallRef, Entry]:
    """Return the waiting calls that stand in the way of those who have what `entry` waits for, and so on.

    Empty if none of this leads back to a call that `entry` is inside of.
    """
    found: dict[CallRef, Entry] = {}
    holders: set[CallRef] = set()
    todo = [entry]
    while todo:
        for post, _ in _full_posts(queues, todo.pop()):
            for ref in post.running:
                if ref not in holders:
                    holders.add(ref)
                    todo += [one for inner, one in queues.inner.get(ref, {}).items() if inner not in found]
                    found |= queues.inner.get(ref, {})
    return found if not holders.isdisjoint(entry.request.inside) else {}


def _full_posts(queues: Queues, entry: Entry) -> Iterator[tuple[Post, int]]:
    for key, limit in entry.needs.items():
        post = queues.posts[key]
        if len(post.running) >= limit:
            yield post, limit


def _is_stuck(queues: Queues, one: Entry, new: Entry, stuck: Mapping[CallRef, Entry]) -> bool:
    """Whether all slots of some key that `one` waits for are with calls inside which one is stuck."""
    mine = new.request.inside if new.request.ref in stuck else ()

    def is_held(ref: CallRef) -> bool:
        return ref in mine or not stuck.keys().isdisjoint(queues.inner.get(ref, ()))

    return any(sum(map(is_held, post.running)) >= limit for post, limit in _full_posts(queues, one))
