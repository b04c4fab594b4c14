"""The memory store keeps the contract, and can act as a process that was killed."""

from __future__ import annotations

import pytest

from heaveto.errors import StoreClosedError
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryStore
from heaveto.testing.store_contract import KEY, StoreContract


class TestMemoryStore(StoreContract):
    """The contract, on `MemoryStore`."""

    async def open_store(self) -> Store:
        return MemoryStore()

    async def another_instance(self, store: Store) -> Store | None:
        assert isinstance(store, MemoryStore)
        return MemoryStore(store.data)

    async def reopen(self, store: Store) -> Store | None:
        assert isinstance(store, MemoryStore)
        await store.aclose()
        return MemoryStore(store.data)


async def test_an_abandoned_instance_is_dead_at_once() -> None:
    """Its lease is still there, but not alive, and can be taken over (F78)."""
    first = MemoryStore()
    await first.create_session(KEY)
    lease = await first.claim(KEY)
    first.abandon()
    async with MemoryStore(first.data) as second:
        holder = await second.holder(KEY)
        assert holder is not None and holder.owner == first.owner and not holder.alive
        assert (await second.claim(KEY)).token > lease.token
    with pytest.raises(StoreClosedError):
        await first.read(KEY)
