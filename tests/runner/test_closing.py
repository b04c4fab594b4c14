"""Closing a runner at awkward moments: twice, from inside, by someone in a hurry, while a run waits for a straggler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.runner.desk import QUICK, SESSION, USER, Desk, Held, HeldThread

from heaveto import RunConfig, SqliteStore
from heaveto.errors import RunnerClosedError, StoreClosedError
from heaveto.stores.base import Store
from heaveto.testing import call, settle

PATIENT = RunConfig(straggler_wait_seconds=3600)


async def test_whoever_closes_a_runner_waits_for_its_end(desk: Callable[..., Desk], store: Store) -> None:
    """A second `aclose`, while the first is under way, returns when everything is closed, not before."""
    held = Held(swallow=1)
    one = desk(call("held"), store=store, tools=[held.tool()])
    run = await one.start(config=RunConfig(cancel_grace_seconds=1))
    await held.began.wait()
    first = asyncio.create_task(one.runner.aclose())
    await settle()
    await one.runner.aclose()
    assert run.status == "cancelled"
    await first


async def test_closing_goes_on_though_who_asked_for_it_gave_up(desk: Callable[..., Desk], store: Store) -> None:
    """`aclose` under a time limit that passes: the runs get their endings all the same, and the store is closed."""
    held = Held(swallow=1)
    one = desk(call("held"), store=store, tools=[held.tool()])
    run = await one.start(config=RunConfig(cancel_grace_seconds=1))
    await held.began.wait()
    hasty = asyncio.create_task(one.runner.aclose())
    await settle()
    hasty.cancel()
    await asyncio.wait({hasty})
    await one.runner.aclose()
    assert run.status == "cancelled"
    with pytest.raises(StoreClosedError):
        await store.unfinished()


async def test_a_tool_may_close_the_runner(desk: Callable[..., Desk], store: Store) -> None:
    """`aclose` from inside a run stops that run as well, and closes the store."""

    async def shut_down() -> None:
        """Shut down."""
        await one.runner.aclose()

    one = desk(call("shut_down"), store=store, tools=[shut_down])
    ended = await one.ask()
    assert (ended.outcome, ended.cause) == ("cancelled", "shutdown")
    await one.runner.aclose()
    with pytest.raises(StoreClosedError):
        await store.unfinished()


async def test_closing_does_not_wait_for_a_run_that_waits_for_a_straggler(desk: Callable[..., Desk]) -> None:
    """straggler_wait_seconds is patience of a run, not of the runner: its message is refused when the runner closes."""
    thread = HeldThread()
    one = desk(call("thread"), tools=[thread.tool(on_cancel="abandon")])
    run = await one.start()
    await thread.began.wait()
    await run.cancel()
    patient = asyncio.create_task(one.start(config=PATIENT))
    await settle()
    async with asyncio.timeout(10):
        await one.runner.aclose()
    with pytest.raises(RunnerClosedError):
        await patient
    thread.may_end.set()


async def test_a_run_that_waits_for_a_straggler_can_be_stopped(desk: Callable[..., Desk]) -> None:
    """A stop does not wait for the straggler either; the run never begins (F54)."""
    thread = HeldThread()
    one = desk(call("thread"), tools=[thread.tool(on_cancel="abandon")])
    run = await one.start(config=QUICK)
    await thread.began.wait()
    await run.cancel()
    patient = asyncio.create_task(one.start(config=PATIENT, run_id="patient"))
    await settle()
    await one.runner.cancel("patient", user_id=USER, session_id=SESSION)
    async with asyncio.timeout(10):
        assert (await (await patient).wait()).outcome == "cancelled"
    thread.may_end.set()


async def test_a_closed_store_file_can_be_opened_by_the_next_runner(desk: Callable[..., Desk], store: Store) -> None:
    """What a hasty close left behind is whole: another process finds nothing to recover."""
    if not isinstance(store, SqliteStore):
        pytest.skip("needs a file")
    held = Held()
    one = desk(call("held"), store=store, tools=[held.tool()])
    await one.start()
    await held.began.wait()
    await one.runner.aclose()
    other = desk(store=SqliteStore(store.path))
    assert await other.runner.recover() == []
