"""Stores as the reading commands see them: read only, so that looking changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from heaveto.clock import SystemClock
from heaveto.errors import StoreCorruptError, StoreTooNewError
from heaveto.events.records import SessionKey
from heaveto.stores.base import SessionInfo
from heaveto.stores.sqlite.reader import Queries
from heaveto.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS, typed_error

DEFAULT_STORE = "heaveto.db"
_BUSY_SECONDS = 5.0
_WAL_MODE = b"\x02\x02"  # bytes 18 and 19 of SQLite's file header
_ALL = 1_000_000


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open an existing file so that nothing can be written through the connection.

    SQLite's side files are made by whoever opens a file in WAL mode first, and only a connection that may write removes
    them. Where nobody has it open, and so there is nothing to write either, it is opened as such, and left as it was.
    """
    mode = "rw" if _is_at_rest(path) else "ro"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_SECONDS)
    connection.execute("PRAGMA query_only=ON")
    return connection


def _is_at_rest(path: Path) -> bool:
    """Whether a file is in WAL mode and has no WAL: then opening it for writing changes nothing."""
    with path.open("rb") as file:
        header = file.read(20)
    return header[18:20] == _WAL_MODE and not path.with_name(f"{path.name}-wal").exists()


@contextmanager
def reading(path: Path) -> Generator[Queries, None, None]:
    """Open a store for reading, and map what SQLite complains of.

    Raises:
        click.UsageError: there is no such file.
        StoreCorruptError, StoreTooNewError, StoreError
    """
    if not path.is_file():
        raise click.UsageError(f"there is no store at {path}; name one with --store")
    try:
        connection = connect_to_read(path)
        try:
            require_store(connection, path)
            yield Queries(connection, path, "", SystemClock())
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise typed_error(error, path) from error


def require_store(connection: sqlite3.Connection, path: Path) -> int:
    """Check that the file is a store that this version knows; return its schema version.

    Raises:
        StoreCorruptError: it is something else. StoreTooNewError: a newer version wrote it.
    """
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID:
        raise StoreCorruptError(str(path), "is not a heaveto store")
    if version > len(MIGRATIONS):
        newest = len(MIGRATIONS)
        raise StoreTooNewError(str(path), f"has schema version {version}, this program knows {newest}; upgrade heaveto")
    return int(version)


def find_session(queries: Queries, name: str, user: str | None) -> SessionInfo:
    """Return the session with this id, or with this key, such as ``app/user/session``.

    Raises:
        click.UsageError: there is none, or several.
    """
    parts = name.split("/", 2)
    if len(parts) == 3:
        exact = queries.session(SessionKey(*parts))
        if exact is not None:
            return exact
    found = [info for info in queries.sessions(None, user, _ALL, None) if info.key.session == name]
    if not found:
        raise click.UsageError(f"there is no session {name!r}; `heaveto sessions` lists those there are")
    if len(found) > 1:
        keys = ", ".join(str(info.key) for info in found)
        raise click.UsageError(f"{len(found)} sessions are named {name!r}; name one of them in full: {keys}")
    return found[0]


store_option = click.option(
    "--store", "store", type=click.Path(dir_okay=False, path_type=Path), default=DEFAULT_STORE, show_default=True,
    help="The store's file.",
)  # fmt: skip
