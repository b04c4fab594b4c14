"""Leases, fencing tokens and signs of life: one holder at a time, and whoever lost the lease writes nothing."""

from __future__ import annotations

import asyncio

import pytest

from heaveto.errors import LeaseHeldError, StaleLeaseError
from heaveto.events.records import CancelRequested
from heaveto.stores.base import Lease, Unfinished
from heaveto.testing.store_contract.content import IDS, KEY, OTHER, ended, message, started
from heaveto.testing.store_contract.suite import StoreSuite


class LeaseContract(StoreSuite):
    """What a store promises of who may write a session."""

    async def test_a_lease_excludes_others(self) -> None:
        """A held session cannot be claimed, not even by the same instance (F72, F111)."""
        async with self.opened(KEY, OTHER) as store:
            assert await store.holder(KEY) is None
            lease = await store.claim(KEY)
            assert (lease.key, lease.owner, lease.last_seq) == (KEY, store.owner, 0)
            with pytest.raises(LeaseHeldError) as caught:
                await store.claim(KEY)
            assert caught.value.owner == store.owner
            holder = await store.holder(KEY)
            assert holder is not None and holder.alive and holder.owner == store.owner
            await store.claim(OTHER)

    async def test_the_token_grows_with_each_claim(self) -> None:
        """A later lease has a greater token, and tells the last seq."""
        async with self.opened(KEY) as store:
            first = await store.claim(KEY)
            await store.append(KEY, [message()], token=first.token)
            await store.release(first)
            second = await store.claim(KEY)
            assert second.token > first.token and second.last_seq == 1

    async def test_a_stale_token_cannot_append(self) -> None:
        """Whoever lost the lease writes nothing (F73)."""
        async with self.opened(KEY) as store:
            first = await store.claim(KEY)
            await store.release(first)
            with pytest.raises(StaleLeaseError):
                await store.append(KEY, [message()], token=first.token)
            second = await store.claim(KEY)
            with pytest.raises(StaleLeaseError) as caught:
                await store.append(KEY, [message()], token=first.token)
            assert (caught.value.held, caught.value.current) == (first.token, second.token)
            assert await store.append(KEY, [message()], token=second.token) == 1

    async def test_releasing_a_stale_lease_does_nothing(self) -> None:
        """A second release, or a late one, does not take the session from its new holder."""
        async with self.opened(KEY) as store:
            first = await store.claim(KEY)
            await store.release(first)
            await store.release(first)
            second = await store.claim(KEY)
            await store.append(KEY, [started("r"), ended("r")], token=second.token)
            await store.release(first, settled=["r"])
            assert await store.unfinished(KEY) == [Unfinished(KEY, "r", ended=True)]
            assert await store.append(KEY, [message()], token=second.token) == 3

    async def test_side_appends_do_not_disturb_the_holder(self) -> None:
        """An answer that arrives while a run works takes its own seq; the holder's next append succeeds (F75)."""
        async with self.opened(KEY) as store:
            lease = await store.claim(KEY)
            await store.append(KEY, [message("held")], token=lease.token)
            side = CancelRequested(id=IDS.record_id(), time=1.0, run_id="run", cause="user")
            assert await store.append(KEY, [side], token=None) == 2
            assert await store.append(KEY, [message("held")], token=lease.token) == 3

    async def test_one_of_many_claimers_gets_the_lease(self) -> None:
        """Of twenty claims at once exactly one succeeds."""
        async with self.opened(KEY) as store:
            results = await asyncio.gather(*(store.claim(KEY) for _ in range(20)), return_exceptions=True)
            assert sum(isinstance(result, Lease) for result in results) == 1
            assert sum(isinstance(result, LeaseHeldError) for result in results) == 19

    async def test_closing_an_instance_frees_its_leases(self) -> None:
        """`aclose` gives everything back; the next claimer need not wait (F78)."""
        async with self.two_instances() as (first, second):
            lease = await first.claim(KEY)
            with pytest.raises(LeaseHeldError) as caught:
                await second.claim(KEY)
            assert caught.value.owner == first.owner != second.owner
            holder = await second.holder(KEY)
            assert holder is not None and holder.alive and holder.owner == first.owner
            await first.aclose()
            taken = await second.claim(KEY)
            assert taken.token > lease.token

    async def test_two_instances_write_one_log(self) -> None:
        """Appends through two instances are one order, and a lease holds in both (F72)."""
        async with self.two_instances() as (first, second):
            lease = await first.claim(KEY)
            for number in range(10):
                assert await first.append(KEY, [message()], token=lease.token) == 2 * number + 1
                assert await second.append(KEY, [message()], token=None) == 2 * number + 2
            await first.release(lease)
            other = await second.claim(KEY)
            with pytest.raises(StaleLeaseError):
                await first.append(KEY, [message()], token=lease.token)
            await second.append(KEY, [message()], token=other.token)
            assert await first.read(KEY) == await second.read(KEY)

    async def test_an_instance_is_alive_until_it_is_closed(self) -> None:
        """It says so of itself and of others, whether they hold a lease or have given it back (F78)."""
        async with self.two_instances() as (first, second):
            assert await second.is_alive(second.owner)
            lease = await first.claim(KEY)
            assert await second.is_alive(first.owner) and await first.is_alive(first.owner)
            await first.release(lease)
            assert await second.is_alive(first.owner)
            await first.aclose()
            assert not await second.is_alive(first.owner)
            assert not await second.is_alive("nobody")
