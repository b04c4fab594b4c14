"""Session rows, remembered from one transaction to the next until another process writes."""

from __future__ import annotations

import math
import sqlite3

from heaveto.clock import Clock
from heaveto.errors import SessionErasedError, UnknownSessionError
from heaveto.events.records import SessionKey
from heaveto.stores.base import Tombstone
from heaveto.stores.sqlite import sql


class Row:
    """A session's row, and whether it may have drafts."""

    __slots__ = ("created", "id", "last_seq", "may_have_drafts", "owner", "since", "token", "updated")

    def __init__(
        self,
        id: int,
        created: float,
        updated: float,
        last_seq: int = 0,
        token: int = 0,
        owner: str | None = None,
        since: float | None = None,
    ) -> None:
        self.id, self.created, self.updated, self.last_seq = id, created, updated, last_seq
        self.token, self.owner, self.since = token, owner, since
        self.may_have_drafts = True


class Rows:
    """The rows that this process works with. Whoever changes one puts it into a set, to be written back at commit.

    Attributes:
        moved: rows whose log has grown.
        leased: rows whose lease was taken or given back.
    """

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._execute, self._executemany, self._clock = connection.execute, connection.executemany, clock
        self._rows: dict[SessionKey, Row] = {}
        self._newest: float | None = None
        self.moved: set[Row] = set()
        self.leased: set[Row] = set()

    def get(self, key: SessionKey) -> Row:
        """Return a session's row.

        Raises:
            UnknownSessionError, SessionErasedError
        """
        row = self.find(key)
        if row is None:
            raise SessionErasedError(key) if self.tombstone(key) else UnknownSessionError(key)
        return row

    def find(self, key: SessionKey) -> Row | None:
        """Return a session's row, or None if there is no such session."""
        row = self._rows.get(key)
        if row is None:
            found = self._execute(sql.SELECT_SESSION, address(key)).fetchone()
            if found is not None:
                row = self._rows[key] = Row(*found)
        return row

    def tombstone(self, key: SessionKey) -> Tombstone | None:
        """Return what is left of a session that was erased."""
        found = self._execute(sql.SELECT_TOMBSTONE, address(key)).fetchone()
        return Tombstone(key, *found) if found else None

    def add(self, key: SessionKey) -> Row:
        """Insert the row of a new session."""
        now = self.tick()
        cursor = self._execute(sql.INSERT_SESSION, (*address(key), now, now))
        row = self._rows[key] = Row(cursor.lastrowid or 0, now, now)
        row.may_have_drafts = False
        return row

    def drop(self, key: SessionKey) -> None:
        """Forget the row of a session that is erased."""
        row = self._rows.pop(key)
        self.moved.discard(row)
        self.leased.discard(row)

    def tick(self) -> float:
        """Return the time, but later than every time before: no two sessions share an `updated`."""
        newest = self._newest
        if newest is None:
            newest = self._execute(sql.SELECT_NEWEST).fetchone()[0] or 0.0
        self._newest = newest = max(self._clock.time(), math.nextafter(newest, math.inf))
        return newest

    def write_back(self) -> int:
        """Write what has changed; return about how many pages that takes."""
        if self.moved:
            self._executemany(sql.UPDATE_LOG, [(row.last_seq, row.updated, row.id) for row in self.moved])
        if self.leased:
            self._executemany(sql.UPDATE_LEASE, [(row.token, row.owner, row.since, row.id) for row in self.leased])
        pages = 2 * len(self.moved) + len(self.leased)
        self.settle()
        return pages

    def settle(self) -> None:
        """Nothing is to be written back: that was done, or undone."""
        self.moved.clear()
        self.leased.clear()

    def forget(self) -> None:
        """Read everything anew: another process has written, or something was undone."""
        self._rows.clear()
        self._newest = None


def address(key: SessionKey) -> tuple[str, str, str]:
    """The columns that name a session."""
    return key.app, key.user, key.session
