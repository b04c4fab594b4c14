"""`heaveto sessions`, `log` and `doctor`: they show what a store holds, and change nothing."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli.terminal import Terminal, environment, heaveto

from heaveto import LlmAgent, Runner, SqliteStore
from heaveto.cli.group import heaveto as group
from heaveto.events import codec
from heaveto.events.contents import Content
from heaveto.events.records import RunStarted, SessionKey
from heaveto.testing import ScriptedModel, say

KEY = SessionKey("desk", "al", "one")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(group, [str(argument) for argument in arguments])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a session of two runs, and one of another user with the same id."""
    path = tmp_path / "store.db"

    async def fill() -> None:
        agent = LlmAgent("desk", ScriptedModel(say("Yes."), strict=False))
        async with Runner(agent, store=SqliteStore(path)) as runner:
            for user in ("al", "al", "bo"):
                await (await runner.start(user_id=user, session_id="one", new_message="Hi?")).wait()

    asyncio.run(fill())
    return path


def leave_open(path: Path) -> None:
    """Begin a run, and go away without ending it."""

    async def begin() -> None:
        async with SqliteStore(path) as opened:
            lease = await opened.claim(KEY)
            record = RunStarted(id="begun", time=0.0, run_id="left", input=Content.of("Hi?"))
            await opened.append(KEY, [record], token=lease.token)

    asyncio.run(begin())


def test_sessions_are_listed_the_newest_first(store: Path) -> None:
    """One line each: key, records, time, state."""
    result = run("sessions", "--store", store)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [(row[0], row[1], row[3]) for row in rows] == [("desk/bo/one", "4", "idle"), ("desk/al/one", "8", "idle")]


def test_sessions_can_be_had_as_json_and_of_one_user(store: Path) -> None:
    """--json for machines, --user to narrow."""
    (line,) = run("sessions", "--store", store, "--user", "al", "--json").stdout.splitlines()
    found = json.loads(line)
    assert (found["app"], found["user"], found["session"], found["records"]) == ("desk", "al", "one", 8)


def test_a_log_is_told_as_a_timeline(store: Path) -> None:
    """A line for each record, readable, with its seq."""
    result = run("log", "one", "--user", "bo", "--store", store)
    lines = result.stdout.splitlines()
    assert [line.split()[4] for line in lines] == ["RunStarted", "Message", "AgentCheckpoint", "RunEnded"]
    assert "message: Hi?" in lines[0] and "desk: Yes." in lines[1] and "\x1b" not in result.stdout
    assert re.match(r" +1  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ", lines[0])  # a date, too


def test_a_log_can_be_had_as_json_that_reads_back(store: Path) -> None:
    """What --json prints is what is stored: the codec reads it back."""
    result = run("log", "desk/al/one", "--store", store, "--json")
    records = [codec.decode(line.encode()) for line in result.stdout.splitlines()]
    assert [record.seq for record in records] == list(range(1, 9))


@pytest.mark.parametrize(
    ("name", "words"), [("one", "2 sessions are named 'one'"), ("none", "there is no session 'none'")]
)
def test_a_session_that_is_not_clear_is_asked_for_again(store: Path, name: str, words: str) -> None:
    """An ambiguous name lists the full ones; an unknown one says how to find those there are."""
    result = run("log", name, "--store", store)
    assert result.exit_code == 2 and words in result.stderr


def test_a_run_whose_process_died_is_shown_as_such(store: Path) -> None:
    """Who looks sees the difference between a run that works and one that nobody carries."""
    leave_open(store)
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("UPDATE sessions SET owner = 'host:1:dead', since = 0 WHERE user = 'al'")
        connection.commit()
    listed = run("sessions", "--store", store, "--user", "al").stdout
    assert "run left: its process died; the next message, or Runner.recover(), closes it" in listed
    (line,) = run("sessions", "--store", store, "--user", "al", "--json").stdout.splitlines()
    assert (json.loads(line)["open_run"], json.loads(line)["carrier"]) == ("left", "died")


@pytest.mark.parametrize("command", [["sessions"], ["log", "one", "--user", "bo"], ["doctor"]])
def test_looking_leaves_no_file_behind(store: Path, command: list[str]) -> None:
    """Neither SQLite's side files nor anything else, and the store's bytes are the same."""
    before = {file.name: file.read_bytes() for file in store.parent.iterdir()}
    where = [store] if command == ["doctor"] else ["--store", store]
    assert run(*command, *where).exit_code == 0
    assert {file.name: file.read_bytes() for file in store.parent.iterdir()} == before


def test_on_a_terminal_a_listing_has_a_header_and_a_log_its_days(store: Path) -> None:
    """People see what the columns are, and when it was."""
    with Terminal("sessions", "--store", store, cwd=store.parent) as listing:
        listing.wait_for("records")
        listing.wait_for("desk/al/one")
        assert listing.end() == 0
    with Terminal("log", "desk/al/one", "--store", store, cwd=store.parent) as log:
        log.wait_for(f"{datetime.now(UTC):%Y-}")
        log.wait_for("RunStarted")
        assert log.end() == 0


@pytest.mark.parametrize("command", [["sessions"], ["log", "one"]])
def test_a_store_that_is_not_there_is_not_created(tmp_path: Path, command: list[str]) -> None:
    """Reading creates nothing."""
    result = run(*command, "--store", tmp_path / "none.db")
    assert result.exit_code == 2 and "there is no store" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_following_shows_what_other_processes_append(store: Path) -> None:
    """--follow goes on until Ctrl-C, which is no error."""
    command = heaveto("log", "desk/al/one", "--store", store, "--follow", "--json")
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None and tail.stderr is not None
        try:
            seen = [json.loads(tail.stdout.readline())["seq"] for _ in range(8)]
            leave_open(store)
            assert json.loads(tail.stdout.readline())["run_id"] == "left"
            tail.send_signal(signal.SIGINT)
            assert tail.stderr.read() == ""
            tail.wait()
        finally:
            tail.kill()  # where SIGINT is ignored, as in a shell's background, the test fails instead of hanging
    assert (seen, tail.returncode) == (list(range(1, 9)), 130)


# --- the doctor


def test_a_healthy_store_passes(store: Path) -> None:
    """Every check is named, and the file is left as it is."""
    before = store.read_bytes()
    result = run("doctor", store)
    assert result.exit_code == 0, result.output
    assert "2 sessions with 12 records, every log folds" in result.stdout and "no unfinished runs" in result.stdout
    assert store.read_bytes() == before


def test_an_unfinished_run_is_no_damage(store: Path) -> None:
    """It is told what to do, and the exit code stays 0: recovery is part of normal life."""
    leave_open(store)
    result = run("doctor", store)
    assert result.exit_code == 0 and "run left of desk/al/one is unfinished" in result.stdout
    assert "Runner.recover()" in result.stdout


def test_a_damaged_file_is_told_and_left_alone(store: Path) -> None:
    """Pages of rubbish: something is wrong, what to do is said, and not a byte is changed."""
    content = bytearray(store.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    store.write_bytes(content)
    result = run("doctor", store)
    assert result.exit_code == 1 and "WRONG" in result.stdout and "restore a backup" in result.stdout
    assert store.read_bytes() == content


def test_a_log_with_a_hole_is_told(store: Path) -> None:
    """SQLite finds the file whole, and yet a record is missing."""
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("DELETE FROM records WHERE seq = 2 AND session = 1")
        connection.commit()
    result = run("doctor", store)
    assert result.exit_code == 1 and "should hold the records 1 to 8, and holds 7" in result.stdout


def test_a_record_that_cannot_be_read_is_told(store: Path) -> None:
    """The other sessions are examined all the same."""
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("UPDATE records SET body = ? WHERE seq = 2 AND session = 1", (b'{"type":"Novelty"}',))
        connection.commit()
    result = run("doctor", store)
    assert result.exit_code == 1 and "Novelty" in result.stdout and "no unfinished runs" in result.stdout


@pytest.mark.parametrize(("content", "words"), [(b"not a database at all", "not a store"), (None, "there is no file")])
def test_what_is_no_store_is_told(tmp_path: Path, content: bytes | None, words: str) -> None:
    """Another file, or none: nothing is created and nothing changed."""
    path = tmp_path / "x.db"
    if content is not None:
        path.write_bytes(content)
    result = run("doctor", path)
    assert result.exit_code == 1 and words in result.stdout
    assert [file.read_bytes() for file in tmp_path.iterdir()] == ([] if content is None else [content])


@pytest.mark.parametrize(
    ("pragma", "words"), [("user_version=99", "upgrade heaveto"), ("application_id=1", "is not a heaveto store")]
)
def test_a_newer_or_foreign_database_is_told(store: Path, pragma: str, words: str) -> None:
    """What this version must not touch, it names."""
    with closing(sqlite3.connect(store)) as connection:
        connection.execute(f"PRAGMA {pragma}")
    result = run("doctor", store, "--json")
    (finding,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1 and finding["level"] == "wrong" and words in finding["what"]
