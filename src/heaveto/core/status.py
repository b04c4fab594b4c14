"""The states of runs and of calls, and every legal step between them: one table each.

`advance_*` is total, as the fold must be: a record that does not apply to a state leaves it as it is.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

RunStatus: TypeAlias = Literal["new", "queued", "running", "paused", "cancelling", "completed", "cancelled", "failed"]
RunStep: TypeAlias = Literal["queue", "start", "pause", "cancel", "complete", "fail", "end_cancelled"]

RUN_STEPS: dict[tuple[RunStatus, RunStep], RunStatus] = {
    ("new", "queue"): "queued",
    ("new", "start"): "running",
    # A stop may arrive before a delayed start: it is kept, and the start finds it (F165).
    ("new", "cancel"): "cancelling",
    ("queued", "start"): "running",
    ("queued", "cancel"): "cancelling",
    ("running", "start"): "running",  # a further attempt
    ("running", "pause"): "paused",
    ("running", "cancel"): "cancelling",
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    ("running", "end_cancelled"): "cancelled",  # leftovers that recovery seals for a cause of its own
    ("paused", "start"): "running",
    ("paused", "cancel"): "cancelling",
    ("paused", "fail"): "failed",
    ("paused", "end_cancelled"): "cancelled",  # its calls were declined
    # A stop that was asked for is final: such a run never completes (F151).
    ("cancelling", "start"): "cancelling",
    ("cancelling", "fail"): "failed",
    ("cancelling", "end_cancelled"): "cancelled",
}

TERMINAL: frozenset[RunStatus] = frozenset({"completed", "cancelled", "failed"})

CallPhase: TypeAlias = Literal["proposed", "started", "waiting", "settled"]
CallStep: TypeAlias = Literal["start", "wait", "settle"]

CALL_STEPS: dict[tuple[CallPhase, CallStep], CallPhase] = {
    ("proposed", "start"): "started",
    ("proposed", "wait"): "waiting",
    ("proposed", "settle"): "settled",  # denied, not started, never executable
    ("started", "start"): "started",  # a further attempt
    ("started", "wait"): "waiting",
    ("started", "settle"): "settled",
    ("waiting", "start"): "started",
    ("waiting", "settle"): "settled",
}


def advance_run(status: RunStatus, step: RunStep) -> RunStatus:
    """Return the status after a step; a step that is not legal changes nothing."""
    return RUN_STEPS.get((status, step), status)


def advance_call(phase: CallPhase, step: CallStep) -> CallPhase:
    """Return the phase after a step; a step that is not legal changes nothing."""
    return CALL_STEPS.get((phase, step), phase)
