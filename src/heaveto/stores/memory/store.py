"""`MemoryStore`: the store in memory, as its users see it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence

from heaveto.clock import Clock, SystemClock
from heaveto.errors import LeaseHeldError, SessionErasedError, SessionExistsError, StoreClosedError
from heaveto.events import codec
from heaveto.events.contents import ArtifactInfo, Blob, Json
from heaveto.events.records import Draft, Record, SessionKey, StateChanged
from heaveto.ids import IdSource, SystemIds
from heaveto.stores.base import OF_USER, Guard, Holder, Lease, SessionInfo, Tombstone, Unfinished
from heaveto.stores.batch import prepare
from heaveto.stores.memory import appends
from heaveto.stores.memory.data import MemoryData, Session, Version
from heaveto.stores.subscriptions import Subscriptions


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
        session = data.sessions[key] = Session(data.tick(now))
        appends.store(data, key, session, batch, now)
        data.announce(key)
        return session.info(key)

    async def get_session(self, key: SessionKey) -> SessionInfo | None:
        session = self._open().sessions.get(key)
        return session.info(key) if session else None

    async def list_sessions(
        self, app: str | None = None, user: str | None = None, *, limit: int = 100, before: float | None = None
    ) -> list[SessionInfo]:
        rows = [
            session.info(key)
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
        data.erase(key, stone)
        data.announce(key)
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
        now = self._clock.time()
        last_seq, is_new = appends.append(data, key, batch, now, token=token, expect=expect, guard=guard)
        if is_new:
            data.announce(key)
        return last_seq

    # --- the lease

    async def claim(self, key: SessionKey) -> Lease:
        data = self._open()
        session = data.session(key)
        if session.owner is not None and session.owner in data.alive:
            raise LeaseHeldError(key, owner=session.owner, since=session.since)
        session.owner, session.since = self._owner, self._clock.time()
        session.token += 1
        return Lease(key, self._owner, session.token, session.last_seq, data.shared_state(key.app, key.user))

    async def release(self, lease: Lease, *, settled: Sequence[str] = ()) -> None:
        data = self._open()
        session = data.sessions.get(lease.key)
        if session is None or session.owner != lease.owner or session.token != lease.token:
            return
        for run_id in settled:
            if run_id in session.runs and session.runs[run_id].ended:
                session.runs[run_id].settled = True
        session.owner = None
        data.announce(lease.key)

    async def holder(self, key: SessionKey) -> Holder | None:
        session = self._open().session(key)
        if session.owner is None:
            return None
        return Holder(session.owner, session.since, session.owner in self.data.alive)

    # --- indexes

    async def unfinished(self, key: SessionKey | None = None) -> list[Unfinished]:
        rows = [
            (run.order, Unfinished(owner_key, run_id, run.ended))
            for owner_key, session in self._open().selected(key)
            for run_id, run in session.runs.items()
            if not run.settled
        ]
        return [row for _, row in sorted(rows, key=lambda pair: pair[0])]

    async def find_run(self, run_id: str) -> SessionKey | None:
        return self._open().run_sessions.get(run_id)

    async def find_guard(self, key: SessionKey, name: str) -> str | None:
        return self._open().session(key).guards.get(name)

    async def shared_state(self, app: str, user: str) -> dict[str, Json]:
        return self._open().shared_state(app, user)

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
        data = self._open()
        if not name.startswith(OF_USER):
            data.session(key)  # must be there
        versions = data.blobs(key, name).setdefault(name, [])
        for number, version in enumerate(versions):
            if id is not None and version.id == id:
                return number
        versions.append(Version(id, Blob(mime_type=mime_type, content=bytes(content))))
        return len(versions) - 1

    async def load_blob(self, key: SessionKey, name: str, version: int | None = None) -> Blob | None:
        versions = self._open().blobs(key, name).get(name, [])
        number = len(versions) - 1 if version is None else version
        return versions[number].blob if 0 <= number < len(versions) else None

    async def list_blobs(self, key: SessionKey) -> list[ArtifactInfo]:
        rows = self._open().blobs(key, "") | self._open().blobs(key, OF_USER)
        return [
            ArtifactInfo(name, len(versions) - 1, versions[-1].blob.mime_type, len(versions[-1].blob.content))
            for name, versions in sorted(rows.items())
        ]

    async def blob_versions(self, key: SessionKey, name: str) -> list[int]:
        return list(range(len(self._open().blobs(key, name).get(name, []))))

    async def delete_blob(self, key: SessionKey, name: str) -> None:
        self._open().blobs(key, name).pop(name, None)

    # --- news, life

    async def is_alive(self, owner: str) -> bool:
        return owner in self._open().alive

    def subscribe(self, key: SessionKey, callback: Callable[[int], None]) -> Callable[[], None]:
        self._open()
        self._loop = asyncio.get_running_loop()
        return self._subscriptions.add(key, callback)

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
                self.data.announce(key)

    async def aclose(self) -> None:
        if self._closed:
            return
        held = [(key, session) for key, session in self.data.sessions.items() if session.owner == self._owner]
        self.abandon()
        for key, session in held:
            session.owner = None
            self.data.announce(key)

    def _open(self) -> MemoryData:
        if self._closed:
            raise StoreClosedError
        return self.data
