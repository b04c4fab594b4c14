"""`heaveto stop` and `heaveto erase`: what a shell does to sessions that other processes carry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from heaveto import LlmAgent, Plugin, Run, RunEnd, Runner, SqliteStore
from heaveto.cli.group import heaveto as group
from heaveto.errors import SessionErasedError
from heaveto.events.contents import Content
from heaveto.events.records import CancelRequested, RunStarted, SessionKey
from heaveto.testing import ScriptedModel, hang, say

KEY = SessionKey("desk", "al", "one")


class Books(Plugin):
    """Remembers which endings it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def on_run_end(self, end: RunEnd) -> None:
        self.told.append(end.run_id)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def books() -> Books:
    """The plugin of the app whose runs are stopped."""
    return Books()


@pytest.fixture
async def runner(path: Path, books: Books) -> AsyncIterator[Runner]:
    """A worker whose runs do not end by themselves."""
    model = ScriptedModel((say("Half an ans"), hang()), strict=False)
    async with Runner(LlmAgent("desk", model), store=SqliteStore(path), plugins=[books]) as runner:
        yield runner


def start(runner: Runner) -> asyncio.Task[Run]:
    return asyncio.ensure_future(runner.start(user_id="al", session_id="one", new_message="Hi?"))


async def shell(*arguments: str | Path) -> Result:
    """Call the command beside the event loop, as another process would."""
    return await asyncio.to_thread(CliRunner().invoke, group, [str(argument) for argument in arguments])


def leave_open(path: Path) -> None:
    """Begin a run, and go away without ending it."""

    async def begin() -> None:
        async with SqliteStore(path) as opened:
            await opened.create_session(KEY)
            lease = await opened.claim(KEY)
            record = RunStarted(id="begun", time=0.0, run_id="left", input=Content.of("Hi?"))
            await opened.append(KEY, [record], token=lease.token)

    asyncio.run(begin())


@pytest.mark.parametrize("by_session", [False, True])
async def test_a_run_is_stopped_where_it_is_carried(runner: Runner, path: Path, books: Books, by_session: bool) -> None:
    """The report is shown, who wanted it is recorded, and the app's own end hook is told, once."""
    run = await start(runner)
    what = ["--session", "one"] if by_session else [run.run_id]
    result = await shell("stop", *what, "--by", "ops", "--reason", "too long", "--store", path)
    ended = await run.wait()
    assert (result.exit_code, ended.outcome, ended.cause) == (0, "cancelled", "user"), result.output
    assert (ended.by, ended.reason) == ("ops", "too long")
    assert f"run {run.run_id} has ended: cancelled (user), by ops" in result.stdout
    await runner.aclose()
    assert books.told == [run.run_id]


async def test_a_message_that_waits_is_taken_back_at_once(runner: Runner, path: Path, books: Books) -> None:
    """It is ended although the run before it goes on; its end hook is the app's, told when a worker recovers."""
    first, second = await start(runner), await start(runner)
    result = await shell("stop", second.run_id, "--store", path)
    assert result.exit_code == 0 and (await second.wait()).outcome == "cancelled"
    assert first.status == "running"
    await first.cancel()
    await runner.aclose()
    async with Runner(LlmAgent("desk", ScriptedModel()), store=SqliteStore(path), plugins=[books]) as later:
        await later.recover()
    assert sorted(books.told) == sorted([first.run_id, second.run_id])


async def test_a_stop_of_an_ended_run_shows_its_ending(runner: Runner, path: Path) -> None:
    """Stopping twice is harmless; a session in which nothing runs is told as such."""
    run = await start(runner)
    await run.cancel(by="al")
    result = await shell("stop", run.run_id, "--store", path)
    assert result.exit_code == 0 and "has ended: cancelled (user), by al" in result.stdout
    result = await shell("stop", "--session", "one", "--store", path)
    assert (result.exit_code, result.stdout) == (0, "") and "nothing runs" in result.stderr


def test_a_run_whose_process_died_is_marked_and_left_to_its_app(path: Path) -> None:
    """The stop is durable; the ending is not written here, as the app's end hooks would not be told."""
    leave_open(path)
    result = CliRunner().invoke(group, ["stop", "left", "--by", "ops", "--store", str(path)])
    assert result.exit_code == 0 and "its process died" in result.stdout

    async def look() -> tuple[str, list[str]]:
        books = Books()
        async with Runner(LlmAgent("desk", ScriptedModel()), store=SqliteStore(path), plugins=[books]) as runner:
            records = await runner.records(user_id="al", session_id="one")
            assert isinstance(records[-1], CancelRequested)
            await runner.recover()
            ended = await (await runner.attach("left")).wait()
        return f"{ended.outcome} {ended.cause} {ended.by}", books.told

    assert asyncio.run(look()) == ("cancelled user ops", ["left"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["nobody"], "there is no run"), ([], "name a run"), (["x", "--session", "one"], "name a run")],
)
def test_what_cannot_be_stopped_is_wrong_usage(path: Path, arguments: list[str], words: str) -> None:
    """An unknown run, nothing named, and two things named."""
    leave_open(path)
    result = CliRunner().invoke(group, ["stop", *arguments, "--store", str(path)])
    assert result.exit_code == 2 and words in result.stderr


async def test_a_session_is_erased_with_what_runs_in_it(runner: Runner, path: Path) -> None:
    """The run is stopped, the content is gone, the tombstone says who and why."""
    run = await start(runner)
    result = await shell("erase", "one", "--by", "desk", "--reason", "4711", "--yes", "--store", path)
    assert result.exit_code == 0 and "erased by desk" in result.stdout
    with suppress(SessionErasedError):
        assert (await run.wait()).outcome == "cancelled"
    tombstone = await runner.store.tombstone(KEY)
    assert tombstone is not None and (tombstone.by, tombstone.reason) == ("desk", "4711")


def test_nothing_is_erased_without_a_yes(path: Path) -> None:
    """Where there is nobody to ask, the command asks for --yes."""
    leave_open(path)
    result = CliRunner().invoke(group, ["erase", "one", "--store", str(path)])
    assert result.exit_code == 2 and "--yes" in result.stderr
    assert CliRunner().invoke(group, ["log", "one", "--store", str(path)]).exit_code == 0
