"""An idempotency key makes a repeated start the same run, whenever and wherever it is repeated (F18, F70, F115)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest
from tests.crash.workers import Yard

from heaveto.errors import IdempotencyConflictError
from heaveto.events.records import RunEnded
from heaveto.runner.application.config import BusyPolicy
from heaveto.testing import gate, say
from heaveto.testing.promises import check_promises

media = pytest.mark.parametrize("medium", ["memory", "sqlite"])
Medium = Literal["memory", "sqlite"]


@media
async def test_a_repeat_while_the_run_goes_on_attaches_to_it(medium: Medium, tmp_path: Path) -> None:
    """A client that timed out and asks again gets the run that is working, also from another process."""
    yard = Yard(medium, tmp_path)
    door = gate()
    worker, other = yard.worker((door, say("once"))), yard.worker()
    first = await worker.start("pay", idempotency_key="k")
    await door.reached()
    again = await worker.start("pay", idempotency_key="k")
    elsewhere = await other.start("pay", idempotency_key="k")
    assert {again.run_id, elsewhere.run_id} == {first.run_id}
    door.open()
    assert [(await run.wait()).outcome for run in (first, again, elsewhere)] == ["completed"] * 3
    assert await worker.inputs() == ["pay"]
    await yard.close()


@media
async def test_a_repeat_after_the_end_and_after_a_restart(medium: Medium, tmp_path: Path) -> None:
    """The key outlives the run and the process: the repeat finds the run, its records and its result."""
    yard = Yard(medium, tmp_path)
    worker = yard.worker(say("paid"))
    first = await worker.start("pay", idempotency_key="k")
    await first.wait()
    assert await (await worker.start("pay", idempotency_key="k")).result() == "paid"
    await worker.runner.aclose()
    later = yard.worker()
    again = await later.start("pay", idempotency_key="k")
    assert again.run_id == first.run_id
    assert await again.result() == "paid"
    assert isinstance([item async for item in again.stream()][-1], RunEnded)
    assert later.model.calls == 0
    await yard.close()


@media
@pytest.mark.parametrize("policy", ["queue", "reject", "interrupt", "merge", "steer"])
async def test_two_at_once_are_one_run(medium: Medium, policy: BusyPolicy, tmp_path: Path) -> None:
    """The same key twice at the same moment is one run, whatever the policy, here and from two processes."""
    yard = Yard(medium, tmp_path)
    worker, other = yard.worker(), yard.worker()
    await worker.ask("hello")
    await worker.idle()
    runs = await asyncio.gather(
        *(place.start("pay", policy, idempotency_key="k") for place in (worker, worker, other, other))
    )
    assert len({run.run_id for run in runs}) == 1
    assert [(await run.wait()).outcome for run in runs] == ["completed"] * 4
    assert (await worker.inputs()).count("pay") == 1
    check_promises(await worker.log())
    await yard.close()


@pytest.mark.parametrize("policy", ["queue", "merge", "steer", "interrupt"])
async def test_a_repeat_finds_the_run_that_its_message_went_into(policy: BusyPolicy, tmp_path: Path) -> None:
    """A message that joined another run by merging or steering is found there by its key."""
    yard = Yard("memory", tmp_path)
    door = gate()
    worker = yard.worker((door, say("one")), say("two"), say("three"))
    await worker.start("one")
    await door.reached()
    await worker.start("waits", "merge")
    run = await worker.start("also", policy, idempotency_key="k")
    again = await worker.start("also", policy, idempotency_key="k")
    assert again.run_id == run.run_id
    door.open()
    assert (await asyncio.wait_for(again.wait(), 5)).run_id == run.run_id
    await worker.idle()
    inputs = "".join(await worker.inputs())
    assert inputs.count("also") == (0 if policy == "steer" else 1)
    await yard.close()


async def test_another_message_under_the_same_key_is_a_conflict(tmp_path: Path) -> None:
    """A key belongs to its message; another one is refused, names the run, and writes nothing."""
    yard = Yard("memory", tmp_path)
    worker = yard.worker()
    run = await worker.start("pay 5", idempotency_key="k")
    await run.wait()
    await worker.idle()
    before = await worker.log()
    with pytest.raises(IdempotencyConflictError) as caught:
        await worker.start("pay 6", idempotency_key="k")
    assert caught.value.run_id == run.run_id
    assert await worker.log() == before
    await yard.close()


async def test_a_waiting_message_that_is_superseded_keeps_its_key(tmp_path: Path) -> None:
    """Superseding a keyed message that waits closes it once, and the lane goes on."""
    yard = Yard("memory", tmp_path)
    door = gate()
    worker = yard.worker((door, say("one")), say("three"))
    await worker.start("one")
    await door.reached()
    second = await worker.start("two", idempotency_key="k")
    third = await worker.start("three", "interrupt")
    assert (await asyncio.wait_for(third.wait(), 5)).outcome == "completed"
    assert (await second.wait()).cause == "superseded"
    assert (await worker.start("two", idempotency_key="k")).run_id == second.run_id
    assert "two" in worker.told()
    check_promises(await worker.log())
    await yard.close()
