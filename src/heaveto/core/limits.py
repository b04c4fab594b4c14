"""Budgets of a run: pure checks against what its log says."""

from __future__ import annotations

from heaveto.core.fold import RunState
from heaveto.errors import LimitExceededError, LlmCallsLimitExceededError


def exceeded_limit(run: RunState, *, failed_calls: int = 0) -> LimitExceededError | None:
    """Return which budget forbids one model call more, or None.

    `failed_calls` counts the calls of this attempt that left no message.
    """
    limits = run.limits
    if limits.llm_calls is not None and run.llm_calls + failed_calls >= limits.llm_calls:
        return LlmCallsLimitExceededError(limits.llm_calls)
    if limits.tokens is not None and run.usage.total_tokens >= limits.tokens:
        return LimitExceededError("tokens", limits.tokens)
    if limits.cost is not None and run.usage.cost >= limits.cost:
        return LimitExceededError("cost", limits.cost)
    return None


def seconds_left(run: RunState, now: float) -> tuple[float, LimitExceededError | None] | None:
    """Return how long the run may go on, and the error of the budget that ends it (None for the deadline)."""
    limits = run.limits
    bounds: list[tuple[float, LimitExceededError | None]] = []
    if limits.deadline is not None:
        bounds.append((limits.deadline - now, None))
    if limits.seconds is not None:
        bounds.append(
            (run.started_time + run.idle_seconds + limits.seconds - now, LimitExceededError("seconds", limits.seconds))
        )
    return min(bounds, key=lambda bound: bound[0], default=None)
