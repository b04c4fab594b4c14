"""`SqliteStore`: the embedded store, seen from the event loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from heaveto.clock import Clock, SystemClock
from heaveto.errors import StoreClosedError, StoreOpenError, WrongLoopError
from heaveto.events import codec
from heaveto.events.contents import ArtifactInfo, Blob, Json
from heaveto.events.records import Draft, Record, SessionKey, StateChanged
from heaveto.ids import IdSource, SystemIds
from heaveto.stores.base import Guard, Holder, Lease, SessionInfo, Tombstone, Unfinished
from heaveto.stores.batch import prepare
from heaveto.stores.sqlite.blobs import CHUNK_BYTES, Found, Upload, pieces
from heaveto.stores.sqlite.ledger import Ledger
from heaveto.stores.sqlite.reader import Queries, Reader
from heaveto.stores.sqlite.schema import open_file
from heaveto.stores.sqlite.worker import Operation
from heaveto.stores.sqlite.writer import Writer
from heaveto.stores.subscriptions import Subscriptions

T = TypeVar("T")
CHUNKS_PER_READ = 16


class SqliteStore:
    """A `Store` in one SQLite file, for any number of processes on one machine.

    Appends are on the disk when they return (WAL, synchronous FULL); leases and drafts survive a killed process. What
    waits at the same moment, of all sessions, is committed together. The file is opened by the first use, or by `open`,
    never on the event loop. A store serves one event loop at a time; in a forked child it must not be used.

    Next to the file lie SQLite's ``-wal`` and ``-shm``, and a locked ``-owner-…`` file per instance that held a lease.

    Args:
        path: the file; its directory must exist.
        ttl_seconds: how long a stopped process keeps its leases. A killed one loses them at once.
        busy_timeout_seconds: how long to wait for another process's write.
        max_bytes: the size that the file must not exceed; beyond it appends raise `StoreFullError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        ttl_seconds: float = 10.0,
        busy_timeout_seconds: float = 10.0,
        max_bytes: int | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        if os.fspath(path) == ":memory:":
            raise StoreOpenError(":memory:", "is not a file; use MemoryStore")
        self.path = Path(path).absolute()
        self._ttl, self._busy_timeout, self._max_bytes = ttl_seconds, busy_timeout_seconds, max_bytes
        self._clock, self._ids = clock or SystemClock(), ids or SystemIds()
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(6).hex()}"
        self._subscriptions = Subscriptions()
        self._writer = Writer(self.path, self._open_ledger, self._subscriptions)
        self._reader = Reader(self.path, self._owner, busy_timeout_seconds, self._clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, path: str | os.PathLike[str], **options: Any) -> SqliteStore:
        """Make a store and open its file now; options as of the class.

        Raises:
            StoreOpenError, StoreCorruptError, StoreTooNewError, StoreFullError, StoreBusyError
        """
        store = cls(path, **options)
        await store._write(_nothing)
        return store

    async def __aenter__(self) -> SqliteStore:
        await self._write(_nothing)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def owner(self) -> str:
        return self._owner

    def _open_ledger(self) -> Ledger:
        connection = open_file(self.path, self._busy_timeout, max_bytes=self._max_bytes)
        return Ledger(
            connection,
            self.path,
            self._owner,
            ttl_seconds=self._ttl,
            busy_timeout_seconds=self._busy_timeout,
            clock=self._clock,
        )

    # --- the way to the threads

    def _future(self) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if self._closing is not None:
            raise StoreClosedError
        if loop is not self._loop:
            self._bind(loop)
        return loop.create_future()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and self._loop.is_running():
            raise WrongLoopError(str(self.path))
        self._loop = self._writer.listener = loop
        self._writer.in_flight = 0

    async def _write(
        self, work: Callable[[Ledger], T], *, durable: bool = False, undo: Callable[[T], None] | None = None
    ) -> T:
        operation = Operation(work, self._future(), durable=durable, undo=undo)
        self._writer.submit(operation)
        result: T = await operation.future
        return result

    async def _read(self, work: Callable[[Queries], T]) -> T:
        future = self._future()
        if not self._writer.is_open:
            await self._write(_nothing)
        self._reader.submit(Operation(work, future))
        result: T = await future
        return result

    # --- sessions

    async def create_session(self, key: SessionKey, state: Mapping[str, Json] | None = None) -> SessionInfo:
        first = [StateChanged(id=self._ids.record_id(), time=self._clock.time(), delta=dict(state))] if state else []
        batch = prepare(first)
        return await self._write(lambda ledger: ledger.create(key, batch), durable=True)

    async def get_session(self, key: SessionKey) -> SessionInfo | None:
        return await self._read(lambda queries: queries.session(key))

    async def list_sessions(
        self, app: str | None = None, user: str | None = None, *, limit: int = 100, before: float | None = None
    ) -> list[SessionInfo]:
        return await self._read(lambda queries: queries.sessions(app, user, limit, before))

    async def erase_session(self, key: SessionKey, *, by: str, reason: str = "") -> Tombstone:
        return await self._write(lambda ledger: ledger.erase(key, by, reason), durable=True)

    async def tombstone(self, key: SessionKey) -> Tombstone | None:
        return await self._read(lambda queries: queries.tombstone(key))

    # --- the log

    async def read(self, key: SessionKey, *, after: int = 0, limit: int | None = None) -> list[Record]:
        return await self._read(lambda queries: queries.records(key, after, limit))

    async def append(
        self,
        key: SessionKey,
        records: Sequence[Record],
        *,
        token: int | None,
        expect: int | None = None,
        guard: Guard | None = None,
    ) -> int:
        batch = prepare(records)
        return await self._write(lambda ledger: ledger.append(key, batch, token, expect, guard), durable=True)

    # --- the lease

    async def claim(self, key: SessionKey) -> Lease:
        future = self._future()
        done = self._writer.do_now(lambda ledger: ledger.claim(key))
        if done:
            return done[0]
        operation = Operation(lambda ledger: ledger.claim(key), future, undo=self._give_back)
        self._writer.submit(operation)
        try:
            lease: Lease = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(future.result())  # it came in the same moment as the cancellation
            raise
        return lease

    def _give_back(self, lease: Lease) -> None:
        """Release a lease that nobody will use, because the claimer was cancelled."""
        if self._closing is None:
            self._writer.submit(Operation(lambda ledger: ledger.release(lease, ()), self._future()))

    async def release(self, lease: Lease, *, settled: Sequence[str] = ()) -> None:
        work = partial(Ledger.release, lease=lease, settled=tuple(settled))
        future = self._future()
        if not self._writer.do_now(work):
            self._writer.submit(Operation(work, future))
            await future

    async def holder(self, key: SessionKey) -> Holder | None:
        return await self._read(lambda queries: queries.holder(key))

    # --- indexes

    async def unfinished(self, key: SessionKey | None = None) -> list[Unfinished]:
        return await self._read(lambda queries: queries.unfinished(key))

    async def find_run(self, run_id: str) -> SessionKey | None:
        return await self._read(lambda queries: queries.find_run(run_id))

    async def find_guard(self, key: SessionKey, name: str) -> str | None:
        return await self._read(lambda queries: queries.find_guard(key, name))

    async def shared_state(self, app: str, user: str) -> dict[str, Json]:
        return await self._read(lambda queries: queries.shared_state(app, user))

    # --- drafts

    async def save_drafts(self, key: SessionKey, drafts: Sequence[Draft]) -> None:
        rows = [(draft.message_id, draft.run_id, codec.encode_draft(draft)) for draft in drafts]
        await self._write(lambda ledger: ledger.save_drafts(key, rows))

    async def drafts(self, key: SessionKey, run_id: str) -> list[Draft]:
        return await self._read(lambda queries: queries.drafts(key, run_id))

    # --- blobs

    async def save_blob(
        self, key: SessionKey, name: str, content: bytes, *, mime_type: str, id: str | None = None
    ) -> int:
        number = int.from_bytes(os.urandom(8), "big") >> 1
        upload = Upload(number, key, name, mime_type, len(content), id)
        if len(content) <= CHUNK_BYTES:
            return await self._write(lambda ledger: ledger.save_blob(upload, content), durable=True)
        earlier = await self._write(lambda ledger: ledger.blobs.find(upload))
        return await self._upload(upload, content) if earlier is None else earlier

    async def _upload(self, upload: Upload, content: bytes) -> int:
        """Write chunk by chunk, so that others' appends get in between; only the last step makes it durable."""
        is_published = False
        try:
            for place, chunk in enumerate(pieces(content)):
                await self._write(partial(Ledger.add_chunk, upload=upload, place=place, content=chunk))
            version = await self._write(lambda ledger: ledger.blobs.publish(upload), durable=True)
            is_published = True
        finally:
            if not is_published:
                self._discard(upload.number)
        return version

    def _discard(self, number: int) -> None:
        """Remove what was begun and will not be finished; where that fails, a later instance does it."""
        if self._closing is None:
            future = self._future()
            future.add_done_callback(_look_at)
            self._writer.submit(Operation(lambda ledger: ledger.blobs.discard(number), future))

    async def load_blob(self, key: SessionKey, name: str, version: int | None = None) -> Blob | None:
        found = await self._read(lambda queries: queries.blobs.find(key, name, version))
        content = await self._content(found) if found else None
        return None if found is None or content is None else Blob(mime_type=found.mime_type, content=content)

    async def _content(self, found: Found) -> bytes | None:
        """Read some chunks at a time, so that others' reads get in between; None if it was deleted meanwhile."""
        chunks: list[bytes] = []
        while sum(map(len, chunks)) < found.size:
            read = partial(_chunks, number=found.number, first=len(chunks))
            more = await self._read(read)
            if not more:
                return None
            chunks += more
        return b"".join(chunks)

    async def list_blobs(self, key: SessionKey) -> list[ArtifactInfo]:
        return await self._read(lambda queries: queries.blobs.listing(key))

    async def blob_versions(self, key: SessionKey, name: str) -> list[int]:
        return await self._read(lambda queries: queries.blobs.versions(key, name))

    async def delete_blob(self, key: SessionKey, name: str) -> None:
        await self._write(lambda ledger: ledger.delete_blob(key, name), durable=True)

    # --- news, life, the end

    async def is_alive(self, owner: str) -> bool:
        return await self._read(lambda queries: queries.is_running(owner))

    def subscribe(self, key: SessionKey, callback: Callable[[int], None]) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        if self._closing is not None:
            raise StoreClosedError
        if loop is not self._loop:
            self._bind(loop)
        remove = self._subscriptions.add(key, callback)
        if self._writer.is_open:
            self._writer.wake()
        else:  # what is changed by others before the first own operation must be heard of, too
            first = loop.create_future()
            first.add_done_callback(_look_at)
            self._writer.submit(Operation(_nothing, first))
        return remove

    async def aclose(self) -> None:
        if self._closing is None:
            loop = asyncio.get_running_loop()
            if loop is not self._loop:
                self._bind(loop)
            self._closing = asyncio.ensure_future(self._close(loop))
        await asyncio.shield(self._closing)

    async def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        for worker in (self._reader, self._writer):
            if not worker.is_started:
                continue
            operation = Operation(_nothing, loop.create_future(), is_last=True)
            worker.submit(operation)
            await operation.future


def _nothing(_: object) -> None:
    """An operation that only makes its thread do what it does around operations."""


def _chunks(queries: Queries, number: int, first: int) -> list[bytes]:
    return queries.blobs.chunks(number, first, CHUNKS_PER_READ)


def _look_at(future: asyncio.Future[Any]) -> None:
    """Take notice of an error that the next operation will raise again, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
