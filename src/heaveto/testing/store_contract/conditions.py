"""Conditions and guards: an append that came too late writes nothing."""

from __future__ import annotations

import asyncio

import pytest

from heaveto.errors import GuardTakenError, LogMovedError
from heaveto.stores.base import Guard
from heaveto.testing.store_contract.content import KEY, OTHER, message
from heaveto.testing.store_contract.suite import StoreSuite


class ConditionContract(StoreSuite):
    """What a store promises of appends on condition."""

    async def test_a_condition_is_checked(self) -> None:
        """An append that expects another last seq writes nothing; the loser is told (F82)."""
        async with self.opened(KEY) as store:
            await store.append(KEY, [message()], token=None, expect=0)
            with pytest.raises(LogMovedError) as caught:
                await store.append(KEY, [message()], token=None, expect=0)
            assert (caught.value.expected, caught.value.current) == (0, 1)
            assert len(await store.read(KEY)) == 1

    async def test_a_guard_is_taken_once(self) -> None:
        """The second taker of a unique key writes nothing and is shown the first one's value."""
        async with self.opened(KEY, OTHER) as store:
            assert await store.find_guard(KEY, "answer:c1") is None
            await store.append(KEY, [message()], token=None, guard=Guard("answer:c1", "yes"))
            with pytest.raises(GuardTakenError) as caught:
                await store.append(KEY, [message()], token=None, guard=Guard("answer:c1", "no"))
            assert caught.value.value == "yes"
            assert await store.find_guard(KEY, "answer:c1") == "yes"
            assert len(await store.read(KEY)) == 1
            await store.append(OTHER, [message()], token=None, guard=Guard("answer:c1", "no"))

    async def test_a_refused_append_does_not_take_its_guard(self) -> None:
        """Guard and records are one write."""
        async with self.opened(KEY) as store:
            with pytest.raises(LogMovedError):
                await store.append(KEY, [message()], token=None, expect=7, guard=Guard("g", "v"))
            assert await store.find_guard(KEY, "g") is None

    async def test_one_of_many_guard_takers_wins(self) -> None:
        """Of twenty answers at once exactly one is recorded."""
        async with self.opened(KEY) as store:
            attempts = [
                store.append(KEY, [message()], token=None, guard=Guard("g", str(number))) for number in range(20)
            ]
            results = await asyncio.gather(*attempts, return_exceptions=True)
            assert [type(result) for result in results].count(GuardTakenError) == 19
            assert len(await store.read(KEY)) == 1
