"""Artifacts in the store of the sessions."""

from __future__ import annotations

from heaveto.artifacts.base import Infos, Versions
from heaveto.artifacts.naming import check_name, is_of_user
from heaveto.events.contents import Blob
from heaveto.events.records import SessionKey
from heaveto.stores.base import Store


class StoreArtifacts:
    """An `ArtifactService` on a `Store`: nothing to set up, and erased with the session in one step.

    A session's artifacts need the session to exist. The store stays its owner's to close.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def save(self, key: SessionKey, name: str, content: Blob, *, id: str | None = None) -> int:
        return await self._store.save_blob(key, check_name(name), content.content, mime_type=content.mime_type, id=id)

    async def load(self, key: SessionKey, name: str, version: int | None = None) -> Blob | None:
        return await self._store.load_blob(key, check_name(name), version)

    async def list(self, key: SessionKey) -> Infos:
        return await self._store.list_blobs(key)

    async def versions(self, key: SessionKey, name: str) -> Versions:
        return await self._store.blob_versions(key, check_name(name))

    async def delete(self, key: SessionKey, name: str) -> None:
        await self._store.delete_blob(key, check_name(name))

    async def erase(self, key: SessionKey) -> None:
        for info in await self._store.list_blobs(key):
            if not is_of_user(info.name):
                await self._store.delete_blob(key, info.name)
