"""`heaveto run`: one turn and many, in a pipe and in a terminal, and what Ctrl-C does."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.terminal import CTRL_C, CTRL_D, Terminal, call, environment, heaveto

from heaveto.events import codec
from heaveto.events.records import CallSettled, Message, Paused, Record, RunEnded, RunStarted

DESK = '''
import asyncio, threading
from heaveto import App, FunctionTool, LlmAgent, ToolContext
from heaveto.testing import ScriptedModel, call, cut, fault, hang, say


async def wait_long() -> str:
    """Wait for a minute."""
    await asyncio.sleep(60)
    return "done"


def hold_on() -> str:
    """Block for good."""
    threading.Event().wait()
    return "never"


async def give_up(ctx: ToolContext) -> str:
    """Stop the run from inside."""
    await ctx.cancel_run(by="desk")
    await asyncio.sleep(60)
    return "never"


async def look_up() -> str:
    """Look something up, which takes a moment."""
    for _ in range(50):
        await asyncio.sleep(0)
    return "found"


async def pay() -> str:
    """Pay."""
    return "paid"


def desk(*steps):
    gated = FunctionTool(pay, require_confirmation=True)
    return LlmAgent("desk", ScriptedModel(*steps, strict=False), tools=[wait_long, hold_on, give_up, look_up, gated])


plain = desk(say("Hello there.", chunks=3))
slow = desk((say("Half an answer, and"), hang()), say("I am listening."))
busy = desk(call("wait_long"), say("I am listening."))
stuck = desk(call("hold_on"))
quits = desk(call("give_up"))
asks = desk((call("pay"), call("look_up")), say("Paid."))
broken = desk(fault("the provider is down", status=400))
'''


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the agents of `DESK` in it."""
    (tmp_path / "desk.py").write_text(DESK)
    return tmp_path


def records_in(store: Path) -> list[Record]:
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT body, seq FROM records ORDER BY session, seq").fetchall()
    return [codec.decode(body, seq) for body, seq in rows]


def test_one_turn_says_the_answer_on_stdout(place: Path) -> None:
    """With --message there is one turn; the answer is the data, and the log is in ./heaveto.db."""
    done = call("run", "desk.py:plain", "-m", "hi", cwd=place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello there.\n", "")
    assert isinstance(records_in(place / "heaveto.db")[-1], RunEnded)


def test_the_message_may_come_through_a_pipe(place: Path) -> None:
    """Without a terminal all of stdin is the message."""
    done = call("run", "desk.py:plain", given="two\nlines\n", cwd=place)
    first = records_in(place / "heaveto.db")[0]
    assert done.stdout == "Hello there.\n"
    assert isinstance(first, RunStarted) and first.input.text == "two\nlines\n"


def test_records_can_be_had_as_json(place: Path) -> None:
    """--json prints the run's records as they are stored, with their seq, and nothing else."""
    done = call("run", "desk.py:plain", "-m", "hi", "--json", cwd=place)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert (lines[0]["type"], lines[-1]["type"]) == ("RunStarted", "RunEnded")


def test_a_session_goes_on_where_it_was(place: Path) -> None:
    """A second call continues the session; another user's or another session is a new one."""
    for _ in range(2):
        call("run", "desk.py:plain", "-m", "hi", "--session", "s", "--user", "u", cwd=place)
    call("run", "desk.py:plain", "-m", "hi", "--session", "s", "--user", "v", cwd=place)
    starts = [record.seq for record in records_in(place / "heaveto.db") if isinstance(record, RunStarted)]
    assert starts[0] == 1 and starts[1] > 1 and starts[2] == 1


def test_a_turn_that_waits_for_an_answer_says_so(place: Path) -> None:
    """The calls beside the one that waits are carried out; then the exit code tells scripts that someone is asked."""
    done = call("run", "desk.py:asks", "-m", "pay", cwd=place)
    assert done.returncode == 3
    assert done.stderr.count("waits for an answer to pay") == 1
    records = records_in(place / "heaveto.db")
    assert [(record.name, record.status) for record in records if isinstance(record, CallSettled)] == [
        ("look_up", "succeeded")
    ]
    assert isinstance(records[-1], Paused) and not records[-1].held


@pytest.mark.parametrize(
    ("agent", "code", "words"),
    [("broken", 1, "failed: ModelError"), ("quits", 4, "run stopped (user): stopped: give_up")],
)
def test_the_exit_code_tells_failed_from_cancelled(place: Path, agent: str, code: int, words: str) -> None:
    """A stop is not an error, in words as in numbers (F134)."""
    done = call("run", f"desk.py:{agent}", "-m", "hi", cwd=place)
    assert done.returncode == code and words in done.stderr
    assert ("failed" in done.stderr) is (agent == "broken")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["desk.py:nobody", "-m", "hi"], 2, "'nobody' is not there; there are: plain, slow"),
        (["desk.py:plain", "-m", " "], 2, "new_message is empty"),
        (["desk.py:plain", "-m", "hi", "--store", "no/such/x.db"], 1, "does not exist"),
        (["desk.py:plain", "-m", "hi", "--store", "desk.py"], 1, "StoreCorruptError"),
    ],
)
def test_what_cannot_be_run_is_told_in_a_line(place: Path, arguments: list[str], code: int, words: str) -> None:
    """Wrong usage and a wrong store, without a traceback and without harm."""
    before = (place / "desk.py").read_bytes()
    done = call("run", *arguments, cwd=place)
    assert done.returncode == code, done.stderr
    assert words in done.stderr.replace("\n", " ") and "Traceback" not in done.stderr
    assert (place / "desk.py").read_bytes() == before


def test_an_interrupted_turn_exits_as_interrupted(place: Path) -> None:
    """Without a terminal SIGINT stops the run in order: its text is kept, its one ending written, exit code 130."""
    command = heaveto("run", "desk.py:slow", "-m", "hi")
    with subprocess.Popen(
        command, cwd=place, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(4) == "Half"
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert process.returncode == 130
    assert "stopping... (Ctrl-C again to leave at once)" in errors and "failed" not in errors
    *_, message, ended = records_in(place / "heaveto.db")
    assert isinstance(message, Message) and message.interrupted == "user"
    assert isinstance(ended, RunEnded) and ended.outcome == "cancelled"


def test_ctrl_c_stops_the_run_and_the_talk_goes_on(place: Path) -> None:
    """In a terminal Ctrl-C shows at once that it was heard, then what was stopped; the next message is answered."""
    with Terminal("run", "desk.py:busy", cwd=place) as terminal:
        terminal.wait_for("> ")
        terminal.type("hi\n")
        terminal.wait_for("calls wait_long()")
        terminal.type(CTRL_C)
        assert terminal.wait_for("stopping...") < 0.5  # 100 ms are promised; the rest is for a busy machine
        terminal.wait_for("run stopped (user): stopped: wait_long")
        terminal.wait_for("> ")
        terminal.type("are you there?\n")
        terminal.wait_for("I am listening.")
        terminal.wait_for("> ")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
        assert "rror" not in terminal.shown
    settled = next(record for record in records_in(place / "heaveto.db") if isinstance(record, CallSettled))
    assert (settled.status, settled.cause) == ("cancelled", "user")


def test_a_second_ctrl_c_leaves_at_once(place: Path) -> None:
    """What cannot be stopped does not hold the user; the log can be taken up by the next one who opens the store."""
    with Terminal("run", "desk.py:stuck", cwd=place) as terminal:
        terminal.wait_for("> ")
        terminal.type("hi\n")
        terminal.wait_for("calls hold_on()")
        terminal.type(CTRL_C)
        terminal.wait_for("stopping...")
        terminal.type(CTRL_C)
        terminal.wait_for("leaving")
        assert terminal.end() == 130
    done = call("run", "desk.py:plain", "-m", "hi again", cwd=place)
    assert done.returncode == 0
    ended = [record for record in records_in(place / "heaveto.db") if isinstance(record, RunEnded)]
    assert [record.outcome for record in ended] == ["cancelled", "completed"]


@pytest.mark.parametrize(("key", "code"), [(CTRL_C, 130), (CTRL_D, 0)], ids=["ctrl-c", "ctrl-d"])
def test_the_prompt_can_be_left(place: Path, key: str, code: int) -> None:
    """Where nothing runs there is nothing to stop: Ctrl-C and Ctrl-D leave, and the store is closed in order."""
    with Terminal("run", "desk.py:plain", cwd=place) as terminal:
        terminal.wait_for("(new)")
        terminal.wait_for("> ")
        assert terminal.end_by(key) == code
    assert not list(place.glob("heaveto.db-owner-*"))


def test_a_failed_turn_does_not_end_the_talk(place: Path) -> None:
    """The error is shown, and the next message may be sent."""
    with Terminal("run", "desk.py:broken", cwd=place) as terminal:
        for _ in range(2):
            terminal.wait_for("> ")
            terminal.type("hi\n")
            terminal.wait_for("failed: ModelError")
        terminal.wait_for("> ")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
