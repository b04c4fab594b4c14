"""The fold: what a log means. A cache that is rebuilt from records at any time, and never the truth itself."""

from heaveto.core.fold.branches import calls_around, is_within, task_branch
from heaveto.core.fold.session import SHARED_PREFIXES, SessionState, effective, fold, merge_state
from heaveto.core.fold.states import CallState, RunState, Thread

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
