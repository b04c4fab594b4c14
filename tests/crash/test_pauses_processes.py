"""Two real processes that answer, or answer and stop, the same calls at the same moment, on one SQLite file."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from tests.crash.answering import HERE, make_runner, race

from heaveto.events.records import Answered, CallSettled, CancelRequested, Record, RunEnded
from heaveto.testing.promises import check_promises

CALLS = 1000
STOPS = 60


class Racer:
    """A process, and what it says of each call."""

    def __init__(self, place: Path, name: str, *, stops: bool = False) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.crash.answering"])
        self.pipe: Connection[Any, Any]
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=race, args=(place, theirs, name, stops), daemon=True)
        self._process.start()
        theirs.close()
        assert self.pipe.recv() == "ready"

    def rest(self) -> list[tuple[str, str]]:
        said: list[tuple[str, str]] = []
        while (one := self.pipe.recv()) != "done":
            said.append(one)
        return said

    def end(self) -> None:
        self._process.join(30)
        assert self._process.exitcode == 0


async def _pause(place: Path, calls: int) -> tuple[str, list[str]]:
    async with make_runner(place, calls) as runner:
        run = await runner.start(new_message="pay", **HERE)
        await run.ending_or_pause()
        return run.run_id, [question.call_id for question in await runner.questions(**HERE)]


async def _finish(place: Path, run_id: str) -> list[Record]:
    async with make_runner(place, 1) as runner:
        await runner.recover()
        assert (await (await runner.attach(run_id)).wait()).outcome == "completed"
        return await runner.records(**HERE)


def _race(place: Path, calls: int, *, stops: bool) -> tuple[list[Record], list[list[tuple[str, str]]], list[str]]:
    run_id, call_ids = asyncio.run(_pause(place, calls))
    assert len(call_ids) == calls
    racers = [Racer(place, "ann"), Racer(place, "bob", stops=stops)]
    for racer in racers:
        racer.pipe.send((run_id, call_ids))
    said = [racer.rest() for racer in racers]
    for racer in racers:
        racer.end()
    return asyncio.run(asyncio.wait_for(_finish(place, run_id), 30)), said, call_ids


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_thousand_calls_answered_by_two_processes_at_once(tmp_path: Path) -> None:
    """Each call has one answer and took effect once; both processes are told the same decision, the one who was second
    by a conflict that shows the first (P5, P8; F88, F90, F160)."""
    log, (ann, bob), call_ids = _race(tmp_path, CALLS, stops=False)
    first = {record.call_id: record.by for record in log if isinstance(record, Answered)}
    assert sum(isinstance(record, Answered) for record in log) == len(first) == CALLS
    for call_id, by_ann, by_bob in zip(call_ids, ann, bob, strict=True):
        assert by_ann == ("counts" if first[call_id] == "ann" else "conflict", first[call_id])
        assert by_bob == ("counts" if first[call_id] == "bob" else "conflict", first[call_id])
    effects = Counter((tmp_path / "effects").read_text().split())
    assert effects == Counter(call_ids)
    assert {r.status for r in log if isinstance(r, CallSettled)} == {"succeeded"}
    assert sum(isinstance(record, RunEnded) for record in log) == 1
    check_promises(log, executions=effects)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_answers_and_stops_of_the_same_calls_race(tmp_path: Path) -> None:
    """Never both: a call that was stopped first is not executed and takes no answer (F86, F107)."""
    log, (ann, bob), call_ids = _race(tmp_path, STOPS, stops=True)
    effects = Counter((tmp_path / "effects").read_text().split()) if (tmp_path / "effects").exists() else Counter()
    answered = {record.call_id: record.seq for record in log if isinstance(record, Answered)}
    stopped = {record.call_id: record.seq for record in log if isinstance(record, CancelRequested)}
    status = {record.call_id: record.status for record in log if isinstance(record, CallSettled)}
    for call_id, by_ann, _ in zip(call_ids, ann, bob, strict=True):
        assert (by_ann[0] == "counts") is (call_id in answered)
        if call_id in stopped and stopped[call_id] < answered.get(call_id, len(log) + 1):
            assert call_id not in answered
            assert (status[call_id], effects[call_id]) == ("not_started", 0)
        assert (effects[call_id] > 0) <= (status[call_id] not in ("not_started", "denied"))
        assert effects[call_id] <= 1
    check_promises(log, executions=effects)
