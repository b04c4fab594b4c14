"""What long answers and long queues cost: what is new, and not its square (P9)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from tests.runner.desk import Desk

from heaveto import MemoryStore
from heaveto.events.codec import encode_draft
from heaveto.events.records import Draft, SessionKey
from heaveto.testing import ScriptedModel, say


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


async def test_a_change_wakes_only_those_whom_it_concerns(desk: Callable[..., Desk]) -> None:
    """Fifty wait for fifty queued runs: each is woken for its own ending, not for each record of the others (P9)."""
    one = desk(say("Yes."), model=ScriptedModel(say("Yes."), strict=False))
    runs = [await one.start(f"message {number}") for number in range(50)]
    looks = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal looks
        looks += event == "call" and frame.f_code.co_name == "_raise_given_up"

    waiters = [asyncio.create_task(run.wait()) for run in runs]
    sys.setprofile(count)
    try:
        await asyncio.gather(*waiters)
    finally:
        sys.setprofile(None)
    assert looks <= 2 * len(runs)
