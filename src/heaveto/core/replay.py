"""What becomes of a call that a dead process had started: executed again only where that was, and is, declared safe.

The policy in force when the call was started is stored with it, and the tool may have been changed since. Both must
allow it (F106).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from heaveto.events.records import Replay

Recovery: TypeAlias = Literal["execute", "probe", "unknown"]
"""execute: start a further attempt with the same key. probe: ask the tool what happened. unknown: settle it as that."""


def recover_call(stored: Replay, declared: Replay | None) -> Recovery:
    """Decide about a call in doubt.

    Args:
        stored: the policy that was recorded with its start.
        declared: what its tool says now; None if there is no such tool any more.
    """
    if stored == "never" or declared in (None, "never"):
        return "unknown"
    if declared == "probe":
        return "probe"
    return "unknown" if stored == "probe" else "execute"


def may_resume(*, on_crash: Literal["resume", "seal"], stopped: bool, fruitless: int, max_fruitless: int) -> bool:
    """Whether a run whose process died is continued: never against a stop, and not for ever without getting on.

    Args:
        on_crash: what the run, or its app, wants.
        stopped: a stop was asked for (F107).
        fruitless: how many attempts in a row before this one have brought nothing.
        max_fruitless: how many such attempts are made.
    """
    return on_crash == "resume" and not stopped and fruitless < max_fruitless
