"""What writes do inside a transaction. Runs in the writer's thread; nothing here begins or ends a transaction alone.

Every operation checks first and writes after, so that its typed error leaves the transaction as it was, and the other
operations of the same commit unharmed.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from heaveto.clock import Clock
from heaveto.errors import (
    DuplicateRecordError,
    GuardTakenError,
    LeaseHeldError,
    LogMovedError,
    RunIdTakenError,
    SessionErasedError,
    SessionExistsError,
    StaleLeaseError,
    UnknownSessionError,
)
from heaveto.events import codec
from heaveto.events.contents import Json
from heaveto.events.records import SessionKey
from heaveto.stores.base import Guard, Lease, SessionInfo, Tombstone
from heaveto.stores.batch import Batch
from heaveto.stores.sqlite import liveness, schema, sql
from heaveto.stores.sqlite.blobs import BlobWriter, Upload


class _RunOf(msgspec.Struct):
    """The one field of a record that erasing needs to know, in whatever version it was written."""

    run_id: str = ""


_RUN_ID = msgspec.json.Decoder(_RunOf)


class _Row:
    """A session's row, and whether it may have drafts. Held over transactions until another process writes."""

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


class Ledger:
    """The write side of one connection, with a cache of session rows that is written back at commit.

    Attributes:
        changed: sessions that subscribers must hear about once the transaction is committed, with their last seqs.
        held: sessions whose lease this owner holds, with their tokens.
        owes_truncation: something was erased whose text may still be in the WAL.
        blobs: the part that writes blobs.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        owner: str,
        *,
        ttl_seconds: float,
        busy_timeout_seconds: float,
        clock: Clock,
    ) -> None:
        self._connection, self._path, self._owner = connection, path, owner
        self._ttl, self._clock = ttl_seconds, clock
        self._set_busy_timeout = f"PRAGMA busy_timeout={int(busy_timeout_seconds * 1000)}"
        self._execute, self._executemany = connection.execute, connection.executemany
        self._file = liveness.OwnerFile(path, owner)
        self._rows: dict[SessionKey, _Row] = {}
        self._shared: dict[tuple[str, str], list[tuple[str, bytes]]] = {}
        self._moved: set[_Row] = set()
        self._leased: set[_Row] = set()
        self._buried: set[str] = set()  # dead owners whose files go once others can see that their beats are gone
        self._newest: float | None = None
        self._last_beat = -math.inf
        self._is_full_sync = True
        self._logged_pages = 0  # roughly, and without those of other processes, which count their own
        self._cached_version = self._watched_version = -1
        self._orphaned: dict[SessionKey, int] = {}
        self._stamps: dict[SessionKey, tuple[int, int, str | None] | None] = {}
        self.changed: dict[SessionKey, int] = {}
        self.held: dict[SessionKey, int] = {}
        self.owes_truncation = False
        self.blobs = BlobWriter(
            connection,
            owner,
            session_of=lambda key: self._row(key).id,
            is_running=self._is_running,
            logged=self._count_pages,
        )

    # --- transactions

    def begin_nowait(self) -> bool:
        """Begin a transaction that is not durable, unless another process is writing; return whether it was begun."""
        self._execute("PRAGMA busy_timeout=0")
        try:
            self.begin(durable=False)
        except sqlite3.Error:  # locked; or damaged, which the thread will report
            self.rollback()
            return False
        finally:
            self._execute(self._set_busy_timeout)
        return True

    def begin(self, *, durable: bool) -> None:
        """Begin a transaction; a durable one is on the disk when `commit` returns, others survive a kill only."""
        if durable is not self._is_full_sync:
            self._execute(sql.SYNC_FULL if durable else sql.SYNC_NORMAL)
            self._is_full_sync = durable
        self._execute(sql.BEGIN)
        (version,) = self._execute(sql.DATA_VERSION).fetchone()
        if version != self._cached_version:
            self._cached_version = version
            self._forget()

    def commit(self) -> None:
        """Write the changed session rows back and commit."""
        if self._moved:
            self._executemany(sql.UPDATE_LOG, [(row.last_seq, row.updated, row.id) for row in self._moved])
        if self._leased:
            self._executemany(sql.UPDATE_LEASE, [(row.token, row.owner, row.since, row.id) for row in self._leased])
        self._execute(sql.COMMIT)
        self._logged_pages += 2 + len(self._moved)
        self._moved.clear()
        self._leased.clear()
        while self._buried:
            liveness.remove(self._path, self._buried.pop())

    def rollback(self) -> None:
        """Undo everything since `begin`, what is remembered of it included."""
        if self._connection.in_transaction:  # a full disk has rolled back already
            with suppress(sqlite3.Error):  # a damaged file; the first error tells
                self._execute(sql.ROLLBACK)
        self._forget()
        self._moved.clear()
        self._leased.clear()
        self._buried.clear()
        self.changed.clear()
        self._last_beat = -math.inf

    def _forget(self) -> None:
        self._rows.clear()
        self._shared.clear()
        self._newest = None

    def foreign_changes(self, watched: Sequence[SessionKey]) -> dict[SessionKey, int]:
        """Return the watched sessions that other processes may have changed since the last call, with last seqs."""
        (version,) = self._execute(sql.DATA_VERSION).fetchone()
        if version == self._watched_version:
            return {}
        self._watched_version = version
        stamps = {key: self._stamp(key) for key in watched}
        changed = {key: stamp[0] if stamp else 0 for key, stamp in stamps.items() if stamp != self._stamps.get(key, ())}
        self._stamps = stamps
        return changed

    def orphans(self, watched: Sequence[SessionKey]) -> dict[SessionKey, int]:
        """Return the watched sessions whose holder, another process, was found dead; each one once per lease."""
        found: dict[SessionKey, int] = {}
        for key in watched:
            stamp = self._stamps.get(key)
            if stamp is None or self._orphaned.get(key) == stamp[1]:
                continue
            owner = stamp[2]
            if owner is not None and owner != self._owner and not self._looks_alive(owner):
                self._orphaned[key] = stamp[1]
                found[key] = stamp[0]
        return found

    def _looks_alive(self, owner: str) -> bool:
        file = liveness.probe(self._path, owner)  # first: a file that is gone means that the beat is gone too
        beat: tuple[float, float] | None = self._execute(sql.SELECT_OWNER, (owner,)).fetchone()
        return liveness.is_alive(beat, self._clock.monotonic(), file)

    def _stamp(self, key: SessionKey) -> tuple[int, int, str | None] | None:
        stamp: tuple[int, int, str | None] | None = self._execute(sql.SELECT_STAMP, _address(key)).fetchone()
        return stamp

    # --- sessions

    def _row(self, key: SessionKey) -> _Row:
        row = self._rows.get(key)
        if row is None:
            found = self._execute(sql.SELECT_SESSION, _address(key)).fetchone()
            if found is None:
                raise self._missing(key)
            row = self._rows[key] = _Row(*found)
        return row

    def _missing(self, key: SessionKey) -> SessionErasedError | UnknownSessionError:
        return SessionErasedError(key) if self._tombstone(key) else UnknownSessionError(key)

    def _tombstone(self, key: SessionKey) -> Tombstone | None:
        found = self._execute(sql.SELECT_TOMBSTONE, _address(key)).fetchone()
        return Tombstone(key, *found) if found else None

    def create(self, key: SessionKey, first: Batch) -> SessionInfo:
        """Create a session with its first records."""
        if key in self._rows or self._execute(sql.SELECT_SESSION, _address(key)).fetchone():
            raise SessionExistsError(key)
        if self._tombstone(key):
            raise SessionErasedError(key)
        now = self._tick()
        cursor = self._execute(sql.INSERT_SESSION, (*_address(key), now, now))
        row = self._rows[key] = _Row(cursor.lastrowid or 0, now, now)
        row.may_have_drafts = False
        self.changed[key] = 0
        self._insert(key, row, first)
        self._apply(key, row, first)
        return SessionInfo(key, row.created, row.updated, row.last_seq)

    def erase(self, key: SessionKey, by: str, reason: str) -> Tombstone:
        """Delete a session's content and leave a tombstone."""
        stone = self._tombstone(key)
        if stone:
            return stone
        row = self._row(key)
        stone = Tombstone(key, row.created, self._clock.time(), row.last_seq, by, reason)
        bodies = self._execute(sql.SELECT_BODIES, (row.id,))
        runs = {_run_of(body) for (body,) in bodies}
        self._executemany(sql.DELETE_RUN, [(run_id, row.id) for run_id in runs])
        for statement in sql.ERASE_CONTENT:
            self._execute(statement, (row.id,))
        values = (stone.created, stone.erased, stone.records, stone.by, stone.reason)
        self._execute(sql.INSERT_TOMBSTONE, (*_address(key), *values))
        del self._rows[key]
        self._moved.discard(row)
        self._leased.discard(row)
        self.held.pop(key, None)
        self.changed[key] = 0
        self.owes_truncation = True
        return stone

    # --- the log

    def append(self, key: SessionKey, batch: Batch, token: int | None, expect: int | None, guard: Guard | None) -> int:
        """Append a batch; see `Store.append`."""
        row = self._row(key)
        refusal = self._refusal(key, row, batch, token, expect, guard)
        if refusal is not None:
            repeated = self._repeated(row, batch)
            if repeated:
                return repeated
            raise refusal
        first_seq = row.last_seq + 1
        try:
            self._insert(key, row, batch)
        except sqlite3.IntegrityError:
            return self._not_new(key, row, batch, first_seq)
        if guard is not None:
            self._execute(sql.INSERT_GUARD, (row.id, guard.name, guard.value))
        self._apply(key, row, batch)
        return row.last_seq

    def _refusal(
        self, key: SessionKey, row: _Row, batch: Batch, token: int | None, expect: int | None, guard: Guard | None
    ) -> StaleLeaseError | LogMovedError | GuardTakenError | RunIdTakenError | None:
        if token is not None and (token != row.token or row.owner is None):
            return StaleLeaseError(key, held=token, current=row.token)
        if expect is not None and expect != row.last_seq:
            return LogMovedError(key, expected=expect, current=row.last_seq)
        if guard is not None:
            taken = self._execute(sql.SELECT_GUARD, (row.id, guard.name)).fetchone()
            if taken:
                return GuardTakenError(key, guard.name, taken[0])
        for run_id in batch.opened:
            if self._execute(sql.IS_ELSEWHERE, (run_id, row.id)).fetchone():
                return RunIdTakenError(run_id)
        return None

    def _insert(self, key: SessionKey, row: _Row, batch: Batch) -> None:
        if not batch.rows:
            return
        session, seq = row.id, row.last_seq
        rows = [(session, seq + place, record_id, body) for place, (record_id, body) in enumerate(batch.rows, 1)]
        self._executemany(sql.INSERT_RECORD, rows)
        self._logged_pages += 2 + batch.size // schema.PAGE_BYTES
        row.last_seq = seq + len(batch.rows)
        row.updated = self._tick()
        self._moved.add(row)
        self.changed[key] = row.last_seq

    def _not_new(self, key: SessionKey, row: _Row, batch: Batch, first_seq: int) -> int:
        """Take back what was inserted before the first known id; then it is a repeat (F117), or an error."""
        self._execute(sql.DELETE_RECORDS_AFTER, (row.id, first_seq - 1))
        repeated = self._repeated(row, batch)
        if repeated:
            return repeated
        seen: set[str] = set()
        for record_id, _ in batch.rows:
            if record_id in seen or self._execute(sql.SELECT_SEQ, (row.id, record_id)).fetchone():
                raise DuplicateRecordError(key, record_id)
            seen.add(record_id)
        raise AssertionError("an id was there, and then it was not")

    def _repeated(self, row: _Row, batch: Batch) -> int | None:
        """Return the seq of an earlier append of the same records in the same order, or None."""
        seqs: list[int] = []
        for record_id, _ in batch.rows:
            found = self._execute(sql.SELECT_SEQ, (row.id, record_id)).fetchone()
            if not found or (seqs and found[0] != seqs[-1] + 1):
                return None
            seqs.append(found[0])
        return seqs[-1] if seqs else None

    def _apply(self, key: SessionKey, row: _Row, batch: Batch) -> None:
        """Do what the records do besides being stored."""
        for run_id in batch.opened:
            if self._execute(sql.INSERT_RUN, (run_id, row.id)).rowcount:
                self._execute(sql.INSERT_UNFINISHED, (row.id, run_id, self._tick()))
        for run_id in batch.ended:
            self._execute(sql.END_RUN, (row.id, run_id))
        if row.may_have_drafts and (batch.said or batch.ended):
            self._drop_drafts(row, batch)
        if batch.shared:
            self._share(key, batch)

    def _share(self, key: SessionKey, batch: Batch) -> None:
        self._shared.clear()
        for name, value in batch.shared.items():
            address = (key.app, "" if name.startswith("app:") else key.user, name)
            if value is None:
                self._execute(sql.DELETE_SHARED, address)
            else:
                self._execute(sql.UPSERT_SHARED, (*address, value))

    def _drop_drafts(self, row: _Row, batch: Batch) -> None:
        for message_id in batch.said:
            self._execute(sql.DELETE_DRAFT, (row.id, message_id))
        for run_id in batch.ended:
            self._execute(sql.DELETE_DRAFTS_OF_RUN, (row.id, run_id))
        row.may_have_drafts = self._execute(sql.HAS_DRAFTS, (row.id,)).fetchone() is not None

    def save_drafts(self, key: SessionKey, drafts: Sequence[tuple[str, str, bytes]]) -> None:
        """Save (message id, run id, encoded draft), except where the message is said or the run has ended already."""
        row = self._row(key)
        for message_id, run_id, body in drafts:
            if not self._is_over(row, run_id) and not self._execute(sql.SELECT_SEQ, (row.id, message_id)).fetchone():
                self._execute(sql.UPSERT_DRAFT, (row.id, message_id, run_id, body))
                row.may_have_drafts = True

    def _is_over(self, row: _Row, run_id: str) -> bool:
        if self._execute(sql.IS_OPEN, (row.id, run_id)).fetchone():
            return False
        return self._execute(sql.HAS_RUN, (run_id, row.id)).fetchone() is not None

    def _tick(self) -> float:
        """Return the time, but later than every time before: no two sessions share an `updated`."""
        newest = self._newest
        if newest is None:
            newest = self._execute(sql.SELECT_NEWEST).fetchone()[0] or 0.0
        self._newest = newest = max(self._clock.time(), math.nextafter(newest, math.inf))
        return newest

    # --- blobs

    def save_blob(self, upload: Upload, content: bytes) -> int:
        """Write a blob of one chunk."""
        return self.blobs.save(upload, content)

    def add_chunk(self, upload: Upload, place: int, content: memoryview) -> None:
        """Write a chunk of a blob, and show that somebody is writing it."""
        self._show_life()
        self.blobs.add(upload, place, content)

    def delete_blob(self, key: SessionKey, name: str) -> None:
        """Delete all versions of a blob."""
        if self.blobs.delete(key, name):
            self.owes_truncation = True

    def _count_pages(self, pages: int) -> None:
        self._logged_pages += pages

    def _is_running(self, owner: str) -> bool:
        """Whether the owner's process is there, be it frozen."""
        return liveness.probe(self._path, owner) == "locked" or self._looks_alive(owner)

    # --- the lease

    def claim(self, key: SessionKey) -> Lease:
        """Take the lease if nobody alive holds it."""
        row = self._row(key)
        if row.owner is not None and self.is_alive(row.owner):
            raise LeaseHeldError(key, owner=row.owner, since=row.since or 0.0)
        shared = self._shared_state(key)
        self._show_life()
        row.token += 1
        row.owner, row.since = self._owner, self._clock.time()
        self._leased.add(row)
        self.held[key] = row.token
        return Lease(key, self._owner, row.token, row.last_seq, shared)

    def _shared_state(self, key: SessionKey) -> dict[str, Json]:
        rows = self._shared.get((key.app, key.user))
        if rows is None:
            rows = self._execute(sql.SELECT_SHARED, (key.app, key.app, key.user)).fetchall()
            self._shared[key.app, key.user] = rows
        return {name: codec.decode_value(value) for name, value in rows}

    def is_alive(self, owner: str) -> bool:
        """Whether the owner is alive; this one is, as long as it can ask."""
        if owner == self._owner:
            return True
        if self._looks_alive(owner):
            return True
        if liveness.probe(self._path, owner) == "free":
            self._execute(sql.DELETE_OWNER, (owner,))
            self._buried.add(owner)
        return False

    def _show_life(self) -> None:
        if self._clock.monotonic() - self._last_beat >= self._ttl / 3:
            self._file.acquire()
            self.beat()

    def beat(self) -> None:
        """Show a sign of life."""
        now = self._clock.monotonic()
        self._execute(sql.UPSERT_OWNER, (self._owner, now, self._ttl))
        self._last_beat = now

    @property
    def next_beat(self) -> float:
        """Seconds until it must be looked whether a sign of life is due."""
        if not self.held:
            return self._ttl / 3
        return max(0.0, self._last_beat + self._ttl / 3 - self._clock.monotonic())

    def release(self, lease: Lease, settled: Sequence[str]) -> None:
        """Give the lease back, and forget settled runs; ignore a stale lease."""
        if self.held.get(lease.key) == lease.token:
            del self.held[lease.key]
        row = self._rows.get(lease.key) or self._find(lease.key)
        if row is None or row.token != lease.token or row.owner != lease.owner:
            return
        for run_id in settled:
            self._execute(sql.SETTLE_RUN, (row.id, run_id))
        row.owner, row.since = None, None
        self._leased.add(row)
        self.changed[lease.key] = row.last_seq

    def _find(self, key: SessionKey) -> _Row | None:
        try:
            return self._row(key)
        except (UnknownSessionError, SessionErasedError):
            return None

    def release_all(self) -> None:
        """Give all leases of this owner back, and its sign of life."""
        if not self.held and self._last_beat == -math.inf:
            return
        for key, token in list(self.held.items()):
            self.release(Lease(key, self._owner, token, 0), ())
        self._execute(sql.DELETE_OWNER, (self._owner,))

    def checkpoint(self) -> None:
        """Keep the WAL from growing: move it into the file from time to time. Done between commits."""
        if self._logged_pages > schema.WAL_PAGES:
            self._logged_pages = schema.checkpoint(self._connection)

    def truncate_wal(self, wait_seconds: float) -> None:
        """Empty the WAL, so that erased text is in no file any more; owed on while another process reads."""
        self._execute(f"PRAGMA busy_timeout={int(wait_seconds * 1000)}")
        self.owes_truncation = not schema.truncate_wal(self._connection)
        if not self.owes_truncation:
            schema.extend_wal(self._connection, self._path)
        self._execute(self._set_busy_timeout)

    def close(self) -> None:
        """Close the connection; the owner's file goes with it."""
        self._file.close()
        self._connection.close()


def _address(key: SessionKey) -> tuple[str, str, str]:
    return key.app, key.user, key.session


def _run_of(body: bytes) -> str:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # a damaged record is erased like any other
        return _RUN_ID.decode(body).run_id
    return ""
