"""News: who subscribes to a session hears of every change, wherever it was made."""

from __future__ import annotations

from heaveto.testing.store_contract.content import KEY, OTHER, message
from heaveto.testing.store_contract.suite import News, StoreSuite


class NewsContract(StoreSuite):
    """What a store promises to subscribers."""

    async def test_a_subscriber_hears_of_every_append_and_release(self) -> None:
        """Calls may be merged and may come in excess; they are never left out."""
        async with self.opened(KEY, OTHER) as store:
            news = News(store, KEY)
            await news.settle()
            lease = await store.claim(KEY)
            for _ in range(3):
                last = await store.append(KEY, [message()], token=lease.token)
                await news.wait()
                assert news.last_seq == last
            await news.settle()
            await store.release(lease)
            await news.wait()
            await news.settle()
            calls = news.calls
            news.stop()
            news.stop()
            await store.append(KEY, [message()], token=None)
            await news.settle()
            assert news.calls == calls

    async def test_a_subscriber_hears_of_other_instances(self) -> None:
        """An append and a release by another instance are heard, also when claim and release follow at once."""
        async with self.two_instances() as (first, second):
            news = News(first, KEY)
            await news.settle()
            last = await second.append(KEY, [message()], token=None)
            await news.wait()
            assert news.last_seq == last
            await news.settle()
            for _ in range(3):
                lease = await second.claim(KEY)
                await second.release(lease)
                await news.wait()
                await news.settle()
