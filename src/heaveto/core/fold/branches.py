"""Branches: the names of the places in which agents of one run work beside and inside each other.

Below the branch of a `ParallelAgent` each of its agents has one of its own, ``BRANCH.PARALLEL.AGENT``; an agent that a
call gives a task works in ``BRANCH@CALL_ID``.
"""

from __future__ import annotations


def is_within(branch: str, ancestor: str) -> bool:
    """Whether a branch is another one or lies below it. The empty branch is the root of all."""
    return not ancestor or branch == ancestor or branch.startswith((ancestor + ".", ancestor + "@"))


def task_branch(branch: str, call_id: str, number: int) -> str:
    """Return where an agent works for a call that was made in `branch`. It sees its own task only.

    `number` counts from 1 what such tasks the call gives, so that each has a branch of its own.
    """
    return f"{branch}@{call_id}" if number == 1 else f"{branch}@{call_id}~{number}"


def calls_around(branch: str) -> tuple[str, ...]:
    """Return the ids of the calls that the agents in a branch work for, the innermost last."""
    return tuple(part.split(".")[0].split("~")[0] for part in branch.split("@")[1:])
