"""What writes do inside a transaction. Runs in the writer's thread; nothing here begins or ends a transaction alone.

Every operation checks first and writes after, so that its typed error leaves the transaction as it was, and the other
operations of the same commit unharmed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from heaveto.clock import Clock
from heaveto.errors import SessionErasedError, SessionExistsError
from heaveto.events.records import SessionKey
from heaveto.stores.base import Guard, Lease, SessionInfo, Tombstone
from heaveto.stores.batch import Batch
from heaveto.stores.sqlite import sql
from heaveto.stores.sqlite.appends import LogWriter
from heaveto.stores.sqlite.blobs import BlobWriter, Upload
from heaveto.stores.sqlite.leases import Leases
from heaveto.stores.sqlite.news import News
from heaveto.stores.sqlite.rows import Rows, address
from heaveto.stores.sqlite.shared import SharedStates
from heaveto.stores.sqlite.transactions import Transactions
from heaveto.stores.sqlite.wal import Wal


class _RunOf(msgspec.Struct):
    """The one field of a record that erasing needs to know, in whatever version it was written."""

    run_id: str = ""


_RUN_ID = msgspec.json.Decoder(_RunOf)


class Ledger:
    """The write side of one connection; each subject has a part of its own.

    Attributes:
        blobs: the part that writes blobs.
        leases: the part that knows who holds what, and who is alive.
        wal: the log that all of it goes through.
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
        self._connection, self._clock = connection, clock
        self._execute, self._executemany = connection.execute, connection.executemany
        self._transactions = Transactions(connection, busy_timeout_seconds)
        self._rows, self._shared, self._news = (
            Rows(connection, clock),
            SharedStates(connection),
            News(connection, owner),
        )
        self.wal = Wal(connection, path)
        self._log = LogWriter(connection, rows=self._rows, shared=self._shared, news=self._news, log=self.wal)
        self.leases = Leases(
            connection, path, owner, ttl_seconds=ttl_seconds, clock=clock,
            rows=self._rows, shared=self._shared, news=self._news,
        )  # fmt: skip
        self.blobs = BlobWriter(
            connection,
            owner,
            session_of=lambda key: self._rows.get(key).id,
            is_running=self.leases.is_running,
            logged=self.wal.count,
        )

    # --- transactions

    def begin_nowait(self) -> bool:
        """Begin a transaction that is not durable, unless another process is writing; return whether it was begun."""
        try:
            self.begin(durable=False, waits=False)
        except sqlite3.Error:  # locked; or damaged, which the thread will report
            self.rollback()
            return False
        return True

    def begin(self, *, durable: bool, waits: bool = True) -> None:
        """Begin a transaction; a durable one is on the disk when `commit` returns, others survive a kill only."""
        if self._transactions.begin(durable=durable, waits=waits):
            self._forget()

    def commit(self) -> None:
        """Write the changed session rows back and commit."""
        self.wal.count(2 + self._rows.write_back())
        self._transactions.commit()
        self.leases.committed()

    def rollback(self) -> None:
        """Undo everything since `begin`, what is remembered of it included."""
        self._transactions.rollback()
        self._forget()
        self._rows.settle()
        self.leases.rolled_back()
        self._news.changed.clear()

    def _forget(self) -> None:
        self._rows.forget()
        self._shared.forget()

    def close(self) -> None:
        """Close the connection; the owner's file goes with it."""
        self.leases.close()
        self._connection.close()

    # --- news

    @property
    def has_news(self) -> bool:
        """Whether this process has changed something since `own_changes` was asked."""
        return bool(self._news.changed)

    def own_changes(self) -> dict[SessionKey, int]:
        """Return the sessions that this process changed since the last call, with their last seqs."""
        return self._news.own()

    def foreign_changes(self, watched: Sequence[SessionKey], *, look: bool) -> dict[SessionKey, int]:
        """Return the watched sessions that other processes may have changed since the last call, with last seqs.

        Without `look`, as far as the last transaction saw.
        """
        if look and self._transactions.look():
            self._forget()
        return self._news.foreign(self._transactions.version, watched)

    def orphans(self, watched: Sequence[SessionKey]) -> dict[SessionKey, int]:
        """Return the watched sessions whose holder, another process, was found dead; each one once per lease."""
        return self._news.orphans(watched, self.leases.looks_alive)

    # --- sessions

    def create(self, key: SessionKey, first: Batch) -> SessionInfo:
        """Create a session with its first records."""
        if self._rows.find(key) is not None:
            raise SessionExistsError(key)
        if self._rows.tombstone(key):
            raise SessionErasedError(key)
        row = self._rows.add(key)
        self._news.changed[key] = 0
        self._log.begin(key, row, first)
        return SessionInfo(key, row.created, row.updated, row.last_seq)

    def erase(self, key: SessionKey, by: str, reason: str) -> Tombstone:
        """Delete a session's content and leave a tombstone."""
        stone = self._rows.tombstone(key)
        if stone:
            return stone
        row = self._rows.get(key)
        stone = Tombstone(key, row.created, self._clock.time(), row.last_seq, by, reason)
        bodies = self._execute(sql.SELECT_BODIES, (row.id,))
        runs = {_run_of(body) for (body,) in bodies}
        self._executemany(sql.DELETE_RUN, [(run_id, row.id) for run_id in runs])
        for statement in sql.ERASE_CONTENT:
            self._execute(statement, (row.id,))
        values = (stone.created, stone.erased, stone.records, stone.by, stone.reason)
        self._execute(sql.INSERT_TOMBSTONE, (*address(key), *values))
        self._rows.drop(key)
        self.leases.held.pop(key, None)
        self._news.changed[key] = 0
        self.wal.owes_truncation = True
        return stone

    # --- the log and the lease

    def append(self, key: SessionKey, batch: Batch, token: int | None, expect: int | None, guard: Guard | None) -> int:
        """Append a batch; see `Store.append`."""
        return self._log.append(key, batch, token, expect, guard)

    def save_drafts(self, key: SessionKey, drafts: Sequence[tuple[str, str, bytes]]) -> None:
        """Save (message id, run id, encoded draft), except where the message is said or the run has ended already."""
        self._log.save_drafts(key, drafts)

    def claim(self, key: SessionKey) -> Lease:
        """Take the lease if nobody alive holds it."""
        return self.leases.claim(key)

    def release(self, lease: Lease, settled: Sequence[str]) -> None:
        """Give the lease back, and forget settled runs; ignore a stale lease."""
        self.leases.release(lease, settled)

    # --- blobs

    def save_blob(self, upload: Upload, content: bytes) -> int:
        """Write a blob of one chunk."""
        return self.blobs.save(upload, content)

    def add_chunk(self, upload: Upload, place: int, content: memoryview) -> None:
        """Write a chunk of a blob, and show that somebody is writing it."""
        self.leases.show_life()
        self.blobs.add(upload, place, content)

    def delete_blob(self, key: SessionKey, name: str) -> None:
        """Delete all versions of a blob."""
        if self.blobs.delete(key, name):
            self.wal.owes_truncation = True


def _run_of(body: bytes) -> str:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # a damaged record is erased like any other
        return _RUN_ID.decode(body).run_id
    return ""
