"""What a long answer costs while it is streamed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.runner.desk import Desk

from heaveto import MemoryStore
from heaveto.events.codec import encode_draft
from heaveto.events.records import Draft, SessionKey
from heaveto.testing import say


class CountingStore(MemoryStore):
    """Counts the characters of all drafts that it is told to save."""

    def __init__(self) -> None:
        super().__init__()
        self.saved = 0

    async def save_drafts(self, key: SessionKey, drafts: Sequence[Draft]) -> None:
        self.saved += sum(len(encode_draft(draft)) for draft in drafts)
        await super().save_drafts(key, drafts)


async def test_saving_a_long_answer_costs_what_is_new_in_it(desk: Callable[..., Desk]) -> None:
    """Each save writes the whole draft, so their number must not grow with its length (P9)."""
    saved: list[int] = []
    for size in (200_000, 800_000):
        store = CountingStore()
        one = desk(say("A" * size, chunks=size // 200), store=store)
        assert (await one.ask()).outcome == "completed"
        saved.append(store.saved)
    assert saved[1] < 6 * saved[0]
