"""The gate's decisions: who may go at once, and who may when others leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from heaveto.core.gate.calls import CallRef, GateState, Key, SlotRequest
from heaveto.core.gate.circles import closes_circle, slots_that_count
from heaveto.core.gate.queues import Entry, Queues
from heaveto.core.gate.turns import next_at, positions

PATIENCE = 64
"""How often a call may be overtaken, besides once for each user who waited when it became the oldest."""


class Admission:
    """Decides who may go. Of use on one thread; `enter` and `leave` are all that changes it."""

    def __init__(self, *, patience: int = PATIENCE) -> None:
        self._queues = Queues(patience)

    def enter(self, request: SlotRequest, now: float = 0.0) -> bool:
        """Return whether the call may run now; if not, it waits from now on, until a `leave` returns its request.

        Raises:
            ValueError: the call is at the gate already.
        """
        queues, ref = self._queues, request.ref
        if ref in queues.running or ref in queues.waiting:
            raise ValueError(f"call {request.call_id} of run {request.run_id} is at the gate already")
        entry = queues.arrived(request, slots_that_count(queues, request), now)
        if queues.fits(entry) or (request.inside and closes_circle(queues, entry)):
            queues.take(entry)
            return True
        queues.enqueue(entry)
        return False

    def leave(self, ref: CallRef) -> list[SlotRequest]:
        """A call has ended, or waits no more; return the requests of those that may run now, in order.

        Harmless for one that is not at the gate.
        """
        entry = self._queues.running.pop(ref, None)
        if entry is not None:
            return self._give_back(entry)
        entry = self._queues.waiting.get(ref)
        if entry is None:
            return []
        granted = self._hand_out(self._queues.dequeue(entry))
        self._queues.forget_unused(entry.needs)
        return granted

    def is_waiting(self, ref: CallRef) -> bool:
        return ref in self._queues.waiting

    @property
    def is_idle(self) -> bool:
        """Whether nothing is remembered: no call runs or waits."""
        return self._queues.is_empty

    def snapshot(self) -> list[GateState]:
        """Return the state of each key that is in use, in the order of the keys."""
        return [
            GateState(key, post.limit, tuple(post.running), tuple(positions(self._queues, key)))
            for key, post in sorted(self._queues.posts.items())
        ]

    def _give_back(self, entry: Entry) -> list[SlotRequest]:
        queues, ref, needs = self._queues, entry.request.ref, entry.needs
        keys = list(needs)
        if queues.waiting:
            keys.sort(key=lambda key: not queues.is_contested(key, needs[key]))
        for key in keys:
            del queues.posts[key].running[ref]
        granted = self._hand_out(keys) if queues.waiting else []
        queues.forget_unused(keys)
        return granted

    def _hand_out(self, keys: Iterable[Key]) -> list[SlotRequest]:
        """Let everyone go who can, now that slots of `keys` are free. Contested keys come first: their turns decide."""
        queues = self._queues
        granted: list[SlotRequest] = []
        todo = deque(keys)
        for key in todo:
            queues.unpark(key)
        while todo:
            entry = next_at(queues, todo[0])
            if entry is None:
                todo.popleft()
                continue
            for key in queues.dequeue(entry):
                queues.unpark(key)
                todo.append(key)
            queues.take(entry)
            granted.append(entry.request)
        return granted
