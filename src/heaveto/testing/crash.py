"""Crashes on purpose: a store after whose n-th append the process is as good as dead.

    store = CrashingStore(MemoryStore(data), after=3)
    ...                           # start a run on it
    await store.died.wait()
    store.bury()                  # what the dead process still had in memory may unwind, and changes nothing

Enumerate `after` from 1 until a run gets through, once with `lands` and once without: the n-th append is then durable
and nobody was told, or it never happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from heaveto.errors import StoreClosedError
from heaveto.events.contents import ArtifactInfo, Blob, Json
from heaveto.events.records import Draft, Record, SessionKey
from heaveto.stores.base import Guard, Holder, Lease, SessionInfo, Store, Tombstone, Unfinished

_T = TypeVar("_T")


class CrashingStore:
    """A `Store` that dies at its n-th append, and with it everything that goes on to use it.

    From then on no call returns, as in a process that was killed; after `bury` each raises `StoreClosedError`, so that
    a test can get rid of the tasks that hang in it.

    Args:
        inner: the store; it is not closed.
        after: which append is the last one.
        lands: whether that one is still written; its caller is not told in either case.

    Attributes:
        appends: how many appends there were.
        died: set at the moment of death.
    """

    def __init__(self, inner: Store, *, after: int, lands: bool = True) -> None:
        self.inner, self._after, self._lands = inner, after, lands
        self.appends = 0
        self.died = asyncio.Event()
        self._buried = asyncio.Event()

    @property
    def owner(self) -> str:
        return self.inner.owner

    def kill(self) -> None:
        """Die now, between two appends."""
        self.died.set()

    def bury(self) -> None:
        """Let the calls that hang, and those to come, raise."""
        self.died.set()
        self._buried.set()

    async def _if_alive(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        if not self.died.is_set():
            value = await work()
            if not self.died.is_set():
                return value
        await self._buried.wait()
        raise StoreClosedError

    async def append(
        self,
        key: SessionKey,
        records: Sequence[Record],
        *,
        token: int | None,
        expect: int | None = None,
        guard: Guard | None = None,
    ) -> int:
        async def work() -> int:
            self.appends += 1
            if self.appends == self._after and not self._lands:
                self.kill()
                return 0
            try:
                return await self.inner.append(key, records, token=token, expect=expect, guard=guard)
            finally:
                if self.appends >= self._after:
                    self.kill()

        return await self._if_alive(work)

    async def create_session(self, key: SessionKey, state: Mapping[str, Json] | None = None) -> SessionInfo:
        return await self._if_alive(lambda: self.inner.create_session(key, state))

    async def get_session(self, key: SessionKey) -> SessionInfo | None:
        return await self._if_alive(lambda: self.inner.get_session(key))

    async def list_sessions(
        self, app: str | None = None, user: str | None = None, *, limit: int = 100, before: float | None = None
    ) -> list[SessionInfo]:
        return await self._if_alive(lambda: self.inner.list_sessions(app, user, limit=limit, before=before))

    async def erase_session(self, key: SessionKey, *, by: str, reason: str = "") -> Tombstone:
        return await self._if_alive(lambda: self.inner.erase_session(key, by=by, reason=reason))

    async def tombstone(self, key: SessionKey) -> Tombstone | None:
        return await self._if_alive(lambda: self.inner.tombstone(key))

    async def read(self, key: SessionKey, *, after: int = 0, limit: int | None = None) -> list[Record]:
        return await self._if_alive(lambda: self.inner.read(key, after=after, limit=limit))

    async def claim(self, key: SessionKey) -> Lease:
        return await self._if_alive(lambda: self.inner.claim(key))

    async def release(self, lease: Lease, *, settled: Sequence[str] = ()) -> None:
        await self._if_alive(lambda: self.inner.release(lease, settled=settled))

    async def holder(self, key: SessionKey) -> Holder | None:
        return await self._if_alive(lambda: self.inner.holder(key))

    async def unfinished(self, key: SessionKey | None = None) -> list[Unfinished]:
        return await self._if_alive(lambda: self.inner.unfinished(key))

    async def find_run(self, run_id: str) -> SessionKey | None:
        return await self._if_alive(lambda: self.inner.find_run(run_id))

    async def find_guard(self, key: SessionKey, name: str) -> str | None:
        return await self._if_alive(lambda: self.inner.find_guard(key, name))

    async def shared_state(self, app: str, user: str) -> dict[str, Json]:
        return await self._if_alive(lambda: self.inner.shared_state(app, user))

    async def save_drafts(self, key: SessionKey, drafts: Sequence[Draft]) -> None:
        await self._if_alive(lambda: self.inner.save_drafts(key, drafts))

    async def drafts(self, key: SessionKey, run_id: str) -> list[Draft]:
        return await self._if_alive(lambda: self.inner.drafts(key, run_id))

    async def save_blob(
        self, key: SessionKey, name: str, content: bytes, *, mime_type: str, id: str | None = None
    ) -> int:
        return await self._if_alive(lambda: self.inner.save_blob(key, name, content, mime_type=mime_type, id=id))

    async def load_blob(self, key: SessionKey, name: str, version: int | None = None) -> Blob | None:
        return await self._if_alive(lambda: self.inner.load_blob(key, name, version))

    async def list_blobs(self, key: SessionKey) -> list[ArtifactInfo]:
        return await self._if_alive(lambda: self.inner.list_blobs(key))

    async def blob_versions(self, key: SessionKey, name: str) -> list[int]:
        return await self._if_alive(lambda: self.inner.blob_versions(key, name))

    async def delete_blob(self, key: SessionKey, name: str) -> None:
        await self._if_alive(lambda: self.inner.delete_blob(key, name))

    async def is_alive(self, owner: str) -> bool:
        return await self._if_alive(lambda: self.inner.is_alive(owner))

    def subscribe(self, key: SessionKey, callback: Callable[[int], None]) -> Callable[[], None]:
        return self.inner.subscribe(key, lambda last: None if self.died.is_set() else callback(last))

    async def aclose(self) -> None:
        """Nothing: the inner store belongs to whoever made it."""
