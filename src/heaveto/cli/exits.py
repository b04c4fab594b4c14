"""Exit codes: stable, so that scripts can tell a stop from a failure (F134)."""

from __future__ import annotations

from typing import assert_never

from heaveto.events.records import OutcomeKind

OK = 0
FAILED = 1
USAGE = 2
WAITING = 3
CANCELLED = 4
INTERRUPTED = 130
"""Ctrl-C, as shells count it: 128 and the number of the signal."""


def exit_code(outcome: OutcomeKind) -> int:
    """Return the exit code of a run that ended like this."""
    match outcome:
        case "completed":
            return OK
        case "failed":
            return FAILED
        case "cancelled":
            return CANCELLED
        case _:
            assert_never(outcome)
