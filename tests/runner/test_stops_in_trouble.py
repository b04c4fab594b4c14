"""A stop always stops, also where it cannot be recorded as it should."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.runner.desk import Desk, Held

from heaveto import MemoryStore
from heaveto.events.records import CancelRequested
from heaveto.runner.run import live
from heaveto.testing import call, say


class _Hanging(MemoryStore):
    """Does not answer to the append of a stop request until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def append(self, key: Any, records: Any, **options: Any) -> int:
        if any(isinstance(record, CancelRequested) for record in records):
            self.reached.set()
            await self.may_go_on.wait()
        return await super().append(key, records, **options)


async def test_a_store_that_hangs_does_not_keep_the_work_going(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a stop cannot be recorded in good time the work is stopped all the same; the ending waits for the store."""
    monkeypatch.setattr(live, "_RECORD_STOP_SECONDS", 0.01)
    store, held = _Hanging(), Held()
    desk = Desk(call("held"), store=store, tools=[held.tool()])
    run = await desk.start()
    await held.began.wait()
    stopping = asyncio.ensure_future(run.cancel(by="ann"))
    await held.left.wait()
    assert store.reached.is_set()
    assert not stopping.done()
    assert held.effects == 0
    store.may_go_on.set()
    report = await stopping
    assert (report.outcome, report.cause, report.by) == ("cancelled", "user", "ann")
    await desk.runner.aclose()


async def test_a_name_that_no_log_can_hold_does_not_prevent_a_stop() -> None:
    """A stop never fails for how its sender is called: what cannot be stored of the name is replaced."""
    held = Held()
    desk = Desk(call("held"), say("fine"), tools=[held.tool()])
    run = await desk.start()
    await held.began.wait()
    report = await run.cancel(by="ann\ud800", reason="\udfff enough")
    assert (report.outcome, report.by) == ("cancelled", "ann?")
    assert (await desk.ask("x")).outcome == "completed"
    await desk.runner.aclose()
