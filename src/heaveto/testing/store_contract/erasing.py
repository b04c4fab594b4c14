"""Erasing: a tombstone is left, and nothing else."""

from __future__ import annotations

import pytest

from heaveto.errors import SessionErasedError
from heaveto.stores.base import Guard
from heaveto.testing.store_contract.content import KEY, draft, message, started
from heaveto.testing.store_contract.suite import News, StoreSuite, uses_of


class EraseContract(StoreSuite):
    """What a store promises of erased sessions."""

    async def test_erasing_leaves_a_tombstone_and_nothing_else(self) -> None:
        """Who, when, why and how much are kept; content, runs, guards and drafts are not."""
        async with self.opened() as store:
            info = await store.create_session(KEY, {"a": 1})
            await store.append(KEY, [started("r"), message()], token=None, guard=Guard("g", "v"))
            await store.save_drafts(KEY, [draft("m", run_id="r")])
            stone = await store.erase_session(KEY, by="ann", reason="asked")
            assert (stone.key, stone.records, stone.by, stone.reason) == (KEY, 3, "ann", "asked")
            assert stone.created == info.created <= stone.erased
            assert await store.tombstone(KEY) == stone
            assert await store.erase_session(KEY, by="bob") == stone, "idempotent"
            assert await store.get_session(KEY) is None
            assert await store.list_sessions() == []
            assert await store.unfinished() == []
            assert await store.find_run("r") is None

    async def test_an_erased_session_cannot_be_used(self) -> None:
        """Every use says that it was erased; the key is never given to another session."""
        async with self.opened(KEY) as store:
            await store.erase_session(KEY, by="ann")
            for attempt in uses_of(store, KEY):
                with pytest.raises(SessionErasedError):
                    await attempt()
            with pytest.raises(SessionErasedError):
                await store.create_session(KEY)

    async def test_the_holder_of_an_erased_session_is_refused(self) -> None:
        """Erasing does not wait for the holder; its next append writes nothing, its release is harmless."""
        async with self.opened(KEY) as store:
            news = News(store, KEY)
            lease = await store.claim(KEY)
            await news.settle()
            await store.erase_session(KEY, by="ann")
            await news.wait()
            with pytest.raises(SessionErasedError):
                await store.append(KEY, [message()], token=lease.token)
            await store.release(lease)
