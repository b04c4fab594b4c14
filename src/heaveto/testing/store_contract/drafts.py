"""Drafts: the last one of each message, until the message or the end of its run is there."""

from __future__ import annotations

from heaveto.testing.store_contract.content import KEY, draft, ended, message, started
from heaveto.testing.store_contract.suite import StoreSuite


class DraftContract(StoreSuite):
    """What a store promises of drafts."""

    async def test_a_draft_is_replaced_by_the_next_one(self) -> None:
        """The last saved draft of each message of a run is kept."""
        async with self.opened(KEY) as store:
            await store.save_drafts(KEY, [draft("m1", "a"), draft("m2", "b"), draft("m3", "c", run_id="other")])
            await store.save_drafts(KEY, [draft("m1", "aa")])
            drafts = await store.drafts(KEY, "run")
            assert {item.message_id: item for item in drafts} == {"m1": draft("m1", "aa"), "m2": draft("m2", "b")}
            assert await store.read(KEY) == []

    async def test_a_draft_goes_with_its_message(self) -> None:
        """The final message replaces its draft, and no later draft brings it back."""
        async with self.opened(KEY) as store:
            await store.save_drafts(KEY, [draft("m1"), draft("m2")])
            await store.append(KEY, [message(id="m1")], token=None)
            await store.save_drafts(KEY, [draft("m1", "late")])
            assert await store.drafts(KEY, "run") == [draft("m2")]

    async def test_drafts_go_with_their_run(self) -> None:
        """The end of a run drops its drafts only, and no later draft brings them back."""
        async with self.opened(KEY) as store:
            await store.append(KEY, [started("run"), started("other")], token=None)
            await store.save_drafts(KEY, [draft("m1"), draft("m2", run_id="other")])
            await store.append(KEY, [ended("run")], token=None)
            await store.save_drafts(KEY, [draft("m1", "late")])
            assert await store.drafts(KEY, "run") == []
            assert await store.drafts(KEY, "other") == [draft("m2", run_id="other")]
