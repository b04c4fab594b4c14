"""A crash at every append, enumerated, of runs that go on: they end as if nothing had been, and do nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.crash.deaths import (
    HERE,
    KEY,
    Disk,
    FileDisk,
    MemoryDisk,
    bury,
    released,
    run_until_crash,
    until_death,
)
from tests.crash.scenarios import GO, NEXT, SCENARIOS, World, make_app

from heaveto import Runner
from heaveto.events.contents import calls_of, text_of
from heaveto.events.records import Message, Record, Replay, RunEnded, RunStarted
from heaveto.testing.crash import CrashingStore
from heaveto.testing.promises import check_promises, lost_messages

POLICIES: tuple[Replay, ...] = ("never", "safe")


class Story:
    """A scenario over the deaths of its processes."""

    def __init__(self, scenario: str, replay: Replay, disk: Disk) -> None:
        self._scenario, self._replay, self._disk = scenario, replay, disk
        self.world, self.seen = World(), list[Any]()
        self.records: list[Record] = []
        self.state: dict[str, Any] = {}

    def _runner(self, store: Any) -> Runner:
        return Runner(app=make_app(self._scenario, self.world, on_crash="resume", replay=self._replay), store=store)

    async def begin(self, after: int, *, lands: bool) -> bool:
        """Start the run in a process that dies at an append. Return whether it died."""
        store = CrashingStore(await self._disk.open(), after=after, lands=lands)
        died = await run_until_crash(self._runner(store), store, self.seen)
        await bury(store)
        return died

    async def recover(self, after: int, *, lands: bool) -> bool:
        """Recover in a process that dies at an append of its own. Return whether it died."""
        store = CrashingStore(await self._disk.open(), after=after, lands=lands)
        died = await until_death(store, self._runner(store).recover())
        await bury(store)
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

    def check(self, whole: Story | None, *, began: bool) -> None:
        """Hold what came out against the promises and, where nothing was in doubt, against the whole story."""
        check_promises(self.records, seen=self.seen, executions=self.world.executions, told=self.world.told)
        assert not lost_messages(self.records, [GO, NEXT] if began else [NEXT])
        if not began:
            return
        first = next(record for record in self.records if isinstance(record, RunStarted))
        outcomes = [r.outcome for r in self.records if isinstance(r, RunEnded) and r.run_id == first.run_id]
        assert outcomes == ["completed"]
        if whole is not None:
            assert said(self.records) == said(whole.records)
            assert self.state == whole.state


def said(records: Sequence[Record]) -> Counter[tuple[str, str, str, int]]:
    """Who said what where, with how many calls; without what was cut off and said again."""
    return Counter(
        (record.author, _place(record.branch), text_of(record.parts), len(calls_of(record.parts)))
        for record in records
        if isinstance(record, Message) and record.interrupted is None
    )


def _place(branch: str) -> str:
    """The branch without the ids of calls."""
    return ".".join(part.split("@")[0] for part in branch.split("."))


async def tell(scenario: str, replay: Replay) -> Story:
    """The story without a crash."""
    story = Story(scenario, replay, MemoryDisk())
    assert not await story.begin(10_000, lands=True)
    await story.end()
    story.check(None, began=True)
    return story


def comparable(scenario: str, replay: Replay, whole: Story) -> Story | None:
    """The story to compare with: calls that nothing may repeat do not come out the same."""
    return whole if replay == "safe" else None


@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("replay", POLICIES)
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_crash_at_any_append_is_gone_on_from(scenario: str, replay: Replay, lands: bool) -> None:
    """Wherever a process dies, the next one completes its run (F105, F106): nothing that may not be is executed twice,
    no agent that had finished speaks again, no round of a loop is done again, and where everything may be repeated the
    outcome is that of a run without a crash."""
    whole = await tell(scenario, replay)
    after = 0
    died = True
    while died:
        after += 1
        story = Story(scenario, replay, MemoryDisk())
        try:
            died = await story.begin(after, lands=lands)
            await story.end()
            story.check(comparable(scenario, replay, whole), began=lands or after > 1)
        except AssertionError as error:
            raise AssertionError(f"append {after}: {error}") from error
    assert after > 2


@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("scenario", ["one_tool", "parallel", "loop"])
async def test_a_crash_at_any_append_is_gone_on_from_on_sqlite(scenario: str, lands: bool, tmp_path: Path) -> None:
    """The same on a file."""
    whole = await tell(scenario, "safe")
    after = 0
    died = True
    while died:
        after += 1
        place = tmp_path / str(after)
        place.mkdir()
        story = Story(scenario, "safe", FileDisk(place))
        died = await story.begin(after, lands=lands)
        await story.end()
        story.check(whole, began=lands or after > 1)


@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("replay", POLICIES)
@pytest.mark.parametrize("scenario", ["parallel_tools", "loop", "agent_tool"])
async def test_a_crash_at_any_append_of_a_recovery(scenario: str, replay: Replay, lands: bool) -> None:
    """A recovery that dies itself is recovered from: every append of every recovery, in all combinations (F105)."""
    whole = await tell(scenario, replay)
    after = 0
    died = True
    while died:
        after += 1
        again = 0
        died_again = True
        while died_again:
            again += 1
            story = Story(scenario, replay, MemoryDisk())
            try:
                died = await story.begin(after, lands=True)
                died_again = await story.recover(again, lands=lands)
                await story.end()
                story.check(comparable(scenario, replay, whole), began=True)
            except AssertionError as error:
                raise AssertionError(f"append {after}, then append {again} of the recovery: {error}") from error
    assert after > 2
