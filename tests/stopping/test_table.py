"""What becomes of a call: each kind of tool × each state × each ending, held against the rows of `table`.

All rows of an ending are played at once, each in a session of its own; each is a test. Of the known failures the rows
hold F35, F43, F46, F49, F50, F132 (all rows of the MCP tool share one connection) and F151.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import sys
import tempfile
from pathlib import Path
from typing import get_args

import pytest
from tests.stopping import table
from tests.stopping.play import Played, play_kill, play_stop
from tests.stopping.scene import Facts, executions_of, response_to, text_to
from tests.stopping.table import (
    BECAUSE,
    CAUSES,
    COLUMNS,
    ENDINGS,
    KINDS,
    PAGE,
    TOLD,
    Column,
    Ending,
    Row,
    outcome,
    rows,
)

from heaveto.events.records import CallSettled, RunEnded
from heaveto.testing.promises import check_promises
from heaveto.testing.request_check import find_breach

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")

ROWS = [row for ending in ENDINGS for row in rows(ending)]


@functools.cache
def played(ending: Ending) -> Played:
    """Play an ending, once."""
    with tempfile.TemporaryDirectory() as place:
        gc.collect()  # what earlier tests left may start tasks in a loop that runs when it is collected
        play = play_kill if ending.startswith("kill") else play_stop
        return asyncio.run(play(ending, rows(ending), Path(place)))


def facts_of(row: Row) -> Facts:
    return played(row.ending).facts[row.id]


def name(row: Row) -> str:
    return f"{row.ending}-{row.id}"


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_what_becomes_of_a_call(row: Row) -> None:
    """It is settled, reported, told and left as its row says, and the session's log keeps what is promised of all."""
    _check_settlements(row)
    _check_report(row)
    _check_what_is_told(row)
    _check_what_works_on(row)
    log, whole = facts_of(row).log, played(row.ending)
    told = whole.told if not row.ending.startswith("kill") else None
    check_promises(log, executions=executions_of(log, whole.executions), told=told)


def _check_settlements(row: Row) -> None:
    """The call has the settlements of its row, in order, with the cause of the ending, and its late result."""
    settled = facts_of(row).settled(row.kind)
    late = (row.cell.late,) if row.cell.late is not None else ()
    assert tuple(record.status for record in settled) == row.cell.settled + late
    last = settled[len(row.cell.settled) - 1]
    assert last.cause == (None if last.status in ("succeeded", "failed") else CAUSES[row.ending])
    assert [record.late for record in settled] == [False, *(True for _ in settled[1:])]
    assert _keeps_output(last) == row.cell.output
    assert len(facts_of(row).starts(row.kind)) == row.cell.attempts


def _keeps_output(settled: CallSettled) -> bool:
    kept = (settled.response or {}).get("output")
    return isinstance(kept, str) and kept.startswith(("begun", "piece"))


def _check_report(row: Row) -> None:
    """The stop report names the call with the state of its row; a run that went on has completed."""
    facts = facts_of(row)
    first = next(record for record in facts.log if isinstance(record, RunEnded))
    assert first.outcome == outcome(row)
    report = facts.report if facts.report is not None else first.report
    if row.cell.report is not None:
        assert report is not None
        call_id = facts.call_id(row.kind)
        assert [op.state for op in report.operations if op.call_id == call_id] == [row.cell.report]


def _check_what_is_told(row: Row) -> None:
    """The next request is one that every provider takes, and says of the call what its row says (P1, P2)."""
    facts = facts_of(row)
    request = facts.next_request
    assert request is not None and find_breach(request) is None
    status = row.cell.settled[-1]
    told = response_to(request, row.kind)
    if row.kind.endswith("_over"):  # the model has spoken since it was told that the call goes on
        assert told.response["status"] == "detached"
        assert f"to {row.kind}, {status}" in text_to(request)
    elif status in TOLD:
        assert told.response["error"] == TOLD[status].format(because=BECAUSE[row.ending])
    else:
        assert told.is_error == (status == "failed")
        assert ("error" in told.response) == (status == "failed")
    assert facts.later_request is not None and find_breach(facts.later_request) is None
    if row.cell.late is not None:
        assert f"to {row.kind}, {row.cell.late}" in text_to(facts.later_request)


def _check_what_works_on(row: Row) -> None:
    """When the run has ended, nothing of the call works but what its row names; that ends when it is let go (P3)."""
    facts = facts_of(row)
    assert facts.left == row.cell.left
    assert facts.left_in_the_end == ""


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left(ending: Ending) -> None:
    """When the runner is closed and stragglers are let go, no task, thread, process or file of all of it is there."""
    left = played(ending).left
    assert (left.tasks, left.threads, left.processes, left.files) == ([], [], [], 0)


def test_no_combination_is_left_out_silently() -> None:
    """Each kind × state × ending has a row, or a reason."""
    there = {(row.kind, row.state, row.ending) for row in ROWS}
    for kind, column, ending in itertools.product(KINDS, get_args(Column), ENDINGS):
        reason = table.excluded(kind, column, ending)
        states = [state for state in COLUMNS[column] if state != "lane" or KINDS[kind].blocking]
        assert all(((kind, state, ending) in there) == (not reason) for state in states), (kind, column, ending)


@pytest.mark.parametrize("ending", ["cancel", "deadline", "shutdown", "call"])
@pytest.mark.parametrize(
    ("coroutine", "blocking"),
    [("coroutine", "polite"), ("finish", "hook_returns"), ("finish_slow", "deaf"), ("async_generator", "generator")],
)
def test_def_and_async_def_have_one_contract(ending: Ending, coroutine: str, blocking: str) -> None:
    """What a tool does about a stop decides what becomes of its call, not whether it is a coroutine (F43)."""
    cells = [table.expected(kind, "running", ending) for kind in (coroutine, blocking)]
    assert len({(cell.settled, cell.report, cell.late, cell.output) for cell in cells}) == 1


def test_the_page_shows_the_rows() -> None:
    """The tables of the page are those of the rows; `python -m tests.stopping.table` writes them."""
    assert table.parts(PAGE.read_text(encoding="utf-8")) == table.tables()
