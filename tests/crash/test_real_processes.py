"""Real processes, really killed and really stopped, on one SQLite file."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from tests.crash.victim import GO, HERE, KEY, NEXT, carry_a_run, make_runner

from heaveto import Runner
from heaveto.events.contents import text_of
from heaveto.events.records import CallSettled, Delta, Message, Record, RunEnded
from heaveto.runner.application.config import OnCrash
from heaveto.runner.run.draft import SAVE_AFTER_SECONDS
from heaveto.testing.promises import check_promises, lost_messages

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs POSIX signals")

KILLS = 8
LONGEST_SECONDS = 1.4
SLACK_SECONDS = 0.5
"""How much later than promised a draft may reach the file on a busy machine."""


class Victim:
    """The process, and what came out of it."""

    def __init__(self, place: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.crash.victim"])
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=carry_a_run, args=(place, theirs), daemon=True)
        self.process.start()
        theirs.close()
        assert self.pipe.recv() == "ready"

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        with suppress(ProcessLookupError):  # it was through
            os.kill(self.process.pid, number)

    def rest(self) -> list[Any]:
        """Everything that it still says, until it is gone."""
        items = list(_drain(self.pipe))
        self.process.join(30)
        return items


def _drain(pipe: Connection) -> Iterator[Any]:
    while True:
        try:
            yield pipe.recv()
        except (EOFError, OSError):
            return


def _executions(place: Path) -> Counter[str]:
    file = place / "effects"
    return Counter(file.read_text().split() if file.exists() else [])


def _check_text(log: list[Record], said: list[Any], end: float) -> int:
    """What was streamed a while before the kill is kept (F60). Return how many characters that were."""
    shown: dict[str, str] = {}
    for at, item in said:
        if isinstance(item, Delta) and item.kind == "text" and at < end - SAVE_AFTER_SECONDS - SLACK_SECONDS:
            shown[item.message_id] = shown.get(item.message_id, "") + item.text
    kept = {record.id: text_of(record.parts) for record in log if isinstance(record, Message)}
    for message_id, text in shown.items():
        assert kept.get(message_id, "").startswith(text), f"{len(text)} characters of {message_id} were seen and lost"
    return sum(map(len, shown.values()))


async def _go_on(runner: Runner) -> list[Record]:
    async with runner:
        await runner.recover()
        ended = await (await runner.start(new_message=NEXT, **HERE)).wait()
        assert ended.outcome == "completed"
        return await runner.records(**HERE)


@pytest.mark.parametrize("on_crash", ["seal", "resume"])
def test_kill_9_at_random_moments(tmp_path: Path, on_crash: OnCrash) -> None:
    """Processes killed at random moments: each leaves a log that the next one closes or continues, and goes on with."""
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    statuses: Counter[str] = Counter()
    for number in range(KILLS):
        place = tmp_path / str(number)
        place.mkdir()
        victim = Victim(place)
        wait = chance.uniform(0, LONGEST_SECONDS)
        time.sleep(wait)  # real time is the matter of this test
        end = time.monotonic()
        victim.signal(signal.SIGKILL)
        said = [item for item in victim.rest() if isinstance(item, tuple)]
        where = f"seed {seed}, kill {number} after {wait:.3f} s"
        try:
            log = asyncio.run(asyncio.wait_for(_go_on(make_runner(place, on_crash)), 20))
            check_promises(log, seen=[item for _, item in said], executions=_executions(place))
            statuses["characters"] += _check_text(log, said, end)
            assert not lost_messages(log, [GO, NEXT] if said else [NEXT])
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error
        statuses.update(record.status for record in log if isinstance(record, CallSettled))
    print(f"seed {seed}: {dict(statuses)}")


@pytest.mark.parametrize("on_crash", ["seal", "resume"])
@pytest.mark.parametrize("wait", [0.15, 0.35])
def test_a_stopped_process_that_comes_back_adds_late_results_only(
    tmp_path: Path, wait: float, on_crash: OnCrash
) -> None:
    """SIGSTOP, another process takes over after the time to live, SIGCONT: whether the run was closed or continued
    meanwhile, the zombie's part of it ends. It adds nothing but what became of calls that it had started, and that were
    settled as unknown (F72, F73)."""
    victim = Victim(tmp_path)
    time.sleep(wait)
    _freeze(victim, tmp_path)
    try:
        log = asyncio.run(asyncio.wait_for(_take_over(make_runner(tmp_path, on_crash)), 20))
    finally:
        victim.signal(signal.SIGCONT)
    said = victim.rest()
    assert said[-1] == ("failed" if on_crash == "seal" else "completed")
    assert victim.process.exitcode == 0
    after = asyncio.run(_log_of(make_runner(tmp_path)))
    assert after[: len(log)] == log
    assert all(isinstance(record, CallSettled) and record.late for record in after[len(log) :])
    seen = [item[1] for item in said if isinstance(item, tuple)]
    check_promises(after, seen=seen, executions=_executions(tmp_path))
    endings = [record for record in log if isinstance(record, RunEnded)]
    assert [ended.cause for ended in endings] == ["crash" if on_crash == "seal" else None, None]


def _freeze(victim: Victim, place: Path) -> None:
    """Stop it between two writes: one that is stopped within a write keeps the file's lock, and nobody can go on."""
    victim.signal(signal.SIGSTOP)
    while _is_locked(place / "store.db"):
        victim.signal(signal.SIGCONT)
        time.sleep(0.005)
        victim.signal(signal.SIGSTOP)


def _is_locked(file: Path) -> bool:
    with closing(sqlite3.connect(file, timeout=0.05, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
        return False


async def _take_over(runner: Runner) -> list[Record]:
    async with runner:
        holding = await runner.who_holds(**HERE)
        assert holding is not None
        run = await runner.start(new_message=NEXT, **HERE)  # waits in line until the holder counts as dead
        assert (await run.wait()).outcome == "completed"
        return await runner.records(**HERE)


async def _log_of(runner: Runner) -> list[Record]:
    async with runner:
        return await runner.store.read(KEY)
