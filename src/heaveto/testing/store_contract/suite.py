"""What the suite is run on: how a store is opened, listened to, used and interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heaveto.events.records import SessionKey
from heaveto.stores.base import Store
from heaveto.testing.store_contract.content import KEY, draft, message

NEWS_SECONDS = 5.0
"""By when something must have been heard of, whatever the machine is busy with."""


class StoreSuite:
    """What a subclass says of its store, and what the tests make of it."""

    async def open_store(self) -> Store:
        """Return a new store without sessions."""
        raise NotImplementedError

    async def another_instance(self, store: Store) -> Store | None:
        """Return a second instance on the content of `store`, as another process would have it."""
        return None

    async def reopen(self, store: Store) -> Store | None:
        """Close `store` and return a new instance on its content."""
        return None

    @asynccontextmanager
    async def opened(self, *keys: SessionKey) -> AsyncGenerator[Store]:
        """Open a store that has these sessions, and close it at the end."""
        store = await self.open_store()
        try:
            for key in keys:
                await store.create_session(key)
            yield store
        finally:
            await store.aclose()

    @asynccontextmanager
    async def two_instances(self) -> AsyncGenerator[tuple[Store, Store]]:
        """Open two instances on one content, which has `KEY`."""
        async with self.opened(KEY) as first:
            second = await self.another_instance(first)
            if second is None:
                pytest.skip("this store has no second instance")
            try:
                yield first, second
            finally:
                await second.aclose()


class News:
    """A subscriber that can be waited for."""

    def __init__(self, store: Store, key: SessionKey) -> None:
        self._event = asyncio.Event()
        self.calls = 0
        self.last_seq = 0
        self.stop = store.subscribe(key, self._call)

    def _call(self, last_seq: int) -> None:
        self.calls += 1
        self.last_seq = last_seq
        self._event.set()

    async def settle(self) -> None:
        """Let what may come although nothing changed come, and forget it."""
        for _ in range(20):
            await asyncio.sleep(0.005)
        self._event.clear()

    async def wait(self) -> None:
        """Wait for the next call."""
        async with asyncio.timeout(NEWS_SECONDS):
            await self._event.wait()
        self._event.clear()


def uses_of(store: Store, key: SessionKey) -> list[Callable[[], Awaitable[object]]]:
    """Return every method that needs the session to exist."""
    return [
        lambda: store.read(key),
        lambda: store.append(key, [message()], token=None),
        lambda: store.claim(key),
        lambda: store.holder(key),
        lambda: store.find_guard(key, "g"),
        lambda: store.save_drafts(key, [draft("m-use")]),
        lambda: store.drafts(key, "run"),
        lambda: store.save_blob(key, "use", b"1", mime_type="x/y"),
    ]


async def cancel_after(yields: int, work: Awaitable[Any]) -> Any:
    """Cancel a call after so many turns of the loop; return its result, or None if it was cancelled or refused."""
    task = asyncio.ensure_future(work)
    for _ in range(yields):
        await asyncio.sleep(0)
    task.cancel()
    result: Any = (await asyncio.gather(task, return_exceptions=True))[0]
    return None if isinstance(result, BaseException) else result
