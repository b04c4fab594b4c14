"""Records into a session's log, and what they do besides being stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from heaveto.errors import DuplicateRecordError, GuardTakenError, LogMovedError, RunIdTakenError, StaleLeaseError
from heaveto.events.records import SessionKey
from heaveto.stores.base import Guard
from heaveto.stores.batch import Batch
from heaveto.stores.sqlite import sql, wal
from heaveto.stores.sqlite.news import News
from heaveto.stores.sqlite.rows import Row, Rows
from heaveto.stores.sqlite.shared import SharedStates
from heaveto.stores.sqlite.wal import Wal


class LogWriter:
    """What appends and drafts do inside a transaction; part of the ledger."""

    def __init__(
        self, connection: sqlite3.Connection, *, rows: Rows, shared: SharedStates, news: News, log: Wal
    ) -> None:
        self._execute, self._executemany = connection.execute, connection.executemany
        self._rows, self._shared, self._news, self._wal = rows, shared, news, log

    def begin(self, key: SessionKey, row: Row, first: Batch) -> None:
        """Insert the first records of a session that was just made."""
        self._insert(key, row, first)
        self._apply(key, row, first)

    def append(self, key: SessionKey, batch: Batch, token: int | None, expect: int | None, guard: Guard | None) -> int:
        """Append a batch; see `Store.append`."""
        row = self._rows.get(key)
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
        self, key: SessionKey, row: Row, batch: Batch, token: int | None, expect: int | None, guard: Guard | None
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

    def _insert(self, key: SessionKey, row: Row, batch: Batch) -> None:
        if not batch.rows:
            return
        session, seq = row.id, row.last_seq
        rows = [(session, seq + place, record_id, body) for place, (record_id, body) in enumerate(batch.rows, 1)]
        self._executemany(sql.INSERT_RECORD, rows)
        self._wal.count(3 + batch.size // wal.PAGE_BYTES)
        row.last_seq = seq + len(batch.rows)
        row.updated = self._rows.tick()
        self._rows.moved.add(row)
        self._news.changed[key] = row.last_seq

    def _not_new(self, key: SessionKey, row: Row, batch: Batch, first_seq: int) -> int:
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

    def _repeated(self, row: Row, batch: Batch) -> int | None:
        """Return the seq of an earlier append of the same records in the same order, or None."""
        seqs: list[int] = []
        for record_id, _ in batch.rows:
            found = self._execute(sql.SELECT_SEQ, (row.id, record_id)).fetchone()
            if not found or (seqs and found[0] != seqs[-1] + 1):
                return None
            seqs.append(found[0])
        return seqs[-1] if seqs else None

    def _apply(self, key: SessionKey, row: Row, batch: Batch) -> None:
        """Do what the records do besides being stored."""
        for run_id in batch.opened:
            if self._execute(sql.INSERT_RUN, (run_id, row.id)).rowcount:
                self._execute(sql.INSERT_UNFINISHED, (row.id, run_id, self._rows.tick()))
        for run_id in batch.ended:
            self._execute(sql.END_RUN, (row.id, run_id))
        if row.may_have_drafts and (batch.said or batch.ended):
            self._drop_drafts(row, batch)
        if batch.shared:
            self._shared.update(key, batch.shared)

    # --- drafts

    def _drop_drafts(self, row: Row, batch: Batch) -> None:
        for message_id in batch.said:
            self._execute(sql.DELETE_DRAFT, (row.id, message_id))
        for run_id in batch.ended:
            self._execute(sql.DELETE_DRAFTS_OF_RUN, (row.id, run_id))
        row.may_have_drafts = self._execute(sql.HAS_DRAFTS, (row.id,)).fetchone() is not None

    def save_drafts(self, key: SessionKey, drafts: Sequence[tuple[str, str, bytes]]) -> None:
        """Save (message id, run id, encoded draft), except where the message is said or the run has ended already."""
        row = self._rows.get(key)
        for message_id, run_id, body in drafts:
            if not self._is_over(row, run_id) and not self._execute(sql.SELECT_SEQ, (row.id, message_id)).fetchone():
                self._execute(sql.UPSERT_DRAFT, (row.id, message_id, run_id, body))
                row.may_have_drafts = True

    def _is_over(self, row: Row, run_id: str) -> bool:
        if self._execute(sql.IS_OPEN, (row.id, run_id)).fetchone():
            return False
        return self._execute(sql.HAS_RUN, (run_id, row.id)).fetchone() is not None
