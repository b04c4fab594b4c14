"""Artifacts in a store keep the contract, in memory and on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from heaveto.artifacts.base import ArtifactService
from heaveto.artifacts.in_store import StoreArtifacts
from heaveto.errors import SessionErasedError, UnknownSessionError
from heaveto.events.records import SessionKey
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryStore
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing.artifact_contract import KEY, OTHER, STRANGERS, ArtifactContract, blob


class _InStore(ArtifactContract):
    def make_store(self) -> Store:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    async def _store(self, tmp_path: Path):
        self.path = tmp_path / "store.db"
        self.stores = [self.make_store()]
        for key in (KEY, OTHER, *STRANGERS):
            await self.stores[0].create_session(key)
        yield
        for store in self.stores:
            await store.aclose()

    async def open_service(self) -> ArtifactService:
        return StoreArtifacts(self.stores[0])

    async def another_instance(self, service: ArtifactService) -> ArtifactService | None:
        self.stores.append(self.make_store())
        return StoreArtifacts(self.stores[-1])

    async def erase_session(self, service: ArtifactService, key: SessionKey) -> None:
        await self.stores[0].erase_session(key, by="ann")
        await service.erase(key)


class TestInMemory(_InStore):
    """The contract, on `MemoryStore`."""

    def make_store(self) -> Store:
        return MemoryStore(self.stores[0].data) if hasattr(self, "stores") else MemoryStore()


class TestInSqlite(_InStore):
    """The contract, on `SqliteStore`."""

    def make_store(self) -> Store:
        return SqliteStore(self.path)


async def test_artifacts_need_their_session() -> None:
    """A session that was never made, or erased, takes none; erasing the artifacts alone leaves it usable."""
    async with MemoryStore() as store:
        service = StoreArtifacts(store)
        with pytest.raises(UnknownSessionError):
            await service.save(KEY, "a", blob("x"))
        await store.create_session(KEY)
        await service.save(KEY, "a", blob("x"))
        await service.erase(KEY)
        assert await service.list(KEY) == []
        assert await service.save(KEY, "a", blob("x")) == 0
        await store.erase_session(KEY, by="ann")
        with pytest.raises(SessionErasedError):
            await service.save(KEY, "a", blob("x"))
