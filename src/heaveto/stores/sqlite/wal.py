"""The write-ahead log as a file: kept short, and long enough that a commit need not make it longer."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from heaveto.stores.sqlite import sql

PAGE_BYTES = 4096
_MOST_PAGES = 4000
"""Under load the log is moved into the file only so often: it takes two more fsyncs and the pages' writes."""
_EXTENDED_PAGES = 1000
_IDLE_PAGES = 900
"""Where nobody waits, it is moved before it outgrows what `extend` has made of it."""


class Wal:
    """The log, seen by the connection that writes.

    Attributes:
        owes_truncation: something was erased whose text may still be in it.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path
        self._pages = 0  # roughly, and without those of other processes, which count their own
        self.owes_truncation = False

    def count(self, pages: int) -> None:
        """Take notice of pages that were written."""
        self._pages += pages

    def checkpoint(self, *, is_idle: bool) -> None:
        """Keep the log from growing: move it into the file from time to time. Done between commits."""
        if self._pages > (_IDLE_PAGES if is_idle else _MOST_PAGES):
            self._pages = _checkpoint(self._connection)

    def truncate(self, wait_seconds: float) -> None:
        """Empty the log, so that erased text is in no file any more; owed on while another process reads."""
        self._connection.execute(f"PRAGMA busy_timeout={int(wait_seconds * 1000)}")
        try:
            self.owes_truncation = not _truncate(self._connection)
        finally:
            self._connection.execute(sql.NO_BUSY_TIMEOUT)
        if not self.owes_truncation:
            self._pages = 0
            extend(self._connection, self._path)


def _checkpoint(connection: sqlite3.Connection) -> int:
    """Move what can be moved from the log into the file without waiting; return the pages that are left."""
    _, logged, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    left: int = logged - moved
    return left


def _truncate(connection: sqlite3.Connection) -> bool:
    """Move the log into the file and empty it; return whether that was possible now."""
    with suppress(sqlite3.OperationalError):
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy
    return False


def extend(connection: sqlite3.Connection, path: Path) -> None:
    """Fill the log's file up with zeros, so that commits overwrite it instead of making it longer.

    An fsync that need not store a new file length takes half the time (measured on ext4: 105 instead of 230 µs). SQLite
    reads a log up to the first frame that does not carry its salt, so zeros are never read. The write lock is held
    meanwhile, so no frame of another process can be overwritten.
    """
    wal = path.with_name(path.name + "-wal")
    length = _EXTENDED_PAGES * (PAGE_BYTES + 24)
    if wal.exists() and wal.stat().st_size >= length:
        return
    try:
        connection.execute(sql.BEGIN)
    except sqlite3.OperationalError:  # somebody is writing: it is an optimisation, everything works without it
        return
    try:
        with suppress(OSError), wal.open("r+b") as file:
            _append_zeros(file.fileno(), length)
    finally:
        connection.execute(sql.ROLLBACK)


def _append_zeros(descriptor: int, upto: int) -> None:
    size = os.fstat(descriptor).st_size
    try:
        os.lseek(descriptor, size, os.SEEK_SET)
        os.write(descriptor, bytes(max(0, upto - size)))
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise
