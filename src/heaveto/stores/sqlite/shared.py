"""The states that the sessions of an app, or of a user, share."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from heaveto.events import codec
from heaveto.events.contents import Json
from heaveto.events.records import SessionKey
from heaveto.stores.sqlite import sql


class SharedStates:
    """Shared state as the writer sees it, remembered until somebody changes some."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._found: dict[tuple[str, str], list[tuple[str, bytes]]] = {}

    def get(self, app: str, user: str) -> dict[str, Json]:
        """Return the current ``app:`` and ``user:`` state."""
        rows = self._found.get((app, user))
        if rows is None:
            rows = self._found[app, user] = self._execute(sql.SELECT_SHARED, (app, app, user)).fetchall()
        return {name: codec.decode_value(value) for name, value in rows}

    def update(self, key: SessionKey, values: Mapping[str, bytes | None]) -> None:
        """Store new values, encoded, by prefixed key; None deletes."""
        self._found.clear()
        for name, value in values.items():
            place = (key.app, "" if name.startswith("app:") else key.user, name)
            if value is None:
                self._execute(sql.DELETE_SHARED, place)
            else:
                self._execute(sql.UPSERT_SHARED, (*place, value))

    def forget(self) -> None:
        """Read everything anew."""
        self._found.clear()
