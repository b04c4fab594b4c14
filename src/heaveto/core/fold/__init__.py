"""The fold: what a log means."""

from heaveto.core.fold.session import (
    SHARED_PREFIXES,
    CallState,
    RunState,
    SessionState,
    Thread,
    calls_around,
    effective,
    fold,
    is_within,
    merge_state,
    task_branch,
)

__all__ = [
    "SHARED_PREFIXES",
    "CallState",
    "RunState",
    "SessionState",
    "Thread",
    "calls_around",
    "effective",
    "fold",
    "is_within",
    "merge_state",
    "task_branch",
]
