"""The SQLite store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from heaveto.stores.base import Store
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing.store_contract import StoreContract


class TestSqliteStore(StoreContract):
    """The contract, on `SqliteStore`."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "store.db"

    async def open_store(self) -> Store:
        return SqliteStore(self.path)

    async def another_instance(self, store: Store) -> Store | None:
        return SqliteStore(self.path)

    async def reopen(self, store: Store) -> Store | None:
        await store.aclose()
        return SqliteStore(self.path)
