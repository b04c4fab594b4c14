"""Blobs: content of any size beside the log, written in chunks between the appends of others.

A blob is begun with its first chunk, as a row without a version, which nobody sees; its last step gives it one. What a
process that died had begun is removed by the next instance that saves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

import msgspec

from heaveto.errors import StoreError
from heaveto.events.contents import ArtifactInfo
from heaveto.events.records import SessionKey
from heaveto.stores.base import OF_USER
from heaveto.stores.sqlite import sql, wal

CHUNK_BYTES = 256 * 1024
"""How much is written at once: the longest that a blob keeps an append waiting is the time for this."""


class Upload(msgspec.Struct, frozen=True):
    """A blob on its way into the store. `number` is random and names it for good."""

    number: int
    key: SessionKey
    name: str
    mime_type: str
    size: int
    id: str | None


class Found(msgspec.Struct, frozen=True):
    """A blob that is to be read."""

    number: int
    mime_type: str
    size: int


def pieces(content: bytes) -> Iterator[memoryview]:
    """Cut content into chunks without copying it; empty content is one empty chunk."""
    view = memoryview(content)
    for start in range(0, max(len(content), 1), CHUNK_BYTES):
        yield view[start : start + CHUNK_BYTES]


class BlobWriter:
    """What writes of blobs do inside a transaction; part of the ledger.

    Args:
        session_of: returns the row id of a session, or raises why there is none.
        is_running: whether the process of an owner is there.
        logged: told how many pages were written.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        owner: str,
        *,
        session_of: Callable[[SessionKey], int],
        is_running: Callable[[str], bool],
        logged: Callable[[int], None],
    ) -> None:
        self._execute = connection.execute
        self._owner, self._session_of, self._is_running, self._logged = owner, session_of, is_running, logged
        self._has_swept = False

    def find(self, upload: Upload) -> int | None:
        """Return the version that an earlier save of the same id made.

        Raises:
            UnknownSessionError, SessionErasedError: the session that would own the blob is not there.
        """
        owner = self._owner_of(upload.key, upload.name)
        if upload.id is None:
            return None
        row = self._execute(sql.FIND_SAVED, (*owner, upload.name, upload.id)).fetchone()
        return row[0] if row else None

    def add(self, upload: Upload, place: int, content: memoryview) -> None:
        """Write a chunk; the first one begins the blob."""
        owner = self._owner_of(upload.key, upload.name)
        if place == 0:
            self._sweep()
            about = (upload.name, upload.id, self._owner, upload.mime_type, upload.size)
            self._execute(sql.INSERT_BLOB, (upload.number, *owner, *about))
        elif not self._execute(sql.IS_BEGUN, (upload.number,)).fetchone():
            raise StoreError(f"blob {upload.name!r} of {upload.key}: what was begun of it is gone; save it again")
        self._execute(sql.INSERT_CHUNK, (upload.number, place, content))
        self._logged(2 + len(content) // wal.PAGE_BYTES)

    def publish(self, upload: Upload) -> int:
        """Give the blob its version; if the same id was saved meanwhile, remove it and return that one's."""
        earlier = self.find(upload)
        if earlier is not None:
            self.discard(upload.number)
            return earlier
        (stored,) = self._execute(sql.SIZE_OF_CHUNKS, (upload.number,)).fetchone()
        if stored != upload.size:
            raise StoreError(f"blob {upload.name!r} of {upload.key}: what was begun of it is gone; save it again")
        owner = self._owner_of(upload.key, upload.name)
        self._execute(sql.PUBLISH_BLOB, (*owner, upload.name, upload.number))
        (version,) = self._execute(sql.SELECT_VERSION, (upload.number,)).fetchone()
        return int(version)

    def save(self, upload: Upload, content: bytes) -> int:
        """Do all steps for a blob of one chunk."""
        earlier = self.find(upload)
        if earlier is not None:
            return earlier
        self.add(upload, 0, memoryview(content))
        return self.publish(upload)

    def discard(self, number: int) -> None:
        """Remove what was begun; nothing if it has its version."""
        self._execute(sql.DELETE_CHUNKS_BEGUN, (number,))
        self._execute(sql.DELETE_BEGUN, (number,))

    def delete(self, key: SessionKey, name: str) -> bool:
        """Delete all versions of a blob; return whether there were any."""
        owner = address_of(self._execute, key, name)
        if owner is None:
            return False
        self._execute(sql.DELETE_CHUNKS_NAMED, (*owner, name))
        return self._execute(sql.DELETE_NAMED, (*owner, name)).rowcount > 0

    def _sweep(self) -> None:
        """Remove, once, what instances that are gone had begun."""
        if self._has_swept:
            return
        for number, owner in self._execute(sql.SELECT_BEGUN).fetchall():
            if owner != self._owner and not self._is_running(owner):
                self.discard(number)
        self._has_swept = True

    def _owner_of(self, key: SessionKey, name: str) -> tuple[int, str, str]:
        return (0, key.app, key.user) if name.startswith(OF_USER) else (self._session_of(key), "", "")


class BlobQueries:
    """What can be asked about blobs; part of the reader."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def find(self, key: SessionKey, name: str, version: int | None) -> Found | None:
        """Return where a version is, the newest if none is named."""
        owner = address_of(self._execute, key, name)
        if owner is None:
            return None
        if version is None:
            row = self._execute(sql.FIND_NEWEST, (*owner, name)).fetchone()
        else:
            row = self._execute(sql.FIND_VERSION, (*owner, name, version)).fetchone()
        return Found(*row) if row else None

    def chunks(self, number: int, first: int, count: int) -> list[bytes]:
        """Return some chunks; fewer if there are no more, or the blob was deleted."""
        return [content for (content,) in self._execute(sql.SELECT_CHUNKS, (number, first, first + count))]

    def listing(self, key: SessionKey) -> list[ArtifactInfo]:
        """Return the newest version of each blob of the session and of its user, by name."""
        session = _session(self._execute, key) or 0
        rows = self._execute(sql.LIST_BLOBS, (session, key.app, key.user))
        return sorted((ArtifactInfo(*row) for row in rows), key=lambda info: info.name)

    def versions(self, key: SessionKey, name: str) -> list[int]:
        """Return the versions that there are."""
        owner = address_of(self._execute, key, name)
        rows = self._execute(sql.SELECT_VERSIONS, (*owner, name)) if owner else ()
        return [version for (version,) in rows]


_Execute = Callable[..., sqlite3.Cursor]


def address_of(execute: _Execute, key: SessionKey, name: str) -> tuple[int, str, str] | None:
    """Return what owns a blob of this name, or None if that session does not exist."""
    if name.startswith(OF_USER):
        return 0, key.app, key.user
    session = _session(execute, key)
    return None if session is None else (session, "", "")


def _session(execute: _Execute, key: SessionKey) -> int | None:
    row = execute(sql.FIND_SESSION, (key.app, key.user, key.session)).fetchone()
    return int(row[0]) if row else None
