"""The transactions of one connection, and what they tell of other processes."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress

from heaveto.stores.sqlite import sql
from heaveto.stores.sqlite.schema import is_busy

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.01


class Transactions:
    """Begins, commits and rolls back, one transaction at a time.

    Waits for another process's write in `begin`, and there alone: SQLite's own waiting would have to be turned off and
    on around each transaction that must not wait, and each of these pragmas is compiled anew (5 µs).

    Attributes:
        version: a number that another connection's commit changes; as of the last `begin` or `look`.
    """

    def __init__(self, connection: sqlite3.Connection, busy_timeout_seconds: float) -> None:
        self._connection, self._execute = connection, connection.execute
        self._timeout = busy_timeout_seconds
        self._is_full_sync = True
        self.version = -1
        self._execute(sql.NO_BUSY_TIMEOUT)

    def begin(self, *, durable: bool, waits: bool = True) -> bool:
        """Begin a transaction; return whether another process has committed since the last look.

        A durable one is on the disk when `commit` returns, others survive a kill only.

        Raises:
            sqlite3.Error: nothing was begun, or `rollback` must follow.
        """
        if durable is not self._is_full_sync:
            self._execute(sql.SYNC_FULL if durable else sql.SYNC_NORMAL)
            self._is_full_sync = durable
        try:
            self._execute(sql.BEGIN)
        except sqlite3.OperationalError as error:
            if not (waits and is_busy(error)):
                raise
            self._begin_later()
        return self.look()

    def _begin_later(self) -> None:
        """Try again until the other process has committed, or for as long as the caller wants to wait."""
        end, pause = time.monotonic() + self._timeout, _FIRST_PAUSE
        while True:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                self._execute(sql.BEGIN)
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= end:
                    raise
            else:
                return

    def look(self) -> bool:
        """Return whether another connection has committed since the last look."""
        before = self.version
        (self.version,) = self._execute(sql.DATA_VERSION).fetchone()
        return self.version != before

    def commit(self) -> None:
        self._execute(sql.COMMIT)

    def rollback(self) -> None:
        """Undo what was begun, if anything was."""
        if self._connection.in_transaction:  # a full disk has rolled back already
            with suppress(sqlite3.Error):  # a damaged file; the first error tells
                self._execute(sql.ROLLBACK)
