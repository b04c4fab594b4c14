"""The recoverer: finds what dead processes left and what was not answered in time, again and again."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import pytest
from tests.crash.sites import KEY, Process, Site, attempts, ending
from tests.runner.desk import Ends

from heaveto import FunctionTool, RequestInputTool, ToolContext
from heaveto.errors import StoreBusyError
from heaveto.events.records import Paused, Record, RunEnded, RunStarted, SessionKey
from heaveto.runner.rounds import Rounds
from heaveto.stores.base import Lease, SessionInfo, Unfinished
from heaveto.stores.memory import MemoryStore
from heaveto.testing import FakeClock, call, gate, hang, say, settle
from heaveto.testing.promises import check_promises

EVERY = 10.0


@pytest.fixture
async def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def site(clock: FakeClock) -> AsyncIterator[Site]:
    site = Site(clock)
    yield site
    await site.close()


@asynccontextmanager
async def recovering(*processes: Process) -> AsyncIterator[None]:
    """Let processes look every ten seconds."""
    looking = [asyncio.create_task(process.runner.recover_always(every_seconds=EVERY)) for process in processes]
    await settle()
    try:
        yield
    finally:
        for task in looking:
            task.cancel()
        await asyncio.wait(looking)
    assert [task for task in looking if not task.cancelled()] == [], "they look until they are cancelled"


async def until(process: Process, holds: Callable[[list[Record]], bool]) -> list[Record]:
    """Wait until the log is as wanted."""
    changed = asyncio.Event()
    unsubscribe = process.store.subscribe(KEY, lambda _: changed.set())
    try:
        async with asyncio.timeout(5):
            while not holds(log := await process.log()):
                await changed.wait()
                changed.clear()
        return log
    finally:
        unsubscribe()


def has_ended(*run_ids: str) -> Callable[[list[Record]], bool]:
    def holds(log: list[Record]) -> bool:
        return set(run_ids) <= {record.run_id for record in log if isinstance(record, RunEnded)}

    return holds


async def die(site: Site, *steps: Any, tools: Sequence[Any] = (), **config: Any) -> str:
    """Let a process die while its model answers. Return the run."""
    door = gate()
    dead = site.process((*steps, say("Half"), door), tools=tools)
    run = await dead.start("one", **config)
    await door.reached()
    dead.kill()
    return run.run_id


class Counting(MemoryStore):
    """Counts what is asked of the store, and fails when it is told to."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.asked: Counter[str] = Counter()
        self.fails: set[str] = set()

    def _note(self, what: str) -> None:
        self.asked[what] += 1
        if what in self.fails:
            raise StoreBusyError("the store is away")

    async def unfinished(self, key: SessionKey | None = None) -> list[Unfinished]:
        self._note("unfinished")
        return await super().unfinished(key)

    async def read(self, key: SessionKey, *, after: int = 0, limit: int | None = None) -> list[Record]:
        self._note("read")
        self._note(f"read {key.session}")
        return await super().read(key, after=after, limit=limit)

    async def claim(self, key: SessionKey) -> Lease:
        self._note("claim")
        return await super().claim(key)

    async def get_session(self, key: SessionKey) -> SessionInfo | None:
        self._note("get_session")
        return await super().get_session(key)


# --- what it finds ----------------------------------------------------------------------------------------------------


async def test_it_finds_a_run_whose_process_dies_while_it_looks(site: Site, clock: FakeClock) -> None:
    """A run of a process that dies between two looks is continued at the next one, without anyone asking (F111)."""
    alive = site.process(say("and on"))
    async with recovering(alive):
        run_id = await die(site)
        assert attempts(await alive.log()) == [("one", 1)]
        await clock.advance(EVERY)
        log = await until(alive, has_ended(run_id))
    assert attempts(log) == [("one", 1), ("one", 2)]
    check_promises(log)


async def test_it_leaves_alone_what_lives(site: Site, clock: FakeClock) -> None:
    """A run that works, here or in another process, is not touched, however often it looks (F111)."""
    door = gate()
    works, looks = site.process((say("work"), door, say("ing"))), site.process()
    run = await works.start("one")
    await door.reached()
    async with recovering(looks, works):
        for _ in range(3):
            await clock.advance(EVERY)
        assert attempts(await looks.log()) == [("one", 1)]
        door.open()
        assert (await run.wait()).outcome == "completed"
    check_promises(await looks.log())


async def test_it_carries_out_messages_that_waited_in_a_dead_process(site: Site, clock: FakeClock) -> None:
    """Messages in the inbox of a session that nobody alive holds have their turn, in order, behind the dead run
    (F164)."""
    door = gate()
    dead = site.process((say("Half"), door))
    first = await dead.start("one")
    await door.reached()
    waiting = [await dead.start("two"), await dead.start("three")]
    dead.kill()
    alive = site.process()
    async with recovering(alive):
        log = await until(alive, has_ended(first.run_id, *(run.run_id for run in waiting)))
    assert attempts(log) == [("one", 1), ("one", 2), ("two", 1), ("three", 1)]
    check_promises(log)


def asks(default: Any) -> RequestInputTool:
    return RequestInputTool("ask", within_seconds=60.0, default=default)


async def test_it_takes_defaults_for_answers_that_did_not_come(site: Site, clock: FakeClock) -> None:
    """A run that waits in nobody's hands goes on with the default when its time has passed, and not before."""
    dead = site.process(call("ask", question="What colour?"), tools=[asks("nothing")])
    run = await dead.start("one")
    assert isinstance(await run.ending_or_pause(), Paused)
    dead.kill()
    alive = site.process(say("then not"), tools=[asks("nothing")])
    async with recovering(alive):
        for _ in range(5):
            await clock.advance(EVERY)
        assert attempts(await alive.log()) == [("one", 1)]
        await clock.advance(2 * EVERY)
        log = await until(alive, has_ended(run.run_id))
    assert attempts(log) == [("one", 1), ("one", 2)]
    assert "nothing" in alive.told()
    check_promises(log)


async def test_it_goes_on_with_a_run_whose_answer_came_to_a_process_that_died(site: Site, clock: FakeClock) -> None:
    """An answer that is in the log wakes its run, whoever took it (P8)."""
    dead = site.process(call("ask", question="What colour?"), tools=[asks(None)])
    run = await dead.start("one")
    paused = await run.ending_or_pause()
    assert isinstance(paused, Paused)
    alive = site.process(say("blue, then"), tools=[asks(None)])
    async with recovering(alive):
        answering = site.process(hang(), tools=[asks(None)])
        await answering.runner.answer(run.run_id, paused.waiting[0].call_id, "blue")
        await settle()
        answering.kill()
        dead.kill()
        await clock.advance(2 * EVERY)
        log = await until(alive, has_ended(run.run_id))
    assert ending(log, run.run_id).outcome == "completed"
    check_promises(log)


async def test_it_tells_end_hooks_that_a_dead_process_did_not_come_to(site: Site, clock: FakeClock) -> None:
    """A run that ended, but whose hook nobody called, has it called once (P7)."""
    reached, may_end = asyncio.Event(), asyncio.Event()

    class Stuck(Ends):
        async def on_run_end(self, end: Any) -> None:
            reached.set()
            await may_end.wait()

    dead = site.process(say("done"), plugins=[Stuck()])
    run = await dead.start("one")
    await run.wait()
    await reached.wait()
    dead.kill()
    ends = Ends()
    alive = site.process(plugins=[ends])
    async with recovering(alive):
        await asyncio.wait_for(ends.come(1), 5)
        await clock.advance(3 * EVERY)
    assert [(end.run_id, end.redelivered) for end in ends.ends] == [(run.run_id, True)]
    may_end.set()


# --- several, and trouble ---------------------------------------------------------------------------------------------


async def test_several_recoverers_make_one_attempt(site: Site, clock: FakeClock) -> None:
    """Of many processes that look at the same time one goes on with the run (F73, F111)."""
    executed: list[int] = []

    async def work(ctx: ToolContext) -> str:
        """Work."""
        executed.append(ctx.attempt)
        return "worked"

    others = [site.process(say("done"), tools=[FunctionTool(work, replay="safe")]) for _ in range(5)]
    run_id = await die(site)
    async with recovering(*others):
        for _ in range(3):
            await clock.advance(EVERY)
        log = await until(others[0], has_ended(run_id))
    assert attempts(log) == [("one", 1), ("one", 2)]
    check_promises(log)


async def test_a_store_that_fails_is_tried_again(
    site: Site, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Trouble with the store ends no recoverer: it is logged, and the next look finds what is still there (F117)."""
    run_id = await die(site)
    alive = site.process(store=Counting)
    assert isinstance(alive.store, Counting)
    for trouble in ("unfinished", "read", "claim"):
        alive.store.fails = {trouble}
        with caplog.at_level(logging.WARNING, "heaveto"):
            async with recovering(alive):
                await clock.advance(EVERY)
        assert "StoreBusyError" in caplog.text, trouble
        caplog.clear()
        alive.store.fails = set()
        assert attempts(await alive.log()) == [("one", 1)]
    async with recovering(alive):
        log = await until(alive, has_ended(run_id))
    check_promises(log)


async def test_a_broken_session_keeps_no_other_from_being_found(site: Site, clock: FakeClock) -> None:
    """A session that cannot be read is passed over, and said so; the others are recovered at the same look."""
    dead = site.process(hang(), hang(), hang())
    for name in ("a", "b", "c"):
        await dead.runner.start(user_id="u", session_id=name, new_message=name)
    await settle()
    dead.kill()
    alive = site.process(store=Counting)
    assert isinstance(alive.store, Counting)
    alive.store.fails = {"read a"}
    ended = [asyncio.Event(), asyncio.Event()]
    for event, name in zip(ended, ("b", "c"), strict=True):
        alive.store.subscribe(SessionKey(KEY.app, "u", name), lambda _, event=event: event.set())  # type: ignore[misc]
    async with recovering(alive):
        await settle()
    for name in ("b", "c"):
        log = await alive.runner.records(user_id="u", session_id=name)
        assert [record.outcome for record in log if isinstance(record, RunEnded)] == ["completed"]


async def test_sessions_at_rest_cost_a_row_each(site: Site, clock: FakeClock) -> None:
    """Runs that wait for people are looked at, but neither claimed nor read again, however many looks there are (P9);
    something that comes to one is noticed."""
    dead = site.process(*(call("ask", question="What colour?") for _ in range(4)), tools=[asks(None)])
    runs = []
    for number in range(4):
        run = await dead.runner.start(user_id="u", session_id=f"s{number}", new_message="x")
        await run.ending_or_pause()
        runs.append(run)
    dead.kill()
    alive = site.process(tools=[asks(None)], store=Counting)
    assert isinstance(alive.store, Counting)
    async with recovering(alive):
        alive.store.asked.clear()
        for _ in range(3):
            await clock.advance(EVERY)
        found = alive.store.asked
        assert (found["unfinished"], found["get_session"], found["read"], found["claim"]) == (3, 12, 0, 0)
        (asked,) = await alive.runner.questions(user_id="u", session_id="s2")
        other = site.process(hang(), tools=[asks(None)])
        await other.runner.answer(runs[2].run_id, asked.call_id, "yes")
        other.kill()
        await clock.advance(EVERY)
        await settle()
    log = await alive.runner.records(user_id="u", session_id="s2")
    assert [record.outcome for record in log if isinstance(record, RunEnded)] == ["completed"]


async def test_it_ends_with_its_runner(site: Site, clock: FakeClock) -> None:
    """A recoverer that nobody cancels ends behind the closing of its runner, without an error."""
    alive = site.process()
    looking = asyncio.create_task(alive.runner.recover_always(every_seconds=EVERY))
    await settle()
    await alive.runner.aclose()
    await clock.advance(EVERY)
    await asyncio.wait_for(looking, 5)


async def test_a_look_is_pure_bookkeeping(site: Site, clock: FakeClock) -> None:
    """Looking writes nothing: what is found is only named, and named again until someone takes it."""
    await die(site)
    alive = site.process(store=Counting)
    rounds = Rounds(KEY.app, alive.store, clock, alive.runner._lanes.at)  # pyright: ignore[reportPrivateUsage]
    before = await alive.log()
    for _ in range(2):
        assert await rounds.has_work(KEY, is_owed=False)
    assert await alive.log() == before
    another = Rounds("another app", alive.store, clock, alive.runner._lanes.at)  # pyright: ignore[reportPrivateUsage]
    assert await another.recover(max_concurrent=1) == []
    assert await alive.log() == before


# --- how often, and what stays ended ----------------------------------------------------------------------------------


async def test_a_run_that_kills_every_process_is_given_up_and_said_so_once(
    site: Site, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """After so many fruitless attempts the run is sealed, with one error in the log of the process and the number in
    its own; nobody tries again (F107)."""
    run_id = await die(site, max_fruitless_attempts=2)
    for _ in range(2):
        door = gate()
        doomed = site.process((say("Half"), door))
        async with recovering(doomed):
            await door.reached()
            doomed.kill()
    alive = site.process()
    with caplog.at_level(logging.ERROR, "heaveto"):
        async with recovering(alive):
            log = await until(alive, has_ended(run_id))
            for _ in range(3):
                await clock.advance(EVERY)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
        f"session {KEY}: run {run_id} is given up: 2 attempts in a row brought nothing before their process died"
    ]
    ended = ending(log, run_id)
    assert (ended.outcome, ended.cause) == ("failed", "crash")
    assert ended.error is not None
    assert "2 attempts in a row brought nothing" in ended.error.message
    assert alive.model.requests == []
    check_promises(log)


@pytest.mark.parametrize("how", ["stopped by its user", "shut down", "crashed"])
async def test_causes_stay_apart(
    site: Site, clock: FakeClock, how: Literal["stopped by its user", "shut down"]
) -> None:
    """What a user stopped, or an orderly shutdown ended, is over, and is not taken up again; what crashed goes on
    (F107)."""
    door = gate()
    first = site.process((say("Half"), door))
    run = await first.start("one")
    await door.reached()
    if how == "stopped by its user":
        await run.cancel(by="ann")
    elif how == "shut down":
        await first.runner.aclose()
    first.kill()
    alive = site.process(say("and on"))
    async with recovering(alive):
        log = await until(alive, has_ended(run.run_id))
        for _ in range(3):
            await clock.advance(EVERY)
    ended = ending(log, run.run_id)
    expected = {"stopped by its user": "user", "shut down": "shutdown", "crashed": None}[how]
    assert ended.cause == expected
    assert len([record for record in log if isinstance(record, RunStarted)]) == (2 if how == "crashed" else 1)


async def test_many_dead_runs_are_all_found_at_one_look(site: Site, clock: FakeClock) -> None:
    """Fifty sessions of a process that died are all taken up, each once, by two recoverers."""
    dead = site.process(*(hang() for _ in range(50)))
    for number in range(50):
        await dead.runner.start(user_id="u", session_id=f"s{number}", new_message="x")
    await settle()
    dead.kill()
    others = [site.process(), site.process()]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(recovering(*others))
        for number in range(50):
            run = await others[0].runner.attach(
                next(r.run_id for r in await others[0].runner.records(user_id="u", session_id=f"s{number}"))
            )
            assert (await asyncio.wait_for(run.wait(), 5)).outcome == "completed"
    for number in range(50):
        log = await others[0].runner.records(user_id="u", session_id=f"s{number}")
        check_promises(log)
        assert [attempt for _, attempt in attempts(log)] == [1, 2]
