"""A store in memory: for tests, for trying out, and for sessions that need not outlive the process."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from heaveto.clock import Clock, SystemClock
from heaveto.errors import (
    DuplicateRecordError,
    GuardTakenError,
    LeaseHeldError,
    LogMovedError,
    RunIdTakenError,
    SessionErasedError,
    SessionExistsError,
    StaleLeaseError,
    StoreClosedError,
    UnknownSessionError,
)
from heaveto.events import codec
from heaveto.events.contents import ArtifactInfo, Blob, Json
from heaveto.events.records import Draft, Record, SessionKey, StateChanged
from heaveto.ids import IdSource, SystemIds
from heaveto.stores.base import OF_USER, Guard, Holder, Lease, SessionInfo, Tombstone, Unfinished
from heaveto.stores.batch import Batch, prepare
from heaveto.stores.subscriptions import Subscriptions


class _Session:
    """One session's content. `order` numbers the runs, over all sessions, by when they were opened."""

    def __init__(self, created: float) -> None:
        self.created = self.updated = created
        self.bodies: list[bytes] = []
        self.seq_of: dict[str, int] = {}
        self.guards: dict[str, str] = {}
        self.runs: dict[str, _Run] = {}
        self.drafts: dict[str, tuple[str, bytes]] = {}
        self.blobs: _Blobs = {}
        self.token = 0
        self.owner: str | None = None
        self.since = 0.0

    @property
    def last_seq(self) -> int:
        return len(self.bodies)

    @property
    def open_run(self) -> str | None:
        return next((run_id for run_id, run in self.runs.items() if not run.ended), None)


class _Run:
    def __init__(self, order: int) -> None:
        self.order, self.ended, self.settled = order, False, False


class _Version(NamedTuple):
    id: str | None
    blob: Blob


_Blobs: TypeAlias = dict[str, list[_Version]]


class MemoryData:
    """What several `MemoryStore` instances share, as several processes share a database file."""

    def __init__(self) -> None:
        self.sessions: dict[SessionKey, _Session] = {}
        self.tombstones: dict[SessionKey, Tombstone] = {}
        self.run_sessions: dict[str, SessionKey] = {}
        self.shared: dict[tuple[str, str], dict[str, bytes]] = {}
        self.user_blobs: dict[tuple[str, str], _Blobs] = {}
        self.alive: set[str] = set()
        self.instances: list[Callable[[SessionKey], None]] = []
        self.newest = 0.0
        self.numbers = itertools.count(1)

    def session(self, key: SessionKey) -> _Session:
        """Return the session or raise why there is none."""
        session = self.sessions.get(key)
        if session is None:
            raise SessionErasedError(key) if key in self.tombstones else UnknownSessionError(key)
        return session


class MemoryStore:
    """A `Store` whose content lives as long as its `MemoryData`.

    Records are kept encoded, so that it refuses what a durable store refuses, and nobody can change them. All instances
    on one `MemoryData` must be used from one event loop. No method waits, so none can be cancelled half-way.
    """

    def __init__(
        self, data: MemoryData | None = None, *, clock: Clock | None = None, ids: IdSource | None = None
    ) -> None:
        self.data = data if data is not None else MemoryData()
        self._clock, self._ids = clock or SystemClock(), ids or SystemIds()
        self._owner = f"memory:{next(self.data.numbers)}"
        self._subscriptions = Subscriptions()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.data.alive.add(self._owner)
        self.data.instances.append(self._announce)

    async def __aenter__(self) -> MemoryStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def owner(self) -> str:
        return self._owner

    # --- sessions

    async def create_session(self, key: SessionKey, state: Mapping[str, Json] | None = None) -> SessionInfo:
        data = self._open()
        now = self._clock.time()
        first = [StateChanged(id=self._ids.record_id(), time=now, delta=dict(state))] if state else []
        batch = prepare(first)
        if key in data.tombstones:
            raise SessionErasedError(key)
        if key in data.sessions:
            raise SessionExistsError(key)
        session = data.sessions[key] = _Session(self._tick())
        self._store(key, session, batch)
        self._changed(key)
        return _info(key, session)

    async def get_session(self, key: SessionKey) -> SessionInfo | None:
        session = self._open().sessions.get(key)
        return _info(key, session) if session else None

    async def list_sessions(
        self, app: str | None = None, user: str | None = None, *, limit: int = 100, before: float | None = None
    ) -> list[SessionInfo]:
        rows = [
            _info(key, session)
            for key, session in self._open().sessions.items()
            if app in (None, key.app)
            and user in (None, key.user)
            and session.updated < (math.inf if before is None else before)
        ]
        return sorted(rows, key=lambda row: row.updated, reverse=True)[: max(limit, 0)]

    async def erase_session(self, key: SessionKey, *, by: str, reason: str = "") -> Tombstone:
        data = self._open()
        if key in data.tombstones:
            return data.tombstones[key]
        session = data.session(key)
        stone = Tombstone(key, session.created, self._clock.time(), session.last_seq, by, reason)
        data.tombstones[key] = stone
        del data.sessions[key]
        for run_id in session.runs:
            if data.run_sessions.get(run_id) == key:
                del data.run_sessions[run_id]
        self._changed(key)
        return stone

    async def tombstone(self, key: SessionKey) -> Tombstone | None:
        return self._open().tombstones.get(key)

    # --- the log

    async def read(self, key: SessionKey, *, after: int = 0, limit: int | None = None) -> list[Record]:
        bodies = self._open().session(key).bodies
        first = max(after, 0)
        last = len(bodies) if limit is None else min(first + max(limit, 0), len(bodies))
        return [codec.decode(bodies[position], position + 1) for position in range(first, last)]

    async def append(
        self,
        key: SessionKey,
        records: Sequence[Record],
        *,
        token: int | None,
        expect: int | None = None,
        guard: Guard | None = None,
    ) -> int:
        data = self._open()
        batch = prepare(records)
        session = data.session(key)
        if repeated := _repeated(session, batch):
            return repeated
        _check(key, session, token, expect, guard)
        for run_id in batch.opened:
            if data.run_sessions.get(run_id, key) != key:
                raise RunIdTakenError(run_id)
        _check_new(key, session, batch)
        if guard:
            session.guards[guard.name] = guard.value
        self._store(key, session, batch)
        self._changed(key)
        return session.last_seq

    def _store(self, key: SessionKey, session: _Session, batch: Batch) -> None:
        for record_id, body in batch.rows:
            session.bodies.append(body)
            session.seq_of[record_id] = len(session.bodies)
        if batch.rows:
            session.updated = self._tick()
        for run_id in batch.opened:
            session.runs.setdefault(run_id, _Run(next(self.data.numbers)))
            self.data.run_sessions.setdefault(run_id, key)
        for run_id in batch.ended:
            if run_id in session.runs:
                session.runs[run_id].ended = True
        gone, done = set(batch.said), set(batch.ended)
        for message_id, (run_id, _) in list(session.drafts.items()):
            if message_id in gone or run_id in done:
                del session.drafts[message_id]
        self._share(key, batch.shared)

    def _share(self, key: SessionKey, values: Mapping[str, bytes | None]) -> None:
        for name, value in values.items():
            # An app's state is kept under its first part; a user's under both, so that no user name can reach it.
            scope = (key.app, "app:") if name.startswith("app:") else (key.app, "user:" + key.user)
            state = self.data.shared.setdefault(scope, {})
            if value is None:
                state.pop(name, None)
            else:
                state[name] = value

    # --- the lease

    async def claim(self, key: SessionKey) -> Lease:
        data = self._open()
        session = data.session(key)
        if session.owner is not None and session.owner in data.alive:
            raise LeaseHeldError(key, owner=session.owner, since=session.since)
        session.owner, session.since = self._owner, self._clock.time()
        session.token += 1
        return Lease(key, self._owner, session.token, session.last_seq, await self.shared_state(key.app, key.user))

    async def release(self, lease: Lease, *, settled: Sequence[str] = ()) -> None:
        session = self._open().sessions.get(lease.key)
        if session is None or session.owner != lease.owner or session.token != lease.token:
            return
        for run_id in settled:
            if run_id in session.runs and session.runs[run_id].ended:
                session.runs[run_id].settled = True
        session.owner = None
        self._changed(lease.key)

    async def holder(self, key: SessionKey) -> Holder | None:
        session = self._open().session(key)
        if session.owner is None:
            return None
        return Holder(session.owner, session.since, session.owner in self.data.alive)

    # --- indexes

    async def unfinished(self, key: SessionKey | None = None) -> list[Unfinished]:
        rows = [
            (run.order, Unfinished(owner_key, run_id, run.ended))
            for owner_key, session in self._selected(key)
            for run_id, run in session.runs.items()
            if not run.settled
        ]
        return [row for _, row in sorted(rows, key=lambda pair: pair[0])]

    def _selected(self, key: SessionKey | None) -> Iterator[tuple[SessionKey, _Session]]:
        for candidate, session in self._open().sessions.items():
            if key is None or candidate == key:
                yield candidate, session

    async def find_run(self, run_id: str) -> SessionKey | None:
        return self._open().run_sessions.get(run_id)

    async def find_guard(self, key: SessionKey, name: str) -> str | None:
        return self._open().session(key).guards.get(name)

    async def shared_state(self, app: str, user: str) -> dict[str, Json]:
        shared = self._open().shared
        rows = {**shared.get((app, "app:"), {}), **shared.get((app, "user:" + user), {})}
        return {name: codec.decode_value(body) for name, body in rows.items()}

    # --- drafts

    async def save_drafts(self, key: SessionKey, drafts: Sequence[Draft]) -> None:
        encoded = [(draft, codec.encode_draft(draft)) for draft in drafts]
        session = self._open().session(key)
        for draft, body in encoded:
            run = session.runs.get(draft.run_id)
            if draft.message_id not in session.seq_of and not (run and run.ended):
                session.drafts[draft.message_id] = (draft.run_id, body)

    async def drafts(self, key: SessionKey, run_id: str) -> list[Draft]:
        rows = self._open().session(key).drafts.values()
        return [codec.decode_draft(body) for draft_run, body in rows if draft_run == run_id]

    # --- blobs

    async def save_blob(
        self, key: SessionKey, name: str, content: bytes, *, mime_type: str, id: str | None = None
    ) -> int:
        blobs = self._user_blobs(key) if name.startswith(OF_USER) else self._open().session(key).blobs
        versions = blobs.setdefault(name, [])
        for number, version in enumerate(versions):
            if id is not None and version.id == id:
                return number
        versions.append(_Version(id, Blob(mime_type=mime_type, content=bytes(content))))
        return len(versions) - 1

    async def load_blob(self, key: SessionKey, name: str, version: int | None = None) -> Blob | None:
        versions = self._blobs(key, name).get(name, [])
        number = len(versions) - 1 if version is None else version
        return versions[number].blob if 0 <= number < len(versions) else None

    async def list_blobs(self, key: SessionKey) -> list[ArtifactInfo]:
        rows = self._blobs(key, "") | self._user_blobs(key)
        return [
            ArtifactInfo(name, len(versions) - 1, versions[-1].blob.mime_type, len(versions[-1].blob.content))
            for name, versions in sorted(rows.items())
        ]

    async def blob_versions(self, key: SessionKey, name: str) -> list[int]:
        return list(range(len(self._blobs(key, name).get(name, []))))

    async def delete_blob(self, key: SessionKey, name: str) -> None:
        self._blobs(key, name).pop(name, None)

    def _blobs(self, key: SessionKey, name: str) -> _Blobs:
        """Return the blobs among which this name would be; an empty table if the session does not exist."""
        if name.startswith(OF_USER):
            return self._user_blobs(key)
        session = self._open().sessions.get(key)
        return session.blobs if session else {}

    def _user_blobs(self, key: SessionKey) -> _Blobs:
        return self._open().user_blobs.setdefault((key.app, key.user), {})

    # --- news, life

    async def is_alive(self, owner: str) -> bool:
        return owner in self._open().alive

    def subscribe(self, key: SessionKey, callback: Callable[[int], None]) -> Callable[[], None]:
        self._open()
        self._loop = asyncio.get_running_loop()
        return self._subscriptions.add(key, callback)

    def _changed(self, key: SessionKey) -> None:
        for announce in self.data.instances:
            announce(key)

    def _announce(self, key: SessionKey) -> None:
        session = self.data.sessions.get(key)
        for callback in self._subscriptions.callbacks({key: session.last_seq if session else 0}):
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon(callback)

    def abandon(self) -> None:
        """Act as if this instance's process was killed: its leases are dead at once, and it takes no more calls.

        Those who wait for its sessions are told.
        """
        self._closed = True
        self.data.alive.discard(self._owner)
        if self._announce in self.data.instances:
            self.data.instances.remove(self._announce)
        for key, session in self.data.sessions.items():
            if session.owner == self._owner:
                self._changed(key)

    async def aclose(self) -> None:
        if self._closed:
            return
        held = [(key, session) for key, session in self.data.sessions.items() if session.owner == self._owner]
        self.abandon()
        for key, session in held:
            session.owner = None
            self._changed(key)

    def _open(self) -> MemoryData:
        if self._closed:
            raise StoreClosedError
        return self.data

    def _tick(self) -> float:
        """Return the time, but later than every time before, so that a listing can be continued at any row."""
        self.data.newest = max(self._clock.time(), math.nextafter(self.data.newest, math.inf))
        return self.data.newest


def _info(key: SessionKey, session: _Session) -> SessionInfo:
    return SessionInfo(key, session.created, session.updated, session.last_seq, session.open_run)


def _repeated(session: _Session, batch: Batch) -> int | None:
    """Return the seq of an earlier append of the same records in the same order, or None."""
    seqs = [session.seq_of.get(record_id, 0) for record_id, _ in batch.rows]
    if not seqs or seqs[0] == 0 or seqs != list(range(seqs[0], seqs[0] + len(seqs))):
        return None
    return seqs[-1]


def _check_new(key: SessionKey, session: _Session, batch: Batch) -> None:
    seen: set[str] = set()
    for record_id, _ in batch.rows:
        if record_id in session.seq_of or record_id in seen:
            raise DuplicateRecordError(key, record_id)
        seen.add(record_id)


def _check(key: SessionKey, session: _Session, token: int | None, expect: int | None, guard: Guard | None) -> None:
    if token is not None and (token != session.token or session.owner is None):
        raise StaleLeaseError(key, held=token, current=session.token)
    if expect is not None and expect != session.last_seq:
        raise LogMovedError(key, expected=expect, current=session.last_seq)
    if guard is not None and guard.name in session.guards:
        raise GuardTakenError(key, guard.name, session.guards[guard.name])
