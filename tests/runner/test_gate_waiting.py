"""Waiting at a gate on an event loop: cancelled waiters, slots that are given in the same moment, and the cost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from heaveto.core.gate import Key, SlotRequest
from heaveto.runner.gate import Gate
from heaveto.testing.clock import FakeClock, settle

TOOL: Key = ("tool", "search")


def request(call: str, user: str = "ann", limit: int = 1) -> SlotRequest:
    return SlotRequest("run", call, user, {TOOL: limit, ("user", user): 1_000_000})


@asynccontextmanager
async def passing(gate: Gate, request: SlotRequest) -> AsyncGenerator[None, None]:
    """Hold the call's slots."""
    await gate.enter(request)
    try:
        yield
    finally:
        gate.leave(request.ref)


async def waiting(gate: Gate, *calls: str) -> list[asyncio.Task[None]]:
    """Tasks that wait at the gate, in this order."""
    tasks = [asyncio.create_task(gate.enter(request(call))) for call in calls]
    await settle()
    return tasks


def seen(gate: Gate) -> tuple[list[str], list[str]]:
    """Who has a slot of the tool, and who waits for one."""
    row = next((row for row in gate.snapshot() if row.key == TOOL), None)
    if row is None:
        return [], []
    return [call for _, call in row.running], [one.ref[1] for one in row.waiting]


async def test_as_many_as_the_limit_are_inside_at_the_same_time() -> None:
    """Twenty calls pass through a gate for three: never more than three, in the end all, and nothing is left."""
    gate, inside, most, ended = Gate(), 0, 0, 0

    async def call(name: str) -> None:
        nonlocal inside, most, ended
        async with passing(gate, request(name, limit=3)):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside, ended = inside - 1, ended + 1

    await asyncio.gather(*(call(str(number)) for number in range(20)))
    assert (most, ended, gate.snapshot()) == (3, 20, [])


async def test_a_cancelled_waiter_is_gone_at_once() -> None:
    """F164. It is in no queue any more, and those behind it move up."""
    gate = Gate()
    await gate.enter(request("1"))
    second, third = await waiting(gate, "2", "3")
    second.cancel()
    await asyncio.wait([second])
    assert second.cancelled()
    assert seen(gate) == (["1"], ["3"])
    gate.leave(("run", "1"))
    await third


@pytest.mark.parametrize("first", ["grant", "cancel"])
async def test_a_cancel_in_the_moment_of_the_grant_leaks_no_slot(first: str) -> None:
    """F164. Granted and cancelled before it could take a step, in either order: the slot goes on to the next."""
    gate = Gate()
    await gate.enter(request("1"))
    second, third = await waiting(gate, "2", "3")
    steps: list[Callable[[], object]] = [lambda: gate.leave(("run", "1")), second.cancel]
    for step in steps if first == "grant" else reversed(steps):
        step()
    await asyncio.wait([second])
    assert second.cancelled()
    await third
    assert seen(gate) == (["3"], [])
    gate.leave(("run", "3"))
    assert gate.snapshot() == []


async def test_a_wait_that_times_out_is_a_wait_that_was_cancelled() -> None:
    """A caller may bound its wait with `asyncio.timeout`; nothing of it stays."""
    gate = Gate()
    await gate.enter(request("1"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await gate.enter(request("2"))
    assert seen(gate) == (["1"], [])


async def test_who_is_turned_away_while_it_waits_is_cancelled() -> None:
    """`leave` for a call that waits ends its wait; again, or for a stranger, it does nothing."""
    gate = Gate()
    await gate.enter(request("1"))
    (task,) = await waiting(gate, "2")
    gate.leave(("run", "2"))
    gate.leave(("run", "2"))
    await asyncio.wait([task])
    assert task.cancelled()
    assert seen(gate) == (["1"], [])


async def test_where_a_slot_is_free_nothing_is_awaited() -> None:
    """The coroutine ends without giving the event loop a turn."""
    coroutine = Gate().enter(request("1"))
    with pytest.raises(StopIteration):
        coroutine.send(None)


async def test_the_snapshot_says_since_when_a_call_waits() -> None:
    """By the clock that the gate was given."""
    clock = FakeClock(1_800_000_000.0)
    gate = Gate(clock)
    await gate.enter(request("1"))
    await clock.advance(5)
    (task,) = await waiting(gate, "2")
    row = next(row for row in gate.snapshot() if row.key == TOOL)
    assert [(one.position, one.since) for one in row.waiting] == [(1, 1_800_000_005.0)]
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_is_cancelled_when_no_slot_is_lost(seed: int) -> None:
    """Two hundred calls, a third of them cancelled at any moment: the others all pass, never too many at a time."""
    gate, chance, inside = Gate(), random.Random(seed), 0

    async def call(name: str, user: str, pauses: int) -> None:
        nonlocal inside
        async with passing(gate, request(name, user, limit=4)):
            inside += 1
            assert inside <= 4
            try:
                for _ in range(pauses):
                    await asyncio.sleep(0)
            finally:
                inside -= 1

    tasks = [asyncio.create_task(call(str(n), chance.choice("abc"), chance.randrange(4))) for n in range(200)]
    victims = chance.sample(tasks, 66)
    for victim in victims:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        victim.cancel()
    await asyncio.wait(tasks)
    failed = [task for task in set(tasks) - set(victims) if task.cancelled() or task.exception() is not None]
    assert (failed, inside, gate.snapshot()) == ([], 0, [])
