"""The two tables of states: every pair of status and step, legal or not."""

from __future__ import annotations

from typing import get_args

import pytest

from heaveto.core.status import (
    CALL_STEPS,
    RUN_STEPS,
    TERMINAL,
    CallPhase,
    CallStep,
    RunStatus,
    RunStep,
    advance_call,
    advance_run,
)

STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)
STEPS: tuple[RunStep, ...] = get_args(RunStep)
PHASES: tuple[CallPhase, ...] = get_args(CallPhase)
CALL_MOVES: tuple[CallStep, ...] = get_args(CallStep)

# Rows are statuses, columns the steps queue, start, pause, cancel, complete, fail, end_cancelled; "." is not legal.
RUN_TABLE = """
new         queued  running     .       cancelling  .          .       .
queued      .       running     .       cancelling  .          .       .
running     .       running     paused  cancelling  completed  failed  cancelled
paused      .       running     .       cancelling  .          failed  cancelled
cancelling  .       cancelling  .       .           .          failed  cancelled
completed   .       .           .       .           .          .       .
cancelled   .       .           .       .           .          .       .
failed      .       .           .       .           .          .       .
"""
# Columns are the steps start, wait, settle.
CALL_TABLE = """
proposed  started  waiting  settled
started   started  waiting  settled
waiting   started  .        settled
settled   .        .        .
"""


def cells(table: str, steps: tuple[str, ...]) -> list[tuple[str, str, str]]:
    rows = [line.split() for line in table.strip().splitlines()]
    return [(row[0], step, target) for row in rows for step, target in zip(steps, row[1:], strict=True)]


@pytest.mark.parametrize(("status", "step", "target"), cells(RUN_TABLE, STEPS))
def test_every_step_of_a_run_is_legal_or_changes_nothing(status: RunStatus, step: RunStep, target: str) -> None:
    """The table is what is written here, cell by cell; an illegal step leaves the run as it is."""
    assert ((status, step) in RUN_STEPS) is (target != ".")
    assert advance_run(status, step) == (status if target == "." else target)


@pytest.mark.parametrize(("phase", "step", "target"), cells(CALL_TABLE, CALL_MOVES))
def test_every_step_of_a_call_is_legal_or_changes_nothing(phase: CallPhase, step: CallStep, target: str) -> None:
    """A settled call stays settled; a waiting one may be started by its answer."""
    assert ((phase, step) in CALL_STEPS) is (target != ".")
    assert advance_call(phase, step) == (phase if target == "." else target)


def test_the_tables_here_are_complete() -> None:
    """Every status and every phase has its row, so that a new one cannot be forgotten."""
    assert {row[0] for row in cells(RUN_TABLE, STEPS)} == set(STATUSES)
    assert {row[0] for row in cells(CALL_TABLE, CALL_MOVES)} == set(PHASES)
    assert {key[0] for key in RUN_STEPS} | TERMINAL == set(STATUSES)
    assert {key[0] for key in CALL_STEPS} == set(PHASES) - {"settled"}


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_nothing_leads_out_of_an_ending(status: RunStatus) -> None:
    """A run that has ended never changes again (P7)."""
    assert [step for step in STEPS if (status, step) in RUN_STEPS] == []


def test_a_stop_that_was_asked_for_is_final() -> None:
    """From `cancelling` no chain of steps leads to a completed, a running or a paused run (F151)."""
    reached: set[RunStatus] = {"cancelling"}
    for _ in STATUSES:
        reached |= {advance_run(status, step) for status in reached for step in STEPS}
    assert reached == {"cancelling", "cancelled", "failed"}


@pytest.mark.parametrize("status", STATUSES)
def test_every_open_run_can_be_stopped(status: RunStatus) -> None:
    """There is no status short of an ending in which a stop would be lost."""
    assert status in TERMINAL or advance_run(status, "cancel") == "cancelling"
