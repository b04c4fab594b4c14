"""What those who listen to sessions must hear of: changes by this process and by others, and the deaths of holders."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeAlias

from heaveto.events.records import SessionKey
from heaveto.stores.sqlite import sql

_Stamp: TypeAlias = tuple[int, int, str | None]
"""A session's last seq, token and owner."""


class News:
    """Changes since the last time somebody asked.

    Attributes:
        changed: sessions that this process changed, with their last seqs; true once the transaction is committed.
    """

    def __init__(self, connection: sqlite3.Connection, owner: str) -> None:
        self._execute, self._owner = connection.execute, owner
        self._stamps: dict[SessionKey, _Stamp | None] = {}
        self._orphaned: dict[SessionKey, int] = {}
        self._version = -1
        self.changed: dict[SessionKey, int] = {}

    def own(self) -> dict[SessionKey, int]:
        """Return and forget what this process changed."""
        changed, self.changed = self.changed, {}
        return changed

    def foreign(self, version: int, watched: Sequence[SessionKey]) -> dict[SessionKey, int]:
        """Return the watched sessions that others may have changed, with last seqs. `version` is the database's."""
        if version == self._version:
            return {}
        self._version = version
        stamps = {key: self._stamp(key) for key in watched}
        changed = {key: stamp[0] if stamp else 0 for key, stamp in stamps.items() if stamp != self._stamps.get(key, ())}
        self._stamps = stamps
        return changed

    def orphans(self, watched: Sequence[SessionKey], looks_alive: Callable[[str], bool]) -> dict[SessionKey, int]:
        """Return the watched sessions whose holder, another process, was found dead; each one once per lease."""
        found: dict[SessionKey, int] = {}
        for key in watched:
            stamp = self._stamps.get(key)
            if stamp is None or self._orphaned.get(key) == stamp[1]:
                continue
            last_seq, token, owner = stamp
            if owner is not None and owner != self._owner and not looks_alive(owner):
                self._orphaned[key] = token
                found[key] = last_seq
        return found

    def _stamp(self, key: SessionKey) -> _Stamp | None:
        stamp: _Stamp | None = self._execute(sql.SELECT_STAMP, (key.app, key.user, key.session)).fetchone()
        return stamp
