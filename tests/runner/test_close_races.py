"""What others append in the last moments of a run: each of them is heard of, and nobody is told another's signal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.runner.desk import SESSION, USER, Desk, Ends, Held

from heaveto import MemoryStore
from heaveto.core.close import Ending, close_run
from heaveto.core.fold import RunState
from heaveto.events.contents import Content
from heaveto.events.records import (
    CallProgress,
    CancelRequested,
    Message,
    Queued,
    Record,
    RunEnded,
    SessionKey,
    StateChanged,
)
from heaveto.ids import SystemIds
from heaveto.stores.base import Unfinished
from heaveto.testing import call, say, settle

KEY = SessionKey("desk", USER, SESSION)
IDS = SystemIds()


def stamp() -> tuple[str, float]:
    return IDS.record_id(), 1.0


class CrowdedStore(MemoryStore):
    """Before the first closing batch of a run somebody steers it; before the batch behind that, somebody stops it."""

    def __init__(self) -> None:
        super().__init__()
        self._closings = 0

    async def append(self, key: SessionKey, records: Sequence[Record], **options: Any) -> int:
        run_id, (record_id, time) = records[-1].run_id, stamp()
        if self._closings == 1:
            self._closings = 2
            stop = CancelRequested(id=record_id, time=time, run_id=run_id, cause="user", by="", reason="")
            await super().append(key, [stop], token=None)
        if not self._closings and isinstance(records[-1], RunEnded):
            self._closings = 1
            text = Message(id=record_id, time=time, run_id=run_id, author="user", parts=Content.of("also").parts)
            await super().append(key, [text], token=None)
        return await super().append(key, records, **options)


async def test_a_stop_right_behind_a_text_in_the_last_moment_ends_the_run(desk: Callable[..., Desk]) -> None:
    """A text keeps a run from completing, and a stop comes before it goes on: it ends as stopped, and says so (P7)."""
    ends = Ends()
    one = desk(say("Done."), say("Also."), store=CrowdedStore(), plugins=[ends])
    ended = await one.ask()
    assert (ended.outcome, ended.cause) == ("cancelled", "user")
    await ends.come(1)
    assert ends.outcomes == [("cancelled", "user")]


class LateStore(MemoryStore):
    """Lets something happen just before a session's unfinished runs are listed."""

    before: Callable[[], Awaitable[object]] | None = None

    async def unfinished(self, key: SessionKey | None = None) -> list[Unfinished]:
        if key is not None and self.before is not None:
            await self.before()
            self.before = None
        return await super().unfinished(key)


async def test_the_end_of_a_message_that_came_and_went_elsewhere_is_told(desk: Callable[..., Desk]) -> None:
    """Another worker takes a message in and back while this one looks for ends to tell: that one is told (P7)."""
    ends, store = Ends(), LateStore()
    one = desk(say("Hello."), store=store, plugins=[ends])
    record_id, time = stamp()
    came = Queued(id=record_id, time=time, run_id="waits", input=Content.of("hello"))
    went = close_run(RunState("waits", status="queued"), Ending("cancelled", "user"), stamp=stamp)
    store.before = lambda: store.append(KEY, [came, *went], token=None)
    await one.ask()
    await ends.come(2)
    assert ends.outcomes == [("cancelled", "user"), ("completed", None)]


class HeldStore(MemoryStore):
    """Keeps a progress value waiting until it may land."""

    def __init__(self) -> None:
        super().__init__()
        self.came, self.may_land = asyncio.Event(), asyncio.Event()

    async def append(self, key: SessionKey, records: Sequence[Record], **options: Any) -> int:
        if isinstance(records[-1], CallProgress):
            self.came.set()
            await self.may_land.wait()
        return await super().append(key, records, **options)


async def test_what_began_while_a_closing_run_waited_has_landed_before_its_ending(desk: Callable[..., Desk]) -> None:
    """The run waits for a fact; another one begins meanwhile, while somebody holds the log still: it waits for both."""
    store, held = HeldStore(), Held()
    at = desk(call("held"), say("Done."), tools=[held.tool()], store=store)
    run = await at.start()
    await held.began.wait()
    live = at.runner._lanes.at(KEY).live
    assert live is not None
    (call_id,) = live.operations

    async def hold_still(until: asyncio.Event) -> None:
        async with live.log.still():
            await until.wait()

    def fact(kind: Callable[..., Record], **fields: Any) -> asyncio.Task[None]:
        record_id, time = stamp()
        return asyncio.create_task(
            live.journal.record_fact([kind(id=record_id, time=time, run_id=run.run_id, **fields)])
        )

    first, let_go = fact(CallProgress, call_id=call_id, value=1), asyncio.Event()
    await store.came.wait()
    sealed = asyncio.create_task(live.seal())
    await settle()
    holder = asyncio.create_task(hold_still(let_go))
    await settle()
    second = fact(StateChanged, delta={"a": 1})
    await settle()
    store.may_land.set()
    await first
    await settle()
    assert live.sealing and not sealed.done() and not second.done()
    let_go.set()
    await sealed
    assert isinstance((await at.log())[-1], StateChanged)
    await asyncio.gather(holder, second)
    live.sealing = False
    held.may_end.set()
    assert (await run.wait()).outcome == "completed"
