"""The thread that reads: each query is one statement, and so one consistent snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from heaveto.clock import Clock
from heaveto.errors import HeavetoError, SessionErasedError, UnknownSessionError
from heaveto.events import codec
from heaveto.events.contents import Json
from heaveto.events.records import Draft, Record, SessionKey
from heaveto.stores.base import Holder, SessionInfo, Tombstone, Unfinished
from heaveto.stores.sqlite import liveness, sql
from heaveto.stores.sqlite.blobs import BlobQueries
from heaveto.stores.sqlite.schema import connect, typed_error
from heaveto.stores.sqlite.worker import Operation, Worker

_MAX_INTEGER = 2**63 - 1


class Reader(Worker):
    """Runs queries on a connection of its own, so that reading never waits for a commit."""

    def __init__(self, path: Path, owner: str, busy_timeout_seconds: float, clock: Clock) -> None:
        super().__init__(f"heaveto-reader-{path.name}")
        self._path, self._owner, self._busy_timeout, self._clock = path, owner, busy_timeout_seconds, clock
        self._queries: Queries | None = None

    def perform(self, batch: Sequence[Operation]) -> None:
        for operation in batch:
            if operation.is_last or operation.future.cancelled():
                continue
            try:
                operation.value = operation.work(self._open())
            except Exception as error:  # noqa: BLE001  # an edge: whatever it is, its caller must learn of it
                operation.error = typed_error(error, self._path)

    def _open(self) -> Queries:
        if self._queries is None:
            connection = connect(self._path, self._busy_timeout)
            connection.execute("PRAGMA query_only=ON")
            self._queries = Queries(connection, self._path, self._owner, self._clock)
        return self._queries

    def close(self) -> None:
        if self._queries is not None:
            self._queries.close()


class Queries:
    """What can be asked of the store; `blobs` is the part about them. Runs in the reader's thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path, owner: str, clock: Clock) -> None:
        self._connection, self._execute = connection, connection.execute
        self._path, self._owner, self._clock = path, owner, clock
        self.blobs = BlobQueries(connection)

    def close(self) -> None:
        self._connection.close()

    def _missing(self, key: SessionKey) -> HeavetoError:
        return SessionErasedError(key) if self.tombstone(key) else UnknownSessionError(key)

    def session(self, key: SessionKey) -> SessionInfo | None:
        row = self._execute(sql.SELECT_INFO + sql.WHERE_KEY, _address(key)).fetchone()
        return _info(row) if row else None

    def sessions(self, app: str | None, user: str | None, limit: int, before: float | None) -> list[SessionInfo]:
        conditions = [("app=?", app), ("user=?", user), ("updated<?", before)]
        wanted = [(condition, value) for condition, value in conditions if value is not None]
        where = f" WHERE {' AND '.join(condition for condition, _ in wanted)}" if wanted else ""
        statement = f"{sql.SELECT_INFO}{where} ORDER BY updated DESC LIMIT ?"
        return [_info(row) for row in self._execute(statement, (*(value for _, value in wanted), _bounded(limit)))]

    def tombstone(self, key: SessionKey) -> Tombstone | None:
        row = self._execute(sql.SELECT_TOMBSTONE, _address(key)).fetchone()
        return Tombstone(key, *row) if row else None

    def records(self, key: SessionKey, after: int, limit: int | None) -> list[Record]:
        most = _MAX_INTEGER if limit is None else _bounded(limit)
        rows = self._execute(sql.SELECT_RECORDS, (_bounded(after), *_address(key), max(most, 1))).fetchall()
        if not rows:
            raise self._missing(key)
        if rows[0][0] is None or most == 0:
            return []
        decode = codec.decode
        return [decode(body, seq) for seq, body in rows]

    def holder(self, key: SessionKey) -> Holder | None:
        row = self._execute(sql.SELECT_LEASE, _address(key)).fetchone()
        if row is None:
            raise self._missing(key)
        owner, since = row
        return Holder(owner, since, self._is_alive(owner)) if owner is not None else None

    def _is_alive(self, owner: str) -> bool:
        if owner == self._owner:
            return True
        file = liveness.probe(self._path, owner)  # first: a file that is gone means that the beat is gone too
        beat = self._execute(sql.SELECT_OWNER, (owner,)).fetchone()
        return liveness.is_alive(beat, self._clock.monotonic(), file)

    def is_running(self, owner: str) -> bool:
        """Whether the owner is alive, with or without a lease: its lock outlasts those, its beat does not."""
        return self._is_alive(owner) or liveness.probe(self._path, owner) == "locked"

    def unfinished(self, key: SessionKey | None) -> list[Unfinished]:
        if key is None:
            rows = self._execute(sql.SELECT_UNFINISHED)
        else:
            rows = self._execute(sql.SELECT_UNFINISHED_OF, _address(key))
        return [Unfinished(SessionKey(app, user, name), run_id, bool(state)) for app, user, name, run_id, state in rows]

    def find_run(self, run_id: str) -> SessionKey | None:
        row = self._execute(sql.FIND_RUN, (run_id,)).fetchone()
        return SessionKey(*row) if row else None

    def find_guard(self, key: SessionKey, name: str) -> str | None:
        value: str | None = self._of_session(key, sql.FIND_GUARD, name)[0][0]
        return value

    def drafts(self, key: SessionKey, run_id: str) -> list[Draft]:
        rows = self._of_session(key, sql.SELECT_DRAFTS, run_id)
        return [codec.decode_draft(body) for (body,) in rows if body is not None]

    def _of_session(self, key: SessionKey, statement: str, value: str) -> list[tuple[Json, ...]]:
        rows = self._execute(statement, (value, *_address(key))).fetchall()
        if not rows:
            raise self._missing(key)
        return rows

    def shared_state(self, app: str, user: str) -> dict[str, Json]:
        rows = self._execute(sql.SELECT_SHARED, (app, app, user))
        return {key: codec.decode_value(value) for key, value in rows}


def _info(row: tuple[str, str, str, float, float, int, str | None]) -> SessionInfo:
    app, user, session, created, updated, last_seq, open_run = row
    return SessionInfo(SessionKey(app, user, session), created, updated, last_seq, open_run)


def _bounded(number: int) -> int:
    return max(0, min(number, _MAX_INTEGER))


def _address(key: SessionKey) -> tuple[str, str, str]:
    return key.app, key.user, key.session
