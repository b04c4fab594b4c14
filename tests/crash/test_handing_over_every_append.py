"""A runner that is closed at any append and hands its run over; a crash at every append of it, and of who goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.crash.closings import NEVER, ClosingStore, until_closed
from tests.crash.deaths import HERE, KEY, Disk, FileDisk, MemoryDisk, follow, released
from tests.crash.scenarios import GO, NEXT, SCENARIOS, World, brain, make_app
from tests.crash.test_every_append_resumed import POLICIES, said

from heaveto import Runner
from heaveto.core.request import ModelRequest
from heaveto.events.records import CallSettled, Paused, Record, Replay, RunEnded, RunStarted
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, hang, say
from heaveto.testing.promises import check_promises, lost_messages


class Story:
    """A scenario over processes of which each one is closed, or dies."""

    def __init__(self, scenario: str, replay: Replay, disk: Disk, *, holds: bool) -> None:
        self._scenario, self._replay, self._disk, self._holds = scenario, replay, disk, holds
        self.world, self.seen = World(), list[Any]()
        self.records: list[Record] = []
        self.state: dict[str, Any] = {}
        self.was_closed = False

    def _runner(self, store: Store) -> Runner:
        def think(request: ModelRequest) -> Any:
            return (say("Half an ans"), hang()) if self.world.holds else brain(request)

        model = ScriptedModel(think, strict=False)
        return Runner(
            app=make_app(
                self._scenario, self.world, model, on_crash="resume", on_shutdown="hand_over", replay=self._replay
            ),
            store=store,
        )

    async def begin(self, close_at: int, crash: int = NEVER, *, lands: bool = True) -> bool:
        """Start the run in a process that is closed behind an append, and dies `crash` appends later. Return whether it
        died."""

        async def carry(runner: Runner, store: Store) -> None:
            await follow(await runner.start(new_message=GO, **HERE), self.seen)
            await released(store)

        return await self._process(carry, close_at, crash, lands=lands)

    async def go_on(self, close_at: int, crash: int = NEVER, *, lands: bool = True) -> bool:
        """The same for a process that takes over."""

        async def carry(runner: Runner, _: Store) -> None:
            await runner.recover()

        return await self._process(carry, close_at, crash, lands=lands)

    async def _process(
        self, carry: Callable[[Runner, Store], Awaitable[None]], close_at: int, crash: int, *, lands: bool
    ) -> bool:
        self.was_closed = False

        def told() -> None:
            self.was_closed, self.world.holds = True, self._holds

        store = ClosingStore(await self._disk.open(), close_at=close_at, told=told, crash=crash, lands=lands)
        runner = self._runner(store)
        died = await until_closed(store, runner, carry(runner, store))
        self.world.holds = False
        return died

    async def end(self) -> None:
        """Recover in a process that lives, and send the next message."""
        store = await self._disk.open()
        async with self._runner(store) as runner:
            await runner.recover()
            if await store.get_session(KEY) is not None:
                self.state = await runner.state(**HERE)
            ended = await (await runner.start(new_message=NEXT, **HERE)).wait()
            await released(store)
            self.records = await runner.records(**HERE)
            assert ended.outcome == "completed"
            assert await store.unfinished() == []
        await self._disk.close()

    def check(self, whole: Story | None) -> None:
        """Hold what came out against the promises and, where everything may be repeated, against the whole story."""
        check_promises(self.records, seen=self.seen, executions=self.world.executions, told=self.world.told)
        assert not lost_messages(self.records, [GO, NEXT])
        first = next(record for record in self.records if isinstance(record, RunStarted))
        outcomes = [r.outcome for r in self.records if isinstance(r, RunEnded) and r.run_id == first.run_id]
        assert outcomes == ["completed"]
        if whole is not None:
            assert said(self.records) == said(whole.records)
            assert self.state == whole.state

    @property
    def handed_over(self) -> int:
        return sum(isinstance(record, Paused) and not record.waiting for record in self.records)

    @property
    def causes(self) -> set[str | None]:
        return {record.cause for record in self.records if isinstance(record, CallSettled)}


async def tell(scenario: str, replay: Replay) -> Story | None:
    """The story without any shutdown, where the others have to come out like it."""
    if replay == "never":
        return None
    story = Story(scenario, replay, MemoryDisk(), holds=False)
    assert not await story.begin(NEVER)
    await story.end()
    story.check(None)
    return story


@pytest.mark.parametrize("holds", [True, False], ids=["held", "quick"])
@pytest.mark.parametrize("replay", POLICIES)
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_shutdown_at_any_append(scenario: str, replay: Replay, holds: bool) -> None:
    """Wherever a runner is closed, the next process completes the run it hands over, nobody's death is told of, and
    where everything may be repeated the outcome is that of a run without a shutdown (F114)."""
    whole = await tell(scenario, replay)
    handed_over, close_at, closed = 0, 0, True
    while closed:
        close_at += 1
        story = Story(scenario, replay, MemoryDisk(), holds=holds)
        try:
            await story.begin(close_at)
            closed = story.was_closed
            await story.end()
            story.check(whole)
            assert "crash" not in story.causes
            handed_over += story.handed_over
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"closed at append {close_at}: {error}") from error
    assert handed_over >= close_at // 2, "most shutdowns hand something over"


@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("holds", [True, False], ids=["held", "quick"])
@pytest.mark.parametrize("replay", POLICIES)
@pytest.mark.parametrize("scenario", ["one_tool", "parallel_tools", "loop", "agent_tool"])
async def test_a_crash_at_any_append_of_whoever_hands_over(
    scenario: str, replay: Replay, holds: bool, lands: bool
) -> None:
    """A process may die in its shutdown: what it has handed over counts, what it has not is a crash like any (F105)."""
    whole = await tell(scenario, replay)
    crashes, close_at, closed = 0, 0, True
    while closed:
        close_at += 1
        crash, died = 0, True
        while died:
            crash += 1
            story = Story(scenario, replay, MemoryDisk(), holds=holds)
            try:
                died = await story.begin(close_at, crash, lands=lands)
                closed = story.was_closed
                await story.end()
                story.check(whole)
            except (AssertionError, TimeoutError) as error:
                raise AssertionError(f"closed at append {close_at}, dead {crash} later: {error}") from error
            crashes += died
    assert crashes > 2


@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("replay", POLICIES)
@pytest.mark.parametrize("scenario", ["one_tool", "parallel_tools", "agent_tool"])
async def test_a_crash_at_any_append_of_whoever_takes_over(scenario: str, replay: Replay, lands: bool) -> None:
    """Whoever goes on with what was handed over may die, too: every append of it, after every shutdown (F105, F107)."""
    whole = await tell(scenario, replay)
    close_at, closed = 0, True
    while closed:
        close_at += 1
        crash, died = 0, True
        while died:
            crash += 1
            story = Story(scenario, replay, MemoryDisk(), holds=True)
            try:
                await story.begin(close_at)
                closed = story.was_closed
                died = await story.go_on(0, crash, lands=lands)
                await story.end()
                story.check(whole)
            except (AssertionError, TimeoutError) as error:
                raise AssertionError(f"closed at append {close_at}, next dead at {crash}: {error}") from error
    assert close_at > 2


@pytest.mark.parametrize("replay", POLICIES)
@pytest.mark.parametrize("scenario", ["one_tool", "sequential", "agent_tool"])
async def test_one_shutdown_after_another(scenario: str, replay: Replay) -> None:
    """A rolling deploy closes whoever took over, too: every append of the second process after every one of the first,
    and no shutdown counts as an attempt that brought nothing (F114)."""
    whole = await tell(scenario, replay)
    close_at, closed = 0, True
    while closed:
        close_at += 1
        again, closed_again = 0, True
        while closed_again:
            again += 1
            story = Story(scenario, replay, MemoryDisk(), holds=True)
            try:
                await story.begin(close_at)
                closed = story.was_closed
                await story.go_on(again)
                closed_again = story.was_closed
                await story.end()
                story.check(whole)
                assert "crash" not in story.causes
            except (AssertionError, TimeoutError) as error:
                raise AssertionError(f"closed at append {close_at}, then at {again}: {error}") from error
    assert close_at > 2


@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
async def test_a_crash_of_whoever_hands_over_on_sqlite(lands: bool, tmp_path: Path) -> None:
    """The same on a file."""
    whole = await tell("parallel_tools", "safe")
    close_at, closed = 0, True
    while closed:
        close_at += 1
        for crash in (1, 2):
            place = tmp_path / f"{close_at}-{crash}"
            place.mkdir()
            story = Story("parallel_tools", "safe", FileDisk(place), holds=True)
            await story.begin(close_at, crash, lands=lands)
            closed = story.was_closed
            await story.end()
            story.check(whole)
    assert close_at > 2
