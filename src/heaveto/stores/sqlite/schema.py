"""Tables, migrations, and opening a file without harming what it is."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from heaveto.errors import (
    HeavetoError,
    NotSerializableError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreOpenError,
    StoreTooNewError,
)
from heaveto.stores.sqlite import wal

_RETRY_SECONDS = 0.002
APPLICATION_ID = 0x48565430  # "HVT0": how `file` and we tell a store of ours from other SQLite files

_VERSION_1 = """
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again after an erase
    app TEXT NOT NULL, user TEXT NOT NULL, session TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,                 -- unique in the store, so that a listing can be continued
    last_seq INTEGER NOT NULL DEFAULT 0,
    token INTEGER NOT NULL DEFAULT 0,      -- grows with each claim
    owner TEXT, since REAL,                -- the lease; NULL if nobody holds it
    UNIQUE (app, user, session)
);
CREATE INDEX sessions_updated ON sessions (updated);

CREATE TABLE records (
    session INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (session, seq), UNIQUE (session, id)
) WITHOUT ROWID;

CREATE TABLE guards (
    session INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (session, name)
) WITHOUT ROWID;

CREATE TABLE runs (                        -- every run that ever was, to be found
    run_id TEXT NOT NULL, session INTEGER NOT NULL, PRIMARY KEY (run_id, session)
) WITHOUT ROWID;

CREATE TABLE unfinished (                  -- the runs with business left
    session INTEGER NOT NULL, run_id TEXT NOT NULL,
    opened REAL NOT NULL,                  -- unique, as sessions.updated is
    ended INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (session, run_id)
) WITHOUT ROWID;

CREATE TABLE drafts (
    session INTEGER NOT NULL, message_id TEXT NOT NULL, run_id TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (session, message_id)
) WITHOUT ROWID;

CREATE TABLE shared (                      -- app: keys have no user
    app TEXT NOT NULL, user TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (app, user, key)
) WITHOUT ROWID;

CREATE TABLE owners (
    owner TEXT PRIMARY KEY, beat REAL NOT NULL, ttl REAL NOT NULL  -- the machine's monotonic clock
) WITHOUT ROWID;

CREATE TABLE tombstones (
    app TEXT NOT NULL, user TEXT NOT NULL, session TEXT NOT NULL,
    created REAL NOT NULL, erased REAL NOT NULL, records INTEGER NOT NULL,
    erased_by TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (app, user, session)
) WITHOUT ROWID;
"""

_VERSION_2 = """
CREATE TABLE blobs (
    number INTEGER PRIMARY KEY,            -- random, so that it is known before anything is written
    session INTEGER NOT NULL,              -- 0 where the user owns it
    app TEXT NOT NULL, user TEXT NOT NULL, -- empty where the session owns it
    name TEXT NOT NULL,
    version INTEGER,                       -- NULL until all chunks are there
    id TEXT,                               -- a save that is repeated has the same
    owner TEXT NOT NULL,                   -- the instance that saves or saved it
    mime_type TEXT NOT NULL, size INTEGER NOT NULL,
    UNIQUE (session, app, user, name, version)
);
CREATE INDEX blobs_begun ON blobs (number) WHERE version IS NULL;

CREATE TABLE chunks (
    blob INTEGER NOT NULL, place INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (blob, place)
) WITHOUT ROWID;
"""

MIGRATIONS: tuple[str, ...] = (_VERSION_1, _VERSION_2)
"""Scripts in order; number n brings the schema to version n. A script that was released is never changed."""


def connect(path: Path, busy_timeout_seconds: float) -> sqlite3.Connection:
    """Open an existing or new file; the caller starts all transactions. Writes nothing."""
    return sqlite3.connect(path, timeout=busy_timeout_seconds, isolation_level=None, check_same_thread=False)


def open_file(
    path: Path, busy_timeout_seconds: float, migrations: Sequence[str] = MIGRATIONS, max_bytes: int | None = None
) -> sqlite3.Connection:
    """Open a store for writing: check what the file is, and create or migrate its tables. Blocks.

    Raises:
        StoreOpenError: the path cannot be used; StoreCorruptError, StoreTooNewError: the file was not touched.
    """
    try:
        _check_path(path)
        connection = connect(path, busy_timeout_seconds)
        try:
            _check_content(connection, path, len(migrations))
            _configure(connection, busy_timeout_seconds, max_bytes)
            migrate(connection, migrations)
            wal.extend(connection, path)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError, ValueError) as error:
        raise typed_error(error, path) from error
    return connection


def _check_path(path: Path) -> None:
    if path.is_dir():
        raise StoreOpenError(str(path), "is a directory; name a file in it")
    if not path.parent.is_dir():
        raise StoreOpenError(str(path), f"the directory {path.parent} does not exist; create it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise StoreOpenError(str(path), "is not writable")


def _check_content(connection: sqlite3.Connection, path: Path, newest: int) -> None:
    application_id, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if application_id != APPLICATION_ID and (tables or version or application_id):
        raise StoreCorruptError(str(path), "is an SQLite database, but not of heaveto; choose another path")
    if version > newest:
        raise StoreTooNewError(str(path), f"has schema version {version}, this program knows {newest}; upgrade heaveto")


def _configure(connection: sqlite3.Connection, busy_timeout_seconds: float, max_bytes: int | None) -> None:
    """Set what holds for every connection that writes."""
    mode = _use_wal(connection, busy_timeout_seconds)
    if mode != "wal":
        raise sqlite3.OperationalError(f"the file system allows no write-ahead log, only {mode}")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("PRAGMA wal_autocheckpoint=0")  # the writer does it, between commits instead of in one
    connection.execute("PRAGMA cache_size=-16000")
    if max_bytes is not None:
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA max_page_count={max(1, max_bytes // page_size)}")


def _use_wal(connection: sqlite3.Connection, busy_timeout_seconds: float) -> str:
    """Switch to a write-ahead log and return the mode that is in force.

    Where several processes open a new file at once, SQLite calls it locked without waiting (each holds a lock that
    another one needs), so the waiting is done here.
    """
    end = time.monotonic() + busy_timeout_seconds
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= end:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return str(mode)


def migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """Bring the schema to the newest version, in one transaction; do nothing if it is there already."""
    if connection.execute("PRAGMA user_version").fetchone()[0] >= len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()  # another process may have been first
        for script in migrations[version:]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={max(version, len(migrations))}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> list[str]:
    """Split a script; `executescript` would commit the transaction that it should be part of."""
    statements: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return [*statements, pending] if pending.strip() else statements


def check_integrity(path: Path) -> list[str]:
    """Return what SQLite finds wrong with the file; empty if nothing. Blocks."""
    with closing(connect(path, 1.0)) as connection:
        rows = connection.execute("PRAGMA integrity_check").fetchall()
    return [problem for (problem,) in rows if problem != "ok"]


_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNUSABLE = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process's write, or a lock for a moment, was in the way."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


def typed_error(error: Exception, path: Path) -> HeavetoError:
    """Return our error for a foreign one, which becomes its cause: the one seam where they are mapped."""
    if isinstance(error, HeavetoError):
        return error
    typed = _translated(error, path)
    typed.__cause__ = error
    return typed


def _translated(error: Exception, path: Path) -> HeavetoError:
    if isinstance(error, UnicodeEncodeError):
        return NotSerializableError("a key or name", f"{error.object[:60]!r} is not valid Unicode")
    if isinstance(error, sqlite3.Error):
        return _typed_sqlite_error(error, path)
    if isinstance(error, OSError | ValueError):
        return StoreOpenError(str(path), str(error))
    return StoreError(f"store {path}: {type(error).__name__}: {error}")


def _typed_sqlite_error(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0)  # absent where the module itself raised
    primary = code & 0xFF
    if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and _no_space(path)):
        return StoreFullError(f"store {path}: no space left; nothing was written")
    if primary in _CORRUPT or (not code and isinstance(error, sqlite3.DatabaseError) and "malformed" in str(error)):
        return StoreCorruptError(str(path), f"damaged, or not a store ({error})")
    if primary in _BUSY:
        return StoreBusyError(str(path))
    if primary in _UNUSABLE:
        return StoreOpenError(str(path), f"cannot be opened for writing ({error})")
    return StoreError(f"store {path}: {error}")


def _no_space(path: Path) -> bool:
    """Whether the disk is full: SQLite reports a WAL index that cannot grow as a plain I/O error."""
    if not hasattr(os, "statvfs"):
        return False
    try:
        status = os.statvfs(path.parent)
    except OSError:
        return False
    return status.f_bavail * status.f_frsize < 65536
