"""A stop at every turn of the event loop, enumerated: of the run, of its reader, of those who start it and stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.crash.scenarios import GO, NEXT, SCENARIOS, World, make_app

from heaveto import MemoryStore, RunConfig, Runner
from heaveto.events.records import CallSettled, RunEnded, RunStarted, SessionKey
from heaveto.testing.promises import check_promises, lost_messages

HERE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("crash", "u", "s")
QUICK = RunConfig(cancel_grace_seconds=0.5)


class Stage:
    """One runner, one session, and what was seen of it."""

    def __init__(self, scenario: str) -> None:
        self.world, self.seen = World(), list[Any]()
        self.store = MemoryStore()
        self.runner = Runner(app=make_app(scenario, self.world), store=self.store)

    async def iterate(self) -> None:
        async for item in self.runner.run_async(new_message=GO, run_config=QUICK, run_id="first", **HERE):
            self.seen.append(item)

    async def follow(self) -> None:
        run = await self.runner.start(new_message=GO, run_config=QUICK, run_id="first", **HERE)
        async for item in run.stream():
            self.seen.append(item)

    async def go_on(self) -> RunEnded:
        """The next message is taken and answered, whatever came before."""
        run = await self.runner.start(new_message=NEXT, **HERE)
        ended = await run.wait()
        await self.idle()
        return ended

    async def idle(self) -> None:
        changed = asyncio.Event()
        unsubscribe = self.store.subscribe(KEY, lambda _: changed.set())
        while await self.store.holder(KEY) is not None:
            await changed.wait()
            changed.clear()
        unsubscribe()

    async def check(self, where: str) -> None:
        try:
            ended = await asyncio.wait_for(self.go_on(), 5)
            assert ended.outcome == "completed", ended
            records = await self.runner.records(**HERE)
            assert all(record.status != "failed" for record in records if isinstance(record, CallSettled))
            check_promises(records, seen=self.seen, executions=self.world.executions, told=self.world.told)
            started = any(isinstance(record, RunStarted) and record.run_id == "first" for record in records)
            assert not lost_messages(records, [GO, NEXT] if started else [NEXT])
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"{where}: {error!r}\n{error}") from error
        await self.runner.aclose()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def enumerate_stops(scenario: str, stop_at: Callable[[Stage, int], Awaitable[bool]]) -> None:
    """Repeat with a stop one turn later each time, until the run is through before it."""
    for turn in range(400):
        stage = Stage(scenario)
        try:
            through = await asyncio.wait_for(stop_at(stage, turn), 5)
        except TimeoutError as error:
            raise AssertionError(f"{scenario}, stopped at turn {turn}: the stop did not come back") from error
        await stage.check(f"{scenario}, stopped at turn {turn}")
        if through:
            assert turn > 5
            return
    pytest.fail("the run never got through")


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_stop_at_any_turn(scenario: str) -> None:
    """`cancel` at any moment leaves a closed, truthful log and a usable session (P2, P3, P7; F02, F06, F10, F123)."""

    async def stop_at(stage: Stage, turn: int) -> bool:
        follower = asyncio.create_task(stage.follow())
        await turns(turn)
        through = follower.done()
        report = await stage.runner.cancel("first", by="ann", **HERE)
        if turn > 5:
            assert report.outcome == ("completed" if through else report.outcome)
        await follower
        return through

    await enumerate_stops(scenario, stop_at)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_reader_is_cancelled_at_any_turn(scenario: str) -> None:
    """Cancelling the task that iterates `run_async` stops the run, wherever it stands (F118)."""

    async def stop_at(stage: Stage, turn: int) -> bool:
        reader = asyncio.create_task(stage.iterate())
        await turns(turn)
        through = reader.done()
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader
        return through

    await enumerate_stops(scenario, stop_at)


@pytest.mark.parametrize("scenario", ["text", "one_tool", "parallel_tools"])
async def test_the_starter_is_cancelled_at_any_turn(scenario: str) -> None:
    """Whoever is cancelled in `start` has either started a run or not; the session goes on in both cases (F164)."""

    async def stop_at(stage: Stage, turn: int) -> bool:
        starter = asyncio.create_task(stage.runner.start(new_message=GO, run_id="first", **HERE))
        await turns(turn)
        through = starter.done() and turn > 5
        starter.cancel()
        with suppress(asyncio.CancelledError):
            await starter
        return through

    await enumerate_stops(scenario, stop_at)


@pytest.mark.parametrize("scenario", ["text", "one_tool", "parallel_tools", "agent_tool"])
async def test_the_stopper_is_cancelled_at_any_turn(scenario: str) -> None:
    """A stop whose caller goes away while it waits stops all the same, or never began (F59, F151)."""
    for start in (3, 9, 15):

        async def stop_at(stage: Stage, turn: int, start: int = start) -> bool:
            follower = asyncio.create_task(stage.follow())
            await turns(start)
            stopper = asyncio.create_task(stage.runner.cancel("first", by="ann", **HERE))
            await turns(turn)
            through = stopper.done() and turn > 5
            stopper.cancel()
            with suppress(asyncio.CancelledError):
                await stopper
            await follower
            return through

        await enumerate_stops(scenario, stop_at)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_leaving_the_stream_at_any_record(scenario: str) -> None:
    """`aclose` at any record stops the run, and its ending is durable on return."""
    for position in range(1, 100):
        stage = Stage(scenario)
        stream = stage.runner.run_async(new_message=GO, run_config=QUICK, run_id="first", **HERE)
        through = True
        async for item in stream:
            stage.seen.append(item)
            if len(stage.seen) == position:
                through = isinstance(item, RunEnded)
                break
        await stream.aclose()
        ended = [record for record in await stage.runner.records(**HERE) if isinstance(record, RunEnded)]
        assert len(ended) == 1
        await stage.check(f"{scenario}, left at item {position}")
        if through:
            return


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_closing_the_runner_at_any_turn(scenario: str) -> None:
    """Closing the runner ends its run with cause ``shutdown``; the next process goes on (F114, F164)."""
    for turn in range(400):
        stage = Stage(scenario)
        data = stage.store.data
        follower = asyncio.create_task(stage.follow())
        await turns(turn)
        through = follower.done()
        await asyncio.wait_for(stage.runner.aclose(), 5)
        await asyncio.wait({follower})
        error = follower.exception()
        stage.store = MemoryStore(data)
        stage.runner = Runner(app=make_app(scenario, stage.world), store=stage.store)
        await stage.runner.recover()
        if await stage.store.get_session(KEY) is not None:
            records = await stage.runner.records(**HERE)
            causes = {record.cause for record in records if isinstance(record, RunEnded)}
            assert causes <= ({None} if through else {"shutdown", None}), causes
            assert causes or error is not None or not records
        await stage.check(f"{scenario}, closed at turn {turn}")
        if through:
            return
