"""Cancelling, closing and opening again."""

from __future__ import annotations

import asyncio

import pytest

from heaveto.errors import LeaseHeldError, StoreClosedError
from heaveto.events.records import SessionKey
from heaveto.stores.base import Guard, Lease, Store, Unfinished
from heaveto.testing.store_contract.content import KEY, OTHER, draft, message, started
from heaveto.testing.store_contract.suite import NEWS_SECONDS, StoreSuite, cancel_after, uses_of


class LifetimeContract(StoreSuite):
    """What a store promises when it is interrupted, closed and opened again."""

    async def test_a_cancelled_append_happened_whole_or_not_at_all(self) -> None:
        """Cancelled at any moment, an append leaves all of its records or none, and can be repeated (F158)."""
        async with self.opened(KEY) as store:
            for yields in range(12):
                batch = [message(str(yields)), message(str(yields))]
                before = len(await store.read(KEY))
                await cancel_after(yields, store.append(KEY, batch, token=None))
                last = await store.append(KEY, batch, token=None)
                assert last == before + 2 == len(await store.read(KEY))

    async def test_a_cancelled_claim_leaves_no_lease(self) -> None:
        """Nobody would release it: a claim whose caller is gone has not happened."""
        async with self.opened(KEY) as store:
            for yields in range(12):
                lease = await cancel_after(yields, store.claim(KEY))
                if lease is None:
                    lease = await _claim_soon(store)
                await store.release(lease)

    async def test_any_method_can_be_cancelled(self) -> None:
        """After a cancelled call of any kind the store works on."""
        async with self.opened(KEY) as store:
            for yields in range(6):
                for attempt in uses_of(store, KEY):
                    await cancel_after(yields, attempt())
                await cancel_after(yields, store.list_sessions())
                await cancel_after(yields, store.create_session(SessionKey("app", "ann", f"new{yields}")))
                await cancel_after(yields, store.erase_session(SessionKey("app", "ann", f"new{yields}"), by="ann"))
            last = await store.append(KEY, [message()], token=None)
            assert [record.seq for record in await store.read(KEY)] == list(range(1, last + 1))

    async def test_a_closed_store_takes_no_calls(self) -> None:
        """Closing twice is harmless; everything else is a typed error."""
        async with self.opened(KEY) as store:
            await store.aclose()
            await store.aclose()
            for attempt in uses_of(store, KEY):
                with pytest.raises(StoreClosedError):
                    await attempt()
            with pytest.raises(StoreClosedError):
                store.subscribe(KEY, lambda _: None)

    async def test_closing_finishes_what_was_begun(self) -> None:
        """Appends that were called before `aclose` are stored and answered."""
        async with self.opened(KEY) as store:
            tasks = [asyncio.ensure_future(store.append(KEY, [message()], token=None)) for _ in range(5)]
            await asyncio.sleep(0)
            await store.aclose()
            assert sorted(await asyncio.gather(*tasks)) == [1, 2, 3, 4, 5]

    async def test_everything_is_there_after_reopening(self) -> None:
        """Records, runs, guards, states, drafts and tombstones outlive the instance; leases do not."""
        store = await self.open_store()
        await store.create_session(KEY, {"app:a": 1})
        await store.create_session(OTHER)
        await store.erase_session(OTHER, by="ann")
        lease = await store.claim(KEY)
        await store.append(KEY, [started("r"), message()], token=lease.token, guard=Guard("g", "v"))
        await store.save_drafts(KEY, [draft("m", run_id="r")])
        records, info = await store.read(KEY), await store.get_session(KEY)
        again = await self.reopen(store)
        if again is None:
            pytest.skip("this store does not outlive its instance")
        try:
            assert await again.read(KEY) == records
            assert await again.get_session(KEY) == info
            assert await again.find_guard(KEY, "g") == "v"
            assert await again.unfinished() == [Unfinished(KEY, "r", ended=False)]
            assert await again.shared_state("app", "ann") == {"app:a": 1}
            assert await again.drafts(KEY, "r") == [draft("m", run_id="r")]
            assert await again.tombstone(OTHER) is not None
            assert await again.holder(KEY) is None
            assert (await again.claim(KEY)).token > lease.token
        finally:
            await again.aclose()


async def _claim_soon(store: Store) -> Lease:
    """Claim a session whose cancelled claimer may be about to give it back."""
    async with asyncio.timeout(NEWS_SECONDS):
        while True:
            try:
                return await store.claim(KEY)
            except LeaseHeldError:
                await asyncio.sleep(0.001)
