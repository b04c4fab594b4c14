"""A crash at every append, enumerated, of runs that pause, are answered and go on: nothing is lost or done twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.crash.closings import NEVER, ClosingStore, until_closed
from tests.crash.deaths import HERE, KEY, Disk, FileDisk, MemoryDisk, bury, until_death
from tests.crash.scenarios import GO, NEXT
from tests.crash.test_every_append_resumed import said
from tests.crash.waiting_work import ANSWERS, SCENES, WITH_YES, World, answer_all, begin, let_go, make_app

from heaveto import Runner
from heaveto.events.contents import calls_of
from heaveto.events.records import (
    Answered,
    CallSettled,
    CallStarted,
    Message,
    Record,
    Replay,
    RunEnded,
    RunStarted,
)
from heaveto.testing.crash import CrashingStore
from heaveto.testing.promises import check_promises, lost_messages

POLICIES: tuple[Replay, ...] = ("never", "safe")


class Story:
    """A scene over the deaths of its processes: each answers what it finds asked."""

    def __init__(self, scene: str, replay: Replay, disk: Disk) -> None:
        self._scene, self._replay, self._disk = scene, replay, disk
        self.world = World()
        self.records: list[Record] = []
        self.stopped: set[str] = set()
        """What else may become of calls: they are stopped where their process is closed."""

    def _runner(self, store: Any) -> Runner:
        return Runner(app=make_app(self._scene, self.world, self._replay, "hand_over"), store=store)

    async def begin(self, after: int, *, lands: bool) -> bool:
        """Start the run and answer, in a process that dies at an append. Return whether it died."""
        store = CrashingStore(await self._disk.open(), after=after, lands=lands)
        runner = self._runner(store)

        async def carry() -> None:
            await answer_all(runner, await begin(runner))
            await let_go(store)

        died = await until_death(store, carry())
        await bury(store)
        return died

    async def begin_and_close(self, close_at: int, *, holds: bool) -> bool:
        """Start the run and answer, in a process that is closed behind an append, and hands its run over. Return
        whether it was closed."""

        def told() -> None:
            self.world.holds = holds

        store = ClosingStore(await self._disk.open(), close_at=close_at, told=told, crash=NEVER, lands=True)
        runner = self._runner(store)

        async def carry() -> None:
            await answer_all(runner, await begin(runner))
            await let_go(store)

        await until_closed(store, runner, carry())
        self.world.holds = False
        return store.closing.is_set()

    async def go_on(self, after: int, *, lands: bool) -> bool:
        """Recover and answer, in a process that dies at an append of its own. Return whether it died."""
        store = CrashingStore(await self._disk.open(), after=after, lands=lands)
        died = await until_death(store, self._finish(self._runner(store)))
        await bury(store)
        return died

    async def _finish(self, runner: Runner) -> None:
        """Recover, answer what is asked, and answer it again."""
        await runner.recover()
        if await runner.store.get_session(KEY) is None:
            return
        started = [r.run_id for r in await runner.records(**HERE) if isinstance(r, RunStarted)]
        if started:
            await answer_all(runner, await runner.attach(started[0]), twice=True)
            await let_go(runner.store)

    async def end(self) -> None:
        """Finish in a process that lives, and send the next message."""
        store = await self._disk.open()
        async with self._runner(store) as runner:
            await self._finish(runner)
            ended = await (await runner.start(new_message=NEXT, **HERE)).wait()
            await let_go(store)
            self.records = await runner.records(**HERE)
            assert ended.outcome == "completed"
            assert await runner.questions(**HERE) == []
            assert await store.unfinished() == []
        await self._disk.close()

    def check(self, whole: Story | None, *, began: bool) -> None:
        check_promises(self.records, told=self.world.told)
        assert not lost_messages(self.records, [GO, NEXT] if began else [NEXT])
        check_calls(self.records, self.world, self._replay, self.stopped)
        if began and whole is not None:
            assert said(self.records) == said(whole.records)


def check_calls(records: Sequence[Record], world: World, replay: Replay, stopped: Iterable[str] = ()) -> None:
    """Each call took effect once, or what became of it is honestly unknown; none without the yes that it wants."""
    calls = {one.call_id: one for r in records if isinstance(r, Message) for one in calls_of(r.parts)}
    cut = {one.call_id for r in records if isinstance(r, Message) and r.interrupted for one in calls_of(r.parts)}
    for call_id, made in calls.items():
        answers = [r for r in records if isinstance(r, Answered) and r.call_id == call_id]
        status = [r.status for r in records if isinstance(r, CallSettled) and r.call_id == call_id][-1]
        effects, name = world.effects[call_id], made.name
        if name == "drop":
            assert (status, effects) == ("denied", 0) or call_id in cut
            continue
        if name in WITH_YES and name != "careful":
            starts = [r.seq for r in records if isinstance(r, CallStarted) and r.call_id == call_id]
            assert not starts or answers[0].seq < starts[0], f"{name} was started without a yes"
        if name in ANSWERS and status not in ("unknown", *stopped) and call_id not in cut:
            assert len(answers) == 1, f"{name} has the answers {answers}"
        assert status in ("succeeded", "unknown", *stopped) or call_id in cut, (name, status)
        if replay == "never":
            assert effects <= 1, f"{name} took effect {effects} times"
        else:
            assert status == "succeeded" or call_id in cut, (name, status)
        if status == "succeeded" and name not in ("request_input", "locate", "payer"):
            assert effects >= 1, f"{name} is said to have succeeded, and never took effect"
    ended = [r for r in records if isinstance(r, RunEnded)]
    assert all(r.outcome == "completed" for r in ended), ended


async def tell(scene: str, replay: Replay) -> Story:
    """The story without a crash."""
    story = Story(scene, replay, MemoryDisk())
    assert not await story.begin(10_000, lands=True)
    await story.end()
    story.check(None, began=True)
    return story


@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("replay", POLICIES)
@pytest.mark.parametrize("scene", SCENES)
async def test_a_crash_at_any_append_of_a_run_that_pauses(scene: str, replay: Replay, lands: bool) -> None:
    """Pausing, being answered, going on: wherever a process dies, the next one lists what is still asked, takes the
    answer (again), and completes the run; an answer that was durable counts, and is asked for no more (P8; F87, F92,
    F101, F102, F105, F160)."""
    whole = await tell(scene, replay)
    after, died = 0, True
    while died:
        after += 1
        story = Story(scene, replay, MemoryDisk())
        try:
            died = await story.begin(after, lands=lands)
            await story.end()
            story.check(whole if replay == "safe" else None, began=lands or after > 1)
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"{scene}, {'after' if lands else 'before'} append {after}: {error}") from error
    assert after > 4


@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("scene", ["three", "nested", "long_with_value"])
async def test_the_same_on_sqlite(scene: str, lands: bool, tmp_path: Path) -> None:
    """A file that killed processes leave, opened by others (F103: what is restored is JSON)."""
    after, died = 0, True
    while died:
        after += 1
        place = tmp_path / str(after)
        place.mkdir()
        story = Story(scene, "never", FileDisk(place))
        died = await story.begin(after, lands=lands)
        await story.end()
        story.check(None, began=lands or after > 1)


@pytest.mark.parametrize("holds", [True, False], ids=["held", "quick"])
@pytest.mark.parametrize("replay", POLICIES)
@pytest.mark.parametrize("scene", SCENES)
async def test_a_shutdown_at_any_append_of_a_run_that_pauses(scene: str, replay: Replay, holds: bool) -> None:
    """A runner that is closed hands over what works, and what is asked stays asked; the next process takes the answers
    and completes the run (P8; F114)."""
    whole = await tell(scene, replay)
    close_at, closed = 0, True
    while closed:
        close_at += 1
        story = Story(scene, replay, MemoryDisk())
        story.stopped = {"cancelled"} if replay == "never" else set()
        try:
            closed = await story.begin_and_close(close_at, holds=holds)
            await story.end()
            story.check(whole if replay == "safe" else None, began=True)
            assert "crash" not in {record.cause for record in story.records if isinstance(record, CallSettled)}
        except (AssertionError, TimeoutError) as error:
            raise AssertionError(f"{scene}, closed at append {close_at}: {error}") from error
    assert close_at > 4


@pytest.mark.slow
@pytest.mark.parametrize("lands", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("scene", ["three", "nested", "parallel", "long_with_value"])
async def test_a_crash_at_any_append_of_whoever_goes_on(scene: str, lands: bool) -> None:
    """Whoever goes on may die, too: every append of the second process after every death of the first (F105, F107)."""
    after, died = 0, True
    while died:
        after += 1
        again, died_again = 0, True
        while died_again:
            again += 1
            story = Story(scene, "never", MemoryDisk())
            try:
                died = await story.begin(after, lands=True)
                died_again = await story.go_on(again, lands=lands)
                await story.end()
                story.check(None, began=True)
            except (AssertionError, TimeoutError) as error:
                raise AssertionError(f"append {after}, then append {again}: {error}") from error
