"""Who wants to hear about which session."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from heaveto.events.records import SessionKey


class Subscriptions:
    """Callbacks by session. Used on the event loop only; `keys` may be read from any thread."""

    def __init__(self) -> None:
        self._callbacks: dict[SessionKey, list[Callable[[], None]]] = {}

    def add(self, key: SessionKey, callback: Callable[[], None]) -> Callable[[], None]:
        """Register a callback; return how to take it out again (idempotent)."""
        entry = [callback]
        self._callbacks.setdefault(key, []).append(callback)

        def remove() -> None:
            if entry:
                self._remove(key, entry.pop())

        return remove

    def _remove(self, key: SessionKey, callback: Callable[[], None]) -> None:
        callbacks = self._callbacks.get(key, [])
        callbacks.remove(callback)
        if not callbacks:
            del self._callbacks[key]

    def __len__(self) -> int:
        return len(self._callbacks)

    def keys(self) -> tuple[SessionKey, ...]:
        """The sessions that somebody listens to, at this moment."""
        return tuple(self._callbacks)

    def callbacks(self, changed: Iterable[SessionKey]) -> list[Callable[[], None]]:
        """Return the callbacks of these sessions."""
        return [callback for key in changed for callback in self._callbacks.get(key, ())]
