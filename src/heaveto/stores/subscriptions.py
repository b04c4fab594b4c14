"""Who wants to hear about which session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from heaveto.events.records import SessionKey


class Subscriptions:
    """Callbacks by session. Used on the event loop only; `keys` may be read from any thread."""

    def __init__(self) -> None:
        self._callbacks: dict[SessionKey, list[Callable[[int], None]]] = {}

    def add(self, key: SessionKey, callback: Callable[[int], None]) -> Callable[[], None]:
        """Register a callback; return how to take it out again (idempotent)."""
        entry = [callback]
        self._callbacks.setdefault(key, []).append(callback)

        def remove() -> None:
            if entry:
                self._remove(key, entry.pop())

        return remove

    def _remove(self, key: SessionKey, callback: Callable[[int], None]) -> None:
        callbacks = self._callbacks.get(key, [])
        callbacks.remove(callback)
        if not callbacks:
            del self._callbacks[key]

    def __len__(self) -> int:
        return len(self._callbacks)

    def keys(self) -> tuple[SessionKey, ...]:
        """The sessions that somebody listens to, at this moment."""
        return tuple(self._callbacks)

    def callbacks(self, changed: Mapping[SessionKey, int]) -> list[Callable[[], None]]:
        """Return what to call for these sessions, with their last seqs."""
        return [
            partial(callback, last_seq)
            for key, last_seq in changed.items()
            for callback in self._callbacks.get(key, ())
        ]
